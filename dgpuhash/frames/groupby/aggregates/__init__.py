"""Aggregates of a column by group: their table, states, options and results."""
