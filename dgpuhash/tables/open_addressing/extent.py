"""How large an open-addressing table is, and how full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend.structs import core, region

__all__ = ["Extent", "State", "slot_nbytes"]

# Of buckets: as many as a region has, so that few keys leave it.
_LARGEST_SEGMENT = 2**region.REGION_SHIFT
# A table is rounded up to whole segments, by less than this part of it.
_ROUNDING = 128
# Keys have strayed for a reason when they are so many, and such a part of all. By chance it was
# less than one of 80 keys in tables with segments of full size, and one of four in smaller ones,
# whose stays are short, at loads up to 0.99.
_STRAYED_KEYS, _STRAYED_PART, _STRAYED_PART_OF_SMALL = 512, 16, 3


@dataclass(frozen=True, slots=True)
class State:
    """What the table counts on its device."""

    occupied: int
    """Keys stored."""
    erased: int
    """Slots that erased keys still take."""
    strayed: int
    """Keys that were stored beyond the segments in which they begin."""

    @property
    def taken(self) -> int:
        """Slots that no new key can have."""
        return self.occupied + self.erased


class Extent(NamedTuple):
    """How large a table is."""

    buckets: int
    segment: int
    """Buckets of a segment."""
    slots: int

    @classmethod
    def of(cls, key: np.dtype[Any], value: np.dtype[Any] | None, slots: int) -> Extent:
        """That of a table with at least so many slots."""
        per_bucket = core.BUCKET_BYTES // slot_nbytes(key, value)
        wanted = -(-slots // per_bucket)
        segment = min(_LARGEST_SEGMENT, 1 << max(wanted // _ROUNDING, 1).bit_length() - 1)
        buckets = -(-wanted // segment) * segment
        return cls(buckets, segment, buckets * per_bucket)

    def crowded(self, state: State) -> bool:
        """Whether far more keys than by chance stand beyond the segments in which they begin."""
        part = _STRAYED_PART if self.segment == _LARGEST_SEGMENT else _STRAYED_PART_OF_SMALL
        return state.strayed > max(_STRAYED_KEYS, state.occupied // part)


def slot_nbytes(key: np.dtype[Any], value: np.dtype[Any] | None) -> int:
    """Bytes of a slot: values of other than the keys' size stand elsewhere."""
    return key.itemsize * (2 if value == key else 1)
