"""Count k-mers out of core: partition batches of letters, then count group by group."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SpecError
from dgpuhash.kmer.counts.fold import CountedKmers, Fold, GroupWriter, KmerGroups
from dgpuhash.kmer.counts.partitions import PARTS, Partitions, split, unpack
from dgpuhash.kmer.sequences.ahead import threads_of_a_generator
from dgpuhash.tables.stores.method import methods

Item = TypeVar("Item")
Result = TypeVar("Result")

# K-mers that one table counts: on a CPU it lies in the caches.
_GROUP_KMERS = {"cpu": 2**16, "cuda": 2**26}
# Groups at once: what runs in Python beside the kernels takes a quarter of a CPU's time.
_FOLDS = {"cpu": 3, "cuda": 1}
# Bytes of super-k-mers that are held before they go to a file.
_HELD_NBYTES = 2**28
# Bytes for each k-mer of a group: words, their table while it grows, and the result.
_KMER_NBYTES = 96


@dataclass(frozen=True, slots=True)
class Bounds:
    """Smallest and largest counts to keep.

    Attributes
    ----------
    least : int
    most : int or None
    """

    least: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        if self.least < 1 or (self.most is not None and self.most < self.least):
            raise SpecError(
                f"min_count={self.least}, max_count={self.most}; use 1 or more, in this order"
            )

    def of(self, found: CountedKmers) -> CountedKmers:
        """Return the k-mers within the bounds."""
        if self.least <= 1 and self.most is None:
            return found
        kept = found.counts >= np.uint64(self.least)
        if self.most is not None:
            kept &= found.counts <= np.uint64(self.most)
        return found.rows(kept)


@dataclass(slots=True)
class Counted:
    """Counted k-mers of an input, in groups of neighbouring partitions.

    Attributes
    ----------
    edges : list of int
        The first part of each group, and the number of parts.
    groups : Groups
    inserts : int
        Calls of a table's insert.
    kmers, super_kmers, nbytes, spilled : int
        K-mers that were counted, super-k-mers, their bytes, and those bytes that went through a
        file.
    """

    edges: list[int]
    groups: KmerGroups = field(default_factory=KmerGroups)
    inserts: int = 0
    kmers: int = 0
    super_kmers: int = 0
    nbytes: int = 0
    spilled: int = 0

    @property
    def told(self) -> dict[str, int]:
        """Statistics of the input, by name."""
        return {
            "kmers": self.kmers,
            "super_kmers": self.super_kmers,
            "super_kmer_nbytes": self.nbytes,
            "spilled": self.spilled,
            "inserts": self.inserts,
        }


def count(
    backend: Backend,
    batches: Iterable[tuple[Any, Any]],
    k: int,
    *,
    canonical: bool,
    bounds: Bounds,
    memory: int | None,
) -> Counted:
    """Count the k-mers of batches of letters and offsets.

    Parameters
    ----------
    backend : Backend
        Where the batches are.
    batches : iterable of (letters, offsets)
    k : int
    canonical : bool
        Whether a k-mer and its reverse complement are one.
    bounds : Bounds
        Of the counts that are kept.
    memory : int or None
        Bytes: super-k-mers, and what was counted, go to files above that.
    """
    held = _HELD_NBYTES if memory is None else memory // 4
    partitions = Partitions(backend, held)
    # Groups on a GPU stay there.
    writer = GroupWriter(None if memory is None or backend.name != "cpu" else memory // 2)
    try:
        for letters, offsets in batches:
            if len(letters):
                partitions.append(split(backend, letters, offsets, k))
        made, groups = counts_of(
            backend, partitions, k, canonical=canonical, bounds=bounds, memory=memory
        )
        for group in groups:
            writer.append(group)
        made.groups = writer.finish()
    finally:
        partitions.close()
        writer.close()
    return made


def counts_of(
    backend: Backend,
    partitions: Partitions,
    k: int,
    *,
    canonical: bool,
    bounds: Bounds,
    memory: int | None,
    span: tuple[int, int] = (0, PARTS),
) -> tuple[Counted, Iterator[CountedKmers]]:
    """Return statistics of partitioned super-k-mers, and an iterator of their counted groups.

    Calls of inserts are told when the iterator has ended. `span`: the parts that have some.
    """
    group_kmers = _GROUP_KMERS[backend.name]
    if memory is not None:
        group_kmers = min(group_kmers, memory // 8 // _KMER_NBYTES)
    first, last = span
    inside = [edge for edge in partitions.groups(group_kmers) if first < edge < last]
    made = Counted(
        [first, *inside, last], kmers=int(partitions.kmers.sum()),
        super_kmers=partitions.super_kmers, nbytes=partitions.nbytes, spilled=partitions.spilled,
    )  # fmt: skip

    # Each thread's table.
    held = threading.local()

    def folded(span: tuple[int, int]) -> tuple[CountedKmers, int]:
        # Parts are not divided: a group is seldom much larger, but may be by far.
        expected = min(int(partitions.kmers[slice(*span)].sum()), 2 * group_kmers)
        fold = Fold(backend, expected, k, getattr(held, "table", None))
        held.table = fold.table
        for packed, kmers in partitions.read(*span, 2 * group_kmers):
            fold.add(*unpack(backend, packed, kmers, k, canonical=canonical))
        return bounds.of(fold.result()).narrow(), fold.inserts

    def groups() -> Iterator[CountedKmers]:
        spans = pairwise(made.edges)
        for group, inserts in _side_by_side(folded, spans, _FOLDS[backend.name]):
            made.inserts += inserts
            yield group

    return made, groups()


def sum_counts(backend: Backend, k: int, one: Counted, other: Counted) -> Counted:
    """Return the edges and groups of the sum of two counts."""
    edges = sorted({*one.edges} & {*other.edges})
    groups = []
    for first, last in pairwise(edges):
        parts = [
            part
            for each in (one, other)
            for part in each.groups[each.edges.index(first) : each.edges.index(last)]
        ]
        fold = Fold(backend, max(map(len, parts)), k)
        for part in parts:
            if len(part):
                fold.add(part.low, part.high, part.counts)
        groups.append(fold.result().narrow())
    return Counted(edges, KmerGroups(groups))


def _side_by_side(
    call: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Yield the results of calls in order, running several at once."""
    if threads == 1:
        yield from map(call, items)
        return
    running: deque[Future[Result]] = deque()
    # They are imported here, and not by several threads.
    methods()
    with threads_of_a_generator(threads, "dgpuhash-fold") as pool:
        for item in items:
            running.append(pool.submit(call, item))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
