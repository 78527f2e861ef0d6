"""Arrays of any library and dtype as the keys and values of a table."""
