"""Room that knows Dask's internals: RPC, broadcasts, liveness, locality."""
