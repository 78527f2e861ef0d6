"""Which worker owns which rows, in which state of an index."""
