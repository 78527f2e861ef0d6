"""Groups of a frame's rows, and their aggregates."""

from dgpuhash.frames.groupby.verb import groupby

__all__ = ["groupby"]
