"""Groupby of cuDF frames, with cuDF's dtypes and labels."""
