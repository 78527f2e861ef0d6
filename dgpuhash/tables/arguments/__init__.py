"""Arguments of table verbs: checks, casts, encoding and lookup keys."""
