"""Reads of an index: merges and lookups, with answers in pages."""
