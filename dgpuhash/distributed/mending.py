"""Mending: new rows of heavy keys in a part that stays when others are made anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgpuhash.distributed.skew import Heavy
from dgpuhash.frames import FrameIndex, KeyEncoder, frames_of

__all__ = ["Mending"]


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
