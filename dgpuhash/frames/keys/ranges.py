"""Pack several integer key columns into one by their value ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend, Kernel, kernel_named, struct_named
from dgpuhash.backend.constants import READINGS
from dgpuhash.frames.key_columns import NormalColumn

# Most columns of a key; launch/pack.cuh.
MOST_COLUMNS = 8
_FIELDS = ("values", "nulls", "readings", "leasts", "counts", "radixes")
# The kinds of key columns of which values are integers, and the letter of their dtypes.
LETTERS = {"bool": "u", "uint": "u", "int": "i", "date": "i", "datetime": "i", "timedelta": "i"}


class KeyRanges(NamedTuple):
    """Value ranges of key columns, to pack keys into one integer in a mixed radix.

    Equal codes are equal keys, those with nulls too. A key with a value outside of its column's
    range equals no stored one; its code is the greatest word, which no stored key has.

    Attributes
    ----------
    leasts : list of int
        The least value of each column, as a word that sorts like the integer.
    counts : list of int
        How many values there are from the least to the greatest one.
    radixes : list of int
        The same, and one more in columns with nulls.
    """

    leasts: list[int]
    counts: list[int]
    radixes: list[int]

    @classmethod
    def of(cls, columns: Sequence[NormalColumn], backend: Backend) -> KeyRanges | None:
        """Return the ranges of stored columns; None if they need more than 64 bits."""
        rows, ends = len(columns[0].bits), backend.zeros(2 * len(columns), np.uint64)
        # As many tiles as fill a GPU, each with many rows.
        each = max(2**8, math.ceil(rows / 2**14))
        kernel, tiles = kernel_named("key_ranges"), math.ceil(rows / each)
        _run(backend, kernel, tiles, columns, ends=ends, rows=rows, segment_rows=each)
        words: list[int] = backend.to_host(ends).tolist()
        leasts = [2**64 - 1 - word for word in words[::2]]
        # Without a value the least one is above the greatest.
        counts = [max(0, words[2 * at + 1] - least + 1) for at, least in enumerate(leasts)]
        radixes = [counts[at] + (each.nulls is not None) for at, each in enumerate(columns)]
        return cls(leasts, counts, radixes) if math.prod(radixes) < 2**64 else None

    def codes(self, columns: Sequence[NormalColumn], backend: Backend) -> Any:
        """Return the code of each key, as uint32 if that is enough."""
        word = np.dtype(np.uint32 if math.prod(self.radixes) < 2**32 else np.uint64)
        codes = backend.empty(len(columns[0].bits), word)
        kernel = kernel_named("pack_keys", word)
        _run(backend, kernel, len(codes), columns, *self, codes=codes)
        return codes


def _run(on: Backend, kernel: Kernel, n: int, columns: Any, *ranges: Any, **fields: Any) -> None:
    """Launch a kernel over key columns, with their ranges."""
    values = [on.asarray(column.bits) for column in columns]
    nulls = [None if each.nulls is None else on.asarray(each.nulls) for each in columns]
    names = [f"{LETTERS[each.type.kind]}{each.bits.dtype.itemsize}" for each in columns]
    words = zip(_FIELDS, (values, nulls, map(READINGS.index, names), *ranges), strict=False)
    padded = {name: (*each, *[0] * (MOST_COLUMNS - len(columns))) for name, each in words}
    described = on.pack(struct_named("KeyColumns"), **padded, count=len(columns))
    on.run(kernel, n, columns=described, **fields)
