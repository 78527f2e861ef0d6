"""Rows of a batch grouped by key, in input order inside each key."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables.storage import Storage

__all__ = ["group", "winners"]

# Below, sorting is cheaper than asking a table which keys come more than once.
_FEW_ROWS = 4096


def group(backend: Backend, bits: Any) -> tuple[Any, Any]:
    """The row order that brings equal keys together, and where each group starts in it.

    Both are int64; the starts end with the number of rows. Where sorting is slow, only rows whose
    key comes more than once are sorted, and the others follow them.
    """
    xp, rows = backend.xp, len(bits)
    if backend.sorts_fast or rows <= _FEW_ROWS:
        return _sorted_groups(backend, bits)
    seen = Storage(backend, bits.dtype, None)
    doubled = bits[xp.flatnonzero(seen.insert(bits, None) == 0)]
    if len(doubled) == 0:
        return xp.arange(rows, dtype=np.int64), xp.arange(rows + 1, dtype=np.int64)
    if 2 * len(doubled) > rows:
        return _sorted_groups(backend, bits)
    seen.clear()
    seen.add(doubled, None)
    contested = seen.contains(bits)
    shared, single = xp.flatnonzero(contested), xp.flatnonzero(~contested)
    order, starts = _sorted_groups(backend, bits[shared])
    alone = xp.arange(len(shared) + 1, rows + 1, dtype=np.int64)
    return xp.concatenate([shared[order], single]), xp.concatenate([starts, alone])


def winners(backend: Backend, bits: Any, *, last: bool) -> Any:
    """The first, or the last, row of each key."""
    order, starts = group(backend, bits)
    return order[starts[1:] - 1] if last else order[starts[:-1]]


def _sorted_groups(backend: Backend, bits: Any) -> tuple[Any, Any]:
    xp = backend.xp
    order = backend.stable_order(bits)
    ordered = bits[order]
    edges = backend.full(len(bits) + 1, True, bool)
    xp.not_equal(ordered[1:], ordered[:-1], out=edges[1:-1])
    return order, xp.flatnonzero(edges)
