"""Benchmarks of the tables of one device."""
