"""Estimate indexes of either rule from their references."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.compression import compression_of
from dgpuhash.errors import SequenceError
from dgpuhash.kmer.databases.estimate import (
    Contents,
    Estimate,
    Memory,
    Sizes,
    check_fits,
    estimate,
    minimizer_sizes,
    sketch_sizes,
)
from dgpuhash.kmer.databases.owners import DistinctSample
from dgpuhash.kmer.databases.taxon_words import minimizer_bits_of
from dgpuhash.kmer.index_file import nbytes_of
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences.files import STDIN, Paths, byte_opener
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from distributed import Client

    from dgpuhash.kmer.cluster import Workers
    from dgpuhash.kmer.target_runs import TargetRun


Keys = Callable[[Backend, Any, Any], Iterator[Any]]

# Workers without a limit have as much as anybody asks for.
_NO_LIMIT = 2**62


def memory_of(client: Client | None, mode: str, device: Device) -> Callable[[int], Memory] | None:
    """Return the memory of a cluster's workers; None without a client."""
    if client is None:
        return None
    from dgpuhash.kmer.cluster import Workers

    workers = Workers(client)
    return lambda nbytes: workers_memory(workers, workers.mode_for(mode, nbytes)[0], device)


def workers_memory(workers: Workers, mode: str, device: Device) -> Memory:
    """Return the memory of workers."""
    return Memory(workers.memory or _NO_LIMIT, device, len(workers.addresses), mode)


class Estimator(ABC):
    """Base of estimates of an index, from its settings and references.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        Where the index will be.
    settings : SketchSettings or MinimizerSettings
    keys : callable
        Yields the features or minimizers of references, or of a run of them, batch by batch.
    memory : callable, optional
        Returns what an index of so many bytes may take; None: what this process has.
    sampled : callable, optional
        Returns a sample of all features or minimizers of references; None: it is made here.
    """

    rule: ClassVar[str]
    # Of all that come, how many are distinct: as 42 genomes of bacteria have them.
    share: ClassVar[float]

    def __init__(
        self,
        device: Device,
        settings: Any,
        keys: Keys,
        *,
        memory: Callable[[int], Memory] | None = None,
        sampled: Callable[[References], DistinctSample] | None = None,
    ) -> None:
        self.device: Device = device
        self.settings: Any = settings
        self._keys = keys
        self._memory = memory or (lambda nbytes: Memory.of(backends.get(device)))
        self._sampled = sampled or self.sample

    def estimate(self, references: Paths | References, *, quick: bool = False) -> Estimate:
        """Return the estimate for references, by reading them or (`quick`) by their sizes.

        Raises
        ------
        SequenceError, FileNotFoundError, OSError
            As `References`.
        """
        if not isinstance(references, References):
            settings = self.settings
            references = References(references, order=settings.order, mask=settings.mask)
        if quick:
            letters = letters_by_size(references.files)
            found = round(letters * self.keys_of_letter(self.settings))
            return self._of(letters, Contents.of_all(found, self.share), is_quick=True)
        sample = self._sampled(references)
        return self._of(references.letters, sample)

    def sample(self, references: References | TargetRun) -> DistinctSample:
        """Return a sample of the features or minimizers of references."""
        backend, sample = backends.get(self.device), DistinctSample()
        for keys in self._keys(backend, self.settings, references):
            sample.add(backend, keys)
        return sample

    def check(self, references: References, held: int) -> None:
        """Raise OutOfMemoryError if the build for placed references does not fit.

        Parameters
        ----------
        references : References
        held : int
            Bytes of the index that is there already.
        """
        letters, n = references.letters, len(references.targets.names)
        bound = Contents.of_all(self._most_keys(letters, n))
        sizes = self._sizes(bound, letters, self.settings)
        # They are read in the order that was found.
        again = References(references.files, order="given", mask=references.mask)
        memory = self._memory(sizes.held)
        memory = replace(memory, nbytes=max(memory.nbytes - memory.share(held), 0))
        check_fits(sizes, memory, lambda: self._of(letters, self._sampled(again), memory))

    @abstractmethod
    def keys_of_letter(self, settings: Any) -> float:
        """Return the expected number of features or minimizers per letter."""

    @abstractmethod
    def _sizes(self, has: Contents, letters: int, settings: Any) -> Sizes:
        """Return the sizes of an index of a number of letters."""

    @abstractmethod
    def _contents(self, sample: DistinctSample, settings: Any) -> Contents:
        """Return the contents of an index, from a sample of its keys."""

    @abstractmethod
    def _choices(self) -> dict[str, list[Any]]:
        """Return other settings, by name, for a smaller index."""

    def _most_keys(self, letters: int, n_targets: int) -> int:
        return round(letters * self.keys_of_letter(self.settings))

    def _of(
        self,
        letters: int,
        found: DistinctSample | Contents,
        memory: Memory | None = None,
        *,
        is_quick: bool = False,
    ) -> Estimate:
        settings = self.settings

        def of(changed: Any = settings) -> tuple[int, int, Sizes]:
            has = self._contents(found, changed) if isinstance(found, DistinctSample) else found
            fewer = self.keys_of_letter(changed) / self.keys_of_letter(settings)
            has = Contents(*(round(each * fewer) for each in has))
            return has.distinct, has.stored, self._sizes(has, letters, changed)

        memory = memory or self._memory(of()[2].held)
        return estimate(self.rule, letters, memory, of, is_quick=is_quick, choices=self._choices())


class SketchEstimator(Estimator):
    """Estimates of indexes of sketches; further parameters are those of `Estimator`.

    Parameters
    ----------
    load : float
        Load factor of the table.
    held : int
        Bytes of features and locations that a build holds on a CPU.
    """

    rule = "metacache"
    share: ClassVar[float] = 0.85

    def __init__(self, *args: Any, load: float, held: int, **others: Any) -> None:
        super().__init__(*args, **others)
        self._load, self._held = load, held

    def keys_of_letter(self, settings: Any) -> float:
        """Return the expected number of features per letter."""
        return min(settings.sketch, settings.window - settings.k + 1) / settings.stride

    def _most_keys(self, letters: int, n_targets: int) -> int:
        # Each target has a window more, that is shorter.
        return super()._most_keys(letters, n_targets) + n_targets * self.settings.sketch

    def _sizes(self, has: Contents, letters: int, settings: Any) -> Sizes:
        return sketch_sizes(
            settings.feature, has, self.device, load=self._load, held=self._held_there
        )

    @cached_property
    def _held_there(self) -> int:
        """Bytes of features and locations buffered by a build, also in GPU memory."""
        if self.device == "cpu":
            return self._held
        return max(self._memory(0).nbytes // 4, self._held)

    def _contents(self, sample: DistinctSample, settings: Any) -> Contents:
        return Contents.of(sample, settings.cap, drops=settings.remove_overpopulated)

    def _choices(self) -> dict[str, list[Any]]:
        own = self.settings
        caps = [own.cap >> halvings for halvings in range(1, own.cap.bit_length())]
        windows = [own.window * times // 2 for times in (3, 4, 6, 8, 16, 32)]
        return {
            "cap": [replace(own, cap=cap) for cap in caps],
            "window": [
                replace(own, window=window, stride=window - own.k + 1) for window in windows
            ],
        }


class MinimizerEstimator(Estimator):
    """Estimates of indexes of minimizers; further parameters are those of `Estimator`.

    Parameters
    ----------
    room : callable
        Returns for how many minimizers a build makes room, of settings, letters and a device.
    """

    rule = "kraken2"
    share: ClassVar[float] = 0.8

    def __init__(self, *args: Any, room: Callable[[Any, int, Device], int], **others: Any) -> None:
        super().__init__(*args, **others)
        self._room = room

    def keys_of_letter(self, settings: Any) -> float:
        """Return the expected number of minimizers per letter."""
        return float(settings.density * settings.sample)

    def _sizes(self, has: Contents, letters: int, settings: Any) -> Sizes:
        room = self._room(settings, letters, self.device)
        return minimizer_sizes(has, self.device, minimizer_bits_of(settings), built_for=room)

    def _contents(self, sample: DistinctSample, settings: Any) -> Contents:
        return Contents.of(sample)

    def _choices(self) -> dict[str, list[Any]]:
        own = self.settings
        longer = range(own.k + 5, own.l + 32, 5)
        return {"k": [replace(own, k=k) for k in longer]}


_HEAD_NBYTES = 2**18
# Files that are looked into.
_LOOKED_INTO = 32
# Letters for each byte of bzip2, xz and zstd, and of gzip where no text can be had.
_PACKED_LETTERS = 3.6


def letters_by_size(files: Sequence[str]) -> int:
    """Return the estimated number of letters of files, by their sizes.

    Raises
    ------
    SequenceError
        When one is the standard input.
    OSError
        When one is not there.
    """
    if STDIN in files:
        raise SequenceError("the standard input has no size; name files")
    sizes = {file: nbytes_of(file) for file in files}
    some = files[:: -(-len(files) // _LOOKED_INTO)]
    looked = {file: _letters_of_byte(file) for file in some}
    weight = sum(sizes[file] for file in looked)
    usual = sum(sizes[file] * each for file, each in looked.items()) / max(weight, 1)
    return round(sum(sizes[file] * looked.get(file, usual) for file in files))


def _letters_of_byte(file: str) -> float:
    """Return the letters per byte of a file, measured at its beginning."""
    with byte_opener(file) as stream:
        head = stream.read(_HEAD_NBYTES)
    packed, kind = len(head), compression_of(head)
    if kind == "gzip":
        reader = zlib.decompressobj(31)
        try:
            head = reader.decompress(head)
        except zlib.error:
            return _PACKED_LETTERS
        packed -= len(reader.unused_data)
    elif kind is not None:
        return _PACKED_LETTERS
    lines = head.splitlines()
    lines = lines[1::4] if head.startswith(b"@") else [line for line in lines if line[:1] != b">"]
    return sum(map(len, lines)) / max(packed, 1)
