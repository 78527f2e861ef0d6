"""WorkerIndex: k-mer index on Dask workers, by either rule and in three placements."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import count
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from distributed import Client, Future

from dgpuhash import backend as backends
from dgpuhash.errors import ClosedError
from dgpuhash.kmer import part_tasks as tasks
from dgpuhash.kmer.calls import Calls, call_alone
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.cluster import LettersDone, Workers, check_files, seen_by_workers
from dgpuhash.kmer.databases.estimators import workers_memory
from dgpuhash.kmer.databases.owners import DistinctSample
from dgpuhash.kmer.databases.part_files import save_parts
from dgpuhash.kmer.databases.provenance import step_after, steps_of
from dgpuhash.kmer.distributions import distribution_array, saved_distributions
from dgpuhash.kmer.index_file import nbytes_of, read_index
from dgpuhash.kmer.local_index import IndexBase, LocalIndex, TaxonomyLike
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.rule import Batch, Rows, Rule
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.sequences.reads import ReadFiles, ReadReads
from dgpuhash.kmer.target_runs import dealt_runs, headers_of, runs_on
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.kmer.worker_reads import ReadsOnWorkers, unseen_file
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.tables.serialization import check_absent
from dgpuhash.typing import Device

Item = TypeVar("Item")

# Letters of references whose keys a task finds.
_RUN_LETTERS = 2**26
# Rows of a part that are here at a time.
_GATHERED_ROWS = 2**22


class WorkerIndex(IndexBase):
    """An index on the workers of a cluster.

    Its parts are results of tasks: when a worker is lost, Dask makes those that it had anew on
    others, from the references or the file. Its mode says which keys a part has, and so how a
    batch of reads is called:

    ``"replicated"``
        All, on each worker: one task calls a batch, and each worker calls some batches.
    ``"independent"``
        Those of neighbouring targets: all keys of a batch go to each part, and what parts find is
        merged where the reads are.
    ``"distributed"``
        Those of some hashes: keys of a batch go to the parts that own them.

    Parameters
    ----------
    client : distributed.Client
    settings : SketchSettings or MinimizerSettings
    mode : {"auto", "distributed", "independent", "replicated"}
    device : {"cpu", "cuda"}, optional
        Of the workers.
    """

    local: ClassVar[type[LocalIndex]]
    # Calls are arrays of the host.
    device = "cpu"

    def __init__(self, client: Client, settings: Any, mode: str, device: Device | None) -> None:
        self._workers = Workers(client)
        self._worker_device = device
        self._wanted_mode = mode
        self._mode, self._why = self._workers.mode_for(mode, 0)
        self._rule = self._rule_type(backends.get("cpu"), settings, None, Targets.none())
        self._whole: Taxonomy | None = None
        self._parts: list[Future] = []
        # The rule as workers have it.
        self._rule_there: Future | None = None
        self._notes: list[str] = []
        self._steps: list[dict[str, Any]] = []
        self._distributions = {}
        # Of batches that come one by one: workers take turns.
        self._numbers = count()

    @classmethod
    def build(
        cls,
        references: Any,
        *,
        client: Client,
        mode: str = "auto",
        taxonomy: TaxonomyLike | None,
        device: Device | None = None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        progress: Callable[[int], object] | None = None,
        **settings: Any,
    ) -> Self:
        """Build an index on workers, with the parameters of `build` on one device."""
        made = cls(client, cls._rule_type.settings_of(**settings), mode, device)
        made.add(
            references, taxonomy=taxonomy, accessions=accessions, allow_unplaced=allow_unplaced,
            progress=progress,
        )  # fmt: skip
        return made

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        client: Client,
        mode: str = "auto",
        device: Device | None = None,
    ) -> Self:
        """Load an index from a file that all workers can read.

        Raises
        ------
        FormatError, OSError
            As `load` of one device.
        """
        with interpreting(path):
            saved = read_index(path, cls.rule, has_arrays=False)
            rule = cls._rule_type.of_saved(saved, "cpu")
            made = cls(client, rule.settings, mode, device)
            workers, name = made._workers, seen_by_workers(os.fspath(path))
            made._mode, made._why = workers.mode_for(mode, int(nbytes_of(path) * rule.of_file))
            addresses = workers.addresses
            parts = [
                workers.submit(
                    tasks.loaded_part, cls._rule_type, name, made._mode, len(addresses), at, device,
                    near=address,
                )
                for at, address in enumerate(addresses)
            ]  # fmt: skip
            workers.finish(parts)
            made._notes, made._steps = saved.told["notes"], steps_of(saved.told, saved.targets)
            made._keep(rule, made._sent(rule), parts)
            made._distributions = saved_distributions(saved)
        return made

    @property
    def mode(self) -> str:
        """``"distributed"``, ``"independent"`` or ``"replicated"``."""
        return self._mode

    @property
    def why(self) -> str:
        """Reason for the mode."""
        return self._why

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {len(self.targets.names):,} sequences, {self._mode}, "
            f"{len(self._parts)} parts>"
        )

    def add(
        self,
        references: Paths | References,
        *,
        taxonomy: TaxonomyLike | None = None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Add the sequences in files; numbering continues after the last target.

        The result is that of one build of all files in this order. The index stays as it was where
        this fails.

        Parameters
        ----------
        references, accessions, allow_unplaced
            As for `build`; workers read the files.
        taxonomy : Taxonomy or path, optional
            One that has all taxa of the index, too. None: that of `build`.
        progress : callable, optional
            Is told numbers of letters that workers have read, on other threads.

        Raises
        ------
        SequenceError, TaxonomyError, OSError
            As for `build`.
        IndexLost
            When workers are lost, and what they had cannot be made anew.
        """
        workers, whole = self._workers, self._whole_of(taxonomy)
        references = self._references(references)
        check_files(references.files)
        if not references.is_read:
            read = workers.results(
                [workers.submit(headers_of, seen_by_workers(file)) for file in references.files]
            )
            references.know(*([each[field] for each in read] for field in range(3)))
        notes = references.place(whole, accessions, allow_unplaced=allow_unplaced).notes
        new, letters_before = references.targets, int(self.targets.lengths.sum())
        letters = int(new.lengths.sum())
        if not self._parts:
            nbytes = int(letters * self._rule.nbytes_of_letter)
            self._mode, self._why = workers.mode_for(self._wanted_mode, nbytes)
        self._check_room(references, int(letters_before * self._rule.nbytes_of_letter))
        done = LettersDone(progress, letters)
        rule = self._rule.with_targets(whole, new)
        there = self._sent(rule)
        parts = self._parts_with(there, references, done)
        # What is wrong is told before the index changes.
        workers.finish(parts)
        step = step_after(self, len(references.files), allow_unplaced=allow_unplaced)
        self._whole = whole
        self._steps, self._notes = [*self._steps, step], [*self._notes, *notes]
        self._keep(rule, there, parts)
        done.finish()

    def _sent(self, rule: Rule) -> Future:
        return self._workers.submit(self._rule_type.on, rule, self._worker_device)

    def _keep(self, rule: Rule, there: Future, parts: list[Future]) -> None:
        self._rule, self._rule_there, self._parts = rule, there, parts
        self._distributions = {}

    def _check_room(self, references: References, nbytes: int) -> None:
        """Raise OutOfMemoryError if further references do not fit the workers."""
        workers, settings, device = self._workers, self.settings, self._worker_device or "cpu"

        def sampled(_: References) -> DistinctSample:
            runs = runs_on(workers, references, len(workers.addresses))
            samples = [
                workers.submit(tasks.sampled_run, self._rule_type, settings, device, run)
                for run in runs
            ]
            made = DistinctSample()
            for sample in workers.results(samples):
                made.join(sample)
            return made

        self._rule.estimator(
            device, settings, sampled=sampled,
            memory=lambda nbytes: workers_memory(workers, self._mode, device),
        ).check(references, nbytes)  # fmt: skip

    def _parts_with(self, rule: Future, references: References, done: LettersDone) -> list[Future]:
        """Return the parts extended by further references."""
        workers, old, new = self._workers, self._parts, references.targets
        addresses = workers.addresses
        if self._mode == "independent":
            runs = list(zip(runs_on(workers, references, len(addresses)), addresses, strict=True))
            before = old[0] if old else None
            made = [
                done.of(
                    workers.submit(
                        self._rule_type.part_of_run, rule, run, letters, before, near=address
                    ),
                    letters,
                )
                for run, address in runs
                for letters in [run.letters_of(new)]
            ]
            return self._settled(rule, [*old, *made])
        n = (len(old) or len(addresses)) if self._mode == "distributed" else 1
        nbytes = int(new.lengths.sum() * self._rule.nbytes_of_letter) // n
        runs = dealt_runs(workers, references, _RUN_LETTERS)
        made = [
            done.of(
                workers.submit(tasks.keys_of_run, rule, run, n, nbytes, near=address),
                run.letters_of(new),
            )
            for run, address in runs
        ]
        pieces = [
            workers.split(each, n, near=address)
            for each, (_, address) in zip(made, runs, strict=True)
        ]
        parts = [
            workers.submit(
                tasks.part_with, rule, old[at] if old else None,
                [piece[at] for piece in pieces], near=addresses[at % len(addresses)],
            )
            for at in range(n)
        ]  # fmt: skip
        if self._mode == "distributed":
            return parts
        copies = [workers.submit(tasks.same, parts[0], near=address) for address in addresses[1:]]
        return [*parts, *copies]

    def _settled(self, rule: Future, parts: list[Future]) -> list[Future]:
        """Return parts of neighbouring targets after adjustments that need all of them."""
        return parts

    def _begin(self, number: int, batch: Future, query: Any, seen: Any = None) -> Future:
        """Return the task that calls a batch of reads; `seen` counts their keys."""
        workers, kind, (rule, parts) = self._workers, self._rule_type, self._present
        # Where the batch is, and not where the rule is, or a copy of the part if that is busy.
        near = workers.near(number)
        if self._mode == "replicated":
            part = parts[number % len(parts)]
            made = workers.submit(kind.call_here, rule, part, batch, query, near=near)
        else:
            made = self._through_parts(number, (kind.deal, batch), kind.call, query)
        return made if seen is None else seen.begun(made, near)

    def _through_parts(
        self, number: int, dealt: tuple[Any, ...], call: Callable[..., Any], query: Any
    ) -> Future:
        """Return the task of `call`, given the results of all parts for the keys of a batch.

        `dealt` are the function that deals keys to parts, and what it takes behind the rule.
        """
        workers, (rule, parts), (deal, *arguments) = self._workers, self._present, dealt
        by_targets, near = self._mode == "independent", workers.near(number)
        if self._mode == "replicated":
            parts = [parts[number % len(parts)]]
        query, n = replace(query, by_targets=by_targets), 1 if by_targets else len(parts)
        both = workers.submit(deal, rule, *arguments, query, n, near=near)
        *keys, rest = workers.split(both, n + 1, near=near)
        found = [
            workers.submit(self._rule_type.find, rule, part, keys[at % n], query, near=home)
            for at, (part, home) in enumerate(zip(parts, workers.homes(parts), strict=True))
        ]
        return workers.submit(call, rule, rest, found, query, near=near)

    def call(self, *arrays: Any, detail: bool = False, **options: Any) -> Calls:
        """Return the calls of reads or pairs in arrays, as the index of one device does.

        Raises
        ------
        SpecError, SequenceError
            As the index of one device.
        IndexLost
            When workers are lost, and what they had cannot be made anew.
        """
        backend, calls = backends.get(None, *arrays[::2]), call_alone(self, arrays, detail, options)
        if backend.name == "cpu":
            return calls
        put = backend.from_host
        fields = (getattr(calls, name) for name in Calls.__slots__)
        return Calls(*(None if field is None else put(field) for field in fields))

    def prepare(
        self, batches: Callable[[], Iterator[Sequence[Any]]], **options: Any
    ) -> dict[str, Any]:
        """Return options for `call`, as `SketchIndex.prepare` does; by minimizers all of them."""
        workers = self._workers

        def answers(query: Any) -> Iterator[Any]:
            def begun(number: int, batch: Sequence[Any]) -> list[Future]:
                there = workers.sent(_batch_on_host((batch, {})), number)
                return [self._begin(number, there, query)]

            for _, take in workers.in_order(batches(), begun):
                yield from take()[0]

        return {**self._rule.prepare(answers, options)}

    def prepare_files(self, files: ReadFiles, **options: Any) -> dict[str, Any]:
        """Return options for `call_files`, as `prepare` does; workers read the files."""

        def answers(query: Any) -> Iterator[Any]:
            def begin(number: int, batch: Future) -> Future:
                return self._begin(number, batch, query)

            for _, found in ReadsOnWorkers(self._workers, files, "sizes").asked(begin):
                yield from found

        return {**self._rule.prepare(answers, options)}

    def call_many(
        self,
        batches: Iterable[tuple[Item, Batch]],
        options: Mapping[str, Any],
        *,
        detail: bool = False,
    ) -> Iterator[tuple[Item, Calls]]:
        """Yield items and the calls of their batches in order, with later ones in flight.

        Parameters
        ----------
        batches : iterable of (item, (arrays, qualities))
            Arrays and qualities as `call` takes them.
        options : mapping
            As for `call`.
        detail : bool
            Whether calls have details.
        """
        query, seen = self._rule.query(options, detail=detail), options.get("seen")

        def begin(number: int, item: tuple[Item, Batch]) -> list[Future]:
            batch = self._workers.sent(_batch_on_host(item[1]), number)
            return [self._begin(number, batch, query, seen)]

        for (item, _), take in self._workers.in_order(batches, begin):
            (calls,) = take()
            yield item, calls if seen is None else seen.taken(calls)

    def _batch_calls(self, batch: Batch, query: Any) -> Any:
        """Return the calls of reads on the host, as `Rule.call_here` does."""

        def begin(_: int, batch: Batch) -> list[Future]:
            number = next(self._numbers)
            return [self._begin(number, self._workers.sent(batch, number), query)]

        ((_, take),) = self._workers.in_order([batch], begin)
        (answer,) = take()
        return answer

    def unseen_file(self, files: Sequence[str]) -> str:
        """Return a file that some worker sees differently; nothing if there is none."""
        return unseen_file(self._workers, list(files))

    def call_files(
        self,
        files: ReadFiles,
        options: Mapping[str, Any],
        *,
        detail: bool = False,
        kept: str = "letters",
        consumed: Callable[[int], object] | None = None,
    ) -> Iterator[tuple[ReadReads, Calls]]:
        """Yield batches of reads and their calls in order; workers read the files.

        Parameters
        ----------
        files : ReadFiles
        options : mapping
            As for `call`.
        detail : bool
            Whether calls have details.
        kept : {"sizes", "names", "letters"}
            What of reads comes to this process.
        consumed : callable, optional
            Is told how many bytes of files were read.

        Raises
        ------
        SequenceError, OSError
            As the index of one device.
        IndexLost
            When workers are lost, and what they had cannot be made anew.
        """
        query, seen = self._rule.query(options, detail=detail), options.get("seen")

        def begin(number: int, batch: Future) -> Future:
            return self._begin(number, batch, query, seen)

        for reads, calls in ReadsOnWorkers(self._workers, files, kept, consumed).asked(begin):
            yield reads, calls if seen is None else seen.taken(calls)

    def classify(
        self, reads: Paths, mates: Paths | None = None, *, interleaved: bool = False, **options: Any
    ) -> Classification:
        """Classify the reads of files, which workers read.

        This process reads the standard input, pipes, and files that workers do not see. Parameters
        and errors are those of `Classification`.
        """
        return Classification(self, reads, mates, interleaved=interleaved, **options)  # type: ignore[arg-type]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index to one file, in the format of `load_index`.

        Each worker writes its part where it sees the file; else parts come to this process, and
        are written here, a piece at a time.

        Raises
        ------
        ExistsError
            When the file is there already.
        OSError
            When it cannot be written.
        IndexLost
            When a worker is lost meanwhile, and what it had cannot be made anew.
        """
        check_absent(path, overwrite=overwrite)
        parts = self._dealt()
        arrays = [
            self._workers.submit(tasks.arrays_in, self._present[0], part, len(parts) == 1)
            for part in parts
        ]
        save_parts(
            self._workers, path, arrays, overwrite=overwrite, rule=self.rule,
            settings=asdict(self.settings), taxonomy=self.taxonomy, targets=self.targets,
            told=self._told, whole=distribution_array(self._distributions),
        )  # fmt: skip

    def stats(self) -> dict[str, Any]:
        """Return the statistics of an index on one device, with ``mode``, ``why`` and ``parts``."""
        told = self._rule.stats(self._sizes(), self._told)
        return {**told, "mode": self._mode, "why": self._why, "parts": len(self._parts)}

    def _sizes(self) -> list[Any]:
        rule = self._present[0]
        return self._workers.results(
            [self._workers.submit(self._rule_type.size, rule, part) for part in self._dealt()]
        )

    @property
    def _found(self) -> int:
        workers = self._workers
        return sum(
            workers.results([workers.submit(tasks.found_count, part) for part in self._distinct])
        )

    @property
    def _present(self) -> tuple[Future, list[Future]]:
        """The rule on the workers, and all parts."""
        if self._rule_there is None:
            raise ClosedError("the index was closed; build it again, or load it")
        return self._rule_there, self._parts

    @property
    def _distinct(self) -> list[Future]:
        """The parts, without further copies."""
        parts = self._present[1]
        return parts[:1] if self._mode == "replicated" else parts

    def _dealt(self) -> list[Future]:
        """Return disjoint parts that together have all keys."""
        workers, parts = self._workers, self._distinct
        if self._mode == "distributed" or len(parts) == 1:
            return parts
        rule, n = self._present[0], len(workers.addresses)
        pieces = [
            workers.split(workers.submit(tasks.dealt_part, rule, part, n), n + 1) for part in parts
        ]
        dropped = [each[n] for each in pieces]
        return [
            workers.submit(
                tasks.joined_part, rule, [each[at] for each in pieces], dropped if at == 0 else []
            )
            for at in range(n)
        ]

    def gather(self, device: Device | None = None) -> Any:
        """Gather the index into this process."""
        workers, rule, there = self._workers, self._rule.on(device), self._present[0]
        put = rule.backend.from_host
        dropped: list[np.ndarray] = []

        def rows() -> Iterator[Rows]:
            for part in self._distinct:
                # What of it is here at a time is bounded.
                contents = workers.submit(tasks.contents_of, there, part)
                n, own = workers.result(workers.submit(tasks.extent_of, contents))
                dropped.extend([] if own is None else [own])
                for start in range(0, n, _GATHERED_ROWS):
                    task = workers.submit(tasks.rows_of, contents, start, start + _GATHERED_ROWS)
                    keys, values = workers.result(task)
                    yield put(keys), put(values)

        part, told = rule.part_of_rows(rows(), dropped), self._told
        part = replace(part, found=told.get("found", 0))
        made = self.local._of(rule, part, self._whole, told["notes"], told["steps"])
        made._distributions = self._distributions
        return made

    def close(self) -> None:
        """Free the memory of the workers."""
        self._parts, self._rule_there = [], None


def _batch_on_host(batch: Batch) -> Batch:
    arrays, beside = batch
    here = [None if each is None else _on_host(each) for each in arrays]
    return here, {name: _on_host(each) for name, each in beside.items()}


def _on_host(array: Any) -> np.ndarray:
    return backends.get(None, array).to_host(array) if hasattr(array, "get") else np.asarray(array)
