"""String columns in Arrow's layout, hashed and compared by kernels on CPUs and GPUs."""

from __future__ import annotations

import copy
import functools
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dgpuhash import backend
from dgpuhash.backend.constants import NULL_HASH
from dgpuhash.errors import ShapeError
from dgpuhash.typing import Device

# Of strings that may differ in 8 bytes alone: the most bytes, and how many are looked at first.
_LONGEST, _SAMPLE = 32, 64
# Strings whose values are few: the fewest such strings, and the most that a sample has.
_MANY, _OF_MANY = 2**14, 2**12


class Strings:
    """Strings of a column in Arrow's layout, or a lazy gather of them.

    With `codes`, row i is the string of the column at ``codes[i]`` (-1: null). Subclasses read the
    column: `_spans` is where its strings begin and end (int64) and their bytes, `_missing` a mask
    of its nulls or None.
    """

    device: ClassVar[Device]
    _spans: Any
    _missing: Any

    def __init__(self, column: Any, size: int, codes: Any = None) -> None:
        self._column, self._size, self._codes = column, size, codes

    def __len__(self) -> int:
        return self._size if self._codes is None else len(self._codes)

    @property
    def _xp(self) -> Any:
        return backend.get(self.device).xp

    @functools.cached_property
    def nulls(self) -> Any:
        """Mask of the nulls, or None when there are none."""
        if self._codes is None:
            return self._missing
        absent = self._codes < 0
        if self._missing is not None:
            absent |= self._missing[self._xp.maximum(self._codes, 0)]
        return absent if bool(absent.any()) else None

    def over(self, codes: Any) -> Self:
        """Return a column whose row i is this column's string at ``codes[i]``.

        -1 gives a null.
        """
        made = copy.copy(self)
        vars(made).pop("nulls", None)
        made._codes = self._xp.ascontiguousarray(codes, dtype=np.int64)
        return made

    def take(self, rows: Any) -> Self:
        """Return the strings at positions `rows`."""
        return self.over(rows if self._codes is None else self._codes[rows])

    def hash(self, seed: int) -> Any:
        """Return a 64-bit hash of each string; nulls give a constant."""
        codes = self._codes
        once = codes is not None and 0 < self._size < len(codes)
        ends, letters = self._spans
        hashes = backend.get(self.device).hash_strings(
            ends, letters, seed, None if once else codes, self._missing
        )
        if not once:
            return hashes
        return self._xp.where(codes < 0, np.uint64(NULL_HASH), hashes[self._xp.maximum(codes, 0)])

    def equals(self, other: Strings) -> Any:
        """Return a mask of the positions with equal strings; two nulls are equal."""
        if len(self) != len(other):
            raise ShapeError(f"{len(self)} and {len(other)} strings cannot be compared by position")
        device = backend.get(self.device)
        same = device.empty(len(self), np.bool_)
        left, right = ((*each._spans, each._codes, each._missing) for each in (self, other))
        kernel = backend.kernel_named("equal_strings")
        device.run(kernel, len(same), left=left, right=right, equal=same)
        return same


class ArrowStrings(Strings):
    """Strings of an Arrow array, or a lazy gather of them."""

    device = "cpu"

    def __init__(self, array: Any, codes: np.ndarray | None = None) -> None:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        array = array if array.type == pa.large_string() else array.cast(pa.large_string())
        codes = None if codes is None else np.ascontiguousarray(codes, np.int64)
        super().__init__(array, len(array), codes)

    @functools.cached_property
    def _spans(self) -> tuple[np.ndarray, np.ndarray]:
        _, offsets, chars = self._column.buffers()
        first = self._column.offset
        ends = np.frombuffer(offsets or bytes(8), np.int64)[first : first + self._size + 1]
        return ends, np.frombuffer(chars if chars is not None else b"", np.uint8)

    @functools.cached_property
    def _missing(self) -> np.ndarray | None:
        if not self._column.null_count:
            return None
        return self._column.is_null().to_numpy(zero_copy_only=False)

    def dictionary_codes(self) -> np.ndarray | None:
        """Return a number from 0 up for each string, equal for equal strings.

        None where there are nulls, and unless many strings have few values, as a sample tells: a
        dictionary of more values is not in the cache.
        """
        rows, array = self._size, self._column
        if self._codes is not None or rows < _MANY or array.null_count:
            return None
        some = np.random.default_rng(rows).integers(0, rows, min(rows >> 7, _OF_MANY))
        if 4 * len(array.take(pa.array(some)).unique()) > 3 * len(some):
            return None
        codes: np.ndarray = array.dictionary_encode().indices.to_numpy()
        return codes

    def words(self) -> np.ndarray | None:
        """Return integers in place of the strings, equal where strings are equal.

        None where there are nulls, and where some have more than 7 bytes, unless all have 8, or all
        have equally many and differ only in 8 bytes side by side, as ``"id0000012345"``.
        """
        rows = self._size
        if self._codes is not None or rows == 0 or self._column.null_count:
            return None
        ends, letters = self._spans
        nbytes = int(ends[-1] - ends[0])
        if nbytes > 8 * rows:
            return _differing_bytes(ends, letters, nbytes)
        return self._words_of(8 if nbytes == 8 * rows else 7)

    def short_words(self) -> np.ndarray | None:
        """Return strings of at most 7 bytes as integers comparable across columns.

        None where some are longer. Numbers of nulls are arbitrary.
        """
        ends = self._spans[0]
        if self._codes is not None or self._size == 0 or ends[-1] - ends[0] > 7 * self._size:
            return None
        return self._words_of(7)

    def _words_of(self, length: int) -> np.ndarray | None:
        cpu, (ends, letters) = backend.get("cpu"), self._spans
        words, others = cpu.empty(self._size, np.uint64), np.zeros(1, np.uint32)
        cpu.run(
            backend.kernel_named("string_words"), self._size, offsets=ends, bytes=letters,
            words=words, others=others, length=length,
        )  # fmt: skip
        return None if others[0] else words

    def flat(self) -> Any:
        """Return the strings as one Arrow array."""
        if self._codes is None:
            return self._column
        return self._column.take(pa.array(self._codes, mask=self._codes < 0))


def _differing_bytes(ends: np.ndarray, letters: np.ndarray, nbytes: int) -> np.ndarray | None:
    """Return as integers the 8 bytes in which strings of one length differ; see `words`.

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
