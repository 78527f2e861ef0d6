"""Mending: new rows of heavy keys in a part that stays when others are made anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgpuhash.distributed.partition.skew import NO_HEAVY, Heavy
from dgpuhash.frames import FrameIndex, KeyEncoder, frames_of

__all__ = ["Lost", "Mending"]


@dataclass(frozen=True, slots=True)
class Lost:
    """What is to be read again.

    Attributes
    ----------
    parts : int
        Of the index.
    gone : frozenset of int
        Those of them whose rows are read again.
    heavy : Heavy
        Keys that had rows in any part; all their rows are read again, and spread anew.
    arrivals : frozenset of int
        Of the rows that are there, where rows have no owner.
    """

    parts: int
    gone: frozenset[int]
    heavy: Heavy = NO_HEAVY
    arrivals: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Mending:
    """The keys whose rows go, and the rows that come in their place."""

    gone: Any
    rows: Any

    @classmethod
    def of(cls, index: FrameIndex, rows: Any, heavy: Heavy, encoder: KeyEncoder) -> Mending:
        """What gives `index` these `rows` of the `heavy` keys, and no others."""
        keys = index.frame(list(encoder.names))
        frames = frames_of(keys)
        among = heavy.among(encoder.encode_rows(keys).codes)
        return cls(frames.take(keys, frames.xp.flatnonzero(among)), rows)

    def carry_out(self, index: FrameIndex) -> None:
        """Change `index`, which is broken should that fail."""
        index.erase(self.gone)
        index.insert(self.rows)
