"""Read Parquet, CSV, JSON and Arrow files as Dask DataFrames, and write them."""
