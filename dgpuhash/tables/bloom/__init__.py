"""Bloom filters: their blocks on key words, and the public noun."""
