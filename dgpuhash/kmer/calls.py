"""Calls: the taxon or target assigned to each read of a batch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of
from dgpuhash.kmer.sequences.batches import SequenceBatch, ids_of
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from dgpuhash.kmer.references import Targets
    from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

# In place of taxids in runs: k-mers with other letters than A, C, G and T; between two mates.
AMBIGUOUS = -1
MATE_BORDER = -2


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
