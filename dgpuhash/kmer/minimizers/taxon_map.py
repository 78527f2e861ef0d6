"""Map from minimizers to numbers of taxa in words of eight bytes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.native import native
from dgpuhash.kmer.databases.taxon_words import (
    LEAST_LINES,
    LINE_WORDS,
    WordLayout,
    minimizer_bits_of,
)
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.tables.serialization import Buffers

_KEY, _TAXON = np.dtype(np.uint64), np.dtype(np.uint32)
_FREE = np.uint64(2**64 - 1)
# Words that are looked at once.
_SLICE_WORDS = {"cpu": 2**18, "cuda": 2**25}
# Room that is left, of all, with which rows go on in pieces before the map grows; and how it grows.
_LEAST_ROOM, _GROWTH = 1 / 64, 1.5
# Of one node, which changes no taxon.
_NO_TREE = (None, 1)
# Of the lines that a map has: with more that are needed, it stays as it is.
_FULL = 0.97
# Words that are looked for after a load.
_SAMPLES = 2**8
# In a file: the version of words, the fields of the layout, the spaces, and how many are stored.
_VERSION = 1
_LAYOUT, _WORDS = "taxon layout", "taxon words"
_INT64 = np.dtype(np.int64)


class TaxonMap:
    """Minimizers and the numbers of their taxa.

    Its methods are those of `HashMap` that an index needs. No two threads may change it at once.

    Parameters
    ----------
    backend : Backend
    settings : MinimizerSettings
        Set which bits of minimizers count; others are zeros.
    minimizers : int
        Initial capacity.
    taxa : int
        Upper bound of taxon numbers, exclusive.

    Examples
    --------
    >>> import numpy as np
    >>> from dgpuhash import backend
    >>> map = TaxonMap(backend.get("cpu"), MinimizerSettings(), taxa=3)
    >>> map._add(np.array([3, 19], np.uint64), np.array([1, 2], np.uint32))
    >>> map.find(np.array([19, 16], np.uint64))[0]
    array([2, 0], dtype=uint32)
    """

    def __init__(
        self, backend: Backend, settings: MinimizerSettings, minimizers: int = 0, *, taxa: int
    ) -> None:
        self._backend, self._taxa = backend, taxa
        self._spaces = settings.spaces
        self._layout = WordLayout.of(minimizer_bits_of(settings), minimizers, taxa)
        self._words = backend.full(self._layout.words, _FREE, _KEY)
        # How many are stored, and how many of the last batch found no place.
        self._counts = backend.zeros(2, _KEY)

    def __len__(self) -> int:
        return int(self._backend.to_host(self._counts)[0])

    @property
    def layout(self) -> WordLayout:
        """The layout of its words."""
        return self._layout

    @property
    def nbytes(self) -> int:
        """Bytes of its words."""
        return int(self._words.nbytes + self._counts.nbytes)

    def find(self, keys: Any) -> tuple[Any, Any]:
        """Return the taxon number of each minimizer, 0 if absent, and a mask of those present."""
        taxa = self._backend.empty(len(keys), _TAXON)
        self._run("find", len(keys), keys=keys, nodes=taxa)
        return taxa, taxa != 0

    def _add(self, keys: Any, taxa: Any) -> None:
        """Add minimizers; those already in the map must have these taxa."""
        self._insert_combined(keys, taxa, None)

    def _insert_combined(self, keys: Any, taxa: Any, change: Any) -> None:
        """Add minimizers; set those in the map to the lowest common ancestor of all their taxa.

        `change` is what `Lca.on` returns.
        """
        tree = _NO_TREE if change is None else change.tree
        while len(keys):
            room = self._layout.room - len(self)
            has_room = room >= min(len(keys), self._layout.room * _LEAST_ROOM)
            if has_room and self._fold(keys[:room], taxa[:room], tree):
                keys, taxa = keys[room:], taxa[room:]
            else:
                self.reserve(int(self._layout.room * _GROWTH))

    def _fold(self, keys: Any, taxa: Any, tree: Any) -> bool:
        """Add some minimizers; return whether there was room for all.

        If not, some were added; adding them again is harmless.
        """
        self._counts[1] = 0
        self._run("fold", len(keys), keys=keys, nodes=taxa, tree=tree)
        return not self._backend.to_host(self._counts)[1]

    def reserve(self, minimizers: int) -> None:
        """Reserve room for a number of minimizers in all, or for half more."""
        if minimizers > self._layout.room:
            self._take(self.of_room(max(minimizers, int(len(self) * _GROWTH))))

    def _take(self, made: TaxonMap) -> None:
        self._layout, self._words, self._counts = made._layout, made._words, made._counts

    def of_room(self, minimizers: int) -> Self:
        """Return a map of the same minimizers with another capacity."""
        layout = WordLayout.of(self._layout.minimizer_bits, minimizers, self._taxa)
        made = self._alike(layout, self._backend.full(layout.words, _FREE, _KEY))
        for keys, taxa in self.slices() if len(self) else ():
            made._add(keys, taxa)
        return made

    def _alike(self, layout: WordLayout, words: Any) -> Self:
        """Return a map over these words with a count of 0."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._layout, made._words = layout, words
        made._counts = self._backend.zeros(2, _KEY)
        return made

    def tighten(self) -> None:
        """Shrink the map to the memory that its minimizers need, if many words are free.

        The map is inconsistent until the call returns: an interrupt loses the minimizers.
        """
        layout = WordLayout.of(self._layout.minimizer_bits, len(self), self._taxa)
        if layout.lines > _FULL * self._layout.lines:
            return
        made = self._alike(layout, self._words[: layout.words])
        taken = self._taken_out()
        # Minimizers go to words at or before their own, or soon behind. Some of the first words
        # have those that belong to the last.
        late, ahead = [next(taken)], next(taken, None)
        for some in taken:
            assert ahead is not None
            if not made._fold(*ahead, _NO_TREE):
                late.append(ahead)
            ahead = some
        for some in [ahead, *late] if ahead else late:
            made._add(*some)
        self._take(made)

    def _taken_out(self) -> Iterator[tuple[Any, Any]]:
        """Yield minimizers and taxon numbers as `slices`, and free their words."""
        for (_, words), some in zip(self._word_slices(), self.slices(), strict=True):
            words[...] = _FREE
            yield some

    def copy(self) -> Self:
        """Return an independent map of the same minimizers."""
        words = self._backend.empty(len(self._words), _KEY)
        words[:] = self._words
        made = self._alike(self._layout, words)
        made._counts[:] = self._counts
        return made

    def slices(self) -> Iterator[tuple[Any, Any]]:
        """Yield minimizers and their taxon numbers, batch by batch in slot order."""
        for start, words in self._word_slices():
            yield self._in_slots(self._backend.xp.flatnonzero(words != _FREE) + start)

    def _in_slots(self, slots: Any) -> tuple[Any, Any]:
        """Return the minimizers of slots that are not free, and the numbers of their taxa."""
        keys = self._backend.empty(len(slots), _KEY)
        taxa = self._backend.empty(len(slots), _TAXON)
        self._run("items", len(slots), slots=slots, keys=keys, nodes=taxa)
        return keys, taxa

    def items(self) -> tuple[Any, Any]:
        """Return all minimizers and the numbers of their taxa."""
        stored, at = len(self), 0
        keys, taxa = self._backend.empty(stored, _KEY), self._backend.empty(stored, _TAXON)
        for some, numbers in self.slices():
            keys[at : at + len(some)], taxa[at : at + len(some)] = some, numbers
            at += len(some)
        return keys, taxa

    def _value_slices(self) -> Iterator[Any]:
        """Yield the numbers of taxa, some at a time."""
        for _, words in self._word_slices():
            yield self._taxa_of(words[words != _FREE]).astype(_TAXON)

    def renumber(self, numbers: Any, taxa: int) -> None:
        """Give taxa other numbers, below `taxa`: an array by those before."""
        assert self._layout.has_bits_for(taxa)
        self._taxa = taxa
        for _, words in self._word_slices():
            there = words != _FREE
            held = words[there]
            taxa = self._taxa_of(held)
            words[there] = (held ^ taxa) | numbers[taxa].astype(_KEY)

    def _word_slices(self) -> Iterator[tuple[int, Any]]:
        size = _SLICE_WORDS[self._backend.name]
        for start in range(0, len(self._words), size):
            yield start, self._words[start : start + size]

    def _taxa_of(self, words: Any) -> Any:
        """Return the numbers of taxa in words that are not free, as words."""
        return words & np.uint64(2**self._layout.taxon_bits - 1)

    def _run(self, verb: str, n: int, **fields: Any) -> None:
        table = (self._words, self._counts[:1], self._counts[1:], *self._layout)
        self._backend.run(
            kernel_named(f"taxon_map_{verb}"), n, table=table, spaced=(self._spaces,), **fields
        )

    def buffers(self) -> dict[str, np.ndarray]:
        """Return what a file has of it, on the host, by name; see `in_file`."""
        layout = np.array([_VERSION, *self._layout, self._spaces, len(self)], _INT64)
        return {_LAYOUT: layout, _WORDS: self._backend.to_host(self._words)}

    @staticmethod
    def is_in(buffers: Buffers) -> bool:
        """Return whether a file, or a part of it, has one."""
        return buffers.has(_LAYOUT)

    @classmethod
    def in_file(
        cls, buffers: Buffers, backend: Backend, settings: MinimizerSettings, taxa: int
    ) -> Self:
        """Return the map of a file; on a CPU its words are the file's memory.

        Raises
        ------
        FormatError
            When the file is damaged, a later release wrote it, or a number is none of `taxa`.
        """
        layout = buffers.get(_LAYOUT, _INT64).tolist()
        buffers.check(
            len(layout) == 7 and layout[0] == _VERSION, "its words have an unknown layout"
        )
        made = cls.__new__(cls)
        made._backend, made._spaces, made._taxa = backend, settings.spaces, taxa
        bits = minimizer_bits_of(settings)
        buffers.check(
            LEAST_LINES <= layout[1] <= 2**60
            and tuple(layout[1:5]) == WordLayout.of_lines(bits, layout[1])
            and layout[5] == settings.spaces,
            "the layout of its words is impossible",
        )
        made._layout = WordLayout(*layout[1:5])
        words = buffers.get(_WORDS, _KEY, made._layout.words)
        is_askew = words.ctypes.data % (8 * LINE_WORDS) != 0 or not words.flags.writeable
        made._words = backend.from_host(words)
        if backend.name == "cpu" and is_askew:
            made._words = backend.empty(len(words), _KEY)
            made._words[:] = words
        made._counts = backend.from_host(np.array([layout[6], 0], _KEY))
        slices = [some for _, some in made._word_slices()]
        with ThreadPoolExecutor(native().threads(), "dgpuhash-load") as pool:
            # Of a GPU one thread alone starts what counts.
            each = pool.map if backend.name == "cpu" else map
            counts = list(each(made._known_in, slices))
        buffers.check(
            tuple(map(sum, zip(*counts, strict=True))) == (layout[6], layout[6]),
            "it has unknown taxa",
        )
        buffers.check(made._are_found(), "its minimizers are not found")
        return made

    def _known_in(self, words: Any) -> tuple[int, int]:
        """Return how many of some words are not free, and how many have the number of a taxon."""
        count = self._backend.xp.count_nonzero
        stored, taxa = int(count(words != _FREE)), self._taxa_of(words)
        if self._taxa < 2**self._layout.taxon_bits:
            # Free words have a higher one.
            return stored, int(count(taxa < np.uint64(self._taxa)))
        return stored, stored

    def _are_found(self) -> bool:
        """Return whether some of the minimizers are found, and their taxa."""
        step = max(len(self._words) // _SAMPLES, 1)
        slots = self._backend.xp.flatnonzero(self._words[::step] != _FREE) * step
        keys, taxa = self._in_slots(slots)
        return bool((self.find(keys)[0] == taxa).all())
