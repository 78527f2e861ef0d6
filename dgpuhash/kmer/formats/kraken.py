"""Calls as Kraken 2 writes them: status, id, taxid, letters, and runs of k-mers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.kmer.calls import AMBIGUOUS, MATE_BORDER, CalledReads, Calls
from dgpuhash.kmer.formats.labels import Labels, distinct_of
from dgpuhash.kmer.formats.text import (
    at_places,
    bytes_of,
    in_lists,
    joined,
    taken,
    text_scalar,
    texts_of,
)
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of


def kraken_lines(
    reads: CalledReads,
    labels: Labels,
    *,
    has_runs: bool = True,
    is_quick: bool = False,
    use_names: bool = False,
) -> bytes:
    """Return a line for each read: C or U, its id, its taxid, its letters and its details.

    Parameters
    ----------
    reads : CalledReads
        With details, unless `is_quick`.
    labels : Labels
    has_runs : bool
        Whether details are runs of k-mers, in which numbers below 0 are ambiguous k-mers and
        borders of mates. False: candidates.
    is_quick : bool
        Whether Q stands in place of details, as calls do not depend on all k-mers then.
    use_names : bool
        Whether names stand beside taxids.
    """
    if not len(reads):
        return b""
    calls = reads.calls
    # The newline is that of the line before: one text less to join.
    status = taken(["\nU", "\nC"], (calls.taxids != 0).astype(np.int8))
    column = labels.column(calls.taxids, lambda each: labels.texts(each, use_names=use_names))
    details = (
        labels.column(calls.taxids, lambda each: [f"{taxid}:Q" for taxid in each.tolist()])
        if is_quick
        else _details(calls, has_runs)
    )
    columns = [status, reads.ids, column, _letters(reads), details]
    return b"".join([bytes_of(joined(columns))[1:], b"\n"])


def _letters(reads: CalledReads) -> Any:
    first = texts_of(np.diff(reads.reads.offsets))
    if reads.mates is None:
        return first
    return joined([first, texts_of(np.diff(reads.mates.offsets))], b"|")


def _details(calls: Calls, has_runs: bool) -> Any:
    offsets = calls.detail_offsets
    distinct, places = distinct_of(calls.detail_taxids)
    first = distinct.astype(str).astype(object)
    if has_runs:
        first[distinct == AMBIGUOUS] = "A"
        first[distinct == MATE_BORDER] = "|"
    # Many reads have the same details: each is written once.
    both, each = distinct_of(places.astype(np.int64) << 32 | calls.detail_counts)
    places, counts = both >> 32, texts_of(both & 0xFFFFFFFF)
    if has_runs:
        counts = _instead(counts, distinct[places] == MATE_BORDER, b"|")
    pairs = joined([taken(first.tolist(), places), counts], b":")
    texts = in_lists(at_places(pairs, each), offsets, b" ")
    return _instead(texts, offsets[1:] == offsets[:-1], b"0:0")


def _instead(texts: Any, is_other: np.ndarray, other: bytes) -> Any:
    """Return texts with another one in some places."""
    import pyarrow.compute as pc

    if not is_other.any():
        return texts
    return pc.if_else(numbers_of(is_other), text_scalar(other), texts)
