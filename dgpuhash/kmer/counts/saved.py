"""Save and load counted k-mers."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import FormatError
from dgpuhash.kmer.counts.fold import CountedKmers, KmerGroups
from dgpuhash.kmer.counts.partitions import PARTS, WORD_BASES, as_text
from dgpuhash.kmer.counts.tally import check_k
from dgpuhash.kmer.sequences.ahead import ahead
from dgpuhash.tables.serialization import Buffers, map_file, write_file

_KIND = "kmer counts"
_WORD = np.dtype(np.uint64)


def save_counts(
    path: str | os.PathLike[str],
    backend: Backend,
    header: Mapping[str, Any],
    edges: Sequence[int],
    groups: KmerGroups,
    *,
    overwrite: bool,
) -> None:
    """Write groups of k-mers atomically."""
    told = {"kind": _KIND, "parts": PARTS, "edges": list(edges), **header}
    write_file(path, told, _Buffers(backend, groups), overwrite=overwrite)


class _Buffers(Mapping[str, np.ndarray]):
    """Arrays of groups by name, copied to the host while they are written."""

    def __init__(self, backend: Backend, groups: KmerGroups) -> None:
        self._backend, self._groups = backend, groups
        fields = ("low", "counts") if groups[0].high is None else ("low", "high", "counts")
        self._names = [f"{field} {at}" for at in range(len(groups)) for field in fields]

    def __getitem__(self, name: str) -> np.ndarray:
        field, at = name.split()
        self._groups.release()
        return self._backend.to_host(getattr(self._groups[int(at)], field))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def load_counts(
    path: str | os.PathLike[str], backend: Backend
) -> tuple[dict[str, Any], list[int], KmerGroups]:
    """Return the header, edges and groups of a file of counts.

    Raises
    ------
    FormatError
        When the file is another one, or damaged.
    """
    header, raw, mapped = map_file(path)
    name = os.fspath(path)
    if header.get("kind") != _KIND:
        raise FormatError(
            f"{name} contains no k-mer counts; pass a file that KmerCounts.save wrote"
        )
    buffers = Buffers(name, raw)
    buffers.check(header["parts"] == PARTS, "its k-mers are dealt out to other parts")
    edges, is_wide = header["edges"], header["k"] > WORD_BASES
    check_k(header["k"])
    whole = (header["k"], *edges, *header["told"].values())
    buffers.check(
        all(type(number) is int for number in whole) and type(header["canonical"]) is bool,
        "its header is malformed",
    )
    buffers.check(
        edges[0] == 0 and edges[-1] == PARTS and all(map(operator.lt, edges, edges[1:])),
        "its groups are not of all parts",
    )
    groups = []
    for number in range(len(edges) - 1):
        low = buffers.get(f"low {number}", _WORD)
        high = buffers.get(f"high {number}", _WORD, len(low)) if is_wide else None
        size = len(raw.get(f"counts {number}", ())) // max(len(low), 1)
        buffers.check(
            size in (1, 2, 4, 8) if len(low) else not size, f"counts {number} have no width"
        )
        counts = buffers.get(f"counts {number}", np.dtype(f"u{size or 1}"), len(low))
        groups.append(
            CountedKmers(
                backend.from_host(low),
                None if high is None else backend.from_host(high),
                backend.from_host(counts),
            )
        )
    # Groups on a GPU are copies.
    return header, edges, KmerGroups(groups, mapped if backend.name == "cpu" else None)


# K-mers that are sorted, or become text, at once.
_PIECE_ROWS = 2**22
_SAMPLED = 2**8
_WORD_BASES = 32


def lines(backend: Backend, groups: KmerGroups, k: int, *, is_sorted: bool) -> Iterator[np.ndarray]:
    """Yield the text of all k-mers in blocks of bytes (uint8, on the host)."""
    pieces = sorted_pieces(backend, groups, k) if is_sorted else iter(groups)
    # NumPy sorts without the GIL, while the piece before becomes text.
    for piece in ahead(pieces) if backend.name == "cpu" else pieces:
        for start in range(0, len(piece), _PIECE_ROWS):
            part = piece.rows(slice(start, start + _PIECE_ROWS))
            yield as_text(backend, part.low, part.high, part.counts, k)


def sorted_pieces(backend: Backend, groups: KmerGroups, k: int) -> Iterator[CountedKmers]:
    """Yield all k-mers sorted, one range of k-mers at a time."""
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


def _borders(backend: Backend, groups: KmerGroups, k: int) -> list[Any]:
    """Return the first bases of each range; None at both ends."""
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
