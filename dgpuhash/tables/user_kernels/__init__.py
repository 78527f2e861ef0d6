"""Kernels and functions of users on a table's entries."""
