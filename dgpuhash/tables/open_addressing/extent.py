"""Size and occupancy of an open-addressing table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend.constants import BUCKET_BYTES, REGION_SHIFT

# In buckets: as many as a region has, so that few keys leave their region.
_LARGEST_SEGMENT = 2**REGION_SHIFT
# A table is rounded up to whole segments, by less than 1/128 of its size.
_ROUNDING = 128
# Above both this number and this part of all keys, keys have not left their segments by chance. By
# chance less than one of 80 keys strayed in tables with full-size segments, and one of four in
# tables with smaller segments, which a probe sequence leaves sooner, at loads up to 0.99.
_STRAYED_KEYS, _STRAYED_PART, _STRAYED_PART_OF_SMALL = 512, 16, 3


@dataclass(frozen=True, slots=True)
class State:
    """Counters of a table in device memory."""

    occupied: int
    """Keys stored."""
    erased: int
    """Tombstones: slots that erased keys still take."""
    strayed: int
    """Keys stored beyond the segments in which their probe sequences begin."""

    @property
    def taken(self) -> int:
        """Slots that no new key can use."""
        return self.occupied + self.erased


class Extent(NamedTuple):
    """Size of a table in buckets, segments and slots."""

    buckets: int
    segment: int
    """Buckets in a segment."""
    slots: int

    @classmethod
    def of(cls, key: np.dtype[Any], value: np.dtype[Any] | None, slots: int) -> Extent:
        """Return the extent of a table with at least `slots` slots."""
        per_bucket = BUCKET_BYTES // slot_nbytes(key, value)
        wanted = -(-slots // per_bucket)
        segment = min(_LARGEST_SEGMENT, 1 << max(wanted // _ROUNDING, 1).bit_length() - 1)
        buckets = -(-wanted // segment) * segment
        return cls(buckets, segment, buckets * per_bucket)

    def is_crowded(self, state: State) -> bool:
        """Return whether more keys than by chance left their segments.

        A key leaves its segment when it is stored beyond the segment in which its probe sequence
        begins.
        """
        part = _STRAYED_PART if self.segment == _LARGEST_SEGMENT else _STRAYED_PART_OF_SMALL
        return state.strayed > max(_STRAYED_KEYS, state.occupied // part)


def slot_nbytes(key: np.dtype[Any], value: np.dtype[Any] | None) -> int:
    """Return the bytes of a slot.

    Values whose size differs from the key's size are stored in an array of their own.
    """
    return key.itemsize * (2 if value == key else 1)


def reserved_words(key: np.dtype[Any]) -> np.ndarray:
    """Return the key words that mark free slots, in the order of their side slots.

    Examples
    --------
    >>> reserved_words(np.dtype("u4"))
    array([4294967295, 4294967294], dtype=uint32)
    """
    words = [2 ** (8 * key.itemsize) - 1 - aside for aside in range(2)]
    return np.frombuffer(b"".join(it.to_bytes(key.itemsize, "little") for it in words), key)


def side_items(
    state: Any, key: np.dtype[Any], value: np.dtype[Any] | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the keys in side slots by a record of counters, and any values."""
    aside = np.flatnonzero(state["side_present"])
    values = None if value is None else state["side_value"][aside].astype(value)
    return reserved_words(key)[aside], values
