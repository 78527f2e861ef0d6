"""Parquet and CSV files read into Dask DataFrames and written from them."""
