"""Adapter to Dask's internals: RPC, broadcasts, liveness, locality."""
