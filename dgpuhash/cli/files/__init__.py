"""Parquet, CSV, JSON and Arrow files read into Dask DataFrames and written from them."""
