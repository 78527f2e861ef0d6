"""Kraken 2's rule: minimizers, lowest common ancestors, and calls by clade."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.calls import Calls, Reads, calls_of_slices, reads_of, slices
from dgpuhash.kmer.databases.estimators import MinimizerEstimator
from dgpuhash.kmer.databases.owners import part_numbers
from dgpuhash.kmer.databases.taxon_words import minimizer_bits_of, why_whole_keys
from dgpuhash.kmer.index_file import SavedIndex
from dgpuhash.kmer.minimizers import building
from dgpuhash.kmer.minimizers.building import arrays_of, items_of, load_table, saved_arrays
from dgpuhash.kmer.minimizers.calling import (
    Counting,
    FoundRuns,
    SeenOfBatch,
    TreeArrays,
    call_reads,
    with_details,
)
from dgpuhash.kmer.minimizers.down_sampling import is_sampled, sampled_part, sampled_rows
from dgpuhash.kmer.minimizers.runs import minimizer_runs
from dgpuhash.kmer.minimizers.settings import CallOptions, MinimizerSettings
from dgpuhash.kmer.minimizers.taxon_map import TaxonMap
from dgpuhash.kmer.references import References
from dgpuhash.kmer.rule import Batch, CallQuery, Part, Rows, Rule
from dgpuhash.kmer.sequences.batches import QUALITY_OFFSET
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import lca
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from dgpuhash.kmer.target_runs import TargetRun

_NODE = np.dtype(np.uint32)
# Of a minimizer in a map that has grown.
_MINIMIZER_NBYTES = 24
# The share of different minimizers from which on those of a run are not folded: to find the others
# takes as long as to fold all of them once more. One in so many is looked at.
_MOSTLY, _SAMPLED = 0.7, 2**6
# Places for each minimizer that is expected.
_ROOM = 1.1
# Of both mates. What a CPU works at stays in its caches, and in memory that it had before.
_SLICE_LETTERS = {"cpu": 2**20, "cuda": 2**28}


@dataclass(frozen=True, slots=True)
class MinimizerPart(Part):
    """Part of an index: minimizers and the taxids of their lowest common ancestors.

    Attributes
    ----------
    table : HashMap or TaxonMap
        Map of minimizers to taxon numbers.
    taxids : array
        The taxid of each taxon number.
    """

    taxids: Any = None


@dataclass(frozen=True, slots=True)
class MinimizerQuery(CallQuery):
    """Options of calls by minimizers.

    Attributes
    ----------
    owners : int
        In how many pieces workers count the minimizers of reads; 0: they do not.
    """

    owners: int = 0


class MinimizerRule(Rule):
    """Call a read by its minimizers' taxa, each the common ancestor of its references.

    Parameters are those of `Rule`.
    """

    name = "kraken2"
    settings_of = MinimizerSettings.of
    of_file = 2.5
    settings: MinimizerSettings
    taxonomy: Taxonomy

    @property
    def nbytes_of_letter(self) -> float:
        """Expected bytes of memory per letter of references."""
        return float(self.settings.density * self.settings.sample) * _MINIMIZER_NBYTES

    @classmethod
    def estimator(cls, device: Device, settings: Any, **given: Any) -> MinimizerEstimator:
        """Return the estimator of an index with these settings."""
        return MinimizerEstimator(device, settings, _minimizers, room=building.room_for, **given)

    def with_targets(self, whole: Any, targets: Any) -> Self:
        """Return the rule extended by further targets, with their taxa and ancestors.

        Raises
        ------
        TaxonomyError
            When a taxon of the index has another parent in `whole`.
        """
        own = building.taxonomy_of(whole, targets, self.taxonomy or whole.subset([]))
        return type(self)(self.backend, self.settings, own, self.targets.join(targets))

    @classmethod
    def common_settings(cls, own: Any, other: Any) -> Any:
        """Return settings with the larger `least_hash` of two indexes."""
        return replace(own, least_hash=max(own.least_hash, other.least_hash))

    @cached_property
    def tree(self) -> TreeArrays:
        """The taxonomy's tree on the device."""
        return TreeArrays(self.backend, self.taxonomy.tree)

    @cached_property
    def nodes(self) -> np.ndarray:
        """Return the taxon number of each target; 0 without a taxon."""
        return self._numbers(self.targets.taxids)

    def _numbers(self, taxids: Any) -> np.ndarray:
        return self.taxonomy.numbers(taxids).astype(_NODE)

    def empty(self) -> MinimizerPart:
        """Return an index part without keys, for a build to fill."""
        none = np.empty(0, np.int64) if self.taxonomy is None else self.taxonomy.taxids
        return MinimizerPart(building.empty_table(self.backend.name), 0, none)

    def room(self, letters: int) -> int:
        """Return the expected number of minimizers of references with a number of letters."""
        return building.room_for(self.settings, letters, self.backend.name)

    def checked_letters(self, letters: Any, offsets: Any) -> Rows:
        """Return references in arrays as arrays of the device, or raise SequenceError."""
        given = Reads.of(self.backend, letters, offsets)
        return given.letters, given.offsets

    def keys(self, references: References | TargetRun) -> Iterator[Rows]:
        """Yield the minimizers of references with their taxon numbers."""
        batches = building.batches_of_references(self.backend, self.settings, references)
        return self._minimizers(batches)

    def keys_of_letters(self, letters: Any, offsets: Any, first: int) -> Iterator[Rows]:
        """Yield the minimizers of references in arrays, numbered from `first`."""
        return self._minimizers(
            building.batches_of_letters(self.backend, self.settings, letters, offsets, first)
        )

    def _minimizers(self, batches: Iterable[building.Batch]) -> Iterator[Rows]:
        for letters, offsets, targets, starts in batches:
            runs = minimizer_runs(
                self.backend, self.settings, letters, offsets,
                nodes=self.backend.from_host(self.nodes[targets]), starts=starts,
            )  # fmt: skip
            yield sampled_rows(self, runs.minimizers, runs.nodes)

    def distinct_keys(self, run: TargetRun) -> Iterator[Rows]:
        """Yield the minimizers of a run at once, deduplicated if many repeat."""
        backend, found = self.backend, list(self.keys(run))
        if not found:
            return
        keys, nodes = map(backend.xp.concatenate, zip(*found, strict=True))
        found.clear()
        some = keys[part_numbers(keys, _SAMPLED) == 0]
        distinct = len(backend.xp.unique(some)) / max(1, len(some))
        if distinct < _MOSTLY:
            table = building.empty_table(backend.name, int(distinct * len(keys) * _ROOM))
            table._insert_combined(keys, nodes, lca(self.taxonomy.parents).on(backend))
            keys, nodes = table.items()
        yield keys, nodes

    def fold(
        self, before: Part | None, rows: Iterable[Rows], room: int, *, in_place: bool = False
    ) -> MinimizerPart:
        """Return a part with further minimizers, under this taxonomy's numbers."""
        there: Any = before or self.empty()
        table = building.writable_map(
            self.backend, self.settings, there.table, self._numbers(there.taxids),
            keys=len(there.table) + room, taxa=len(self.taxonomy.taxids),
            is_owned=before is None or in_place,
        )  # fmt: skip
        change = lca(self.taxonomy.parents).on(self.backend)
        for keys, nodes in rows:
            if len(keys):
                table._insert_combined(keys, nodes, change)
        if isinstance(table, TaxonMap) and not len(there.table):
            table.tighten()
        return MinimizerPart(table, 0, self.taxonomy.taxids)

    def rows(self, part: Any) -> Rows:
        """Return the minimizers of a part, with this taxonomy's taxon numbers."""
        keys, nodes = part.table.items()
        return keys, self.backend.from_host(self._numbers(part.taxids))[nodes]

    def merge(self, parts: Iterator[tuple[Any, Any]]) -> MinimizerPart:
        """Merge the parts of several indexes, each given with the rule of all so far."""
        rule, first = next(parts)
        least, made = rule.settings.least_hash, rule.fold(first, [], 0)
        for rule, part in parts:
            made = rule.fold(made, [sampled_rows(rule, *rule.rows(part))], 0, in_place=True)
        # A later one may have a higher bound than those before.
        return made if rule.settings.least_hash == least else sampled_part(rule, made)

    def query(self, options: Mapping[str, Any], *, detail: bool = False) -> MinimizerQuery:
        """Return checked call options; ``seen``, a counter of minimizers, is an extra one."""
        given = dict(options)
        seen = given.pop("seen", None)
        return MinimizerQuery(CallOptions.of(**given), detail, owners=getattr(seen, "owners", 0))

    def call_here(self, part: Part, batch: Batch, query: Any) -> Any:
        """Return the calls of a batch on the host, by a part with all minimizers."""
        seen = SeenOfBatch(self.backend) if query.owners else None
        calls = self.calls(part, batch, query, seen)
        return _with_seen(calls.on_host(self.backend), seen, query.owners)

    def calls(self, part: Part, batch: Batch, query: Any, seen: Counting | None) -> Calls:
        """Return the calls of a batch on the device, and count its minimizers in `seen`.

        Raises
        ------
        SequenceError
            When offsets do not part the letters, or there are other numbers of mates or qualities.
        """

        def with_taxa(side: FoundRuns) -> FoundRuns:
            side.taxa, _ = part.table.find(side.runs.minimizers)
            return side

        return calls_of_slices(self.backend, [
            self._called(map(with_taxa, sides), query, seen)
            for sides in self._slices(batch, query.options)
        ])  # fmt: skip

    def deal(self, batch: Batch, query: Any, n: int) -> list[Any]:
        """Return the minimizers of a batch for each of n parts, and the state for `call`."""
        return self.deal_runs(self._slices(batch, query.options), n)

    def deal_runs(self, slices_of_runs: Iterable[Iterable[FoundRuns]], n: int) -> list[Any]:
        """Return the minimizers of runs for each of n parts, and the state for `runs_with_taxa`.

        Runs come in slices, each of some reads and their mates.
        """
        dealt: list[list[Any]] = [[] for _ in range(n)]
        rest = []
        for sides in slices_of_runs:
            rest.append(list[Any]())
            for side in sides:
                rows: list[Any] = [slice(None)]
                if n > 1:
                    owners = part_numbers(side.runs.minimizers, n)
                    rows = [self.backend.xp.flatnonzero(owners == owner) for owner in range(n)]
                for pieces, own in zip(dealt, rows, strict=True):
                    pieces.append(side.runs.minimizers[own])
                rest[-1].append((side, rows))
        return [*dealt, rest]

    def find(self, part: Any, keys: Any, query: Any) -> list[Any]:
        """Return the taxon numbers of minimizers in a part, 0 for none."""
        numbers = self.backend.from_host(self._numbers(part.taxids))
        return [numbers[part.table.find(each)[0]] for each in keys]

    def call(self, rest: Any, found: list[Any], query: Any) -> Any:
        """Return the calls of a batch on the host, from the results of all parts."""
        seen = SeenOfBatch(self.backend) if query.owners else None
        calls = [
            self._called(sides, query, seen) for sides in self.runs_with_taxa(rest, found, query)
        ]
        made = calls_of_slices(self.backend, calls).on_host(self.backend)
        return _with_seen(made, seen, query.owners)

    def runs_with_taxa(
        self, rest: Any, found: list[Any], query: Any
    ) -> Iterator[Iterator[FoundRuns]]:
        """Yield slices of runs with their taxa, from the results of all parts."""
        answers = zip(*found, strict=True)
        for sides in rest:
            yield (
                replace(side, taxa=self._joined_taxa(len(side.runs), rows, taxa, query))
                for (side, rows), taxa in zip(sides, answers, strict=False)
            )

    def _joined_taxa(self, n: int, rows: Any, answers: Any, query: Any) -> Any:
        """Return the taxon of each of n runs, from the results of parts."""
        backend = self.backend
        if query.by_targets and len(answers) > 1:
            change = lca(self.taxonomy.parents).on(backend)
            # Of each run, by its number.
            table = building.empty_table(backend.name, n)
            for found in answers:
                there = backend.xp.flatnonzero(found)
                if len(there):
                    table._insert_combined(there.astype(np.uint64), found[there], change)
            return table.find(backend.xp.arange(n, dtype=np.uint64))[0]
        taxa = backend.zeros(n, _NODE)
        for own, found in zip(rows, answers, strict=True):
            taxa[own] = found
        return taxa

    def _slices(self, batch: Batch, options: CallOptions) -> Iterator[Iterator[FoundRuns]]:
        """Yield the runs of some reads and mates at a time, without their taxa."""
        arrays, qualities = batch
        sides = reads_of(self.backend, arrays, qualities if options.minimum_base_quality else None)
        size, letters = _SLICE_LETTERS[self.backend.name], sum(len(side.letters) for side in sides)
        for some in slices(self.backend, sides, size if letters > 2 * size else letters):
            yield (self.runs(reads, options) for reads in some)

    def runs(self, reads: Reads, options: CallOptions) -> FoundRuns:
        """Return the runs of reads, without their taxa."""
        runs = minimizer_runs(
            self.backend, self.settings, reads.letters, reads.offsets, qualities=reads.qualities,
            least_quality=options.minimum_base_quality + QUALITY_OFFSET,
        )  # fmt: skip
        places = self.backend.xp.searchsorted(runs.starts, reads.offsets.astype(np.uint32))
        return FoundRuns(reads.offsets, places.astype(np.int64, copy=False), runs, None)

    def _called(self, sides: Iterable[FoundRuns], query: Any, seen: Counting | None) -> Calls:
        """Return the calls of reads or pairs, given their runs' taxa."""
        first, *others = sides
        second = others[0] if others else None
        if seen is not None:
            for side in (first, *others):
                seen.add(side)
        at = self.backend, self.tree, first, second, self.settings.k
        calls = call_reads(*at, query.options)
        return with_details(*at, calls) if query.detail else calls

    def size(self, part: Any) -> tuple[int, int, int, bool, np.ndarray]:
        """Return the numbers of minimizers, bytes, slots and whole keys, and counts by taxon."""
        counts = np.zeros(len(self.taxonomy.taxids), np.int64)
        of_part = building.counts_of_nodes(self.backend, part.table, len(part.taxids))
        np.add.at(counts, self.taxonomy.numbers(part.taxids), of_part)
        is_whole = not isinstance(part.table, TaxonMap)
        return len(part.table), part.table.nbytes, building.slots_of(part.table), is_whole, counts

    def stats(self, sizes: Sequence[Any], told: Mapping[str, Any]) -> dict[str, Any]:
        """Return figures of parts with disjoint minimizers, and of header fields."""
        distinct, nbytes, slots, whole, counts = map(sum, zip(*sizes, strict=True))
        taxa = int(np.count_nonzero(counts))
        why = why_whole_keys(minimizer_bits_of(self.settings), distinct, len(self.taxonomy.taxids))
        return {
            "rule": self.name,
            "k": self.settings.k,
            "l": self.settings.l,
            "spaces": self.settings.spaces,
            **({"least_hash": self.settings.least_hash} if self.settings.least_hash else {}),
            "letters": told["letters"],
            "distinct": distinct,
            "nbytes": nbytes,
            "load": round(distinct / max(slots, 1), 3),
            "targets": len(self.targets.names),
            "taxa": taxa,
            **({"whole_keys": why or "so is the file that it is of"} if whole else {}),
        }

    def told(self, found: int) -> dict[str, Any]:
        """Return the number of letters read."""
        return {"letters": int(self.targets.lengths.sum())}

    @classmethod
    def saved_settings(cls, settings: Mapping[str, Any]) -> MinimizerSettings:
        """Return the settings in a file."""
        return MinimizerSettings.of_saved(settings)

    def load(self, saved: SavedIndex) -> MinimizerPart:
        """Load the whole index from a file."""
        table = load_table(saved, self.backend, self.settings)
        return MinimizerPart(table, 0, self.taxonomy.taxids)

    def load_share(self, saved: SavedIndex, at: int, n: int, *, by_targets: bool) -> MinimizerPart:
        """Load the minimizers of one of n parts, for all targets."""
        put = self.backend.from_host
        owned = [
            (keys[own], nodes[own])
            for keys, nodes in items_of(saved, self.settings)
            for own in [part_numbers(keys, n) == at]
        ]
        stored, taxa = sum(len(keys) for keys, _ in owned), len(self.taxonomy.taxids)
        table = building.empty_map(self.backend, self.settings, stored, taxa)
        for keys, nodes in owned:
            table._add(put(keys), put(nodes))
        saved.arrays.check(len(table) == stored, "its minimizers are not distinct")
        return MinimizerPart(table, 0, self.taxonomy.taxids)

    def saved_arrays(self, part: Any) -> tuple[Any, dict[str, Any]]:
        """Return the arrays of all minimizers for a file."""
        return saved_arrays(self.backend, part.table)

    def part_arrays(
        self, part: Any, *, is_whole: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return a part's arrays for a file, with this taxonomy's numbers."""
        if not np.array_equal(part.taxids, self.taxonomy.taxids):
            part = self.fold(part, [], 0)
        return arrays_of(self.backend, part.table)


def _with_seen(calls: Calls, seen: SeenOfBatch | None, owners: int) -> Any:
    """Return calls alone, or with their minimizers' taxa and the owners' pieces.

    See `SeenOnWorkers.begun`.
    """
    return calls if seen is None else [(calls, seen.taxa()), *seen.pieces(owners)]


def _minimizers(
    backend: Backend, settings: MinimizerSettings, references: References | TargetRun
) -> Iterator[Any]:
    for letters, offsets, *_ in building.batches_of_references(backend, settings, references):
        found = minimizer_runs(backend, settings, letters, offsets).minimizers
        yield found[is_sampled(found, settings.least_hash)] if settings.least_hash else found
