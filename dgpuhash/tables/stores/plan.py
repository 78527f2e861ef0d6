"""Plan and counters of a method's tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend


class OnExisting(IntEnum):
    """Effect of an insert on a stored key's value; as in core/outcome.cuh."""

    KEEP = 0
    OVERWRITE = 1
    SUM = 2
    MIN = 3
    MAX = 4
    BIT_OR = 5


class Plan(NamedTuple):
    """Common settings of all tables of one store."""

    backend: Backend
    key: np.dtype[Any]
    """Dtype of the key words that kernels see."""
    value: np.dtype[Any] | None
    settings: Mapping[str, Any]
    seed: int
    """Seed of the first generation."""


class Counters(NamedTuple):
    """Counters of a table in device memory."""

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
        """Slots that no new key can use, tombstones included."""
        return self.occupied + self.erased
