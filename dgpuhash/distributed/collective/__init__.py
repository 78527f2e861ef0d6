"""All-to-all transports between workers: Dask comm, NCCL, CUDA IPC, shared memory."""
