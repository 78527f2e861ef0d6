"""Merges of cuDF frames, whose rows stay in GPU memory."""
