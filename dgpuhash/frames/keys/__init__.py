"""Encoding of key columns as fixed-width codes, and the row table by code."""
