"""What tables of a method have in common, and what they count."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend


class OnExisting(IntEnum):
    """What an insert does to the value of a key that is stored; as in core/outcome.cuh."""

    KEEP = 0
    OVERWRITE = 1
    SUM = 2
    MIN = 3
    MAX = 4
    BIT_OR = 5


class Plan(NamedTuple):
    """What all tables of one store have in common."""

    backend: Backend
    key: np.dtype[Any]
    """Dtype of the key words that kernels see."""
    value: np.dtype[Any] | None
    settings: Mapping[str, Any]
    seed: int
    """Seed of the first generation."""


class Counters(NamedTuple):
    """Counters that a table keeps on its device."""

    occupied: int
    """Keys stored; of lists, their values."""
    erased: int
    """Marks that erased keys left."""
    pending: int
    """Rows that found no place in the last launch that counted them."""
    links: int
    """The method's own: slabs, buckets, … taken."""

    @property
    def taken(self) -> int:
        """Places that no new key can use, as far as marks are never used again."""
        return self.occupied + self.erased
