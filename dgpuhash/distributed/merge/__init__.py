"""Merges of Dask frames: broadcast, shuffle and aligned joins, and standing indexes."""
