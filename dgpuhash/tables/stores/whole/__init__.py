"""What is done with whole tables: their contents, and numbers for all keys."""
