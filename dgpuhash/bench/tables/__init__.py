"""Benchmarks of tables on one device."""
