"""Host strings as Arrow arrays, hashed by the same kernel as on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash import backend

__all__ = ["ArrowStrings"]

NULL_HASH = np.uint64(0x9E3779B97F4A7C15)


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
        self._codes = codes

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
        _, offsets, chars = self._array.buffers()
        if len(self._array) == 0:
            return np.full(len(self), NULL_HASH)
        first = self._array.offset
        ends = np.frombuffer(offsets, np.int64)[first : first + len(self._array) + 1]
        letters = np.frombuffer(chars, np.uint8) if chars is not None else np.empty(0, np.uint8)
        hashes = backend.get("cpu").hash_strings(ends, letters, seed)
        if self._array.null_count:
            hashes[self._array.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
        if self._codes is None:
            return hashes
        return np.where(self._codes < 0, NULL_HASH, hashes[np.maximum(self._codes, 0)])

    def words(self) -> np.ndarray | None:
        """Return the strings as numbers, which are equal where the strings are.

        None where they are not all of one length of up to 8 bytes, or there are nulls.
        """
        rows = len(self._array)
        if self._codes is not None or rows == 0 or self._array.null_count:
            return None
        _, offsets, chars = self._array.buffers()
        ends = np.frombuffer(offsets, np.int64)[self._array.offset :][: rows + 1]
        length, rest = divmod(int(ends[-1] - ends[0]), rows)
        if rest or not 0 < length <= 8 or (np.diff(ends) != length).any():
            return None
        letters = np.frombuffer(chars, np.uint8)[ends[0] : ends[-1]].reshape(rows, length)
        made = np.zeros((rows, 8), np.uint8)
        for place in range(length):
            made[:, place] = letters[:, place]
        return made.view(np.uint64)[:, 0]

    def take(self, rows: Any) -> ArrowStrings:
        """Return the strings at positions `rows`."""
        if self._codes is not None:
            return ArrowStrings(self._array, self._codes[rows])
        return ArrowStrings(self._array.take(pa.array(rows)))

    def equals(self, other: Any) -> np.ndarray:
        """Return a mask of the positions with equal strings; two nulls are equal."""
        ours, theirs = self.flat(), other.flat()
        same = pc.fill_null(pc.equal(ours, theirs), False).to_numpy(zero_copy_only=False)
        if ours.null_count and theirs.null_count:
            both = pc.and_(ours.is_null(), theirs.is_null())
            same = same | both.to_numpy(zero_copy_only=False)
        return same

    def flat(self) -> Any:
        """Return the strings as one Arrow array."""
        if self._codes is None:
            return self._array
        return self._array.take(pa.array(self._codes, mask=self._codes < 0))
