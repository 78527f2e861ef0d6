"""The lists of a multimap: pools of buckets, and the table that finds them."""
