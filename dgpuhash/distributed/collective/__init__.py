"""Transports between ranks: Dask comm, NCCL, CUDA IPC and shared memory."""
