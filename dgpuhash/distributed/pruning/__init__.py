"""Prune probe keys (a semi-join reduction) before they are sent to their owners."""
