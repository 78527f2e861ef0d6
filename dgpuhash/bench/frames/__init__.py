"""Benchmark of the verbs of dataframes, beside other libraries."""
