"""Saved indexes and tables, and the durable log of changes."""
