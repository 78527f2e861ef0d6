"""Index of sketches on the workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from distributed import Client, Future

from dgpuhash import backend as backends
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.cluster import LettersDone, seen_by_workers
from dgpuhash.kmer.databases.provenance import steps_of
from dgpuhash.kmer.index_file import nbytes_of, read_index
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.sequences.reads import ReadFiles
from dgpuhash.kmer.sketches.asked import (
    called_here,
    called_of_candidates,
    called_of_locations,
    candidates_in,
    context_of,
    dealt_batch,
    found_in,
    sketched_batch,
)
from dgpuhash.kmer.sketches.building import held_nbytes, table_settings
from dgpuhash.kmer.sketches.candidates import TopLists
from dgpuhash.kmer.sketches.contents import joined_sizes, sums_of
from dgpuhash.kmer.sketches.coverage import Coverage
from dgpuhash.kmer.sketches.index import SketchIndex, estimator_of, sampled_run
from dgpuhash.kmer.sketches.parts import (
    arrays_in,
    contents_of,
    counts_in,
    dealt_part,
    extent_of,
    features_of_run,
    features_with,
    folded,
    limited,
    lines_of_runs,
    loaded_part,
    marks_in,
    owned_part,
    part_of_run,
    rows_of,
    run_between,
    size_in,
    stacked,
    text_run,
    united,
)
from dgpuhash.kmer.sketches.reads import Batch
from dgpuhash.kmer.sketches.settings import CallOptions, SketchSettings
from dgpuhash.kmer.target_runs import dealt_runs, runs_on
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.kmer.worker_index import WorkerIndex
from dgpuhash.kmer.worker_reads import ReadsOnWorkers
from dgpuhash.tables import MultiMap
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Device

# Letters of references that a task sketches.
_RUN_LETTERS = 2**26
# Of a location in a table, with its share of the keys.
_LOCATION_NBYTES = 14
# Bytes of a table for each of its file.
_OF_FILE = 1.5
# Locations of a part that are here at a time.
_GATHERED_ROWS = 2**22
# Locations that a task makes lines of.
_LINES_OF_TASK = 2**20


class DistributedSketchIndex(WorkerIndex):
    """A `SketchIndex` on the workers of a Dask cluster; `SketchIndex.build` makes it.

    Calls are those of the index on one device. Its mode says where locations are:
    ``"replicated"``, all on each worker, and each classifies some batches of reads;
    ``"independent"``, each worker has those of neighbouring targets, and its candidates of all
    reads are merged; ``"distributed"``, each has those of some features, and sends them to where
    the reads are.
    """

    rule: ClassVar[str] = SketchIndex.rule
    settings_of = SketchSettings.of
    estimator_of = staticmethod(estimator_of)
    sampled_run = staticmethod(sampled_run)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        client: Client,
        mode: str = "auto",
        device: Device | None = None,
    ) -> Self:
        """Return the index in a file, which all workers read.

        Raises
        ------
        FormatError, OSError
            As `SketchIndex.load`.
        """
        with interpreting(path):
            saved = read_index(path, cls.rule, has_arrays=False)
            made = cls(client, SketchSettings(**saved.settings), mode, device)
            workers = made._workers
            made._mode, made._why = workers.mode_for(mode, int(nbytes_of(path) * _OF_FILE))
            made._taxonomy, made._targets = saved.taxonomy, saved.targets
            made._notes = list(saved.told["notes"])
            made._steps = steps_of(saved.told, saved.targets)
            made._context = made._context_of(saved.taxonomy, saved.targets)
            n, name = len(workers.addresses), seen_by_workers(os.fspath(path))
            edges = np.linspace(0, len(saved.targets.names), n + 1).astype(np.int64).tolist()
            made._parts = [
                workers.submit(
                    loaded_part, name, made._mode, n, at, edges[at : at + 2], device, near=address
                )
                for at, address in enumerate(workers.addresses)
            ]
            workers.finish(made._parts)
        return made

    @property
    def taxonomy(self) -> Taxonomy | None:
        """The taxonomy of the references."""
        return self._taxonomy

    def __len__(self) -> int:
        return len(self._targets.names)

    def __repr__(self) -> str:
        return (
            f"<DistributedSketchIndex: {len(self):,} sequences, {self._mode}, "
            f"{len(self._parts)} parts>"
        )

    @property
    def _bytes_of_letter(self) -> float:
        return self._settings.sketch / self._settings.stride * _LOCATION_NBYTES

    def _context_of(self, taxonomy: Taxonomy | None, targets: Targets) -> Future:
        return self._workers.submit(
            context_of, self._settings, taxonomy, targets, self._worker_device
        )

    def _take(
        self,
        whole: Taxonomy | None,
        references: References,
        targets: Targets,
        done: LettersDone,
    ) -> None:
        workers, settings, device = self._workers, self._settings, self._worker_device
        new_targets = references.targets
        own = None if whole is None else whole.subset(np.unique(targets.taxids))
        addresses, old = workers.addresses, self._parts
        if self._mode == "independent":
            before = old[0] if old else None
            new = [
                done.of(
                    workers.submit(part_of_run, settings, device, run, before, near=address),
                    run.letters_of(new_targets),
                )
                for run, address in zip(
                    runs_on(workers, references, len(addresses)), addresses, strict=True
                )
            ]
            parts = self._capped([*old, *new])
        else:
            n = (len(old) or len(addresses)) if self._mode == "distributed" else 1
            runs = dealt_runs(workers, references, _RUN_LETTERS)
            nbytes = self._nbytes_for(new_targets, n)
            made = [
                done.of(
                    workers.submit(features_of_run, settings, device, run, n, nbytes, near=address),
                    run.letters_of(new_targets),
                )
                for run, address in runs
            ]
            pieces = [
                workers.split(each, n, near=address)
                for each, (_, address) in zip(made, runs, strict=True)
            ]
            parts = [
                workers.submit(
                    folded, settings, device, old[at] if old else None,
                    [piece[at] for piece in pieces], near=addresses[at % len(addresses)],
                )
                for at in range(n)
            ]  # fmt: skip
            del made, pieces
        if self._mode == "replicated":
            parts = self._copied(parts[0])
        # What is wrong is told before the index changes.
        workers.finish(parts)
        self._parts, self._taxonomy = parts, own
        self._context = self._context_of(own, targets)

    def _capped(self, parts: list[Future]) -> list[Future]:
        """Return parts of neighbouring targets with the first locations of each feature only."""
        workers, settings = self._workers, self._settings
        least = -(-settings.cap // len(parts))
        crowded = workers.submit(
            united, [workers.submit(features_with, part, least) for part in parts]
        )
        counts = workers.submit(
            stacked, [workers.submit(counts_in, part, crowded) for part in parts]
        )
        return [
            workers.submit(limited, settings, part, at, crowded, counts)
            for at, part in enumerate(parts)
        ]

    def _checked(self, options: Mapping[str, Any]) -> tuple[CallOptions, Any]:
        given = dict(options)
        kept = given.pop("kept", None)
        return CallOptions.of(self._settings, **given), kept

    def _begin(self, number: int, batch: Future, options: Any, *, detail: bool) -> Future:
        return self._asked_of_parts(number, batch, options, "detail" if detail else "calls")

    def _asked_of_parts(self, number: int, batch: Future, options: Any, wanted: str) -> Future:
        """Return the task of the calls of a batch, or of its candidates."""
        workers, (context, parts) = self._workers, self._held
        # Where the batch is, and not where the context is, or a copy of the part if that is busy.
        near = workers.near(number)
        if self._mode == "replicated":
            part = parts[number % len(parts)]
            return workers.submit(called_here, context, part, batch, options, wanted, near=near)
        if self._mode == "independent":
            reads = workers.submit(sketched_batch, context, batch, options, near=near)
            tops = [
                workers.submit(
                    candidates_in, context, part, reads, options, wanted == "runs", near=home
                )
                for part, home in zip(parts, workers.homes(parts), strict=True)
            ]
            return workers.submit(called_of_candidates, context, tops, options, wanted, near=near)
        n = len(parts)
        both = workers.submit(dealt_batch, context, batch, options, n, near=near)
        *dealt, rest = workers.split(both, n + 1, near=near)
        found = [
            workers.submit(found_in, context, part, features, near=home)
            for part, features, home in zip(parts, dealt, workers.homes(parts), strict=True)
        ]
        return workers.submit(called_of_locations, context, rest, found, options, wanted, near=near)

    def prepare(self, batches: Callable[[], Iterator[Batch]], **options: Any) -> dict[str, Any]:
        """Return options for `call`, as `SketchIndex.prepare` does."""
        workers = self._workers

        def tops(begin: Callable[[int, Future], Future]) -> Iterator[list[TopLists]]:
            def begun(number: int, batch: Batch) -> list[Future]:
                return [begin(number, workers.sent((list(batch), {}), number))]

            for _, take in workers.in_order(batches(), begun):
                (found,) = take()
                yield found

        return self._prepared(tops, options)

    def prepare_files(self, files: ReadFiles, **options: Any) -> dict[str, Any]:
        """Return options for `call_files`, as `prepare` does; workers read the files."""

        def tops(begin: Callable[[int, Future], Future]) -> Iterator[list[TopLists]]:
            for _, found in ReadsOnWorkers(self._workers, files, "sizes").asked(begin):
                yield found

        return self._prepared(tops, options)

    def _prepared(
        self,
        tops: Callable[[Callable[[int, Future], Future]], Iterator[list[TopLists]]],
        options: dict[str, Any],
    ) -> dict[str, Any]:
        """Return options with what the candidates of all reads tell, which `tops` yields."""
        chosen = self._checked(options)
        if not chosen[0].cov_percentile:
            return options
        index = context_of(self._settings, self._taxonomy, self._targets, "cpu")
        coverage = Coverage(backends.get("cpu"), index._windows())

        def begin(number: int, batch: Future) -> Future:
            return self._asked_of_parts(number, batch, chosen, "runs")

        for found in tops(begin):
            for top in found:
                coverage.add(top, chosen[0])
        return {**options, "kept": coverage.kept(chosen[0].cov_percentile)}

    def call(self, *arrays: Any, detail: bool = False, **options: Any) -> Calls:
        """Return the calls of reads or pairs in arrays, as `SketchIndex.call` does."""
        if self._checked(options)[0].cov_percentile and "kept" not in options:
            options = self.prepare(lambda: iter([arrays]), **options)
        return super().call(*arrays, detail=detail, **options)

    def _dealt(self) -> list[Future]:
        """Return parts that have other features each, and together all locations."""
        workers, (_, parts) = self._workers, self._held
        if self._mode == "replicated" or len(parts) == 1:
            return parts[:1]
        if self._mode == "distributed":
            return parts
        n = len(workers.addresses)
        dealt = [workers.split(workers.submit(dealt_part, part, n), n + 1) for part in parts]
        dropped = [each[n] for each in dealt]
        return [
            workers.submit(
                owned_part, self._settings, self._worker_device, [each[at] for each in dealt],
                dropped if at == 0 else [],
            )
            for at in range(n)
        ]  # fmt: skip

    def _arrays_in(self, part: Future, *, is_whole: bool) -> Future:
        return self._workers.submit(arrays_in, part, is_whole)

    def _told(self) -> dict[str, Any]:
        return {"found": self._found(), "notes": list(self._notes), "steps": list(self._steps)}

    def _found(self) -> int:
        workers, (_, parts) = self._workers, self._held
        parts = parts[:1] if self._mode == "replicated" else parts
        sizes = workers.results([workers.submit(size_in, part) for part in parts])
        return sum(found for *_, found in sizes)

    def _figures(self) -> dict[str, Any]:
        workers = self._workers
        tasks = [workers.submit(size_in, part) for part in self._dealt()]
        sizes, dropped, _ = zip(*workers.results(tasks), strict=True)
        made = context_of(self._settings, self._taxonomy, self._targets, None)
        made._told = self._told()
        return {**made.stats(), **joined_sizes(sizes), "dropped": sum(dropped)}

    def digests(self) -> dict[str, str]:
        """Return the sums that `SketchIndex.digests` returns, of runs that workers sort."""
        return sums_of(self._lines())

    def _lines(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield lines of features in order, some at a time; see `lines_of`."""
        workers = self._workers
        runs = [workers.submit(text_run, part) for part in self._dealt()]
        locations = sum(each[0][1] for each in workers.results(
            [workers.submit(size_in, part) for part in self._held[1]]
        ))  # fmt: skip
        n = max(-(-locations // _LINES_OF_TASK), 1)
        marks = np.sort(np.concatenate(
            workers.results([workers.submit(marks_in, run, n) for run in runs])
        ))[len(runs) // 2 :: len(runs)]  # fmt: skip
        edges = [b"", *marks.tolist(), None]

        def begin(number: int, edge: tuple[bytes, bytes | None]) -> list[Future]:
            pieces = [workers.submit(run_between, run, *edge) for run in runs]
            return [workers.submit(lines_of_runs, pieces)]

        for _, take in workers.in_order(pairwise(edges), begin):
            (lines,) = take()
            yield from lines

    def gather(self, device: Device | None = None) -> SketchIndex:
        """Return the index as one of this process."""
        workers = self._workers
        made = context_of(self._settings, self._taxonomy, self._targets, device)
        put = made._backend.from_host
        _, parts = self._held
        parts = parts[:1] if self._mode == "replicated" else parts

        def batches() -> Iterator[tuple[Any, Any]]:
            for part in parts:
                # What of it is here at a time is bounded.
                there = workers.submit(contents_of, part)
                rows, dropped = workers.result(workers.submit(extent_of, there))
                made._dropped.insert(put(dropped))
                for start in range(0, rows, _GATHERED_ROWS):
                    piece = workers.submit(rows_of, there, start, start + _GATHERED_ROWS)
                    features, locations = workers.result(piece)
                    yield put(features), put(locations)

        made._table = MultiMap.from_batches(
            batches(), self._settings.feature, np.uint64, memory=held_nbytes(made._backend),
            **table_settings(self._settings, made.device),
        )  # fmt: skip
        made._told, made._whole = self._told(), self._whole
        return made
