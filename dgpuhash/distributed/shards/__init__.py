"""Shards of one worker, and the worker plugin around them."""
