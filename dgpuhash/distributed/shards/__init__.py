"""Shards that one worker owns, and the worker plugin that holds them."""
