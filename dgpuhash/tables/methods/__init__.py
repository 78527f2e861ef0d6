"""Ways in which a table can store its keys: one module a method."""
