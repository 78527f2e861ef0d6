"""Reads of an index: merges, lookups and groupbys, with results in pages."""
