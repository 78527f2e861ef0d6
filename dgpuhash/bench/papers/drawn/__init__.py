"""Reproduce the papers' figures: their list, measurements and claims."""
