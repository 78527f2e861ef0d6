"""Groupbys of cuDF frames in parts: states are cuDF frames, made and folded on their GPU."""
