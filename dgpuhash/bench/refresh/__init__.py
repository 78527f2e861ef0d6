"""Benchmark TPC-H answers under change: incremental updates against recomputation."""
