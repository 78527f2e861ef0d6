"""Benchmarks of dataframe verbs against other libraries."""
