"""Groupby of frames on one device: pandas' verbs by hash tables."""

from dgpuhash.frames.groupby.verb import groupby

__all__ = ["groupby"]
