"""Merges of two frames."""

from dgpuhash.frames.merge.verb import merge

__all__ = ["merge"]
