"""Stores of all methods but auto: recipes, growth and atomic changes."""
