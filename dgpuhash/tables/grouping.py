"""Rows of a batch grouped by key, in input order inside each key."""

from __future__ import annotations

from typing import Any

from dgpuhash.backend import Backend

__all__ = ["group", "winners"]


def group(backend: Backend, bits: Any) -> tuple[Any, Any]:
    """The row order that brings equal keys together, and where each group starts in it.

    Both are int64; the starts end with the number of rows.
    """
    xp = backend.xp
    order = backend.stable_order(bits)
    ordered = bits[order]
    edges = xp.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    ends = [0, len(bits)] if len(bits) else [0]
    starts = xp.empty(len(edges) + len(ends), "i8")
    starts[0] = 0
    starts[1 : 1 + len(edges)] = edges
    starts[-1] = len(bits)
    return order, starts


def winners(backend: Backend, bits: Any, *, last: bool) -> Any:
    """The first, or the last, row of each key."""
    order, starts = group(backend, bits)
    return order[starts[1:] - 1] if last else order[starts[:-1]]
