"""Groupby of Dask frames: expressions, tasks, and partial states on workers."""
