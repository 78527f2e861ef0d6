"""Host strings as Arrow arrays, hashed by the same kernel as on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dgpuhash import backend
from dgpuhash.errors import ShapeError

__all__ = ["ArrowStrings"]

NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
# Of strings that may differ in 8 bytes alone: the most bytes, and how many are looked at first.
_LONGEST, _SAMPLE = 32, 64


class ArrowStrings:
    """Strings of an Arrow array, or a gather of them.

    With `codes`, row i is the string of the array at ``codes[i]`` (-1: null).
    """

    def __init__(self, array: Any, codes: np.ndarray | None = None) -> None:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        self._array = array if array.type == pa.large_string() else array.cast(pa.large_string())
        self._codes = None if codes is None else np.ascontiguousarray(codes, np.int64)

    def __len__(self) -> int:
        return len(self._array if self._codes is None else self._codes)

    @property
    def nulls(self) -> np.ndarray | None:
        """Mask of the nulls, or None when there are none."""
        missing = None
        if self._array.null_count:
            missing = self._array.is_null().to_numpy(zero_copy_only=False)
        if self._codes is None:
            return missing
        absent = self._codes < 0
        if missing is not None:
            absent = absent | missing[np.maximum(self._codes, 0)]
        return absent if absent.any() else None

    def over(self, codes: np.ndarray) -> ArrowStrings:
        """Return a column whose row i is this one's string at ``codes[i]``.

        -1 gives a null.
        """
        return ArrowStrings(self._array, codes)

    def hash(self, seed: int) -> np.ndarray:
        """Return a 64-bit hash of each string; nulls give a constant."""
        if self._codes is not None and len(self._codes) < len(self._array):
            return ArrowStrings(self.flat()).hash(seed)
        if len(self._array) == 0:
            return np.full(len(self), NULL_HASH)
        hashes = backend.get("cpu").hash_strings(*self._spans(), seed)
        if self._array.null_count:
            hashes[self._array.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
        if self._codes is None:
            return hashes
        return np.where(self._codes < 0, NULL_HASH, hashes[np.maximum(self._codes, 0)])

    def words(self) -> np.ndarray | None:
        """Return the strings as numbers, which are equal where the strings are.

        None where there are nulls, and where some have more than 7 bytes, unless all have 8, or all
        have equally many and differ only in 8 bytes side by side, as ``"id0000012345"``.
        """
        rows = len(self._array)
        if self._codes is not None or rows == 0 or self._array.null_count:
            return None
        ends, letters = self._spans()
        nbytes = int(ends[-1] - ends[0])
        if nbytes > 8 * rows:
            return _differing_bytes(ends, letters, nbytes)
        cpu = backend.get("cpu")
        words, others = cpu.empty(rows, np.uint64), np.zeros(1, np.uint32)
        cpu.run(
            backend.kernel_named("string_words"), rows, offsets=ends, bytes=letters, words=words,
            others=others, length=8 if nbytes == 8 * rows else 7,
        )  # fmt: skip
        return None if others[0] else words

    def take(self, rows: Any) -> ArrowStrings:
        """Return the strings at positions `rows`."""
        return ArrowStrings(self._array, rows if self._codes is None else self._codes[rows])

    def equals(self, other: ArrowStrings) -> np.ndarray:
        """Return a mask of the positions with equal strings; two nulls are equal."""
        if len(self) != len(other):
            raise ShapeError(f"{len(self)} and {len(other)} strings cannot be compared by position")
        cpu = backend.get("cpu")
        same = cpu.empty(len(self), np.bool_)
        if not len(self._array) or not len(other._array):
            same[:] = True  # No string is there that is no null.
        else:
            (left, left_bytes, left_rows), (right, right_bytes, right_rows) = (
                (*each._spans(), each._codes) for each in (self, other)
            )
            cpu.run(
                backend.kernel_named("equal_strings"), len(same), equal=same,
                left_offsets=left, left_bytes=left_bytes, left_rows=left_rows,
                right_offsets=right, right_bytes=right_bytes, right_rows=right_rows,
            )  # fmt: skip
        ours, theirs = self.nulls, other.nulls
        if ours is None and theirs is None:
            return same
        ours, theirs = (
            np.zeros(len(same), bool) if each is None else each for each in (ours, theirs)
        )
        return np.where(ours | theirs, ours & theirs, same)

    def _spans(self) -> tuple[np.ndarray, np.ndarray]:
        """Return where the array's strings begin and end, and their bytes."""
        _, offsets, chars = self._array.buffers()
        first = self._array.offset
        ends = np.frombuffer(offsets, np.int64)[first : first + len(self._array) + 1]
        return ends, np.frombuffer(chars if chars is not None else b"", np.uint8)

    def flat(self) -> Any:
        """Return the strings as one Arrow array."""
        if self._codes is None:
            return self._array
        return self._array.take(pa.array(self._codes, mask=self._codes < 0))


def _differing_bytes(ends: np.ndarray, letters: np.ndarray, nbytes: int) -> np.ndarray | None:
    """Return the 8 bytes in which strings of one length differ, as numbers; see `words`.

    A few strings tell which these are, and all are looked at then.
    """
    rows, first = len(ends) - 1, int(ends[0])
    length, rest = divmod(nbytes, rows)
    if rest or length > _LONGEST:
        return None
    some = np.linspace(0, rows - 1, min(rows, _SAMPLE)).astype(np.int64)
    if (ends[some + 1] - ends[some] != length).any():
        return None
    sample = letters[ends[some][:, None] + np.arange(length)]
    places = np.flatnonzero((sample != sample[0]).any(axis=0))
    start = max(0, int(places[-1]) - 7) if len(places) else length - 8
    if (len(places) and places[0] < start) or (np.diff(ends) != length).any():
        return None

    def column(place: int, width: int) -> np.ndarray:
        return np.ndarray(rows, f"u{width}", letters, first + place, (length,))

    for begin, end in ((0, start), (start + 8, length)):
        while begin < end:
            width = next(each for each in (8, 4, 2, 1) if begin + each <= end)
            same = column(begin, width)
            if (same != same[0]).any():
                return None
            begin += width
    return column(start, 8).copy()
