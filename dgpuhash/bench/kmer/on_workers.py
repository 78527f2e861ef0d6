"""Benchmark weak scaling of builds and calls on a cluster, beside reading alone."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require, short
from dgpuhash.bench.kmer.inputs import Inputs
from dgpuhash.bench.kmer.letters import (
    Mutants,
    pairs_of,
    require_right,
    write_pairs,
)
from dgpuhash.bench.kmer.on_device import INDEXES
from dgpuhash.bench.kmer.programs import Spent, figure_row
from dgpuhash.bench.workers.cluster import BenchWorkers, start
from dgpuhash.kmer import read_pairs, read_sequences
from dgpuhash.kmer.sequences.batches import BATCH_LETTERS

_SEED = 42
_OVERLAP = 30
_KIBIBYTE = 1024
# Reads that are called again by themselves.
_ALONE = 1000
# Letters of a batch: a GPU is done with fewer before the scheduler has told it of the next.
_BATCH_LETTERS = {"cpu": BATCH_LETTERS, "cuda": 2**25}


def weak_scaling(
    backend: Backend,
    inputs: Inputs,
    rules: Sequence[str],
    *,
    counts: Sequence[int],
    modes: Sequence[str],
    letters: int,
    pairs: int,
    repeats: int,
    **cluster: Any,
) -> Iterator[dict[str, Any]]:
    """Yield rows of builds and calls, with equally many letters and pairs per worker.

    Plain files of genomes lie in memory, of which each worker's have k-mers of their own, so that a
    read has as many hits in an index of all; and so do reads that are drawn of them. Those of one
    worker are the first ones of two. Workers read the files. Calls are compared with what the reads
    are of, and with those of a few reads by themselves.

    Parameters
    ----------
    backend : Backend
        Of the workers; its device draws the data.
    inputs : Inputs
        The genomes.
    rules : sequence of str
        Of the indexes.
    counts : sequence of int
        Numbers of workers, each a cluster.
    modes : sequence of str
        How the index lies on the workers.
    letters, pairs : int
        Of each worker; letters at least.
    repeats : int
        Turns, after one that warms up; the median counts.
    **cluster
        Arguments of `dgpuhash.bench.workers.cluster.start`.

    Notes
    -----
    The floor is the time in which all workers read and parse their files, and do nothing else.
    ``efficiency`` is the rate over that of one worker times the number of workers.
    """
    counts = sorted(set(counts))
    shares = _Shares(backend, inputs, max(counts), letters, pairs)
    alone: dict[tuple[str, ...], float] = {}
    for count in counts:
        with start(backend, count, **cluster) as workers:
            for row in _KmerRun(workers, shares, repeats).rows(rules, modes):
                whose, seconds = (row["verb"], row["rule"], row["mode"]), row["seconds"]
                if count == 1:
                    alone[whose] = seconds
                if whose in alone:
                    row["efficiency"] = short(alone[whose] / seconds)
                yield row


class _Shares:
    """Files of each worker: genomes and read pairs of them."""

    def __init__(
        self, backend: Backend, inputs: Inputs, workers: int, letters: int, pairs: int
    ) -> None:
        # Files that hold all genomes once.
        self.each, self.pairs = -(-letters // inputs.letters), pairs
        mutants = Mutants(inputs, workers * self.each * inputs.letters, backend)
        self.genomes, self.letters = mutants.originals, self.each * inputs.letters
        self.taxonomy = self.genomes.taxonomy
        self.references: list[Path] = []
        self.reads: list[tuple[Path, Path]] = []
        sources = []
        for number in range(mutants.copies):
            variant = self.genomes.stranger(number)
            self.references.append(mutants.write(variant, number))
            own = pairs // self.each + (number % self.each < pairs % self.each)
            if not number:
                self.in_first = own
            drawn = pairs_of(variant, own, _SEED + 3 * number)
            sources.append(backend.to_host(drawn.sources))
            first = sum(map(len, sources[:-1]))
            self.reads.append(write_pairs(drawn, mutants.folder / f"{number:04}", first))
        self.sources = np.concatenate(sources)

    def of(self, worker: int) -> slice:
        """Return the files of a worker."""
        return slice(worker * self.each, (worker + 1) * self.each)


class _KmerRun:
    """Builds and calls on the workers of one cluster."""

    def __init__(self, workers: BenchWorkers, shares: _Shares, repeats: int) -> None:
        self._workers, self._shares, self._repeats = workers, shares, repeats
        n = len(workers)
        every = slice(0, n * shares.each)
        self._references, self._reads = shares.references[every], shares.reads[every]

    def rows(self, rules: Sequence[str], modes: Sequence[str]) -> Iterator[dict[str, Any]]:
        n, shares = len(self._workers), self._shares
        reading = {
            "build": self._floor(_read_genomes, shares.references),
            "classify": self._floor(_read_mates, shares.reads),
        }
        for rule in rules:
            for mode in modes:
                spent, index = self._measure(partial(self._build, rule, mode))
                require(
                    len(index.targets.names) == len(self._references) * len(shares.genomes.names),
                    f"{len(index.targets.names):,} sequences are in the index",
                    rule=rule, workers=n,
                )  # fmt: skip
                where = {"rule": rule, "mode": index.mode, "workers": n}
                yield self._row("build", n * shares.letters, spent, reading["build"], where)
                spent, taxids = self._measure(partial(self._called, index))
                self._check(rule, index, taxids)
                index.close()
                yield self._row("classify", len(taxids), spent, reading["classify"], where)

    def _build(self, rule: str, mode: str) -> Any:
        shares, workers = self._shares, self._workers
        return INDEXES[rule].build(
            self._references, taxonomy=shares.taxonomy, client=workers.client, mode=mode,
            device=workers.device,
        )  # fmt: skip

    def _called(self, index: Any) -> np.ndarray:
        """Return the calls of all pairs, read and called by workers, in file order."""
        firsts, seconds = zip(*self._reads, strict=True)
        size = _BATCH_LETTERS[self._workers.device]
        made = index.classify(firsts, seconds, batch_letters=size).batches(kept="sizes")
        return np.concatenate([called.calls.taxids for called in made])

    def _check(self, rule: str, index: Any, taxids: np.ndarray) -> None:
        shares, n = self._shares, len(self._workers)
        sources = shares.sources[: n * shares.pairs]
        require(
            len(taxids) == len(sources), f"{len(taxids):,} calls of {len(sources):,} pairs",
            rule=rule, workers=n,
        )  # fmt: skip
        require_right(rule, shares.genomes, sources, taxids)
        # Of the first file, whose reads are of the genomes themselves.
        few = min(_ALONE, shares.in_first)
        drawn = pairs_of(shares.genomes, few, _SEED)
        put_back = shares.genomes.backend.to_host
        letters, mates, offsets = map(put_back, (drawn.letters, drawn.mates, drawn.offsets))
        calls = index.call(letters, offsets, mates, offsets)
        require(
            (calls.taxids == taxids[:few]).all(), "calls depend on the batch", rule=rule, workers=n
        )

    def _measure(self, work: Callable[[], Any]) -> tuple[Spent, Any]:
        """Return the median time of all turns but the first, and the last result."""
        runs: list[Spent] = []
        answer: Any = None
        for _ in range(self._repeats + 1):
            # The last one's memory is free again before the next begins.
            close = getattr(answer, "close", None)
            if close is not None:
                close()
            del answer
            before = sum(self._workers.gather_each(_cpu_seconds))
            begun = time.perf_counter()
            answer = work()
            seconds = time.perf_counter() - begun
            after = sum(self._workers.gather_each(_cpu_seconds))
            runs.append(Spent(seconds, after - before))
        del runs[0]
        return Spent.median(runs), answer

    def _floor(self, read: Callable[..., float], files: Sequence[Any]) -> float:
        """Return the seconds in which all workers read their own files at once."""
        own = [files[self._shares.of(worker)] for worker in range(len(self._workers))]
        runs = [max(self._workers.gather_each(read, own)) for _ in range(self._repeats + 1)]
        return statistics.median(runs[1:])

    def _row(
        self, verb: str, n: int, spent: Spent, floor: float, where: dict[str, Any]
    ) -> dict[str, Any]:
        what = {"n": n, "verb": verb, "input": "plain", "library": "dgpuhash", **where}
        most = max(self._workers.gather_each(_peak_nbytes))
        return figure_row(what, replace(spent, nbytes=most), floor)


def _read_genomes(device: str, rank: int, files: Sequence[Sequence[Path]]) -> float:
    begun = time.perf_counter()
    for _ in read_sequences(files[rank], overlap=_OVERLAP):
        pass
    return time.perf_counter() - begun


def _read_mates(device: str, rank: int, files: Sequence[Sequence[tuple[Path, Path]]]) -> float:
    begun = time.perf_counter()
    firsts, seconds = zip(*files[rank], strict=True)
    for _ in read_pairs(firsts, seconds):
        pass
    return time.perf_counter() - begun


def _cpu_seconds(device: str, rank: int) -> float:
    return time.process_time()


def _peak_nbytes(device: str, rank: int) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE
