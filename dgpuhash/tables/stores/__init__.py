"""Stores of methods' tables: what every method has in common."""
