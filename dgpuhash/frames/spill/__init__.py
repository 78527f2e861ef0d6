"""Rows whose columns beside the key are in a file, read by position."""
