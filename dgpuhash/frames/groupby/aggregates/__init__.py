"""Aggregates of a column by group: the table of them, states, options and results."""
