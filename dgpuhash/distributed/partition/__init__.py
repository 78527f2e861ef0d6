"""Partition of an index: the shard, owner and epoch of each row."""
