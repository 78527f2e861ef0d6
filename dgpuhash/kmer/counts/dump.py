"""Counted k-mers as lines of text, in the order of the k-mers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.counts.fold import CountedKmers
from dgpuhash.kmer.counts.groups import Groups
from dgpuhash.kmer.counts.super_kmers import as_text
from dgpuhash.kmer.sequences.ahead import ahead

# K-mers that are sorted, or become text, at once.
_PIECE_ROWS = 2**22
_SAMPLED = 2**8
_WORD_BASES = 32


def lines(backend: Backend, groups: Groups, k: int, *, is_sorted: bool) -> Iterator[np.ndarray]:
    """Yield the text of all k-mers, some bytes (uint8, on the host) at a time."""
    pieces = sorted_pieces(backend, groups, k) if is_sorted else iter(groups)
    # NumPy sorts without the GIL, while the piece before becomes text.
    for piece in ahead(pieces) if backend.name == "cpu" else pieces:
        for start in range(0, len(piece), _PIECE_ROWS):
            part = piece.rows(slice(start, start + _PIECE_ROWS))
            yield as_text(backend, part.low, part.high, part.counts, k)


def sorted_pieces(backend: Backend, groups: Groups, k: int) -> Iterator[CountedKmers]:
    """Yield all k-mers in their order, those between two borders at a time."""
    xp = backend.xp
    for first, last in pairwise(_borders(backend, groups, k)):
        found = []
        for group in groups:
            bases = _first_bases(group, k)
            inside = xp.ones(len(group), bool) if first is None else bases >= first
            if last is not None:
                inside &= bases < last
            found.append(group.rows(inside))
        low = xp.concatenate([each.low for each in found])
        counts = xp.concatenate([each.counts for each in found])
        if found[0].high is None:
            order = xp.argsort(low)
            yield CountedKmers(low[order], None, counts[order])
            continue
        high = xp.concatenate([each.high for each in found])
        order = xp.lexsort(xp.stack([low, high]))
        yield CountedKmers(low[order], high[order], counts[order])


def _borders(backend: Backend, groups: Groups, k: int) -> list[Any]:
    """Return the first bases where pieces begin; None before and behind all."""
    pieces = -(-groups.rows // _PIECE_ROWS)
    if pieces <= 1:
        return [None, None]
    sampled = np.concatenate(
        [
            backend.to_host(_first_bases(group.rows(slice(None, None, _SAMPLED)), k))
            for group in groups
        ]
    )
    sampled.sort()
    at = np.linspace(0, len(sampled), pieces + 1)[1:-1].astype(np.int64)
    return [None, *np.unique(sampled[at]), None]


def _first_bases(group: CountedKmers, k: int) -> Any:
    """Return the first 32 bases of each k-mer, or all, as a number."""
    if group.high is None:
        return group.low
    more = 2 * (k - _WORD_BASES)
    if more == 64:
        return group.high
    return group.high << np.uint64(64 - more) | group.low >> np.uint64(more)
