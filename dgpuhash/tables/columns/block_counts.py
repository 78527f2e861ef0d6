"""Pre-aggregate counts of a batch's frequent keys in blocks' shared memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.open_addressing.cardinality import KeySample

# Smaller batches are not worth a sample.
LEAST_ROWS = 2**20
# Rows that a block counts at least.
_SEGMENT_ROWS = 2**15


def counted_by_block(
    backend: Backend, bits: Any, terms: Any, word: np.dtype[Any]
) -> tuple[Any, Any]:
    """Return fewer pairs with equal counts per key, if half of the rows repeat a key.

    Keys may still repeat. Where few rows seem to repeat a key the batch itself is returned.

    Parameters
    ----------
    backend : Backend
    bits : array
        Key words.
    terms : int or array of `word`
        What each row counts.
    word : dtype
        uint32 or uint64, which holds the sum of all `terms`.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> keys = np.zeros(2**20, np.uint32)
    >>> keys, counts = counted_by_block(backend.get("cpu"), keys, 2, np.dtype(np.uint64))
    >>> len(keys) < 100, counts.sum() == 2**21
    (True, np.True_)
    """
    rows, keys = len(bits), words_of(bits)
    if rows < LEAST_ROWS or keys.dtype.itemsize > 8:
        return bits, terms
    sample = KeySample.of(backend, keys)
    if 2 * sample.repeated < sample.rows:
        return bits, terms
    wide = keys.dtype.itemsize == 8 and word.itemsize == 4
    counts = np.dtype(np.uint64) if wide else word
    keys_to, counts_to = backend.empty(rows, keys.dtype), backend.empty(rows, counts)
    listed = backend.zeros(1, np.uint64)
    segments = min(backend.partition_blocks, max(rows // _SEGMENT_ROWS, 1))
    segment_rows = math.ceil(rows / segments)
    given = {"term": terms} if isinstance(terms, int) else {"counts": terms.astype(counts)}
    backend.run(
        kernel_named("count_by_block", keys.dtype, counts), math.ceil(rows / segment_rows),
        keys=keys, keys_to=keys_to, counts_to=counts_to, listed=listed,
        rows=rows, segment_rows=segment_rows, **given,
    )  # fmt: skip
    pairs = int(backend.to_host(listed)[0])
    return keys_to[:pairs], counts_to[:pairs].astype(word)
