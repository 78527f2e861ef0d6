"""Batches of every size on a CPU, beside pandas, Polars, DuckDB and NumPy."""
