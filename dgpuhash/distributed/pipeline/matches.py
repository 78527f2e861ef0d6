"""Answers of a find as the pairs of an inner join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.distributed.pipeline.plan import Chunk
from dgpuhash.tables.bucket_list.pool import owners_of

__all__ = ["matches"]


def matches(
    backend: Backend, chunks: Sequence[Chunk], answers: Sequence[list[Any]], *, lists: bool
) -> list[list[Any]]:
    """For each chunk the numbers of its rows that were found, among those of all, and the values.

    `answers` are values, and a mask or the offsets of lists.
    """
    matched = []
    for chunk, (values, told) in zip(chunks, answers, strict=True):
        if lists:
            rows = _owners(backend, told, len(values))
        else:
            rows = backend.xp.flatnonzero(told)
            values = values[rows]
        matched.append([rows + chunk.first, values])
    return matched


def _owners(backend: Backend, offsets: Any, total: int) -> Any:
    """The row of each value."""
    xp = backend.xp
    filled = xp.flatnonzero(offsets[1:] > offsets[:-1])
    ends = xp.concatenate([xp.zeros(1, np.int64), offsets[1:][filled]])
    return filled[owners_of(backend, ends, total)]
