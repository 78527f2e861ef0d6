"""Read reference sequences as numbered targets, in batches of letters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer.masking import check_mask, masked_batches
from dgpuhash.kmer.placement import Placement, Reference, place_references
from dgpuhash.kmer.sequences.batches import BATCH_LETTERS, SequenceBatch, read_sequences
from dgpuhash.kmer.sequences.files import STDIN, Paths, files_of
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy


class Targets(NamedTuple):
    """Reference sequences in the order of their numbers.

    Attributes
    ----------
    names : list of str
        Their ids: headers up to the first blank.
    files : list of str
    file_of : array of int32
        The place of each target's file in `files`.
    record_in_file : array of int64
        From 0.
    lengths : array of int64
        In letters.
    taxids : array of int64
        0 of those without a place.
    sums : sequence of str
        Of each file: the SHA-256 sum of its bytes; empty where none is known.

    Examples
    --------
    >>> targets = Targets.none()
    >>> len(targets.names), targets.taxids.dtype.name
    (0, 'int64')
    """

    names: list[str]
    files: list[str]
    file_of: np.ndarray
    record_in_file: np.ndarray
    lengths: np.ndarray
    taxids: np.ndarray
    sums: Sequence[str] = ()

    @classmethod
    def none(cls) -> Self:
        """Return the targets of an empty index."""
        empty = np.empty(0, np.int64)
        return cls([], [], np.empty(0, np.int32), empty, empty, empty)

    def join(self, more: Targets) -> Targets:
        """Return these targets followed by others."""
        return Targets(
            self.names + more.names,
            self.files + more.files,
            np.concatenate([self.file_of, more.file_of + np.int32(len(self.files))]),
            np.concatenate([self.record_in_file, more.record_in_file]),
            np.concatenate([self.lengths, more.lengths]),
            np.concatenate([self.taxids, more.taxids]),
            [*self.file_sums, *more.file_sums],
        )

    @property
    def file_sums(self) -> list[str]:
        """The checksum of each file, empty if unknown."""
        return list(self.sums) or [""] * len(self.files)


@dataclass(slots=True)
class ReferenceBatch:
    """Letters of consecutive targets, or of pieces of long ones.

    Attributes
    ----------
    letters : array of uint8
        As they are in the file, or with N in place of those masked.
    offsets : array of int64
        ``n + 1`` positions: piece i has ``letters[offsets[i]:offsets[i + 1]]``.
    targets : array of int64
        The number of each piece's target, from 0.
    starts : array of int64
        Where each piece begins in its target.
    is_cut : bool
        Whether the last piece's target goes on in the next batch; all others end.
    """

    letters: np.ndarray
    offsets: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    is_cut: bool


def numbered_files(paths: Paths, order: str = "path") -> list[str]:
    """Return files in the numbering order of their sequences.

    Parameters
    ----------
    paths : path, glob, folder, URL, "-" or several of them
    order : {"path", "given"}
        By the bytes of the files' paths, or as they were given.

    Raises
    ------
    SpecError
        When the order is another.
    FileNotFoundError
        When a file is not there.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> paths = [folder / name for name in ("b.fa", "a.fa")]
    >>> for path in paths:
    ...     _ = path.write_text(">r\\nACGT\\n")
    >>> [pathlib.Path(name).name for name in numbered_files(paths)]
    ['a.fa', 'b.fa']
    """
    if order not in ("path", "given"):
        raise SpecError(f"order={order!r}; use 'path' or 'given'")
    files = files_of(paths)
    return sorted(files, key=os.fsencode) if order == "path" else files


class References:
    """Sequences of files as targets of an index.

    `batches` reads their letters once. `place` finds their taxa: before `batches` it reads the
    files for their headers, afterwards it knows them. `targets` has all that is known then.

    Parameters
    ----------
    paths : path, glob, folder, URL, "-" or several of them
        FASTA or FASTQ, plain or compressed.
    order : {"path", "given"}
        As for `numbered_files`.
    mask : {"none", "lowercase", "dust"}
        What is masked: nothing, small letters, or letters of low complexity by symmetric DUST.
    known : Targets, optional
        Those of the index already; numbers go on behind them.
    progress : callable, optional
        Is told the number of letters of each batch.

    Raises
    ------
    SpecError
        When `order` or `mask` is another.
    FileNotFoundError
        When a file is not there.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> fasta = pathlib.Path(tempfile.mkdtemp(), "two.fa")
    >>> _ = fasta.write_text(">a one\\nACGT\\n>b\\nGG\\n")
    >>> references = References(fasta)
    >>> [(batch.letters.tobytes(), batch.targets.tolist()) for batch in references.batches()]
    [(b'ACGTGG', [0, 1])]
    >>> references.place(None).taxids.tolist()
    [0, 0]
    >>> references.targets.names, references.targets.lengths.tolist()
    (['a', 'b'], [4, 2])
    """

    def __init__(
        self,
        paths: Paths,
        *,
        order: str = "path",
        mask: str = "none",
        known: Targets | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self.mask: str = check_mask(mask)
        self.files: list[str] = numbered_files(paths, order)
        self._known = Targets.none() if known is None else known
        self._progress = progress
        self._headers: list[str] | None = None
        self._lengths: list[int] = []
        self._sizes: list[int] = []
        self._sums: Sequence[str] = ()
        self._taxids: np.ndarray | None = None
        self.notes: list[str] = []

    @property
    def first(self) -> int:
        """The number of the first target."""
        return len(self._known.names)

    @property
    def letters(self) -> int:
        """Letters of all targets read so far."""
        return sum(self._lengths)

    @property
    def targets(self) -> Targets:
        """The new targets; taxids only after placement."""
        assert self._headers is not None, "read batches, or place references, first"
        sizes = np.array(self._sizes, np.int64)
        n = len(self._headers)
        starts = np.cumsum(sizes) - sizes
        return Targets(
            [Reference(header).id for header in self._headers],
            self.files,
            np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
            np.arange(n, dtype=np.int64) - np.repeat(starts, sizes),
            np.array(self._lengths, np.int64),
            np.zeros(n, np.int64) if self._taxids is None else self._taxids,
            self._sums,
        )

    @property
    def is_read(self) -> bool:
        """Whether headers and lengths are known."""
        return self._headers is not None

    def headers(self) -> tuple[list[str], list[int], str]:
        """Read one file; return the headers and lengths of its records, and its sum."""
        for _ in self._read(0, 1, BATCH_LETTERS):
            pass
        assert self._headers is not None
        return self._headers, self._lengths, self._sums[0]

    def know(
        self,
        headers: Sequence[Sequence[str]],
        lengths: Sequence[Sequence[int]],
        sums: Sequence[str] = (),
    ) -> None:
        """Set headers and lengths of each file's records, and its checksum."""
        self._headers = [header for each in headers for header in each]
        self._lengths = [length for each in lengths for length in each]
        self._sizes = list(map(len, headers))
        self._sums = sums

    def batches(
        self, *, overlap: int | None = None, stride: int = 1, batch_letters: int = BATCH_LETTERS
    ) -> Iterator[ReferenceBatch]:
        """Yield the letters of all targets in batches of about `batch_letters`, in order.

        Parameters
        ----------
        overlap, stride, batch_letters
            As for `read_sequences`: where longer records are cut, and what their pieces share.

        Raises
        ------
        SequenceError
            When a file is not sequences or is damaged, or is another than when it was read for
            headers.
        OSError
            When a file cannot be read.
        """
        yield from masked_batches(
            self.mask, lambda wider: self._batches(wider, stride, batch_letters), overlap, stride
        )

    def _batches(
        self, overlap: int | None, stride: int, batch_letters: int
    ) -> Iterator[ReferenceBatch]:
        """Yield batches as they are in the files."""
        for batch, first in self._read(overlap, stride, batch_letters):
            yield ReferenceBatch(
                batch.letters,
                batch.offsets,
                batch.numbers + (self.first + first),
                batch.starts,
                batch.is_cut,
            )
            if self._progress is not None:
                self._progress(len(batch.letters) - batch.repeated)

    def place(
        self,
        taxonomy: Taxonomy | None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        *,
        allow_unplaced: int = 0,
    ) -> Placement:
        """Find the taxon of each target; return a report of the placement.

        Parameters
        ----------
        taxonomy : Taxonomy or None
            None: no target has a taxon.
        accessions, allow_unplaced
            As for `place_references`.

        Raises
        ------
        TaxonomyError
            As `place_references`; an id of a target that the index has already is there twice.
        SequenceError
            When a file cannot be read twice, or as `batches`; without a taxonomy, when an id comes
            twice.
        OSError
            When a file cannot be read.
        """
        if self._headers is None:
            if STDIN in self.files:
                raise SequenceError(
                    "references are read twice, and the standard input cannot be; name files"
                )
            for _ in self._read(0, 1, BATCH_LETTERS):
                pass
        assert self._headers is not None
        files = np.repeat(np.array(self.files, object), self._sizes).tolist()
        given = [Reference(*each) for each in zip(self._headers, files, strict=True)]
        known = self._known
        there = {name: known.files[at] for name, at in zip(known.names, known.file_of, strict=True)}
        if taxonomy is None:
            _check_ids(given, there)
            found = Placement(np.zeros(len(given), np.int64), [])
        else:
            found = place_references(
                taxonomy, given, accessions, allow_unplaced=allow_unplaced, known=there
            )
        self._taxids, self.notes = found
        return found

    def _read(
        self, overlap: int | None, stride: int, batch_letters: int
    ) -> Iterator[tuple[SequenceBatch, int]]:
        """Yield batches and the number of their file's first record."""
        headers: list[str] = []
        lengths: list[int] = []
        firsts: dict[int, int] = {}
        sums: list[str] = []
        # Files are summed the first time only.
        summed = sums.append if self._headers is None else None
        for at, batch in _with_files(
            self.files, overlap=overlap, stride=stride, batch_letters=batch_letters, summed=summed
        ):
            firsts.setdefault(at, len(headers))
            sizes = np.diff(batch.offsets).tolist()
            if batch.continues:
                lengths[-1] += sizes.pop(0) - batch.repeated
            headers.extend(map(batch.name, range(batch.continues, len(batch))))
            lengths.extend(sizes)
            yield batch, firsts[at]
        if self._headers not in (None, headers):
            raise SequenceError("files of references changed while they were read; build again")
        self._sums = sums or self._sums
        edges = [*firsts.values(), len(headers)]
        self._headers, self._lengths = headers, lengths
        self._sizes = np.diff(edges).tolist()


def targets_of_letters(
    taxonomy: Taxonomy | None,
    offsets: np.ndarray,
    taxids: Any,
    names: Sequence[str] | None,
    known: Targets,
) -> Targets:
    """Return references in arrays as targets numbered after the known ones.

    Without taxids they have no place.

    Raises
    ------
    SequenceError
        When there are other numbers of taxids or names, or a name is there already.
    TaxonomyError
        When a taxid is unknown.
    """
    n, first = len(offsets) - 1, len(known.names)
    given = np.zeros(n, np.int64) if taxids is None else np.asarray(taxids, np.int64)
    if taxonomy is not None:
        given = taxonomy.current(given)
        taxonomy.numbers(given)
    own = [str(first + at + 1) for at in range(n)] if names is None else list(map(str, names))
    if given.shape != (n,) or len(own) != n:
        raise SequenceError(
            f"{given.shape} taxids and {len(own):,} names of {n:,} references; pass one of each"
        )
    if len({*known.names, *own}) < first + n:
        raise SequenceError("names of references are there already; give each one of its own")
    numbers = np.arange(n, dtype=np.int64)
    files = ["letters"] if n else []
    return Targets(own, files, np.zeros(n, np.int32), numbers, np.diff(offsets), given)


def _with_files(files: Sequence[str], **settings: Any) -> Iterator[tuple[int, SequenceBatch]]:
    """Yield the position of each batch's file, and the batch."""
    at, number = 0, -1
    for batch in read_sequences(files, **settings):
        # The same file may come twice.
        is_next = int(batch.numbers[0]) == 0 and not batch.continues
        at += is_next and number >= 0
        number = int(batch.numbers[-1])
        yield at, batch


def _check_ids(given: Sequence[Reference], there: dict[str, str]) -> None:
    for each in given:
        if each.id in there:
            raise SequenceError(
                f"{each.id} of {each.file} is there already, in {there[each.id]}; give each "
                "sequence an id of its own"
            )
        there[each.id] = each.file
