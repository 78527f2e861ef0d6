"""Size of a Bloom filter: from keys and a rate, or from bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.errors import SpecError
from dgpuhash.spec import TableSpec, check_capacity
from dgpuhash.tables.bloom.blocks import BLOCK_NBYTES, blocks_for, keys_for

__all__ = ["bloom_spec"]

LOWEST_RATE, HIGHEST_RATE = 0.0005, 0.25


def bloom_spec(
    key_dtype: DTypeLike,
    capacity: int | None,
    rate: float,
    nbytes: int | None,
    seed: int | None,
) -> tuple[TableSpec, int]:
    """Return the spec of a filter, and its capacity.

    Raises
    ------
    SpecError
        As `BloomFilter` does.

    Examples
    --------
    >>> spec, capacity = bloom_spec("int64", None, 0.01, 320, None)
    >>> spec.blocks, capacity
    (10, 243)
    """
    if (capacity is None) == (nbytes is None):
        raise SpecError(
            f"capacity={capacity} and nbytes={nbytes}; give one of both: the keys to hold at "
            "rate=, or the memory to take"
        )
    if not (isinstance(rate, int | float | np.floating) and LOWEST_RATE <= rate <= HIGHEST_RATE):
        raise SpecError(
            f"rate={rate!r}; use a share from {LOWEST_RATE} to {HIGHEST_RATE}, and a HashSet where "
            "no other key may pass"
        )
    if nbytes is None:
        assert capacity is not None
        capacity = check_capacity(capacity)
        blocks = blocks_for(capacity, rate)
    else:
        blocks = check_capacity(nbytes, "nbytes") // BLOCK_NBYTES
        if blocks == 0:
            raise SpecError(f"nbytes={nbytes}; a filter has at least one block of 32 bytes")
        capacity = keys_for(blocks, rate)
    return TableSpec.of("bloom_filter", key_dtype, seed=seed, blocks=blocks), capacity
