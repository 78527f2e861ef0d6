"""Column operations without a user's table: joins, groups, reductions."""
