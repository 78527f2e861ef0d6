"""Symmetric DUST by its definition: all intervals of a window, the shortest ones first."""

from __future__ import annotations

import re

import numpy as np

WINDOW, THRESHOLD = 64, 2.0


def dust(letters: str) -> str:
    """Return letters with N in place of those of low complexity."""
    found = list(letters)
    for run in re.finditer("[ACGTacgt]+", letters):
        for at in np.flatnonzero(_masked(run.group().upper())).tolist():
            found[run.start() + at] = "N"
    return "".join(found)


def _masked(bases: str) -> np.ndarray:
    """Return whether each base is in an interval above the threshold, none in which is higher."""
    is_masked = np.zeros(len(bases), bool)
    kinds = np.array(["ACGT".index(base) for base in bases])
    triplets = kinds[:-2] * 16 + kinds[1:-1] * 4 + kinds[2:] if len(bases) > 2 else kinds[:0]
    n = len(triplets)
    pairs, highest = np.zeros(n), np.zeros(n)
    for size in range(2, min(n, WINDOW - 2) + 1):
        starts = n - size + 1
        # Pairs of the last triplet with those before it in the interval.
        last = triplets[size - 1 :]
        added = sum(triplets[back : back + starts] == last for back in range(size - 1))
        pairs = pairs[:starts] + added
        inner = np.maximum(highest[:-1], highest[1:])[:starts]
        scores = pairs / (size - 1)
        for start in np.flatnonzero((scores > THRESHOLD) & (scores >= inner)).tolist():
            is_masked[start : start + size + 2] = True
        highest = np.maximum(inner, scores)
    return is_masked
