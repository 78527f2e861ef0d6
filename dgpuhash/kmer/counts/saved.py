"""Files of counted k-mers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import FormatError
from dgpuhash.kmer.counts.fold import CountedKmers
from dgpuhash.kmer.counts.super_kmers import PARTS, WORD_BASES
from dgpuhash.tables.serialization import Buffers, read_file, write_file

__all__ = ["load_counts", "save_counts"]

_KIND = "kmer counts"
_WORD = np.dtype(np.uint64)


def save_counts(
    path: str | os.PathLike[str],
    backend: Backend,
    header: Mapping[str, Any],
    edges: Sequence[int],
    groups: Sequence[CountedKmers],
    *,
    overwrite: bool,
) -> None:
    """Write groups of k-mers, whole or not at all."""
    buffers: dict[str, np.ndarray] = {}
    for number, group in enumerate(groups):
        buffers[f"low {number}"] = backend.to_host(group.low)
        if group.high is not None:
            buffers[f"high {number}"] = backend.to_host(group.high)
        buffers[f"counts {number}"] = backend.to_host(group.counts)
    told = {"kind": _KIND, "parts": PARTS, "edges": list(edges), **header}
    write_file(path, told, buffers, overwrite=overwrite)


def load_counts(
    path: str | os.PathLike[str], backend: Backend
) -> tuple[dict[str, Any], list[int], list[CountedKmers]]:
    """Return the header, the edges and the groups of a file that `save_counts` wrote.

    Raises
    ------
    FormatError
        When the file is another one, or damaged.
    """
    header, raw = read_file(path)
    name = os.fspath(path)
    if header.get("kind") != _KIND:
        raise FormatError(f"{name} has no counts of k-mers; pass what KmerCounts.save wrote")
    buffers = Buffers(name, raw)
    buffers.check(header["parts"] == PARTS, "its k-mers are dealt out to other parts")
    edges, is_wide = header["edges"], header["k"] > WORD_BASES
    groups = []
    for number in range(len(edges) - 1):
        low = buffers.get(f"low {number}", _WORD)
        high = buffers.get(f"high {number}", _WORD, len(low)) if is_wide else None
        size = len(raw.get(f"counts {number}", ())) // max(len(low), 1)
        buffers.check(not len(low) or size in (1, 2, 4, 8), f"counts {number} have no width")
        counts = buffers.get(f"counts {number}", np.dtype(f"u{size or 1}"), len(low))
        groups.append(
            CountedKmers(
                backend.from_host(low),
                None if high is None else backend.from_host(high),
                backend.from_host(counts),
            )
        )
    return header, edges, groups
