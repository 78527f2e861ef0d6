"""Spec of a Bloom filter: its size from keys and a rate, or from bytes."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.errors import SpecError
from dgpuhash.spec import TableSpec, check_capacity
from dgpuhash.tables.bloom.blocks import BLOCK_NBYTES, blocks_for, keys_for

LOWEST_RATE, HIGHEST_RATE = 0.0005, 0.25
# Numbers of blocks have 32 bits on a device.
_MOST_BLOCKS = 2**32 - 1


class FilterSize(NamedTuple):
    """Size of a filter, as its spec's settings have it."""

    blocks: int
    """Blocks of 32 bytes."""
    capacity: int
    """Distinct keys for which it was made."""

    @classmethod
    def of(cls, spec: TableSpec) -> Self:
        """Return the size from a spec.

        Raises
        ------
        SpecError
            When it has none, or an impossible one.
        """
        settings: dict[str, Any] = dict(spec.settings)
        sizes = [settings.pop(name, None) for name in cls._fields]
        if settings or any(type(size) is not int or size < 0 for size in sizes) or not sizes[0]:
            raise SpecError(
                f"no Bloom filter has the settings {dict(spec.settings)}; make one with "
                "BloomFilter(key_dtype, capacity=)"
            )
        return cls(*sizes)


def bloom_spec(
    key_dtype: DTypeLike,
    capacity: int | None,
    rate: float,
    nbytes: int | None,
    seed: int | None,
    parts: int = 1,
) -> TableSpec:
    """Return the spec of a filter for its constructor's arguments.

    `parts`: devices that share its blocks.

    Raises
    ------
    SpecError
        As `BloomFilter` does.

    Examples
    --------
    >>> FilterSize.of(bloom_spec("int64", None, 0.01, 320, None))
    FilterSize(blocks=10, capacity=243)
    """
    if (capacity is None) == (nbytes is None):
        raise SpecError(
            f"capacity={capacity} and nbytes={nbytes}; give one of the two: the number of keys "
            f"at rate=, or the memory"
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
    if blocks > _MOST_BLOCKS * parts:
        raise SpecError(
            f"a filter of {blocks * BLOCK_NBYTES:,} bytes; one device takes at most "
            f"{_MOST_BLOCKS * BLOCK_NBYTES:,}: choose a higher rate, or a DistributedBloomFilter "
            "on more workers"
        )
    size = FilterSize(blocks, capacity)._asdict()
    return TableSpec.of("bloom_filter", key_dtype, seed=seed, settings=size)


def check_same_shape(mine: TableSpec, other: TableSpec) -> None:
    """Raise SpecError unless filters of two specs can be united."""
    sizes = [FilterSize.of(spec).blocks * BLOCK_NBYTES for spec in (mine, other)]
    for name, ours, theirs in (
        ("key_dtype", mine.key_dtype, other.key_dtype),
        ("nbytes", *sizes),
        ("seed", mine.seed, other.seed),
    ):
        if ours != theirs:
            raise SpecError(
                f"filters of {name} {ours} and {theirs} cannot be united; make both of one key "
                "dtype with the same seed= and capacity= and rate=, or the same nbytes="
            )
