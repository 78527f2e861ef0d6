"""Page of Dask's dashboard: indexes, tables, shards and bulk work of a cluster."""
