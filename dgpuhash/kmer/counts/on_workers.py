"""Count the k-mers of files on the workers of a Dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from distributed import Client

from dgpuhash import backend as backends
from dgpuhash.errors import SequenceError
from dgpuhash.kmer.cluster import Workers, check_files, seen_by_workers
from dgpuhash.kmer.counts.counting import Bounds, Counted, counts_of
from dgpuhash.kmer.counts.fold import CountedKmers, GroupWriter, KmerGroups
from dgpuhash.kmer.counts.partitions import PARTS, Partitions, SuperKmers, split
from dgpuhash.kmer.counts.tally import Tally
from dgpuhash.kmer.sequences.files import Paths, files_of
from dgpuhash.kmer.sequences.ranges import TextRange, batches_of_range, ranges_of
from dgpuhash.typing import Device

# Text that a task reads, and how much of it has the k-mers that a task counts.
RANGE_NBYTES = 2**25
_RANGES_OF_FOLD = 16
_HELD_NBYTES = 2**28


@dataclass(frozen=True, slots=True)
class CountPlan:
    """Common arguments of all counting tasks.

    Attributes
    ----------
    k : int
    canonical : bool
    bounds : Bounds
    min_quality : int
    batch_letters : int
    memory : int or None
    device : str or None
    edges : tuple of int
        Where the parts of each fold begin, and `PARTS`.
    """

    k: int
    canonical: bool
    bounds: Bounds
    min_quality: int
    batch_letters: int
    memory: int | None
    device: Device | None
    edges: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Told:
    """Statistics of the input that a task read."""

    records: int
    letters: int
    longest: int


def counted_on_workers(
    client: Client, paths: Paths, plan: CountPlan, progress: Callable[[int], object] | None
) -> tuple[Counted, Tally]:
    """Count on workers; return the counts and statistics of the input.

    Ranges of files become super-k-mers where they are read, and these go to the tasks that count
    their parts; what is counted comes here.
    """
    workers, files = Workers(client), files_of(paths)
    check_files(files)
    files = list(map(seen_by_workers, files))
    planned = workers.results([workers.submit(ranges_of, file, RANGE_NBYTES) for file in files])
    n_folds = max(sum(map(len, planned)) // _RANGES_OF_FOLD, len(workers.addresses))
    edges = tuple(np.linspace(0, PARTS, n_folds + 1).astype(int).tolist())
    plan = replace(plan, edges=edges)
    read = [[workers.submit(read_range, part, plan) for part in ranges] for ranges in planned]
    tally = Tally(plan.k, plan.min_quality, progress)
    pieces = []
    for file, ranges in zip(files, read, strict=True):
        made, told = _sound(workers, file, ranges, plan)
        pieces += made
        for each in told:
            tally.add(each.records, each.letters, np.array([each.longest]))
    folds = deque(
        workers.submit(fold_pieces, at, plan, [piece[at] for piece in pieces])
        for at in range(n_folds)
    )
    # What is counted is not kept by the workers.
    del pieces, read, ranges, made
    writer, made_of = GroupWriter(None if plan.memory is None else plan.memory // 2), Counted([])
    try:
        while folds:
            found: Counted = workers.result(folds.popleft())
            made_of.edges += found.edges[:-1]
            for group in found.groups:
                writer.append(group)
            for name in ("inserts", "kmers", "super_kmers", "nbytes", "spilled"):
                setattr(made_of, name, getattr(made_of, name) + getattr(found, name))
        made_of.edges.append(PARTS)
        made_of.groups = writer.finish()
    finally:
        writer.close()
    return made_of, tally


def _sound(
    workers: Workers, file: str, ranges: list[Any], plan: CountPlan
) -> tuple[list[list[Any]], list[_Told]]:
    """Return the pieces of a file's ranges, or of the whole file if a range is invalid."""
    n = len(plan.edges) - 1
    for tasks in (ranges, None):
        if tasks is None:
            # Records and lines of an error are those of the file, and what was a range's alone
            # is none.
            tasks = [workers.submit(read_range, TextRange(file), plan)]
        parts = [workers.split(task, n + 1) for task in tasks]
        try:
            told = workers.results([each[n] for each in parts])
        except SequenceError:
            if len(ranges) == 1:
                raise
            ranges = ranges[:1]
            continue
        return [each[:n] for each in parts], told
    raise AssertionError


def read_range(part: TextRange, plan: CountPlan) -> list[Any]:
    """Return the super-k-mers of a range by counting task, and statistics of the input."""
    backend = backends.get(plan.device)
    tally = Tally(plan.k, plan.min_quality)
    longest = 0
    made: list[list[Any]] = [[] for _ in plan.edges[1:]]
    batches = batches_of_range(part, overlap=plan.k - 1, batch_letters=plan.batch_letters)
    for letters, offsets in tally.letters_of(batches):
        longest = max(longest, int(np.diff(offsets).max(initial=0)))
        if not len(letters):
            continue
        found = split(backend, backend.from_host(letters), backend.from_host(offsets), plan.k)
        for at, (first, last) in enumerate(pairwise(plan.edges)):
            made[at].append(_piece(backend, found, first, last))
    return [*made, _Told(tally.records, tally.letters, longest)]


def _piece(backend: Any, found: SuperKmers, first: int, last: int) -> SuperKmers:
    """Return the super-k-mers of partitions [first, last), on the host."""
    rows, nbytes, kmers = (
        array[first : last + 1]
        for array in (found.first_rows, found.first_bytes, found.first_kmers)
    )
    return SuperKmers(
        # Copies: the rest goes elsewhere.
        np.array(backend.to_host(found.packed[nbytes[0] : nbytes[-1]])),
        np.array(backend.to_host(found.kmers[rows[0] : rows[-1]])),
        *(array - array[0] for array in (rows, nbytes, kmers)),
    )


def fold_pieces(at: int, plan: CountPlan, pieces: list[list[SuperKmers]]) -> Counted:
    """Return the counts of the k-mers of some partitions, on the host."""
    backend = backends.get(plan.device)
    first, last = plan.edges[at : at + 2]
    partitions = Partitions(backend, _HELD_NBYTES if plan.memory is None else plan.memory // 4)
    try:
        for piece in (each for of_range in pieces for each in of_range):
            partitions.append(_widen(backend, piece, first, last))
        made, groups = counts_of(
            backend, partitions, plan.k, canonical=plan.canonical, bounds=plan.bounds,
            memory=plan.memory, span=(first, last),
        )  # fmt: skip
        made.groups = KmerGroups([_on_host(backend, group) for group in groups])
    finally:
        partitions.close()
    return made


def _widen(backend: Any, piece: SuperKmers, first: int, last: int) -> SuperKmers:
    """Return a piece as super-k-mers of all partitions, on the backend."""
    firsts = (
        np.concatenate([np.zeros(first, np.int64), array, np.full(PARTS - last, array[-1])])
        for array in (piece.first_rows, piece.first_bytes, piece.first_kmers)
    )
    return SuperKmers(backend.from_host(piece.packed), backend.from_host(piece.kmers), *firsts)


def _on_host(backend: Any, group: CountedKmers) -> CountedKmers:
    high = None if group.high is None else backend.to_host(group.high)
    return CountedKmers(backend.to_host(group.low), high, backend.to_host(group.counts))
