"""Index of rows on the workers: build, lookups, changes and rebuilds through a handle."""
