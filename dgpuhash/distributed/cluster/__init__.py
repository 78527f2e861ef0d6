"""How this library speaks to Dask: remote calls, broadcasts, liveness and locality of workers."""
