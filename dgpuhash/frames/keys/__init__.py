"""Encode key columns as fixed-width codes, and map codes to rows."""
