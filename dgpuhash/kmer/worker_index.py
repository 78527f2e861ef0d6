"""What indexes of both rules have in common that lie on the workers of a Dask cluster."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from distributed import Client, Future

from dgpuhash import backend as backends
from dgpuhash.errors import ClosedError
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.cluster import Workers, check_files, seen_by_workers
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.target_runs import headers_of
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

__all__ = ["WorkerIndex", "made_there", "part_numbers"]

# Of the golden ratio: neighbouring keys go to all parts.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

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
    # Calls are arrays of the host.
    device = "cpu"

    def __init__(self, client: Client, settings: Any, mode: str, device: str | None) -> None:
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

    @classmethod
    def build(
        cls,
        references: Any,
        *,
        client: Client,
        mode: str = "auto",
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        device: str | None = None,
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
            Is told the number of all letters at the end.

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
            references.know([headers for headers, _ in read], [lengths for _, lengths in read])
        notes = references.place(whole, accessions, allow_unplaced=allow_unplaced).notes
        targets = self._targets.join(references.targets)
        if not self._parts:
            nbytes = int(targets.lengths.sum() * self._bytes_of_letter)
            self._mode, self._why = workers.mode_for(self._asked, nbytes)
        self._take(whole, references, targets)
        self._whole, self._targets = whole, targets
        self._notes = [*self._notes, *notes]
        if progress is not None:
            progress(int(references.targets.lengths.sum()))

    @property
    @abstractmethod
    def _bytes_of_letter(self) -> float:
        """About how many bytes of memory a letter of the references takes."""

    @abstractmethod
    def _take(self, whole: Taxonomy | None, references: References, targets: Targets) -> None:
        """Make parts with further references; `targets` are all."""

    @abstractmethod
    def _checked(self, options: Mapping[str, Any]) -> Any:
        """Return options of calls, or raise SpecError."""

    @abstractmethod
    def _begin(self, number: int, batch: Future, options: Any, *, detail: bool) -> Future:
        """Return the task that makes the calls of a batch of reads."""

    @abstractmethod
    def gather(self, device: str | None = None) -> Any:
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

        def begin(number: int, batch: Future) -> Future:
            return self._begin(number, batch, chosen, detail=detail)

        def data(item: tuple[Item, Batch]) -> Batch:
            arrays, beside = item[1]
            here = [None if each is None else _on_host(each) for each in arrays]
            return here, {name: _on_host(each) for name, each in beside.items()}

        for (item, _), calls in self._workers.in_order(batches, begin, data):
            yield item, calls

    def classify(
        self,
        reads: Paths,
        mates: Paths | None = None,
        *,
        interleaved: bool = False,
        **options: Any,
    ) -> Classification:
        """Return the calls of the reads in files, which this process reads.

        Parameters are those of `Classification`, and its errors.
        """
        return Classification(self, reads, mates, interleaved=interleaved, **options)  # type: ignore[arg-type]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the file that the index of one device would write.

        Raises
        ------
        ExistsError
            When the file is there already.
        OSError
            When it cannot be written.
        """
        self.gather().save(path, overwrite=overwrite)

    def stats(self) -> dict[str, Any]:
        """Return what the index of one device tells, and ``mode``, ``why`` and ``parts``."""
        told: dict[str, Any] = self.gather().stats()
        return {**told, "mode": self._mode, "why": self._why, "parts": len(self._parts)}

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


def part_numbers(keys: Any, n: int) -> Any:
    """Return which of n parts has each key, by its hash."""
    return (keys.astype(np.uint64) * _FACTOR >> np.uint64(40)) % np.uint64(n)


def made_there(workers: Workers, parts: Sequence[Future]) -> None:
    """Wait for parts where they are."""
    workers.results([workers.submit(_done, part) for part in parts])


def _same(part: Any) -> Any:
    return part


def _done(part: Any) -> None:
    """Take a part: it is made."""


def _on_host(array: Any) -> np.ndarray:
    return backends.get(None, array).to_host(array) if hasattr(array, "get") else np.asarray(array)
