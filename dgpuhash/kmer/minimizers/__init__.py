"""Minimizers in a map to lowest common ancestors: Kraken 2's rule."""
