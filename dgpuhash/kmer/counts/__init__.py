"""Exact counts of k-mers."""
