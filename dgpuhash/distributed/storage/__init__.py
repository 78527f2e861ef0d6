"""Saved indexes and tables, and the write-ahead log of durable indexes."""
