"""Index of minimizers on the workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from distributed import Client, Future

from dgpuhash import backend as backends
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.cluster import LettersDone, seen_by_workers
from dgpuhash.kmer.databases.provenance import steps_of
from dgpuhash.kmer.formats.report import kreport
from dgpuhash.kmer.index_file import nbytes_of, read_index
from dgpuhash.kmer.minimizers.building import taxonomy_of
from dgpuhash.kmer.minimizers.index import MinimizerIndex
from dgpuhash.kmer.minimizers.merged import estimator_of, sampled_run
from dgpuhash.kmer.minimizers.parts import (
    arrays_in,
    called_here,
    called_of_taxa,
    contents_of,
    context_of,
    dealt_batch,
    dealt_part,
    figures_in,
    folded_items,
    found_in,
    loaded_part,
    minimizers_of_run,
    part_of,
)
from dgpuhash.kmer.minimizers.seen_on_workers import SeenOnWorkers
from dgpuhash.kmer.minimizers.settings import CallOptions, MinimizerSettings
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.sequences.reads import ReadFiles, ReadReads
from dgpuhash.kmer.target_runs import dealt_runs, runs_on
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.kmer.worker_index import Batch, Item, WorkerIndex
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Device

# Letters of references whose minimizers a task finds.
_RUN_LETTERS = 2**26
# Of a minimizer in a map that has grown.
_MINIMIZER_NBYTES = 24
# Bytes of a map for each of its file.
_OF_FILE = 2.5


class DistributedMinimizerIndex(WorkerIndex):
    """A `MinimizerIndex` on the workers of a Dask cluster; `MinimizerIndex.build` makes it.

    Calls are those of the index on one device. Its mode says where minimizers are:
    ``"replicated"``, all on each worker, and each classifies some batches of reads;
    ``"independent"``, each worker has those of neighbouring targets, and taxa that they have for a
    minimizer are folded where the reads are; ``"distributed"``, each has some minimizers.
    """

    rule: ClassVar[str] = MinimizerIndex.rule
    settings_of = MinimizerSettings.of
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
            As `MinimizerIndex.load`.
        """
        with interpreting(path):
            saved = read_index(path, cls.rule, has_arrays=False)
            made = cls(client, MinimizerSettings.of_saved(saved.settings), mode, device)
            workers, name = made._workers, seen_by_workers(os.fspath(path))
            made._mode, made._why = workers.mode_for(mode, int(nbytes_of(path) * _OF_FILE))
            addresses = workers.addresses
            parts = [
                workers.submit(
                    loaded_part, name, made._mode, len(addresses), at, device, near=address
                )
                for at, address in enumerate(addresses)
            ]
            workers.finish(parts)
            made._parts, made._targets = parts, saved.targets
            made._taxonomy, made._notes = saved.taxonomy, list(saved.told["notes"])
            made._steps = steps_of(saved.told, saved.targets)
            made._context = made._context_of(made.taxonomy, saved.targets)
        return made

    @property
    def taxonomy(self) -> Taxonomy:
        """The taxa of the references, and their ancestors."""
        assert self._taxonomy is not None
        return self._taxonomy

    def __repr__(self) -> str:
        return (
            f"<DistributedMinimizerIndex: {len(self._targets.names):,} sequences, {self._mode}, "
            f"{len(self._parts)} parts>"
        )

    @property
    def _bytes_of_letter(self) -> float:
        return float(self._settings.density) * _MINIMIZER_NBYTES

    def _context_of(self, taxonomy: Taxonomy, targets: Targets) -> Future:
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
        assert whole is not None
        workers, old = self._workers, self._parts
        addresses, new_targets = workers.addresses, references.targets
        held = self._taxonomy if self._taxonomy is not None else whole.subset([])
        own = taxonomy_of(whole, new_targets, held)
        context = self._context_of(own, targets)
        if self._mode == "independent":
            runs = list(zip(runs_on(workers, references, len(addresses)), addresses, strict=True))
        else:
            runs = dealt_runs(workers, references, _RUN_LETTERS)
        n = (len(old) or len(addresses)) if self._mode == "distributed" else 1
        owners = len(addresses) if self._mode == "independent" else n
        nbytes = self._nbytes_for(new_targets, owners)
        made = [
            done.of(
                workers.submit(minimizers_of_run, context, run, n, nbytes, near=address),
                run.letters_of(new_targets),
            )
            for run, address in runs
        ]
        pieces = [
            workers.split(each, n, near=address)
            for each, (_, address) in zip(made, runs, strict=True)
        ]
        if self._mode == "independent":
            parts = old + [
                workers.submit(part_of, context, None, piece, near=address)
                for piece, address in zip(pieces, addresses, strict=True)
            ]
        else:
            parts = [
                workers.submit(
                    part_of, context, old[at] if old else None,
                    [piece[at] for piece in pieces], near=addresses[at % len(addresses)],
                )
                for at in range(n)
            ]  # fmt: skip
        if self._mode == "replicated":
            parts = self._copied(parts[0])
        # What is wrong is told before the index changes.
        workers.finish(parts)
        self._parts, self._taxonomy, self._context = parts, own, context

    def seen_minimizers(self) -> SeenOnWorkers:
        """Return what counts the minimizers that calls find, for a report of them."""
        return SeenOnWorkers(self._workers, self.taxonomy.tree)

    def call_many(
        self,
        batches: Iterable[tuple[Item, Batch]],
        options: Mapping[str, Any],
        *,
        detail: bool = False,
    ) -> Iterator[tuple[Item, Calls]]:
        """Yield items and calls as `WorkerIndex.call_many` does; ``seen`` is an option more."""
        seen = options.get("seen")
        for item, found in super().call_many(batches, options, detail=detail):
            yield item, found if seen is None else seen.taken(found)

    def call_files(
        self, files: ReadFiles, options: Mapping[str, Any], **others: Any
    ) -> Iterator[tuple[ReadReads, Calls]]:
        """Yield reads and calls as `WorkerIndex.call_files` does; ``seen`` is an option more."""
        seen = options.get("seen")
        for told, found in super().call_files(files, options, **others):
            yield told, found if seen is None else seen.taken(found)

    def _checked(self, options: Mapping[str, Any]) -> tuple[dict[str, Any], SeenOnWorkers | None]:
        given = dict(options)
        seen = given.pop("seen", None)
        CallOptions.of(**given)
        return given, seen

    def _begin(self, number: int, batch: Future, options: Any, *, detail: bool) -> Future:
        given, seen = options
        owners = 0 if seen is None else seen.owners
        made = self._called(number, batch, given, detail, owners)
        return made if seen is None else seen.begun(made, self._workers.near(number))

    def _called(
        self, number: int, batch: Future, options: dict[str, Any], detail: bool, owners: int
    ) -> Future:
        workers, (context, parts) = self._workers, self._held
        # Where the batch is, and not where the context is, or a copy of the part if that is busy.
        near = workers.near(number)
        if self._mode == "replicated":
            part = parts[number % len(parts)]
            return workers.submit(
                called_here, context, part, batch, options, detail, owners, near=near
            )
        folds = self._mode == "independent"
        n = 1 if folds else len(parts)
        both = workers.submit(dealt_batch, context, batch, options, n, near=near)
        *dealt, rest = workers.split(both, n + 1, near=near)
        found = [
            workers.submit(found_in, context, part, dealt[0 if folds else at], near=home)
            for at, (part, home) in enumerate(zip(parts, workers.homes(parts), strict=True))
        ]
        return workers.submit(
            called_of_taxa, context, rest, found, options, detail, folds, owners, near=near
        )

    def _dealt(self) -> list[Future]:
        """Return parts that have other minimizers each, and together all."""
        workers, (context, parts) = self._workers, self._held
        if self._mode == "replicated" or len(parts) == 1:
            return parts[:1]
        if self._mode == "distributed":
            return parts
        n = len(workers.addresses)
        dealt = [workers.split(workers.submit(dealt_part, context, part, n), n) for part in parts]
        return [
            workers.submit(part_of, context, None, [each[at] for each in dealt]) for at in range(n)
        ]

    def _arrays_in(self, part: Future, *, is_whole: bool) -> Future:
        return self._workers.submit(arrays_in, self._held[0], part, is_whole)

    def _told(self) -> dict[str, Any]:
        letters = int(self._targets.lengths.sum())
        return {"letters": letters, "notes": list(self._notes), "steps": list(self._steps)}

    def _sizes(self) -> tuple[int, int, int, np.ndarray]:
        """Return how many minimizers there are, their bytes and slots, and minimizers by taxon."""
        workers, (context, _) = self._workers, self._held
        tasks = [workers.submit(figures_in, context, part) for part in self._dealt()]
        distinct, nbytes, slots, counts = zip(*workers.results(tasks), strict=True)
        return sum(distinct), sum(nbytes), sum(slots), np.sum(counts, axis=0)

    def _figures(self) -> dict[str, Any]:
        distinct, nbytes, slots, counts = self._sizes()
        made = context_of(self._settings, self.taxonomy, self._targets, None)
        made._told = self._told()
        load = round(distinct / max(slots, 1), 3)
        sizes = {"distinct": distinct, "nbytes": nbytes, "load": load}
        return {**made.stats(), **sizes, "taxa": int(np.count_nonzero(counts))}

    def taxon_counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the taxids that minimizers have, and how many have each."""
        *_, counts = self._sizes()
        numbers = np.flatnonzero(counts)
        return self.taxonomy.taxids[numbers].astype(np.int64), counts[numbers]

    def inspect(self) -> Iterator[str]:
        """Yield the lines of a report of how many minimizers taxa have."""
        yield from kreport(self.taxonomy, *self.taxon_counts())

    def gather(self, device: Device | None = None) -> MinimizerIndex:
        """Return the index as one of this process."""
        workers, backend = self._workers, backends.get(device)
        _, parts = self._held
        parts = parts[:1] if self._mode == "replicated" else parts
        items = (workers.result(workers.submit(contents_of, part)) for part in parts)
        table = folded_items(backend, self.taxonomy, items)
        made = MinimizerIndex(
            backend, self._settings, self.taxonomy, self._targets, table, self._told()
        )
        made._whole = self._whole
        return made
