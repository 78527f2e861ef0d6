"""KmerCounts: exact counts of the k-mers of sequences."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import SpecError
from dgpuhash.kmer.counts.counting import Bounds, Counted, count, sum_counts
from dgpuhash.kmer.counts.fold import WIDE_KMER, histogram
from dgpuhash.kmer.counts.lookup import KmerLookup
from dgpuhash.kmer.counts.partitions import WORD_BASES
from dgpuhash.kmer.counts.saved import lines, load_counts, save_counts, sorted_pieces
from dgpuhash.kmer.counts.tally import Tally, check_k, checked_letters, slices
from dgpuhash.kmer.sequences.batches import BATCH_LETTERS, read_sequences
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Array, Device, HasArray

if TYPE_CHECKING:
    from distributed import Client


_LEAST_MEMORY = 2**24
# Of arrays, at a time.
_SLICE_LETTERS = {"cpu": BATCH_LETTERS, "cuda": 2**28}
_COUNT = np.dtype(np.uint64)
# What the header of a saved file tells beside the counts.
_TOLD = ("records", "letters", "kmers", "super_kmers", "super_kmer_nbytes", "spilled", "inserts")


class KmerCounts:
    """Exact counts of the k-mers of sequences, on a CPU or a GPU.

    `count` reads files; `from_letters` takes arrays. K-mers are neighbouring letters A, C, G and T
    of any case; any other letter parts them. A k-mer and its reverse complement are one, the lower
    of the two by their letters, unless `canonical` is False. K-mers are dealt out to parts by
    their minimizers, and each group of parts is counted by a table of its own.

    Examples
    --------
    >>> letters = np.frombuffer(b"ACGTACGTTACG", np.uint8)
    >>> counts = KmerCounts.from_letters(letters, [0, 8, 12], k=3)
    >>> len(counts), counts.total
    (2, 8)
    >>> counts.query(["ACG", "CGT", "TAC", "GGG"])
    array([5, 5, 3, 0], dtype=uint64)
    >>> counts.histogram()
    (array([3, 5], dtype=uint64), array([1, 1]))
    """

    def __init__(
        self, k: int, canonical: bool, device: Device, made: Counted, told: Mapping[str, int]
    ) -> None:
        self._k, self._canonical = k, canonical
        self._backend = backends.get(device)
        self._edges, self._groups = made.edges, made.groups
        self._told = {name: int(told[name]) for name in _TOLD}
        self._lookup = KmerLookup(self._backend, k, canonical, made.edges, made.groups)

    @classmethod
    def count(
        cls,
        paths: Paths,
        k: int = 31,
        *,
        canonical: bool = True,
        min_count: int = 1,
        max_count: int | None = None,
        min_quality: int = 0,
        memory: int | None = None,
        device: Device | None = None,
        client: Client | None = None,
        progress: Callable[[int], object] | None = None,
        consumed: Callable[[int], object] | None = None,
    ) -> Self:
        """Count the k-mers in files.

        Parameters
        ----------
        paths : path, glob, folder, URL, "-" or several of them
            FASTA or FASTQ, plain or compressed, as `read_sequences` takes them.
        k : int
            Letters of a k-mer, 1 to 64.
        canonical : bool
            Whether a k-mer and its reverse complement are one.
        min_count, max_count : int, optional
            K-mers with other counts are left out.
        min_quality : int
            Letters of a lower quality part k-mers, as N does.
        memory : int, optional
            Bytes, at least 16 MiB: what is more passes through files in the folder for temporary
            files. The result is the same. None: super-k-mers beyond 256 MiB do.
        device : {"cpu", "cuda"}, optional
            None: a CPU.
        client : distributed.Client, optional
            The workers of its cluster read ranges of the files and count; the counts come here.
        progress, consumed : callable, optional
            Is told the number of letters of each batch; of bytes of files, on another thread.

        Raises
        ------
        SequenceError
            When a file is not sequences, is damaged or cut short, or all records are shorter than
            `k`.
        SpecError
            When `k`, a count or `memory` is impossible.
        FileNotFoundError, OSError
            When a file is not there, or cannot be read or written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> fasta = pathlib.Path(tempfile.mkdtemp(), "one.fa")
        >>> _ = fasta.write_text(">r\\nAACCN\\nTT\\n")
        >>> KmerCounts.count(fasta, k=2).query(["AA", "GG", "AC"])
        array([2, 1, 1], dtype=uint64)
        """
        check_k(k)
        size = BATCH_LETTERS
        if memory is not None:
            if memory < _LEAST_MEMORY:
                raise SpecError(f"memory={memory:,}; use {_LEAST_MEMORY:,} bytes or more")
            size = min(size, memory // 32)
        bounds = Bounds(min_count, max_count)
        if client is not None:
            from dgpuhash.kmer.counts.on_workers import CountPlan, counted_on_workers

            plan = CountPlan(k, canonical, bounds, min_quality, size, memory, device)
            return cls._of(*counted_on_workers(client, paths, plan, progress), canonical, "cpu")
        backend = backends.get(device)
        read = Tally(k, min_quality, progress)
        batches = read_sequences(paths, overlap=k - 1, batch_letters=size, consumed=consumed)
        arrays = (
            (backend.from_host(letters), backend.from_host(offsets))
            for letters, offsets in read.letters_of(batches)
        )
        return cls._counted(arrays, read, backend, canonical, bounds, memory)

    @classmethod
    def from_letters(
        cls,
        letters: HasArray,
        offsets: HasArray | Sequence[int],
        k: int = 31,
        *,
        canonical: bool = True,
        min_count: int = 1,
        max_count: int | None = None,
    ) -> Self:
        """Count the k-mers in arrays, on their device.

        Parameters
        ----------
        letters : array of uint8
            The records, one after another.
        offsets : array of int64
            ``n + 1`` positions: record i is ``letters[offsets[i]:offsets[i + 1]]``.
        k, canonical, min_count, max_count
            As those of `count`.

        Raises
        ------
        SpecError
            When `k` or a count is impossible.
        SequenceError
            When `offsets` are not those of records in `letters`, or all are shorter than `k`.

        Examples
        --------
        >>> counts = KmerCounts.from_letters(np.frombuffer(b"AAAA", np.uint8), [0, 4], k=2)
        >>> counts.query(["TT"])
        array([3], dtype=uint64)
        """
        check_k(k)
        backend = backends.get(None, letters)
        letters, offsets = checked_letters(backend, letters, offsets)
        read = Tally(k)
        read.add(len(offsets) - 1, len(letters), backend.xp.diff(offsets))
        batch = slices(backend, letters, offsets, k, _SLICE_LETTERS[backend.name])
        return cls._counted(batch, read, backend, canonical, Bounds(min_count, max_count), None)

    @classmethod
    def _counted(
        cls,
        batches: Iterable[tuple[Any, Any]],
        read: Tally,
        backend: Backend,
        canonical: bool,
        bounds: Bounds,
        memory: int | None,
    ) -> Self:
        made = count(backend, batches, read.k, canonical=canonical, bounds=bounds, memory=memory)
        return cls._of(made, read, canonical, backend.name)

    @classmethod
    def _of(cls, made: Counted, read: Tally, canonical: bool, device: Device) -> Self:
        read.check()
        told = {"records": read.records, "letters": read.letters, **made.told}
        return cls(read.k, canonical, device, made, told)

    @property
    def k(self) -> int:
        """Letters of a k-mer."""
        return self._k

    @property
    def canonical(self) -> bool:
        """Whether a k-mer and its reverse complement count as one."""
        return self._canonical

    @property
    def total(self) -> int:
        """Sum of all counts, exact."""
        return sum(int(group.counts.sum(dtype=_COUNT)) for group in self._groups)

    @property
    def told(self) -> dict[str, int]:
        """Statistics of the input, without reading the counts."""
        return dict(self._told)

    def __len__(self) -> int:
        return self._groups.rows

    def __repr__(self) -> str:
        of = "canonical k-mers" if self._canonical else "k-mers"
        return f"<KmerCounts: {len(self):,} {of} of {self._k} letters, {self._backend.name}>"

    def items(self, *, sort: bool = False) -> tuple[Array, Array]:
        """Return all k-mers as numbers, and their counts (uint64), on the device.

        A number has 2 bits for each base, A0 C1 G2 T3, the first one highest. For k of more than
        32 k-mers are of the dtype ``[("high", "<u8"), ("low", "<u8")]``, on the host.

        Examples
        --------
        >>> KmerCounts.from_letters(np.frombuffer(b"ACC", np.uint8), [0, 3], k=2).items(sort=True)
        (array([1, 5], dtype=uint64), array([1, 1], dtype=uint64))
        """
        join = self._backend.xp.concatenate
        groups, k = self._groups, self._k
        pieces = list(sorted_pieces(self._backend, groups, k)) if sort else groups
        low = join([piece.low for piece in pieces])
        counts = join([piece.counts for piece in pieces]).astype(_COUNT, copy=False)
        if k <= WORD_BASES:
            return low, counts
        high = join([piece.high for piece in pieces])
        wide = np.empty(len(low), WIDE_KMER)
        wide["high"], wide["low"] = self._backend.to_host(high), self._backend.to_host(low)
        return wide, counts

    def histogram(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct counts (uint64), ascending, and the k-mers of each (int64).

        Examples
        --------
        >>> KmerCounts.from_letters(np.frombuffer(b"AAACC", np.uint8), [0, 5], k=1).histogram()
        (array([2, 3], dtype=uint64), array([1, 1]))
        """
        return histogram(self._backend, self._groups)

    def dump(self, file: BinaryIO, *, sort: bool = False) -> None:
        """Write each k-mer, a tab and its count as a line to an open binary file.

        Parameters
        ----------
        file : binary file
        sort : bool
            Whether lines are in the order of their k-mers' letters.

        Examples
        --------
        >>> import io
        >>> text = io.BytesIO()
        >>> KmerCounts.from_letters(np.frombuffer(b"AACC", np.uint8), [0, 4], k=2).dump(
        ...     text, sort=True
        ... )
        >>> text.getvalue()
        b'AA\\t1\\nAC\\t1\\nCC\\t1\\n'
        """
        for text in lines(self._backend, self._groups, self._k, is_sorted=sort):
            file.write(text.data)

    def query(self, kmers: Iterable[str | bytes]) -> np.ndarray:
        """Return the count of each k-mer (uint64), 0 if absent.

        Parameters
        ----------
        kmers : sequence of str or bytes
            Of `k` letters A, C, G and T, of any case.

        Raises
        ------
        SequenceError
            When one has other letters, or another number of them.

        Examples
        --------
        >>> counts = KmerCounts.from_letters(np.frombuffer(b"AACC", np.uint8), [0, 4], k=2)
        >>> counts.query(["AA", "tt", "GT", "CG"])
        array([1, 1, 1, 0], dtype=uint64)
        """
        return self._lookup.counts_of(kmers)

    def merge(self, other: KmerCounts) -> KmerCounts:
        """Return the sum of two counts.

        Raises
        ------
        SpecError
            When `k`, `canonical` or the device differ.
        CountOverflowError
            When a count would not fit into 64 bits.

        Examples
        --------
        >>> one = KmerCounts.from_letters(np.frombuffer(b"AAC", np.uint8), [0, 3], k=2)
        >>> one.merge(one).query(["AA", "GT"])
        array([2, 2], dtype=uint64)
        """
        for name in ("k", "canonical"):
            own, its = getattr(self, name), getattr(other, name)
            if own != its:
                raise SpecError(
                    f"{name} is {own} here and {its} there; use the same setting for both counts"
                )
        if self._backend is not other._backend:
            raise SpecError("the counts are on two devices; load both on one")
        made = sum_counts(
            self._backend, self._k, Counted(self._edges, self._groups),
            Counted(other._edges, other._groups),
        )  # fmt: skip
        told = {name: self._told[name] + other._told[name] for name in _TOLD}
        return KmerCounts(self._k, self._canonical, self._backend.name, made, told)

    def stats(self) -> dict[str, Any]:
        """Return statistics of the input and of the stored counts.

        Returns
        -------
        dict
            ``k``, ``canonical``, ``distinct``, ``total``, ``singletons``, ``max_count``;
            ``records``, ``letters`` and ``kmers`` that were read; ``super_kmers``, their
            ``super_kmer_nbytes``, ``bytes_per_kmer`` and those ``spilled`` to files; ``groups``
            that were counted by a table each, by so many ``inserts``.

        Examples
        --------
        >>> counts = KmerCounts.from_letters(np.frombuffer(b"AAC", np.uint8), [0, 3], k=2)
        >>> counts.stats()["distinct"], counts.stats()["bytes_per_kmer"]
        (2, 3.0)
        """
        found, numbers = self.histogram()
        told = self._told
        return {
            "k": self._k,
            "canonical": self._canonical,
            "distinct": len(self),
            "total": self.total,
            "singletons": int(numbers[found == 1].sum()),
            "max_count": int(found[-1]) if len(found) else 0,
            **told,
            "bytes_per_kmer": round(told["super_kmer_nbytes"] / max(told["kmers"], 1), 3),
            "groups": len(self._groups),
        }

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the counts to a file atomically.

        Parameters
        ----------
        path : path or fsspec URL
            By custom its name ends in ``.dgkc``.
        overwrite : bool
            Whether a file that is there may be replaced.

        Raises
        ------
        ExistsError
            When the file is there already.
        OSError
            When it cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "one.dgkc")
        >>> KmerCounts.from_letters(np.frombuffer(b"AAC", np.uint8), [0, 3], k=2).save(path)
        >>> KmerCounts.load(path).query(["AA"])
        array([1], dtype=uint64)
        """
        header = {"k": self._k, "canonical": self._canonical, "told": self._told}
        save_counts(path, self._backend, header, self._edges, self._groups, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Device | None = None) -> Self:
        """Load saved counts onto the CPU or another device.

        Raises
        ------
        FormatError
            When the file is not one of k-mer counts, or is damaged.
        OSError
            When it is not there, or cannot be read.
        """
        backend = backends.get(device)
        with interpreting(path):
            header, edges, groups = load_counts(path, backend)
            told = {name: header["told"].get(name, 0) for name in _TOLD}
            made = Counted(edges, groups)
            return cls(header["k"], header["canonical"], backend.name, made, told)
