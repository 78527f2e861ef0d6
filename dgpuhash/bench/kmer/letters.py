"""Generate genomes, mutated copies and reads as letters in device memory.

What is drawn follows from hashes of positions, so it is the same on every device.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.kmer.inputs import Inputs
from dgpuhash.errors import SpecError
from dgpuhash.kmer import Taxonomy, read_sequences
from dgpuhash.kmer.references import References

READ_LETTERS = 150
_FRAGMENT = 500
# One letter in so many is another one: of reads, and of genomes that differ.
_DIFFERING = 100
_SLICE = 2**24
_LINE = 80
# A name is one letter and this many digits, so all records have one length.
_DIGITS = 10
_QUALITY = ord("I")
# Of reads of which one letter in a hundred differs.
_LEAST_CALLED, _LEAST_RIGHT = 0.9, 0.9
_ACGT = np.frombuffer(b"ACGT", np.uint8)
_LOWER = np.uint8(ord("a") - ord("A"))
# Orders of the letters in which complements are complements, so that both strands are strange.
_ORDERS = [each for each in map(list, permutations(range(4))) if each[0] + each[3] == 3]
_COMPLEMENT = np.arange(256, dtype=np.uint8)
_COMPLEMENT[_ACGT] = _ACGT[::-1]


class Genomes:
    """Concatenated genomes, and their taxids.

    Parameters
    ----------
    backend : Backend
        Of the device.
    paths : list of path
        FASTA.
    taxonomy : path, optional
        Folder with the taxonomy of NCBI; None: the genomes have no taxids.

    Attributes
    ----------
    letters, offsets : array
        uint8, and int64 of where each begins, on the device.
    names : list of str
    taxids : array of int64
        0 of those without.
    taxonomy : Taxonomy or None
    """

    def __init__(self, backend: Backend, paths: Sequence[Path], taxonomy: Path | None) -> None:
        files = list(map(str, paths))
        known = References(files)
        self.taxonomy: Taxonomy | None = None if taxonomy is None else Taxonomy.read(taxonomy)
        accessions = () if self.taxonomy is None else self.taxonomy.accession_files
        known.place(self.taxonomy, accessions)
        targets = known.targets
        self.names: list[str] = list(targets.names)
        self.taxids: np.ndarray = np.asarray(targets.taxids)
        pieces = [np.asarray(batch.letters) for batch in read_sequences(files)]
        self.backend = backend
        self.letters: Any = backend.from_host(np.concatenate(pieces))
        self.offsets: Any = backend.from_host(np.cumsum([0, *targets.lengths], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.letters)

    def variant(self, number: int) -> Genomes:
        """Return mutants by number; 0 gives the genomes themselves."""
        made = copy.copy(self)
        made.letters = mutant(self, number) if number else self.letters
        return made

    def stranger(self, number: int) -> Genomes:
        """Return unrelated genomes of the same structure; 0 gives the genomes themselves.

        Letters stand for others; beyond the eighth number they are those of mutants.
        """
        turn, order = divmod(number, len(_ORDERS))
        made = self.variant(turn)
        code = np.arange(256, dtype=np.uint8)
        code[_ACGT], code[_ACGT | _LOWER] = _ACGT[_ORDERS[order]], _ACGT[_ORDERS[order]] | _LOWER
        made.letters = self.backend.from_host(code)[made.letters]
        return made


class Mates:
    """Reads and their mates on a device.

    Attributes
    ----------
    letters, mates : array of uint8
        All of one length.
    offsets : array of int64
        Where each read begins, and each mate.
    sources : array of int64
        The number of the genome that each pair is of.
    """

    def __init__(self, letters: Any, mates: Any, offsets: Any, sources: Any) -> None:
        self.letters: Any = letters
        self.mates: Any = mates
        self.offsets: Any = offsets
        self.sources: Any = sources

    def __len__(self) -> int:
        return len(self.sources)

    def first(self, pairs: int) -> Mates:
        """Return the first ones."""
        return self.between(0, pairs)

    def between(self, first: int, end: int) -> Mates:
        """Return a range of the pairs."""
        letters = slice(first * READ_LETTERS, end * READ_LETTERS)
        offsets = self.offsets[: end - first + 1]
        return Mates(self.letters[letters], self.mates[letters], offsets, self.sources[first:end])


class Mutants(Inputs):
    """Plain files of genomes and mutants, with the genomes' taxids in their headers.

    Parameters
    ----------
    inputs : Inputs
        The genomes, and the reads to call.
    letters : int
        To write, at least.
    backend : Backend, optional
        Of the device that draws them; default: a CPU.
    """

    def __init__(self, inputs: Inputs, letters: int, backend: Backend | None = None) -> None:
        self._of, self._backend = inputs, backend or backends.get("cpu")
        self.taxonomy: Path = inputs.taxonomy
        self.folder: Path = inputs.folder / "mutants"
        self.pairs: int = inputs.pairs
        self.copies: int = -(-letters // inputs.letters)
        self.letters: int = self.copies * inputs.letters

    @cached_property
    def originals(self) -> Genomes:
        """The original genomes, in the memory of the generating device."""
        return Genomes(self._backend, self._of.plain, self.taxonomy)

    @cached_property
    def plain(self) -> list[Path]:
        """A file for the genomes, and one for each mutant of all of them."""
        return [self.write(self.originals.variant(number), number) for number in range(self.copies)]

    def write(self, variant: Genomes, number: int) -> Path:
        """Write the file of the genomes, or of their mutants, by number."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{number:04}.fna"
        letters, ends = map(variant.backend.to_host, (variant.letters, variant.offsets))
        with path.open("wb") as file:
            for place, (name, taxid) in enumerate(zip(variant.names, variant.taxids, strict=True)):
                file.write(f">{name}_{number}|kraken:taxid|{taxid}\n".encode())
                file.write(_lines(letters[ends[place] : ends[place + 1]]))
        return path

    def reads(self, kind: str) -> tuple[Path, Path]:
        return self._of.reads(kind)


def mutant(genomes: Genomes, number: int) -> Any:
    """Return the letters of genomes with one in a hundred redrawn.

    Examples
    --------
    >>> from pathlib import Path
    >>> import tempfile
    >>> from dgpuhash import backend
    >>> path = Path(tempfile.mkdtemp(), "a.fa")
    >>> _ = path.write_text(">a\\n" + "ACGT" * 5000)
    >>> genomes = Genomes(backend.get("cpu"), [path], None)
    >>> 50 < int((mutant(genomes, 1) != genomes.letters).sum()) < 300
    True
    """
    made = genomes.letters.copy()
    _differ(genomes.backend, made, number)
    return made


def pairs_of(genomes: Genomes, pairs: int, seed: int = 42) -> Mates:
    """Return pairs of reads from both ends of genome fragments, with some errors.

    Raises
    ------
    SpecError
        When no genome is as long as a fragment.
    """
    backend, xp = genomes.backend, genomes.backend.xp
    ends = genomes.offsets
    rooms = xp.maximum(ends[1:] - ends[:-1] - _FRAGMENT, 0)
    places = xp.cumsum(rooms)
    if not len(rooms) or int(places[-1]) == 0:
        raise SpecError(f"no genome has more than {_FRAGMENT} letters, so no reads can be made")
    offsets = xp.arange(pairs + 1, dtype=np.int64) * READ_LETTERS
    letters, mates = (backend.empty(pairs * READ_LETTERS, np.uint8) for _ in range(2))
    sources = backend.empty(pairs, np.int64)
    complement = backend.from_host(_COMPLEMENT)
    steps = xp.arange(READ_LETTERS, dtype=np.int64)
    for rows in _slices(pairs, _SLICE // READ_LETTERS):
        drawn = _hashes(backend, rows, seed) % places[-1].astype(np.uint64)
        drawn = drawn.astype(np.int64)
        source = xp.searchsorted(places, drawn, side="right")
        begin = ends[source] + drawn - (places[source] - rooms[source])
        sources[rows] = source
        own = slice(rows.start * READ_LETTERS, rows.stop * READ_LETTERS)
        letters[own] = genomes.letters[begin[:, None] + steps].ravel()
        behind = begin[:, None] + (_FRAGMENT - 1 - steps)
        mates[own] = complement[genomes.letters[behind]].ravel()
    _differ(backend, letters, seed + 1)
    _differ(backend, mates, seed + 2)
    return Mates(letters, mates, offsets, sources)


def write_pairs(drawn: Mates, stem: Path, first: int = 0) -> tuple[Path, Path]:
    """Write the FASTQ of pairs, numbered from `first` on; return both files."""
    paths = stem.with_suffix(".1.fq"), stem.with_suffix(".2.fq")
    put_back = backends.get(None, drawn.letters).to_host
    tens = 10 ** np.arange(_DIGITS - 1, -1, -1, dtype=np.int64)
    names = (np.arange(first, first + len(drawn))[:, None] // tens % 10 + ord("0")).astype(np.uint8)
    for path, side in zip(paths, (drawn.letters, drawn.mates), strict=True):
        letters = put_back(side).reshape(-1, READ_LETTERS)
        lines = np.full((len(drawn), _DIGITS + 2 * READ_LETTERS + 7), ord("\n"), np.uint8)
        lines[:, :2] = np.frombuffer(b"@r", np.uint8)
        end = 2 + _DIGITS
        lines[:, 2:end] = names
        lines[:, end + 1 : end + 1 + READ_LETTERS] = letters
        end += 1 + READ_LETTERS
        lines[:, end + 1] = ord("+")
        lines[:, end + 3 : -1] = _QUALITY
        path.write_bytes(lines.tobytes())
    return paths


def require_right(rule: str, genomes: Genomes, sources: Any, taxids: Any) -> None:
    """Raise unless most reads are called, and nearly all of those correctly.

    Parameters
    ----------
    rule : str
        That called them.
    genomes : Genomes
        An index has them, and any number of mutants behind them.
    sources, taxids : array of int64
        Of each read: the number of its genome, and its call.

    Raises
    ------
    DgpuhashError
    """
    right = (taxids < 0) & ((-taxids - 1) % len(genomes.names) == sources)
    if genomes.taxonomy is not None:
        # What is called is the taxon of the source, or one above.
        own = genomes.taxids[sources]
        placed = (taxids > 0) & (own > 0)
        above = genomes.taxonomy.lca(taxids[placed], own[placed])
        right[placed] = above == genomes.taxonomy.current(taxids[placed])
    called = float((taxids != 0).mean())
    require(called >= _LEAST_CALLED, f"{called:.1%} of the reads were called", rule=rule)
    share = float(right.sum() / max((taxids != 0).sum(), 1))
    require(share >= _LEAST_RIGHT, f"{share:.1%} of the calls were right", rule=rule)


def _differ(backend: Backend, letters: Any, seed: int) -> None:
    """Redraw some bases in place; other letters stay."""
    xp = backend.xp
    bases = backend.from_host(_ACGT)
    for rows in _slices(len(letters), _SLICE):
        drawn = _hashes(backend, rows, seed)
        own = letters[rows]
        chosen = (drawn % _DIFFERING == 0) & xp.isin(own, bases)
        letters[rows] = xp.where(chosen, bases[(drawn >> np.uint64(40)) % 4], own)


def _lines(letters: Any) -> bytes:
    """Return letters in lines."""
    whole = len(letters) - len(letters) % _LINE
    lines = np.full((whole // _LINE, _LINE + 1), ord("\n"), np.uint8)
    lines[:, :-1] = letters[:whole].reshape(-1, _LINE)
    rest = letters[whole:].tobytes()
    return lines.tobytes() + (rest + b"\n" if rest else b"")


def _hashes(backend: Backend, rows: slice, seed: int) -> Any:
    return backend.hash_keys(backend.xp.arange(rows.start, rows.stop, dtype=np.uint64), seed)


def _slices(rows: int, most: int) -> Iterator[slice]:
    for first in range(0, rows, most):
        yield slice(first, min(first + most, rows))
