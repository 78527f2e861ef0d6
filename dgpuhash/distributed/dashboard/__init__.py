"""Page of Dask's dashboard with the indexes and tables of a cluster, their shards and work."""
