"""Benchmark counts, builds and calls of letters in device memory against its limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.kmer.inputs import Inputs
from dgpuhash.bench.kmer.letters import READ_LETTERS, Genomes, Mates, pairs_of, require_right
from dgpuhash.bench.kmer.programs import Spent, figure_row
from dgpuhash.bench.limits import Floors
from dgpuhash.bench.memory import peak_bytes
from dgpuhash.bench.timing import median_time
from dgpuhash.kmer import KmerCounts, MinimizerIndex, SketchIndex

LETTERS = "letters"
"""What the kind of input is called."""

_K = 31
# Counts of k-mers are checked for one in so many of them.
_ONE_IN = 61
_FILL = 0.8
_SLICE = 2**24
_CHECKED_PAIRS = 20_000
INDEXES: dict[str, Any] = {"kraken2": MinimizerIndex, "metacache": SketchIndex}
"""What builds an index by each rule."""


@dataclass(frozen=True, slots=True)
class _TimedWork:
    """Work to time, with its number of table lookups and the table's size."""

    n: int
    run: Callable[[], Any]
    letters: int
    accesses: int
    table_nbytes: int
    inserts: bool


class OnDevice:
    """Benchmarks on letters in device memory, in this process.

    Parameters
    ----------
    backend : Backend
        Of the device.
    inputs : Inputs
        The genomes; reads are drawn of them here.
    pairs : int
        Pairs of reads to call.
    repeats : int
        Turns.
    """

    def __init__(self, backend: Backend, inputs: Inputs, pairs: int, repeats: int) -> None:
        self._backend, self._inputs = backend, inputs
        self._pairs, self._repeats = pairs, repeats
        self._floors = Floors(backend, repeats)
        self._indexes: dict[str, Any] = {}

    @cached_property
    def _genomes(self) -> Genomes:
        taxonomy = self._inputs.taxonomy if self._inputs.taxonomy.is_dir() else None
        return Genomes(self._backend, self._inputs.plain, taxonomy)

    @cached_property
    def _reads(self) -> Mates:
        return pairs_of(self._genomes, self._pairs)

    def row(self, verb: str, rule: str) -> dict[str, Any]:
        """Return the figures of ``count``, ``build`` or ``classify`` after checking the result.

        The floor is that of reading the letters once and of bare accesses to a table as large, one
        for each k-mer, minimizer or feature.
        """
        work = {"count": self._counting, "build": self._building, "classify": self._calling}[verb](
            rule
        )
        cpu = time.process_time()
        seconds, answer = median_time(self._backend, work.run, repeats=self._repeats)
        cpu = (time.process_time() - cpu) / (self._repeats + 1)
        {"count": self._check_counts, "build": self._keep, "classify": self._check_calls}[verb](
            rule, answer
        )
        del answer
        nbytes, _ = peak_bytes(self._backend, work.run)
        floor = work.letters / self._floors.copy(2 * work.letters)
        bare = self._floors.insert if work.inserts else self._floors.lookup
        floor += work.accesses / bare(64, work.accesses, work.table_nbytes)
        return _row(verb, rule, work.n, Spent(seconds, cpu, nbytes), floor)

    def construction(self, rule: str, letters: int) -> dict[str, Any]:
        """Return the figures of an index of genomes and mutants with a total of letters.

        Mutants are made on the device, outside the time, and the index of all at once.
        """
        genomes, backend = self._genomes, self._backend
        # Kernels are loaded before.
        self._index(rule)
        copies = -(-letters // len(genomes))
        made = copies * len(genomes)
        text, offsets = backend.empty(made, np.uint8), backend.zeros(1, np.int64)
        for number in range(copies):
            first = number * len(genomes)
            text[first : first + len(genomes)] = genomes.variant(number).letters
            offsets = backend.xp.concatenate([offsets, first + genomes.offsets[1:]])
        names = [f"{name}_{number}" for number in range(copies) for name in genomes.names]
        backend.synchronize()
        start, cpu = time.perf_counter(), time.process_time()
        index = INDEXES[rule].from_letters(
            text, offsets, np.tile(genomes.taxids, copies), taxonomy=genomes.taxonomy, names=names
        )
        backend.synchronize()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        del text
        self._check(rule, pairs_of(genomes, min(self._pairs, _CHECKED_PAIRS)), index)
        stats = index.stats()
        floor = made / self._floors.copy(2 * len(genomes))
        accesses = self._accesses(rule, stats)
        floor += accesses / self._floors.insert(
            64, min(accesses, 2**27), self._table_nbytes(rule, stats)
        )
        return _row("construction", rule, made, Spent(seconds, cpu, int(stats["nbytes"])), floor)

    def _counting(self, rule: str) -> _TimedWork:
        letters, offsets = self._genomes.letters, self._genomes.offsets
        n = len(letters)
        return _TimedWork(
            n, partial(KmerCounts.from_letters, letters, offsets, _K), n, n,
            int(16 * n / _FILL), inserts=True,
        )  # fmt: skip

    def _building(self, rule: str) -> _TimedWork:
        genomes = self._genomes
        stats = self._index(rule).stats()
        return _TimedWork(
            len(genomes), partial(self._build, rule, genomes.letters, genomes.names), len(genomes),
            self._accesses(rule, stats), self._table_nbytes(rule, stats), inserts=True,
        )  # fmt: skip

    def _calling(self, rule: str) -> _TimedWork:
        index, reads = self._index(rule), self._reads
        stats = index.stats()
        letters = 2 * READ_LETTERS * len(reads)
        if rule == "kraken2":
            accesses = letters // _letters_of_a_minimizer(stats)
        else:
            steps = max(READ_LETTERS - stats["window"], 0) + stats["stride"] - 1
            windows = 1 + steps // stats["stride"]
            accesses = 2 * len(reads) * windows * stats["sketch"]
        return _TimedWork(
            len(reads), partial(_call, index, reads), letters, accesses,
            self._table_nbytes(rule, stats), inserts=False,
        )  # fmt: skip

    def _index(self, rule: str) -> Any:
        if rule not in self._indexes:
            self._indexes[rule] = self._build(rule, self._genomes.letters, self._genomes.names)
        return self._indexes[rule]

    def _build(self, rule: str, letters: Any, names: list[str]) -> Any:
        genomes = self._genomes
        return INDEXES[rule].from_letters(
            letters, genomes.offsets, genomes.taxids, taxonomy=genomes.taxonomy, names=names
        )

    def _keep(self, rule: str, index: Any) -> None:
        self._check(rule, self._reads.first(_CHECKED_PAIRS), index)
        self._indexes[rule] = index

    @staticmethod
    def _accesses(rule: str, stats: dict[str, Any]) -> int:
        """Return the number of minimizers or features, each counted once per place."""
        if rule == "kraken2":
            return max(int(stats["letters"]) // _letters_of_a_minimizer(stats), 1)
        return max(int(stats["found"]), 1)

    @staticmethod
    def _table_nbytes(rule: str, stats: dict[str, Any]) -> int:
        distinct = stats["distinct" if rule == "kraken2" else "features"]
        return int(16 * distinct / _FILL)

    def _check_calls(self, rule: str, calls: Any) -> None:
        """Require that reads are called by their own genomes, despite other references."""
        self._check(rule, self._reads, self._index(rule), calls)

    def _check(self, rule: str, reads: Mates, index: Any, calls: Any = None) -> None:
        few = min(len(reads), 1000)
        alone = _call(index, reads.first(few))
        calls = _call(index, reads) if calls is None else calls
        require((calls.taxids[:few] == alone.taxids).all(), "calls depend on the batch", rule=rule)
        put_back = self._backend.to_host
        require_right(rule, self._genomes, put_back(reads.sources), put_back(calls.taxids))

    def _check_counts(self, rule: str, counts: KmerCounts) -> None:
        """Require correct counts for the k-mers whose code is a multiple of a number."""
        genomes, xp = self._genomes, self._backend.xp
        total, codes = 0, []
        for begin in range(0, len(genomes), _SLICE):
            own = _codes(genomes, begin, min(begin + _SLICE, len(genomes)))
            total += len(own)
            codes.append(own[own % _ONE_IN == 0])
        require(counts.total == total, f"{counts.total:,} k-mers were counted of {total:,}", k=_K)
        expected = xp.unique(xp.concatenate(codes), return_counts=True)
        kmers, numbers = (self._backend.asarray(each) for each in counts.items())
        chosen = kmers % _ONE_IN == 0
        kmers, numbers = kmers[chosen], numbers[chosen]
        order = xp.argsort(kmers)
        require(
            len(order) == len(expected[0])
            and (kmers[order] == expected[0]).all()
            and (numbers[order] == expected[1].astype(numbers.dtype)).all(),
            "counts of k-mers are wrong",
            k=_K,
        )


def _codes(genomes: Genomes, begin: int, end: int) -> Any:
    """Return the canonical code of each k-mer that starts in a range."""
    xp = genomes.backend.xp
    letters = genomes.letters[begin : end + _K - 1]
    starts = len(letters) - _K + 1
    code = xp.full(256, 4, np.uint8)
    for base, lower in zip(b"ACGT", b"acgt", strict=True):
        code[base] = code[lower] = b"ACGT".index(base)
    bases = code[letters]
    # What ends a k-mer: another letter, and the last one of a genome unless the k-mer ends there.
    other = xp.cumsum(xp.concatenate([xp.zeros(1, np.int64), bases == 4]))
    last = xp.zeros(len(letters), np.int64)
    ends = genomes.offsets[1:] - 1 - begin
    last[ends[(ends >= 0) & (ends < len(letters))]] = 1
    last = xp.cumsum(xp.concatenate([xp.zeros(1, np.int64), last]))
    whole = (other[_K:] == other[:starts]) & (last[_K - 1 : -1] == last[:starts])
    forward, backward = (xp.zeros(starts, np.uint64) for _ in range(2))
    for place in range(_K):
        own = bases[place : place + starts].astype(np.uint64) & np.uint64(3)
        forward |= own << np.uint64(2 * (_K - 1 - place))
        backward |= (np.uint64(3) - own) << np.uint64(2 * place)
    return xp.minimum(forward, backward)[whole]


def _call(index: Any, reads: Mates) -> Any:
    return index.call(reads.letters, reads.offsets, reads.mates, reads.offsets)


def _letters_of_a_minimizer(stats: dict[str, Any]) -> int:
    """Return the average number of letters per minimizer, by random order."""
    return (int(stats["k"]) - int(stats["l"]) + 2) // 2


def _row(verb: str, rule: str, n: int, spent: Spent, floor: float) -> dict[str, Any]:
    what = {"n": n, "verb": verb, "rule": rule, "input": LETTERS, "library": "dgpuhash"}
    return figure_row(what, spent, floor)
