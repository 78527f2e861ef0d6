"""Building and changing an index: partitioning, shuffling, and the two-phase commit."""
