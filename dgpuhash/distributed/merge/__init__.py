"""Merges of two Dask frames: an index that lives as long as the tasks that ask it."""
