"""Builds and changes of an index: partition, shuffle, two-phase commit."""
