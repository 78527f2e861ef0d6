"""Partition of an index: which shard owns which rows, at which epoch."""
