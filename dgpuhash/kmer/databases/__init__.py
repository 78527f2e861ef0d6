"""What databases of both rules have in common: where they came from, merges, sizes."""
