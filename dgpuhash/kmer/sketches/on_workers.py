"""Index of sketches on the workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from distributed import Client, Future

from dgpuhash import backend as backends
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.cluster import seen_by_workers
from dgpuhash.kmer.index_file import read_index
from dgpuhash.kmer.references import References, Targets
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
from dgpuhash.kmer.sketches.building import table_settings
from dgpuhash.kmer.sketches.coverage import Coverage
from dgpuhash.kmer.sketches.index import SketchIndex
from dgpuhash.kmer.sketches.parts import (
    contents_of,
    counts_in,
    features_of_run,
    features_with,
    folded,
    limited,
    loaded_part,
    part_of_run,
    stacked,
    united,
)
from dgpuhash.kmer.sketches.reads import Batch
from dgpuhash.kmer.sketches.settings import CallOptions, SketchSettings
from dgpuhash.kmer.target_runs import runs_of
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.kmer.worker_index import WorkerIndex, made_there
from dgpuhash.tables import MultiMap

__all__ = ["DistributedSketchIndex"]

# Letters of references that a task sketches.
_RUN_LETTERS = 2**26
# Of a location in a table, with its share of the keys.
_LOCATION_NBYTES = 14


class DistributedSketchIndex(WorkerIndex):
    """A `SketchIndex` on the workers of a Dask cluster; `SketchIndex.build` makes it.

    Calls are those of the index on one device. Its mode says where locations are:
    ``"replicated"``, all on each worker, and each classifies some batches of reads;
    ``"independent"``, each worker has those of neighbouring targets, and its candidates of all
    reads are merged; ``"distributed"``, each has those of some features, and sends them to where
    the reads are.
    """

    rule = SketchIndex.rule
    settings_of = SketchSettings.of

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        client: Client,
        mode: str = "auto",
        device: str | None = None,
    ) -> Self:
        """Return the index in a file, which all workers read.

        Raises
        ------
        FormatError, OSError
            As `SketchIndex.load`.
        """
        saved = read_index(path, cls.rule)
        made = cls(client, SketchSettings(**saved.settings), mode, device)
        workers = made._workers
        nbytes = len(saved.arrays.get("locations", np.dtype(np.uint64))) * _LOCATION_NBYTES
        made._mode, made._why = workers.mode_for(mode, nbytes)
        made._taxonomy, made._targets = saved.taxonomy, saved.targets
        made._notes = list(saved.told["notes"])
        made._context = made._context_of(saved.taxonomy, saved.targets)
        n, name = len(workers.addresses), seen_by_workers(os.fspath(path))
        edges = np.linspace(0, len(saved.targets.names), n + 1).astype(np.int64).tolist()
        made._parts = [
            workers.submit(
                loaded_part, name, made._mode, n, at, edges[at : at + 2], device, near=address
            )
            for at, address in enumerate(workers.addresses)
        ]
        made_there(workers, made._parts)
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

    def _take(self, whole: Taxonomy | None, references: References, targets: Targets) -> None:
        workers, settings, device = self._workers, self._settings, self._worker_device
        own = None if whole is None else whole.subset(np.unique(targets.taxids))
        addresses, old = workers.addresses, self._parts
        if self._mode == "independent":
            before = old[0] if old else None
            new = [
                workers.submit(part_of_run, settings, device, run, before, near=address)
                for run, address in zip(
                    runs_of(references, seen_by_workers, len(addresses)), addresses, strict=True
                )
            ]
            parts = self._capped([*old, *new])
        else:
            n = (len(old) or len(addresses)) if self._mode == "distributed" else 1
            letters = int(references.targets.lengths.sum())
            n_runs = max(-(-letters // _RUN_LETTERS), len(addresses))
            made = [
                workers.submit(features_of_run, settings, device, run, n)
                for run in runs_of(references, seen_by_workers, n_runs)
            ]
            pieces = [workers.split(each, n) for each in made]
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
        made_there(workers, parts)
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
        if self._mode == "replicated":
            part = parts[number % len(parts)]
            return workers.submit(called_here, context, part, batch, options, wanted)
        if self._mode == "independent":
            reads = workers.submit(sketched_batch, context, batch, options)
            tops = [
                workers.submit(candidates_in, context, part, reads, options, wanted == "runs")
                for part in parts
            ]
            return workers.submit(called_of_candidates, context, tops, options, wanted)
        n = len(parts)
        both = workers.submit(dealt_batch, context, batch, options, n)
        *dealt, rest = workers.split(both, n + 1)
        found = [
            workers.submit(found_in, context, part, features)
            for part, features in zip(parts, dealt, strict=True)
        ]
        return workers.submit(called_of_locations, context, rest, found, options, wanted)

    def prepare(self, batches: Callable[[], Iterator[Batch]], **options: Any) -> dict[str, Any]:
        """Return options for `call`, as `SketchIndex.prepare` does."""
        chosen = self._checked(options)
        if not chosen[0].cov_percentile:
            return options
        host = backends.get("cpu")
        index = context_of(self._settings, self._taxonomy, self._targets, "cpu")
        coverage = Coverage(host, index._windows())

        def begin(number: int, batch: Future) -> Future:
            return self._asked_of_parts(number, batch, chosen, "runs")

        def data(batch: Batch) -> Any:
            return list(batch), {}

        for _, tops in self._workers.in_order(batches(), begin, data):
            for top in tops:
                coverage.add(top, chosen[0])
        return {**options, "kept": coverage.kept(chosen[0].cov_percentile)}

    def call(self, *arrays: Any, detail: bool = False, **options: Any) -> Calls:
        """Return the calls of reads or pairs in arrays, as `SketchIndex.call` does."""
        if self._checked(options)[0].cov_percentile and "kept" not in options:
            options = self.prepare(lambda: iter([arrays]), **options)
        return super().call(*arrays, detail=detail, **options)

    def digests(self) -> dict[str, str]:
        """Return the sums that `SketchIndex.digests` returns."""
        return self.gather().digests()

    def gather(self, device: str | None = None) -> SketchIndex:
        """Return the index as one of this process."""
        workers = self._workers
        made = context_of(self._settings, self._taxonomy, self._targets, device)
        put = made._backend.from_host
        _, parts = self._held
        parts = parts[:1] if self._mode == "replicated" else parts
        told: dict[str, Any] = {"found": 0, "notes": list(self._notes)}

        def batches() -> Iterator[tuple[Any, Any]]:
            for part in parts:
                task = workers.submit(contents_of, part)
                features, locations, dropped, found = workers.result(task)
                made._dropped.insert(put(dropped))
                told["found"] += found
                yield put(features), put(locations)

        made._table = MultiMap.from_batches(
            batches(), self._settings.feature, np.uint64,
            **table_settings(self._settings, made.device),
        )  # fmt: skip
        made._told, made._whole = told, self._whole
        return made
