"""Methods: algorithms for storing a table's keys, one module each."""
