"""Merges and groupbys of more than the memory of their workers."""
