"""Parquet and CSV files as Dask DataFrames, and back."""
