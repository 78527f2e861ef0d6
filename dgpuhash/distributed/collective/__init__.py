"""Transports between ranks: all-to-all over Dask's comm, NCCL, CUDA IPC and shared memory."""
