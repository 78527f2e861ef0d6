"""Benchmarks of the exchange and of distributed indexes and tables."""
