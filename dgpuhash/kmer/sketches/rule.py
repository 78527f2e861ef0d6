"""MetaCache's rule: features of windows, their locations, and candidates by hits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.calls import Calls, calls_of_slices, reads_of
from dgpuhash.kmer.counts.tally import checked_letters
from dgpuhash.kmer.databases.estimators import SketchEstimator
from dgpuhash.kmer.databases.owners import part_numbers
from dgpuhash.kmer.index_file import SavedIndex
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.rule import Batch, CallQuery, Part, Rows, Rule
from dgpuhash.kmer.sketches import building
from dgpuhash.kmer.sketches.building import arrays_of, joined_sizes, lists_in, saved_arrays, size_of
from dgpuhash.kmer.sketches.candidates import (
    Coverage,
    TargetLineages,
    TopLists,
    calls_of,
    concatenate_candidates,
    merge_candidates,
)
from dgpuhash.kmer.sketches.reads import SketchedReads, candidates_of, sketched
from dgpuhash.kmer.sketches.settings import CallOptions, SketchSettings
from dgpuhash.kmer.sketches.sketching import n_windows, sketch_references
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashSet, MultiMap
from dgpuhash.tables.open_addressing.slot_order import SlotOrder
from dgpuhash.tables.select import spread
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from dgpuhash.kmer.target_runs import TargetRun

# Of a location in a table, with its share of the keys.
_LOCATION_NBYTES = 14


@dataclass(frozen=True, slots=True)
class SketchPart(Part):
    """Part of an index: features' locations, and the features dropped as overpopulated.

    Attributes
    ----------
    table : MultiMap
    dropped : HashSet
    """

    dropped: Any = None


@dataclass(frozen=True, slots=True)
class SketchQuery(CallQuery):
    """Options of calls by sketches.

    Attributes
    ----------
    kept : array of uint8, optional
        Of each target, whether it may be a candidate; None: all may.
    runs : bool
        Whether candidates with the windows of their best runs are wanted in place of calls.
    """

    kept: Any = None
    runs: bool = False


class SketchRule(Rule):
    """Call reads by the targets that share most features, the windows' lowest hashes.

    Parameters are those of `Rule`.
    """

    name = "metacache"
    settings_of = SketchSettings.of
    of_file = 1.5
    settings: SketchSettings

    @property
    def nbytes_of_letter(self) -> float:
        """Expected bytes of memory per letter of references."""
        return self.settings.sketch / self.settings.stride * _LOCATION_NBYTES

    @classmethod
    def estimator(cls, device: Device, settings: Any, **given: Any) -> SketchEstimator:
        """Return the estimator of an index with these settings."""
        return SketchEstimator(
            device, settings, _features, load=building.LOAD, held=building.HELD_NBYTES, **given
        )

    def with_targets(self, whole: Taxonomy | None, targets: Targets) -> Self:
        """Return the rule extended by further targets, whose taxa are in `whole`."""
        targets = self.targets.join(targets)
        own = None if whole is None else whole.subset(np.unique(targets.taxids))
        return type(self)(self.backend, self.settings, own, targets)

    @cached_property
    def lineages(self) -> TargetLineages:
        """Ancestor of each target at each rank."""
        return TargetLineages(self.backend, self.taxonomy, self.targets.taxids)

    @cached_property
    def windows(self) -> np.ndarray:
        """Number of each target's windows with k-mers."""
        counts: np.ndarray = n_windows(self.targets.lengths, self.settings, least=self.settings.k)
        return counts

    @property
    def _table_settings(self) -> dict[str, Any]:
        return building.table_settings(self.settings, self.backend.name)

    def empty(self) -> SketchPart:
        """Return an index part without keys, for a build to fill."""
        feature = self.settings.feature
        table = MultiMap(feature, np.uint64, **self._table_settings)
        return SketchPart(table, 0, HashSet(feature, device=self.backend.name))

    def room(self, letters: int) -> int:
        """Return the number of features of references with a number of letters."""
        return letters * self.settings.sketch // self.settings.stride

    def checked_letters(self, letters: Any, offsets: Any) -> Rows:
        """Return references in arrays as arrays of the device, or raise SequenceError."""
        return checked_letters(self.backend, letters, offsets)

    def keys(self, references: References | TargetRun) -> Iterator[Rows]:
        """Yield the features of references with their locations."""
        batches = building.batches_of_references(self.backend, references, self.settings)
        return self._sketches(batches)

    def keys_of_letters(self, letters: Any, offsets: Any, first: int) -> Iterator[Rows]:
        """Yield the same for references in arrays, numbered from `first`."""
        edges = self.backend.to_host(offsets)
        return self._sketches(
            building.batches_of_letters(self.backend, self.settings, letters, edges, first)
        )

    def _sketches(self, batches: Iterable[building.Batch]) -> Iterator[Rows]:
        for *pieces, is_cut in batches:
            yield sketch_references(self.backend, self.settings, *pieces, is_cut=is_cut)

    def fold(
        self, before: Part | None, rows: Iterable[Rows], room: int, *, in_place: bool = False
    ) -> SketchPart:
        """Return a part with further features, without dropped ones."""
        there: Any = before or self.empty()
        dropped, table, found = there.dropped.copy(), there.table, there.found

        def counted() -> Iterator[Rows]:
            nonlocal found
            for features, locations in rows:
                found += len(features)
                yield features, locations

        if building.are_few(room, table):
            table = table.copy()
            building.append(table, counted(), self.settings, dropped)
        else:
            table = building.extend(self.backend, table, counted(), self.settings, dropped)
        return SketchPart(table, found, dropped)

    def part_of_run(self, run: TargetRun, letters: int, before: Any) -> SketchPart:
        """Build the part of a run, without dropping overpopulated features yet."""
        there, rule = self.empty(), self.on(self.backend.name)
        rule.settings = replace(self.settings, remove_overpopulated=False)
        if before is not None:
            there = replace(there, dropped=before.dropped)
        return rule.fold(there, rule.keys(run), self.room(letters))

    def rows(self, part: Part) -> Rows:
        """Return the features of a part with their locations."""
        features, locations = part.table.items()
        return features, locations

    def dropped(self, part: Any) -> np.ndarray:
        """Return the features that a part dropped, on the host."""
        return self.backend.to_host(part.dropped.items())

    def part_of_rows(self, rows: Iterable[Rows], dropped: Sequence[Any] = ()) -> SketchPart:
        """Return a part of others' rows, all within the cap, and of their dropped features."""
        made = self.empty()
        table = MultiMap.from_batches(
            rows, self.settings.feature, np.uint64, memory=building.held_nbytes(self.backend),
            **self._table_settings,
        )  # fmt: skip
        for features in dropped:
            made.dropped.insert(self.backend.from_host(features))
        return replace(made, table=table)

    def merge(self, parts: Iterator[tuple[Any, Any]]) -> SketchPart:
        """Merge the parts of several indexes, each given with the rule of all so far."""
        rule, first = next(parts)
        made, table, found, before = self.empty(), first.table, first.found, len(rule.targets.names)
        made.dropped.insert(first.dropped.items())

        def moved(rule: SketchRule, part: SketchPart) -> Iterator[Rows]:
            nonlocal before, found
            made.dropped.insert(part.dropped.items())
            shift, before = np.uint64(before << 32), len(rule.targets.names)
            found += part.found
            for features, locations in part.table._lists.pair_slices():
                yield features, locations + shift

        for rule, part in parts:
            if building.are_few(len(part.table), table):
                table = table.copy() if table is first.table else table
                building.append(table, moved(rule, part), self.settings, made.dropped)
            else:
                # This one and all others at once.
                pairs = chain.from_iterable(starmap(moved, chain([(rule, part)], parts)))
                table = building.extend(self.backend, table, pairs, self.settings, made.dropped)
        table = table.copy() if table is first.table else table
        # What a later one dropped, those before may have had.
        if len(made.dropped):
            table.erase(made.dropped.items())
        return replace(made, table=table, found=found)

    def query(self, options: Mapping[str, Any], *, detail: bool = False) -> SketchQuery:
        """Return checked call options; ``kept`` is an extra one."""
        given = dict(options)
        kept = given.pop("kept", None)
        return SketchQuery(CallOptions.of(self.settings, **given), detail, kept=kept)

    def prepare(
        self, answers: Callable[[SketchQuery], Iterable[TopLists]], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Add the targets covered by all reads to options with a percentile of coverage."""
        query = self.query(options)
        percentile = query.options.cov_percentile
        if not percentile or "kept" in options:
            return options
        coverage = Coverage(self.backend, self.windows)
        for top in answers(replace(query, runs=True)):
            coverage.add(top, query.options)
        return {**options, "kept": coverage.kept(percentile)}

    def call_here(self, part: Part, batch: Batch, query: Any) -> Any:
        """Return the calls of a batch, or its candidates, by a part with all features."""
        return self._called(list(self.top_lists(part, batch[0], query)), query)

    def top_lists(
        self, part: Part, arrays: Sequence[Any], query: SketchQuery
    ) -> Iterator[TopLists]:
        """Yield the best candidates of a batch, some reads at a time; errors as `reads_of`."""
        for reads in self._sketch(arrays, query):
            hits, places = part.table.find(reads.features)
            yield from candidates_of(
                self.backend, hits, places, reads, self.lineages, query.options, runs=query.runs
            )

    def _sketch(self, arrays: Sequence[Any], query: SketchQuery) -> Iterator[SketchedReads]:
        sides = reads_of(self.backend, arrays)
        return sketched(self.backend, self.settings, sides, query.options)

    def deal(self, batch: Batch, query: Any, n: int) -> list[Any]:
        """Return the features of a batch for each of n parts, and the state for `call`."""
        sketches = list(self._sketch(batch[0], query))
        if query.by_targets:
            return [sketches, None]
        none, xp = np.iinfo(self.settings.feature).max, self.backend.xp
        dealt: list[list[Any]] = [[] for _ in range(n)]
        rest = []
        for reads in sketches:
            owners = part_numbers(reads.features, n)
            owners[reads.features == none] = n
            places = [xp.flatnonzero(owners == owner) for owner in range(n)]
            for own, rows in zip(dealt, places, strict=True):
                own.append(reads.features[rows])
            rest.append((replace(reads, features=None), places, len(reads.features)))
        return [*dealt, rest]

    def find(self, part: Part, keys: Any, query: Any) -> list[Any]:
        """Return the locations of features with offsets, or candidates of reads."""
        if not query.by_targets:
            return [part.table.find(features) for features in keys]
        tops = []
        for reads in keys:
            hits, places = part.table.find(reads.features)
            tops.append(self._candidates(hits, places, reads, query))
        return tops

    def call(self, rest: Any, found: list[Any], query: Any) -> Any:
        """Return the calls of a batch, or its candidates, from the results of all parts."""
        if query.by_targets:
            tops = [merge_candidates(self.backend, each) for each in zip(*found, strict=True)]
            return self._called(tops, query)
        backend, xp, tops = self.backend, self.backend.xp, []
        for (reads, rows, n), *answers in zip(rest, *found, strict=True):
            sizes = backend.zeros(n, np.int64)
            for own, (_, places) in zip(rows, answers, strict=True):
                sizes[own] = xp.diff(places)
            offsets = backend.zeros(n + 1, np.int64)
            xp.cumsum(sizes, out=offsets[1:])
            hits = backend.empty(int(offsets[-1]), np.uint64)
            for own, (locations, places) in zip(rows, answers, strict=True):
                begin = spread(backend, offsets[own] - places[:-1], places, len(locations))
                hits[begin + xp.arange(len(locations))] = locations
            tops.append(self._candidates(hits, offsets, reads, query))
        return self._called(tops, query)

    def _candidates(self, hits: Any, places: Any, reads: SketchedReads, query: Any) -> TopLists:
        return concatenate_candidates(self.backend, list(candidates_of(
            self.backend, hits, places, reads, self.lineages, query.options, runs=query.runs
        )))  # fmt: skip

    def calls(self, tops: Iterable[TopLists], query: SketchQuery) -> Calls:
        """Return the calls of candidates, on the device."""
        return calls_of_slices(self.backend, [
            calls_of(
                self.backend, top, self.lineages, query.options, kept=query.kept,
                detail=query.detail,
            )
            for top in tops
        ])  # fmt: skip

    def _called(self, tops: list[TopLists], query: SketchQuery) -> Any:
        """Return calls on the host, or candidates with their runs."""
        host = self.backend.to_host
        if query.runs:
            return [
                TopLists(*(host(getattr(top, each.name)) for each in fields(top))) for top in tops
            ]
        kept = None if query.kept is None else self.backend.from_host(query.kept)
        return self.calls(tops, replace(query, kept=kept)).on_host(self.backend)

    def size(self, part: Any) -> tuple[tuple[int, int, int, int], int]:
        """Return the result of `size_of`, and the number of dropped features."""
        return size_of(part.table), len(part.dropped)

    def stats(self, sizes: Sequence[Any], told: Mapping[str, Any]) -> dict[str, Any]:
        """Return figures of parts with disjoint features, and of header fields."""
        of_tables, dropped = zip(*sizes, strict=True)
        return {
            "rule": self.name,
            **asdict(self.settings),
            "targets": len(self.targets.names),
            "letters": int(self.targets.lengths.sum()),
            "windows": int(self.windows.sum()),
            "found": told["found"],
            **joined_sizes(of_tables),
            "dropped": sum(dropped),
            "notes": list(told["notes"]),
        }

    def told(self, found: int) -> dict[str, Any]:
        """Return the number of features per window."""
        return {"found": found}

    @classmethod
    def saved_settings(cls, settings: Mapping[str, Any]) -> SketchSettings:
        """Return the settings in a file."""
        return SketchSettings(**settings)

    def load(self, saved: SavedIndex) -> SketchPart:
        """Load the whole index from a file, in slot order."""
        arrays, feature = saved.arrays, self.settings.feature
        arrays.check({"found", "notes", "seed"} <= saved.told.keys(), "its header is malformed")
        made, up = self.empty(), self.backend.from_host
        features, offsets, locations = map(up, lists_in(arrays, feature, self.windows))
        table = MultiMap(feature, np.uint64, seed=saved.told["seed"], **self._table_settings)
        table._build(features, offsets, locations, SlotOrder.of_buffers(arrays))
        made.dropped.insert(up(arrays.get("dropped", feature)))
        return replace(made, table=table, found=saved.told["found"])

    def load_share(self, saved: SavedIndex, at: int, n: int, *, by_targets: bool) -> SketchPart:
        """Load the features of one of n parts, or the locations of its targets."""
        feature, put, made = self.settings.feature, self.backend.from_host, self.empty()
        edges = np.linspace(0, len(self.targets.names), n + 1).astype(np.int64)
        # Parts of a file have other features each.
        lists: list[list[np.ndarray]] = [[], [], []]
        for arrays in saved.parts:
            dropped = arrays.get("dropped", feature)
            made.dropped.insert(
                put(dropped if by_targets else dropped[part_numbers(dropped, n) == at])
            )
            features, offsets, locations = lists_in(arrays, feature, self.windows)
            if by_targets:
                owned = (locations >> np.uint64(32)).astype(np.int64)
                stays = (owned >= edges[at]) & (owned < edges[at + 1])
            else:
                stays = np.repeat(part_numbers(features, n) == at, np.diff(offsets))
            sums = np.append(0, np.cumsum(stays))
            left = sums[offsets[1:]] - sums[offsets[:-1]]
            pieces = features[left > 0], left[left > 0], locations[stays]
            for own, piece in zip(lists, pieces, strict=True):
                own.append(piece)
        features, sizes, places = map(np.concatenate, lists)
        table = MultiMap.from_lists(
            put(features), put(np.append(0, np.cumsum(sizes))), put(places),
            **self._table_settings,
        )  # fmt: skip
        return replace(made, table=table, found=saved.told["found"] if at == 0 else 0)

    def saved_arrays(self, part: Any) -> tuple[Any, dict[str, Any]]:
        """Return the arrays of all features for a file, lazily."""
        # A table with the same seed takes the features nearly in the order of its slots.
        arrays = saved_arrays(self.backend, part.table, part.dropped)
        return arrays, {"seed": part.table._seed}

    def part_arrays(
        self, part: Any, *, is_whole: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return a part's arrays for a file, with slot order only for a whole index."""
        arrays = arrays_of(self.backend, part.table, part.dropped)
        if not is_whole:
            names = ("features", "offsets", "locations", "dropped")
            arrays = {name: arrays[name] for name in names}
        return arrays, {"seed": part.table._seed}


def _features(
    backend: Backend, settings: SketchSettings, references: References | TargetRun
) -> Iterator[Any]:
    for features, _ in SketchRule(backend, settings, None, Targets.none()).keys(references):
        yield features
