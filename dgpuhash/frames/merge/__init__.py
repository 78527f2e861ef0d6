"""Merges of two frames on one device."""

from dgpuhash.frames.merge.verb import merge

__all__ = ["merge"]
