"""Parts of an index of minimizers, and calls by them, as tasks make both."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import SequenceError
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.databases.owners import dealt, on_device, part_numbers, stay_on_device
from dgpuhash.kmer.databases.part_files import PartArrays, part_arrays
from dgpuhash.kmer.index_file import read_index
from dgpuhash.kmer.minimizers.building import BATCH_LETTERS, empty_table
from dgpuhash.kmer.minimizers.calling import FoundRuns, called, joined, with_details
from dgpuhash.kmer.minimizers.index import MinimizerIndex
from dgpuhash.kmer.minimizers.reads import Reads, slices
from dgpuhash.kmer.minimizers.runs import MinimizerRuns, minimizer_runs
from dgpuhash.kmer.minimizers.saved import arrays_of, items_of, load_table
from dgpuhash.kmer.minimizers.seen_on_workers import SeenOfBatch
from dgpuhash.kmer.minimizers.settings import CallOptions, MinimizerSettings
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.sequences.batches import QUALITY_OFFSET
from dgpuhash.kmer.target_runs import TargetRun
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashMap, lca
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Device

_NODE = np.dtype(np.uint32)
# The share of different minimizers from which on those of a run are not folded: to find the others
# takes as long as to fold all of them once more. One in so many is looked at.
_MOSTLY, _SAMPLED = 0.7, 2**6
# Places for each minimizer that is expected.
_ROOM = 1.1


@dataclass(frozen=True, slots=True)
class MinimizerPart:
    """Minimizers and the taxids of their lowest common ancestors; a task's result.

    Attributes
    ----------
    table : HashMap
        Of minimizers to numbers of a taxonomy.
    taxids : array
        Of these numbers.
    """

    table: HashMap
    taxids: np.ndarray

    def __sizeof__(self) -> int:
        return self.table.nbytes + 2**10


@dataclass(frozen=True, slots=True)
class _Mates:
    """The runs of first or second mates of some reads; where their minimizers went."""

    offsets: Any
    places: Any
    runs: MinimizerRuns
    rows: list[Any]


def context_of(
    settings: MinimizerSettings, taxonomy: Taxonomy, targets: Targets, device: Device | None
) -> MinimizerIndex:
    """Return an index of the targets that has no minimizers."""
    backend = backends.get(device)
    told: dict[str, Any] = {"letters": int(targets.lengths.sum()), "notes": []}
    return MinimizerIndex(backend, settings, taxonomy, targets, empty_table(backend.name), told)


def minimizers_of_run(context: MinimizerIndex, run: TargetRun, n: int, nbytes: int) -> list[Any]:
    """Return minimizers of a run, and their taxa's numbers, for each of n owners.

    Those that a run has several times are folded here where they are many. All runs together have
    about `nbytes` for an owner.
    """
    backend, settings = context._backend, context.settings
    numbers = context.taxonomy.numbers(context.targets.taxids).astype(_NODE)
    batches = run.batches(overlap=settings.k - 1, batch_letters=BATCH_LETTERS[backend.name])
    put, found = backend.from_host, list[tuple[Any, Any]]()
    for batch in batches:
        runs = minimizer_runs(
            backend, settings, put(batch.letters), put(batch.offsets),
            nodes=put(numbers[batch.targets]), starts=batch.starts,
        )  # fmt: skip
        found.append((runs.minimizers, runs.nodes))
    if not found:
        return [[] for _ in range(n)]
    keys, nodes = map(backend.xp.concatenate, zip(*found, strict=True))
    found.clear()
    distinct = distinct_share(backend, keys)
    if distinct < _MOSTLY:
        table = empty_table(backend.name, int(distinct * len(keys) * _ROOM))
        table._insert_combined(keys, nodes, lca(context.taxonomy.parents).on(backend))
        keys, nodes = table.items()
    stay = stay_on_device(backend, nbytes)
    return [[piece] for piece in dealt(backend, n, keys, nodes, stay=stay)]


def distinct_share(backend: Backend, keys: Any) -> float:
    """Return about how many different keys there are for each of them, by a sample of hashes."""
    some = keys[part_numbers(keys, _SAMPLED) == 0]
    return len(backend.xp.unique(some)) / max(1, len(some))


def part_of(
    context: MinimizerIndex, before: MinimizerPart | None, pieces: list[list[tuple[Any, Any]]]
) -> MinimizerPart:
    """Return a part with the minimizers of pieces, too, and the numbers of the index."""
    backend, taxonomy = context._backend, context.taxonomy
    change = lca(taxonomy.parents).on(backend)
    table = empty_table(backend.name, sum(len(keys) for piece in pieces for keys, _ in piece))
    put = backend.from_host
    if before is not None and len(before.table):
        keys, nodes = before.table.items()
        numbers = taxonomy.numbers(before.taxids).astype(_NODE)
        table._insert_combined(keys, put(numbers)[nodes], change)
    for piece in pieces:
        for keys, nodes in piece:
            if len(keys):
                here = on_device(backend, keys), on_device(backend, nodes)
                table._insert_combined(*here, change)
    return MinimizerPart(table, taxonomy.taxids)


def loaded_part(path: str, mode: str, n: int, at: int, device: Device | None) -> MinimizerPart:
    """Return the part of a file's index that a worker has."""
    with interpreting(path):
        backend = backends.get(device)
        if mode == "replicated":
            _, taxonomy, _, table, _ = load_table(path, backend, MinimizerIndex.rule)
            return MinimizerPart(table, taxonomy.taxids)
        saved = read_index(
            path, MinimizerIndex.rule, part=(at, n) if mode == "distributed" else None
        )
        put = backend.from_host
        # Of parts of neighbouring targets it matters only that together they have all.
        owned = [
            (keys[own], nodes[own])
            for keys, nodes in items_of(saved)
            for own in [part_numbers(keys, n) == at]
        ]
        stored = sum(len(keys) for keys, _ in owned)
        table = empty_table(backend.name, stored)
        for keys, nodes in owned:
            table._add(put(keys), put(nodes))
        saved.arrays.check(len(table) == stored, "its minimizers are not distinct")
        assert saved.taxonomy is not None
        return MinimizerPart(table, saved.taxonomy.taxids)


def dealt_part(context: MinimizerIndex, part: MinimizerPart, n: int) -> list[Any]:
    """Return the minimizers of a part, and taxa by the index's numbers, for each of n owners."""
    backend = backends.get(part.table.device)
    keys, nodes = part.table.items()
    numbers = backend.from_host(context.taxonomy.numbers(part.taxids).astype(_NODE))
    return [[piece] for piece in dealt(backend, n, keys, numbers[nodes])]


def arrays_in(context: MinimizerIndex, part: MinimizerPart, is_whole: bool) -> PartArrays:
    """Return the arrays of a part for a file; the order of slots only where it is the whole."""
    taxonomy = context.taxonomy
    if not np.array_equal(part.taxids, taxonomy.taxids):
        part = part_of(context, part, [])
    arrays, told = arrays_of(backends.get(part.table.device), part.table, taxonomy)
    if not is_whole:
        arrays = {name: arrays[name] for name in ("minimizers", "nodes")}
    return part_arrays(arrays, **told)


def figures_in(context: MinimizerIndex, part: MinimizerPart) -> tuple[int, int, int, np.ndarray]:
    """Return how many minimizers a part has, its bytes and slots, and minimizers by taxon."""
    table, n = part.table, len(part.taxids)
    counts = np.zeros(len(context.taxonomy.taxids), np.int64)
    host = backends.get(table.device).to_host
    of_part = np.bincount(host(table.items()[1]), minlength=n)
    np.add.at(counts, context.taxonomy.numbers(part.taxids), of_part)
    return len(table), table.nbytes, table._opened().slots.slots, counts


def contents_of(part: MinimizerPart) -> tuple[Any, Any, np.ndarray]:
    """Return minimizers of a part, their taxa's numbers, and the taxids of numbers."""
    host = backends.get(part.table.device).to_host
    keys, nodes = map(host, part.table.items())
    return keys, nodes, part.taxids


def folded_items(
    backend: Backend, taxonomy: Taxonomy, items: Iterable[tuple[Any, Any, np.ndarray]]
) -> HashMap:
    """Return the map of all that `contents_of` gave of parts."""
    change = lca(taxonomy.parents).on(backend)
    table = empty_table(backend.name)
    put = backend.from_host
    for keys, nodes, taxids in items:
        if len(keys):
            numbers = taxonomy.numbers(taxids).astype(_NODE)
            table._insert_combined(put(keys), put(numbers[nodes]), change)
    return table


def called_here(
    context: MinimizerIndex,
    part: MinimizerPart,
    batch: Any,
    options: Any,
    detail: bool,
    owners: int,
) -> Any:
    """Return the calls of a batch by a part that has all minimizers, on the host.

    With `owners` of the minimizers that reads have, also what these are: see `_with_seen`.
    """
    index, backend = copy.copy(context), context._backend
    index._table = part.table
    arrays, beside = batch
    seen = SeenOfBatch(backend) if owners else None
    calls = index.call(*arrays, detail=detail, seen=seen, **beside, **options).on_host(backend)
    return _with_seen(calls, seen, owners)


def dealt_batch(context: MinimizerIndex, batch: Any, options: Any, n: int) -> list[Any]:
    """Return the minimizers of a batch for each of n owners, and what is left to know of it."""
    backend, chosen = context._backend, CallOptions.of(**options)
    arrays, beside = batch
    if not chosen.minimum_base_quality:
        beside = {}
    first = Reads.of(backend, arrays[0], arrays[1], beside.get("qualities"))
    second = None
    if len(arrays) > 2 and arrays[2] is not None:
        second = Reads.of(backend, arrays[2], arrays[3], beside.get("mate_qualities"))
        if len(second) != len(first):
            raise SequenceError(
                f"{len(first):,} reads and {len(second):,} mates; pass one mate of each read"
            )
    dealt: list[list[Any]] = [[] for _ in range(n)]
    rest = []
    for pair in slices(backend, first, second):
        sides = []
        for reads in pair:
            if reads is None:
                continue
            runs = minimizer_runs(
                backend, context.settings, reads.letters, reads.offsets,
                qualities=reads.qualities,
                least_quality=chosen.minimum_base_quality + QUALITY_OFFSET,
            )  # fmt: skip
            places = backend.xp.searchsorted(runs.starts, reads.offsets.astype(np.uint32))
            owners = part_numbers(runs.minimizers, n)
            rows = [backend.xp.flatnonzero(owners == owner) for owner in range(n)]
            for owner, own in enumerate(rows):
                dealt[owner].append(runs.minimizers[own])
            offsets = reads.offsets
            sides.append(_Mates(offsets, places.astype(np.int64, copy=False), runs, rows))
        rest.append(sides)
    return [*dealt, rest]


def found_in(context: MinimizerIndex, part: MinimizerPart, minimizers: list[Any]) -> list[Any]:
    """Return the numbers of the taxa that minimizers have in a part, 0 of none."""
    numbers = context._backend.from_host(context.taxonomy.numbers(part.taxids).astype(_NODE))
    return [numbers[part.table.find(each)[0]] for each in minimizers]


def called_of_taxa(
    context: MinimizerIndex,
    rest: list[Any],
    found: list[list[Any]],
    options: Any,
    detail: bool,
    folds: bool,
    owners: int,
) -> Any:
    """Return the calls of a batch from the taxa of its minimizers, on the host.

    `folds`: each part was asked for all minimizers, and has those of some targets. `owners` is as
    for `called_here`.
    """
    backend, chosen, k = context._backend, CallOptions.of(**options), context.settings.k
    answers = iter(zip(*found, strict=True))
    seen = SeenOfBatch(backend) if owners else None
    made = []
    for sides in rest:
        runs = [_with_taxa(context, side, next(answers), folds=folds) for side in sides]
        one, other = runs[0], runs[1] if len(runs) > 1 else None
        if seen is not None:
            for side in runs:
                seen.add(side)
        calls = called(backend, context._tree, one, other, k, chosen)
        if detail:
            calls = with_details(backend, context._tree, one, other, k, calls)
        made.append(calls)
    return _with_seen(joined(backend, made).on_host(backend), seen, owners)


def _with_seen(calls: Calls, seen: SeenOfBatch | None, owners: int) -> Any:
    """Return calls alone, or a list: of them and the taxa of their minimizers, and owners' pieces.

    See `SeenOnWorkers.begun`.
    """
    return calls if seen is None else [(calls, seen.taxa()), *seen.pieces(owners)]


def _with_taxa(context: MinimizerIndex, side: _Mates, answers: Any, *, folds: bool) -> FoundRuns:
    backend, n = context._backend, len(side.runs)
    if folds and len(answers) > 1:
        change = lca(context.taxonomy.parents).on(backend)
        # Of each run, by its number.
        table = empty_table(backend.name, n)
        for found in answers:
            rows = backend.xp.flatnonzero(found)
            if len(rows):
                table._insert_combined(rows.astype(np.uint64), found[rows], change)
        taxa, _ = table.find(backend.xp.arange(n, dtype=np.uint64))
        return FoundRuns(side.offsets, side.places, side.runs, taxa)
    taxa = backend.zeros(n, _NODE)
    for rows, found in zip(side.rows, answers, strict=True):
        taxa[rows] = found
    return FoundRuns(side.offsets, side.places, side.runs, taxa)
