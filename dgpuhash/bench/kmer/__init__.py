"""Benchmarks of k-mers: counting, building and classifying against biologists' programs."""
