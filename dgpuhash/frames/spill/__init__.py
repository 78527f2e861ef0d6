"""Spill rows to a file: keys stay in memory, other columns are read by position."""
