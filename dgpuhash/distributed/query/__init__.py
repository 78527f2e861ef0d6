"""Reading an index: merges, lookups, and the pages that answers come in."""
