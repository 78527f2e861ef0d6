"""What indexes of both rules have in common that lie on the workers of a Dask cluster."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from distributed import Client, Future

from dgpuhash import backend as backends
from dgpuhash.errors import ClosedError
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.cluster import LettersDone, Workers, check_files, seen_by_workers
from dgpuhash.kmer.databases.distinct import DistinctSample
from dgpuhash.kmer.databases.estimators import Estimator, workers_memory
from dgpuhash.kmer.databases.part_files import save_parts
from dgpuhash.kmer.databases.provenance import Step, provenance_of, step_after
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.sequences.reads import ReadFiles, ReadReads
from dgpuhash.kmer.target_runs import headers_of, runs_on
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.kmer.worker_reads import ReadsOnWorkers, unseen_file
from dgpuhash.tables.serialization import check_absent
from dgpuhash.typing import Device

Item = TypeVar("Item")
Batch = tuple[Sequence[Any], Mapping[str, Any]]


class WorkerIndex(ABC):
    """An index on the workers of a cluster.

    Its parts are results of tasks: when a worker is lost, Dask makes those that it had anew on
    others, from the references or the file.

    Parameters
    ----------
    client : distributed.Client
    settings : SketchSettings or MinimizerSettings
    mode : {"auto", "distributed", "independent", "replicated"}
    device : {"cpu", "cuda"}, optional
        Of the workers.
    """

    rule: ClassVar[str]
    settings_of: ClassVar[Callable[..., Any]]
    estimator_of: ClassVar[Callable[..., Estimator]]
    sampled_run: ClassVar[Callable[..., DistinctSample]]
    # Calls are arrays of the host.
    device = "cpu"

    def __init__(self, client: Client, settings: Any, mode: str, device: Device | None) -> None:
        self._workers = Workers(client)
        self._settings, self._worker_device = settings, device
        self._asked = mode
        self._mode, self._why = self._workers.mode_for(mode, 0)
        self._whole: Taxonomy | None = None
        self._taxonomy: Taxonomy | None = None
        self._targets = Targets.none()
        self._parts: list[Future] = []
        # What all parts need to know.
        self._context: Future | None = None
        self._notes: list[str] = []
        self._steps: list[dict[str, Any]] = []

    @classmethod
    def build(
        cls,
        references: Any,
        *,
        client: Client,
        mode: str = "auto",
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        device: Device | None = None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        progress: Callable[[int], object] | None = None,
        **settings: Any,
    ) -> Self:
        """Return an index as `build` of one device does, whose parameters these are."""
        made = cls(client, cls.settings_of(**settings), mode, device)
        made.add(
            references, taxonomy=taxonomy, accessions=accessions, allow_unplaced=allow_unplaced,
            progress=progress,
        )  # fmt: skip
        return made

    @property
    def settings(self) -> Any:
        """What the index was built with."""
        return self._settings

    @property
    def targets(self) -> Targets:
        """The references in the order of their numbers."""
        return self._targets

    @property
    def mode(self) -> str:
        """``"distributed"``, ``"independent"`` or ``"replicated"``."""
        return self._mode

    @property
    def why(self) -> str:
        """Why it is this mode."""
        return self._why

    @property
    def provenance(self) -> list[Step]:
        """What was done to make the index, in order: dates, versions, options, files."""
        return provenance_of(self._steps, self._targets)

    def add(
        self,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Add the sequences in files; their numbers go on behind those that are there.

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
        settings, workers = self._settings, self._workers
        whole = self._whole or self._taxonomy
        if taxonomy is not None:
            whole = taxonomy if isinstance(taxonomy, Taxonomy) else Taxonomy.read(taxonomy)
        if not isinstance(references, References):
            references = References(
                references, order=settings.order, mask=settings.mask, known=self._targets
            )
        check_files(references.files)
        if not references.is_read:
            read = workers.results(
                [workers.submit(headers_of, seen_by_workers(file)) for file in references.files]
            )
            references.know(*([each[field] for each in read] for field in range(3)))
        notes = references.place(whole, accessions, allow_unplaced=allow_unplaced).notes
        targets = self._targets.join(references.targets)
        if not self._parts:
            nbytes = int(targets.lengths.sum() * self._bytes_of_letter)
            self._mode, self._why = workers.mode_for(self._asked, nbytes)
        self._check_room(references)
        done = LettersDone(progress, int(references.targets.lengths.sum()))
        self._take(whole, references, targets, done)
        step = step_after(self, len(references.files), allow_unplaced=allow_unplaced)
        self._steps = [*self._steps, step]
        self._whole, self._targets = whole, targets
        self._notes = [*self._notes, *notes]
        done.finish()

    def _check_room(self, references: References) -> None:
        """Raise OutOfMemoryError when further references will not fit the workers."""
        workers, settings, device = self._workers, self._settings, self._worker_device or "cpu"

        def sampled(_: References) -> DistinctSample:
            runs = runs_on(workers, references, len(workers.addresses))
            tasks = [workers.submit(self.sampled_run, settings, device, run) for run in runs]
            made = DistinctSample()
            for sample in workers.results(tasks):
                made.join(sample)
            return made

        estimator = self.estimator_of(
            device, settings, sampled=sampled,
            memory=lambda nbytes: workers_memory(workers, self._mode, device),
        )  # fmt: skip
        estimator.check(references, int(self._targets.lengths.sum() * self._bytes_of_letter))

    @property
    @abstractmethod
    def _bytes_of_letter(self) -> float:
        """About how many bytes of memory a letter of the references takes."""

    def _nbytes_for(self, targets: Targets, n: int) -> int:
        """Return about how many bytes each of n owners has of targets."""
        return int(targets.lengths.sum() * self._bytes_of_letter) // n

    @abstractmethod
    def _take(
        self,
        whole: Taxonomy | None,
        references: References,
        targets: Targets,
        done: LettersDone,
    ) -> None:
        """Make parts with further references; `targets` are all, and `done` tells progress."""

    @abstractmethod
    def _checked(self, options: Mapping[str, Any]) -> Any:
        """Return options of calls, or raise SpecError."""

    @abstractmethod
    def _begin(self, number: int, batch: Future, options: Any, *, detail: bool) -> Future:
        """Return the task that makes the calls of a batch of reads."""

    @abstractmethod
    def gather(self, device: Device | None = None) -> Any:
        """Return the index as one of this process."""

    def call(self, *arrays: Any, detail: bool = False, **options: Any) -> Calls:
        """Return the calls of reads or pairs in arrays, as the index of one device does.

        Raises
        ------
        SpecError, SequenceError
            As the index of one device.
        IndexLost
            When workers are lost, and what they had cannot be made anew.
        """
        backend = backends.get(None, *arrays[::2])
        names = ("qualities", "mate_qualities")
        beside = {name: options.pop(name) for name in names if name in options}
        ((_, calls),) = self.call_many([(None, (arrays, beside))], options, detail=detail)
        if backend.name == "cpu":
            return calls
        put = backend.from_host
        fields = (getattr(calls, name) for name in Calls.__slots__)
        return Calls(*(None if field is None else put(field) for field in fields))

    def call_many(
        self,
        batches: Iterable[tuple[Item, Batch]],
        options: Mapping[str, Any],
        *,
        detail: bool = False,
    ) -> Iterator[tuple[Item, Calls]]:
        """Yield items and the calls of their batches in order, some of which are under way.

        Parameters
        ----------
        batches : iterable of (item, (arrays, qualities))
            Arrays and qualities as `call` takes them.
        options : mapping
            As for `call`.
        detail : bool
            Whether calls have details.
        """
        chosen = self._checked(options)

        def begin(number: int, item: tuple[Item, Batch]) -> list[Future]:
            batch = self._workers.sent(_batch_on_host(item[1]), number)
            return [self._begin(number, batch, chosen, detail=detail)]

        for (item, _), take in self._workers.in_order(batches, begin):
            (calls,) = take()
            yield item, calls

    def unseen_file(self, files: Sequence[str]) -> str:
        """Return a file that some worker does not see as this process does; nothing without one."""
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
        """Yield batches of the reads in files and their calls in order; workers read the files.

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
        chosen = self._checked(options)

        def begin(number: int, batch: Future) -> Future:
            return self._begin(number, batch, chosen, detail=detail)

        yield from ReadsOnWorkers(self._workers, files, kept, consumed).asked(begin)

    def classify(
        self,
        reads: Paths,
        mates: Paths | None = None,
        *,
        interleaved: bool = False,
        **options: Any,
    ) -> Classification:
        """Return the calls of the reads in files, which workers read.

        This process reads the standard input, pipes, and files that workers do not see. Parameters
        and errors are those of `Classification`.
        """
        return Classification(self, reads, mates, interleaved=interleaved, **options)  # type: ignore[arg-type]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index to one file, which `load_index` reads as any other.

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
        arrays = [self._arrays_in(part, is_whole=len(parts) == 1) for part in parts]
        save_parts(
            self._workers, path, arrays, overwrite=overwrite, rule=self.rule,
            settings=asdict(self._settings), taxonomy=self._taxonomy, targets=self._targets,
            told=self._told(),
        )  # fmt: skip

    def stats(self) -> dict[str, Any]:
        """Return what the index of one device tells, and ``mode``, ``why`` and ``parts``."""
        told = self._figures()
        return {**told, "mode": self._mode, "why": self._why, "parts": len(self._parts)}

    @abstractmethod
    def _dealt(self) -> list[Future]:
        """Return parts that have other keys each, and together all."""

    @abstractmethod
    def _arrays_in(self, part: Future, *, is_whole: bool) -> Future:
        """Return the task of what a file has of a part."""

    @abstractmethod
    def _told(self) -> dict[str, Any]:
        """Return what a file tells beside settings, taxonomy and targets."""

    @abstractmethod
    def _figures(self) -> dict[str, Any]:
        """Return what `stats` of one device returns."""

    def _copied(self, part: Future) -> list[Future]:
        """Return a part, made on the first worker, and copies on the others."""
        workers = self._workers
        others = workers.addresses[1:]
        return [part, *(workers.submit(_same, part, near=address) for address in others)]

    @property
    def _held(self) -> tuple[Future, list[Future]]:
        """What all parts need to know, and the parts."""
        if self._context is None:
            raise ClosedError("the index was closed; build it again, or load it")
        return self._context, self._parts

    def close(self) -> None:
        """Free the memory of the workers."""
        self._parts, self._context = [], None


def _same(part: Any) -> Any:
    return part


def _batch_on_host(batch: Batch) -> Batch:
    arrays, beside = batch
    here = [None if each is None else _on_host(each) for each in arrays]
    return here, {name: _on_host(each) for name, each in beside.items()}


def _on_host(array: Any) -> np.ndarray:
    return backends.get(None, array).to_host(array) if hasattr(array, "get") else np.asarray(array)
