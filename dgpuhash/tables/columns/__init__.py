"""Operations on columns that need no table of the user's: joins, groups and reductions."""
