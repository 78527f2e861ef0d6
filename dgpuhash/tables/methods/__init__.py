"""Ways in which a table can store its keys: one module a method."""

from dgpuhash.tables.methods.method import Method, methods

__all__ = ["Method", "methods"]
