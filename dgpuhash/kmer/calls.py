"""Reads of a batch in arrays, and their calls."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import DeviceError, SequenceError
from dgpuhash.kmer.counts.tally import checked_letters
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of
from dgpuhash.kmer.sequences.batches import SequenceBatch, ids_of
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from dgpuhash.kmer.references import Targets
    from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

# In place of taxids in runs: k-mers with other letters than A, C, G and T; between two mates.
AMBIGUOUS = -1
MATE_BORDER = -2
# Of reads and of mates, in the arguments of `call`.
_QUALITIES = ("qualities", "mate_qualities")


@dataclass(frozen=True, slots=True)
class Reads:
    """Single reads, or the first or second mates.

    Attributes
    ----------
    letters : array of uint8
    offsets : array of int64
        Where each read begins, and the last one's end.
    qualities : array of uint8 or None
        Of each letter, as FASTQ writes them.
    """

    letters: Any
    offsets: Any
    qualities: Any = None

    @classmethod
    def of(cls, backend: Backend, letters: Any, offsets: Any, qualities: Any = None) -> Reads:
        """Return reads in arrays of any device as those of a backend.

        Raises
        ------
        SequenceError
            When the offsets are not those of records in the letters, or there is another number of
            qualities.
        DeviceError
            When they are on a GPU, and the backend is a CPU.
        """
        came_from = backends.get(None, letters)
        letters, offsets = checked_letters(came_from, letters, offsets)
        if qualities is not None:
            qualities = came_from.asarray(qualities, np.uint8)
            if len(qualities) != len(letters):
                raise SequenceError(
                    f"{len(qualities):,} qualities of {len(letters):,} letters; pass one of each"
                )
        if came_from is backend:
            return cls(letters, offsets, qualities)
        if came_from.name != "cpu":
            raise DeviceError(
                "the reads are on a GPU and the index is on a CPU; load it with device='cuda', or "
                "pass cupy.asnumpy(letters)"
            )
        put = backend.from_host
        return cls(put(letters), put(offsets), None if qualities is None else put(qualities))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def between(self, rows: tuple[int, int], span: tuple[int, int]) -> Reads:
        """Return a range of the reads, given the span of their letters."""
        (first, last), (start, end) = rows, span
        qualities = None if self.qualities is None else self.qualities[start:end]
        return Reads(self.letters[start:end], self.offsets[first : last + 1] - start, qualities)


def reads_of(
    backend: Backend, arrays: Sequence[Any], qualities: Mapping[str, Any] | None = None
) -> list[Reads]:
    """Return the reads of a batch, and their mates if it has any.

    Parameters
    ----------
    backend : Backend
    arrays : sequence of array
        Letters and offsets of reads, and those of mates, which may be None.
    qualities : mapping, optional
        Those of letters: ``qualities`` and ``mate_qualities``.

    Raises
    ------
    SequenceError, DeviceError
        As `Reads.of`; also when there are other numbers of reads and of mates.

    Examples
    --------
    >>> arrays = np.frombuffer(b"ACGTACG", np.uint8), np.array([0, 3, 7])
    >>> [len(side) for side in reads_of(backends.get("cpu"), [*arrays, None, None])]
    [2]
    """
    sides = [
        Reads.of(backend, letters, offsets, (qualities or {}).get(name))
        for name, letters, offsets in zip(_QUALITIES, arrays[::2], arrays[1::2], strict=False)
        if letters is not None
    ]
    reads, mates = len(sides[0]), len(sides[-1])
    if reads != mates:
        raise SequenceError(f"{reads:,} reads and {mates:,} mates; pass one mate of each read")
    return sides


def slices(backend: Backend, sides: list[Reads], letters: int) -> Iterator[list[Reads]]:
    """Yield reads and their mates in slices of about a number of letters."""
    n, total = len(sides[0]), sum(len(side.letters) for side in sides)
    if total <= letters or n <= 1:
        yield sides
        return
    xp, ends = backend.xp, sum(side.offsets for side in sides)
    marks = backend.to_host(xp.searchsorted(ends, xp.arange(letters, total, letters)))
    edges = np.unique(np.concatenate([[0], marks, [n]]))
    # The host waits once, for the places of all sides.
    at = backend.from_host(edges)
    places = backend.to_host(xp.stack([side.offsets[at] for side in sides])).tolist()
    for rows, *spans in zip(pairwise(edges.tolist()), *map(pairwise, places), strict=True):
        yield [side.between(rows, span) for side, span in zip(sides, spans, strict=True)]


@dataclass(slots=True)
class Calls:
    """The call of each read, or pair, of a batch, by either rule.

    Attributes
    ----------
    taxids : array of int64
        0 of those without a call; below 0 the number of a target, from 1.
    hits : array of uint32
        MetaCache's rule: hits of the best candidate. Kraken 2's: k-mers in the clade that decided.
    detail_offsets : array of int64, optional
        ``n + 1`` positions: details of read i are those from ``detail_offsets[i]`` to before
        ``detail_offsets[i + 1]``. None: they were not asked for.
    detail_taxids : array of int64, optional
        MetaCache's rule: the candidates, best first. Kraken 2's: the taxa of runs of k-mers in
        their order, 0 without one, `AMBIGUOUS` and `MATE_BORDER`.
    detail_counts : array of uint32, optional
        Hits of each candidate; k-mers of each run.

    Examples
    --------
    >>> calls = Calls(np.array([562, 0]), np.array([31, 0], np.uint32))
    >>> len(calls), calls.detail_offsets is None
    (2, True)
    """

    taxids: Any
    hits: Any
    detail_offsets: Any = None
    detail_taxids: Any = None
    detail_counts: Any = None

    def __len__(self) -> int:
        return len(self.taxids)

    def on_host(self, backend: Backend) -> Calls:
        """Return the calls as NumPy arrays."""
        details = (self.detail_offsets, self.detail_taxids, self.detail_counts)
        return Calls(
            backend.to_host(self.taxids),
            backend.to_host(self.hits),
            *(None if array is None else backend.to_host(array) for array in details),
        )


def calls_of_slices(backend: Backend, parts: list[Calls]) -> Calls:
    """Return the calls of slices of reads concatenated."""
    if len(parts) == 1:
        return parts[0]
    join = backend.xp.concatenate
    made = Calls(join([part.taxids for part in parts]), join([part.hits for part in parts]))
    if parts[0].detail_offsets is not None:
        sizes = [backend.xp.diff(part.detail_offsets) for part in parts]
        made.detail_offsets = backend.zeros(len(made) + 1, np.int64)
        backend.xp.cumsum(join(sizes), out=made.detail_offsets[1:])
        made.detail_taxids = join([part.detail_taxids for part in parts])
        made.detail_counts = join([part.detail_counts for part in parts])
    return made


@dataclass(slots=True)
class CalledReads:
    """Reads, or pairs, of a batch and their calls.

    Attributes
    ----------
    reads : SequenceBatch
        Single reads, or first mates.
    mates : SequenceBatch or None
    calls : Calls
        On the host.
    """

    reads: SequenceBatch
    mates: SequenceBatch | None
    calls: Calls

    def __len__(self) -> int:
        return len(self.calls)

    @property
    def ids(self) -> Any:
        """The id of each read as an Arrow array of bytes; of pairs without /1 and /2."""
        return ids_of(self.reads, paired=self.mates is not None)

    @property
    def lengths(self) -> np.ndarray:
        """Letters of each read, or of both mates."""
        found = np.diff(self.reads.offsets)
        return found if self.mates is None else found + np.diff(self.mates.offsets)

    @property
    def letters(self) -> int:
        """Letters of all reads."""
        mates = 0 if self.mates is None else int(self.mates.offsets[-1])
        return int(self.reads.offsets[-1]) + mates


class CallTally:
    """Running counts of reads, letters and calls, with the elapsed time."""

    def __init__(self) -> None:
        self.reads: int = 0
        self.letters: int = 0
        self.seconds: float = 0.0
        self.calls: np.ndarray = np.empty(0, np.int64)
        self.counts: np.ndarray = np.empty(0, np.int64)
        self._start = time.perf_counter()
        self._counts: dict[int, int] = {}

    def add(self, called: CalledReads) -> None:
        """Count a batch."""
        self.reads += len(called)
        self.letters += called.letters
        found = numbers_of(called.calls.taxids).value_counts()
        columns = (found.field(at).to_pylist() for at in range(2))
        for call, count in zip(*columns, strict=True):
            self._counts[call] = self._counts.get(call, 0) + count

    def finish(self) -> CallTally:
        """Return the tally with all counts in arrays."""
        self.seconds = time.perf_counter() - self._start
        self.calls = np.array(sorted(self._counts), np.int64)
        self.counts = np.array([self._counts[call] for call in self.calls.tolist()], np.int64)
        return self


class Index(Protocol):
    """Protocol of an index of either rule: classify batches of letters."""

    rule: ClassVar[str]

    @property
    def device(self) -> Device:
        """Device of the index."""

    @property
    def taxonomy(self) -> Taxonomy | None:
        """The taxa of its targets."""

    @property
    def targets(self) -> Targets:
        """References of the index."""

    def call(self, *arrays: Any, **options: Any) -> Calls:
        """Return the calls of a batch, given letters and offsets of reads and mates."""


def call_alone(
    index: Any, arrays: Sequence[Any], detail: bool, options: Mapping[str, Any]
) -> Calls:
    """Return the calls of one batch by an index's `call_many`."""
    given = index.prepare(lambda: iter([arrays]), **options)
    qualities = {name: given.pop(name) for name in _QUALITIES if name in given}
    ((_, calls),) = index.call_many([(None, (arrays, qualities))], given, detail=detail)
    made: Calls = calls
    return made
