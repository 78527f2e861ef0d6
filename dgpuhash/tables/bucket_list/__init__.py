"""Value lists of a multimap: pool of buckets, entries and grouping."""
