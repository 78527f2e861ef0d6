"""Calls and abundances as MetaCache writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dgpuhash.kmer.calls import CalledReads
from dgpuhash.kmer.formats.labels import Labels, distinct_of
from dgpuhash.kmer.formats.text import bytes_of, in_lists, joined, taken, texts_of
from dgpuhash.kmer.taxonomy.ranks import SLOTS, slots_of

_BETWEEN = "\t|\t"
METACACHE_HEAD = f"# TABLE_LAYOUT: query_header{_BETWEEN}top_hits{_BETWEEN}rank:taxname\n".encode()


def metacache_lines(reads: CalledReads, labels: Labels, *, use_names: bool = False) -> memoryview:
    """Return a line for each read: its id, its candidates with their hits, and rank and name.

    Ranks are the levels of ranked lineages, such as domain for superkingdom. Candidates that are
    sequences have their ids; ``--`` stands for no call.

    Parameters
    ----------
    reads : CalledReads
        With details, which are candidates.
    labels : Labels
    use_names : bool
        Whether taxids stand beside names.
    """

    def called(calls: np.ndarray) -> list[str]:
        return [f"{text}\n" for text in _rank_texts(labels, calls, with_taxids=use_names)]

    calls = reads.calls
    columns = [reads.ids, _candidates(reads, labels), labels.column(calls.taxids, called)]
    return bytes_of(joined(columns, _BETWEEN.encode()))


def _candidates(reads: CalledReads, labels: Labels) -> Any:
    calls = reads.calls
    distinct, places = distinct_of(calls.detail_taxids)
    sequences = labels.names(np.minimum(distinct, 0))
    first = [
        str(taxid) if taxid >= 0 else name
        for taxid, name in zip(distinct.tolist(), sequences, strict=True)
    ]
    pairs = joined([taken(first, places), texts_of(calls.detail_counts)], b":")
    return in_lists(pairs, calls.detail_offsets, b",")


def _rank_texts(labels: Labels, calls: np.ndarray, *, with_taxids: bool = False) -> list[str]:
    ranks = labels.ranks(calls)
    slots = slots_of(ranks).tolist()
    levels = [SLOTS[slot] if slot >= 0 else rank for slot, rank in zip(slots, ranks, strict=True)]
    columns = zip(calls.tolist(), levels, labels.names(calls), strict=True)
    return [
        f"{rank}:{name}" + (f"({call})" if with_taxids else "") if call else "--"
        for call, rank, name in columns
    ]


def abundance_lines(
    labels: Labels, calls: np.ndarray, counts: np.ndarray, title: Iterable[str] = ()
) -> Iterator[str]:
    """Yield lines of rank and name, taxid, number of reads and its share of all.

    Parameters
    ----------
    labels : Labels
    calls : array of int64
        Distinct, in the order of the lines; 0 last, for reads without a taxon.
    counts : array of int or float
        How many reads each has.
    title : iterable of str
        Lines before.
    """
    yield from title
    yield f"# rank:name{_BETWEEN}taxid{_BETWEEN}number of reads{_BETWEEN}abundance"
    total = float(counts.sum())
    taxids = labels.lifted(calls).tolist()
    columns = zip(_rank_texts(labels, calls), taxids, counts.tolist(), strict=True)
    for text, taxid, count in columns:
        share = f"{100 * count / total if total else 0:.6g}%"
        if taxid or text != "--":
            yield _BETWEEN.join([text, str(taxid), f"{count:.15g}", share])
        else:
            yield _BETWEEN.join(["unclassified", "--", "0", f"{count:.15g}", share])


def lineage_lines(labels: Labels) -> Iterator[str]:
    """Yield a line for each target: its name, its number and its taxids up to the domain."""
    yield "\t".join(["name", *SLOTS[:-1]])
    numbers = -1 - np.arange(len(labels.targets.names))
    rows = labels.lineages(numbers)[:, :-1].tolist()
    for name, row in zip(labels.targets.names, rows, strict=True):
        yield "\t".join([name, *map(str, row)])
