"""Kraken 2's rule: a map from minimizers to lowest common ancestors."""
