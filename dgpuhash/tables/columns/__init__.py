"""Column functions without a table of the user's: joins, groups and reductions."""
