"""Run user kernels and functions on a table's entries."""
