"""Partial aggregation of cuDF frames, with states as cuDF frames on their GPU."""
