"""Benchmark a resident server beside its index in this process, and beside Kraken 2."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require, short
from dgpuhash.bench.kmer.databases import CallsByName, mapped_kraken2
from dgpuhash.bench.kmer.inputs import Inputs
from dgpuhash.bench.kmer.letters import Genomes, Mates, pairs_of, require_right, write_pairs
from dgpuhash.bench.kmer.on_device import INDEXES
from dgpuhash.bench.kmer.programs import OURS, ProgramTask, Spent, figure_row, threads
from dgpuhash.errors import DgpuhashError
from dgpuhash.kmer import ServedIndex

PAIRS = 1_000_000
_KRAKEN2 = "kraken2"
_SIZES = (1, 1000)
# Pairs from which on a turn is one call, and calls in a turn of fewer.
_MANY, _CALLS = 10_000, 20
_CLIENTS, _BATCH = 8, 1000
# How often a busy client has all pairs; seconds of the server's work that tell it is called.
_BUSY, _AT_WORK = 10, 0.2
_STARTS_SECONDS = 120
_KIBIBYTE = 1024


class Serving:
    """Calls by a server in a process of its own, beside those of its index in this one.

    Parameters
    ----------
    backend : Backend
        Of both indexes.
    inputs : Inputs
        The genomes, of which reads are drawn.
    rule : {"kraken2", "metacache"}
    pairs : int
        The most that a client sends at once.
    repeats : int
        Turns, of which the median counts.
    """

    def __init__(
        self, backend: Backend, inputs: Inputs, rule: str, pairs: int, repeats: int
    ) -> None:
        self._rule, self._repeats, self._device = rule, repeats, backend.name
        self._folder = inputs.folder / f"serving-{rule}"
        self._folder.mkdir()
        taxonomy = inputs.taxonomy if inputs.taxonomy.is_dir() else None
        self._genomes = genomes = Genomes(backend, inputs.plain, taxonomy)
        self._index = INDEXES[rule].from_letters(
            genomes.letters, genomes.offsets, genomes.taxids, taxonomy=genomes.taxonomy,
            names=genomes.names,
        )  # fmt: skip
        self._index.save(self._folder / "served.dgki")
        drawn = pairs_of(genomes, pairs)
        arrays = (drawn.letters, drawn.mates, drawn.offsets, drawn.sources)
        self._reads = Mates(*map(backend.to_host, arrays))
        self._expected = _taxids(self._index, self._reads)
        require_right(rule, genomes, self._reads.sources, self._expected)
        self._here: dict[int, float] = {}

    def rows(
        self, peer: Callable[[tuple[Path, Path]], ProgramTask] | None = None, absent: str = ""
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of one client, of one beside a busy one, and of several by turns.

        `peer` returns the task of a program that calls the pairs of two files, and `absent` names
        one that is not there.
        """
        sizes = sorted({*_SIZES, len(self._reads)})
        with self._server() as (process, address):
            made = [self._alone(process, address, n) for n in sizes]
            made += [self._beside(process, address), self._by_turns(process, address)]
        for row in made:
            if row["case"] != "alone":
                yield row
            elif peer is None:
                yield row | ({"absent": absent} if absent else {})
            else:
                theirs = self._of_peer(peer, row)
                yield row | {"peer": theirs["seconds"]}
                yield theirs

    @contextmanager
    def _server(self) -> Iterator[tuple[int, str]]:
        """Yield the server's process and its address; require that it stops clean."""
        command = (*OURS, "serve", f"{self._rule}={self._folder / 'served.dgki'}")
        command += ("--listen", f"unix://{self._folder / 'socket'}", "--device", self._device)
        log = self._folder / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                if not line.startswith("serving "):
                    raise DgpuhashError(f"the server ended at once: {log.read_text()}")
                yield process.pid, line.split(" at ")[1].strip()
                process.terminate()
                stopped = process.wait(_STARTS_SECONDS)
                require(stopped == 0, f"the server ended with {stopped}", rule=self._rule)
            finally:
                process.kill()
                process.communicate()

    def _alone(self, process: int, address: str, n: int) -> dict[str, Any]:
        with ServedIndex(address) as served:
            return self._row("alone", n, self._measure(process, served, n), process)

    def _beside(self, process: int, address: str) -> dict[str, Any]:
        """Return the row of one pair while another client sends ten times all pairs."""
        first, second = write_pairs(self._reads, self._folder / "busy")
        command: Sequence[Any] = (*OURS, "classify", self._rule, *(first, second) * _BUSY)
        command = (*command, "--paired", "--server", address, "--format", "tsv", "-o", "/dev/null")
        log, before = self._folder / "busy.log", _cpu_seconds(process)
        with log.open("wb") as said, ServedIndex(address) as served:
            busy = subprocess.Popen(list(map(str, command)), stdout=said, stderr=said)
            try:
                while busy.poll() is None and _cpu_seconds(process) < before + _AT_WORK:
                    time.sleep(0.01)
                spent = self._measure(process, served, 1)
                is_busy = busy.poll() is None
            finally:
                busy.kill()
                busy.wait()
        require(is_busy, f"the busy client was done too early: {log.read_text()[-500:]}")
        # A client that was killed takes nothing with it.
        with ServedIndex(address) as served:
            self._check(served, 1)
        return self._row("beside a busy client", 1, spent, process)

    def _by_turns(self, process: int, address: str) -> dict[str, Any]:
        """Return the row of clients that send a batch each, again and again."""
        own = max(len(self._reads) // _CLIENTS, 1)
        before = _cpu_seconds(process)

        def work(client: int) -> float:
            reads = [
                self._reads.between(first, min(first + _BATCH, (client + 1) * own))
                for first in range(client * own, (client + 1) * own, _BATCH)
            ]
            with ServedIndex(address) as served:
                begun = time.perf_counter()
                taxids = np.concatenate([_taxids(served, each) for each in reads])
                seconds = time.perf_counter() - begun
            expected = self._expected[client * own : (client + 1) * own]
            require((taxids == expected).all(), "calls of a server differ", rule=self._rule)
            return seconds

        clients = range(min(_CLIENTS, len(self._reads)))
        with ThreadPoolExecutor(len(clients)) as pool:
            begun = time.perf_counter()
            each = list(pool.map(work, clients))
            seconds = time.perf_counter() - begun
        spent = Spent(seconds, _cpu_seconds(process) - before)
        row = self._row("by turns", own * len(clients), [spent], process)
        return row | {"clients": len(clients), "fastest": short(min(each))}

    def _measure(self, process: int, served: Any, n: int) -> list[Spent]:
        """Return the cost of each call of the first n pairs, after comparing them."""
        self._check(served, n)
        reads, spent = self._reads.first(n), []
        for _ in range(self._repeats * (_CALLS if n < _MANY else 1)):
            cpu, begun = _cpu_seconds(process), time.perf_counter()
            _taxids(served, reads)
            spent.append(Spent(time.perf_counter() - begun, _cpu_seconds(process) - cpu))
        return spent

    def _check(self, served: Any, n: int) -> None:
        taxids = _taxids(served, self._reads.first(n))
        require((taxids == self._expected[:n]).all(), "calls of a server differ", rule=self._rule)

    def _floor(self, n: int) -> float:
        """Return the seconds of the same calls by the index in this process."""
        if n not in self._here:
            reads, taken = self._reads.first(n), []
            for _ in range(self._repeats * (_CALLS if n < _MANY else 1)):
                begun = time.perf_counter()
                _taxids(self._index, reads)
                taken.append(time.perf_counter() - begun)
            self._here[n] = statistics.median(taken)
        return self._here[n]

    def _row(self, case: str, n: int, runs: Sequence[Spent], process: int) -> dict[str, Any]:
        what = {
            "n": n, "threads": threads(), "verb": "serve", "rule": self._rule, "input": "letters",
            "library": "dgpuhash", "case": case, "clients": 1,
            "slowest": short(max(run.seconds for run in runs)),
        }  # fmt: skip
        spent = replace(Spent.median(runs), nbytes=_peak_nbytes(process))
        return figure_row(what, spent, self._floor(n))

    def _of_peer(
        self, peer: Callable[[tuple[Path, Path]], ProgramTask], row: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the row of another program with the same pairs in files."""
        task = peer(write_pairs(self._reads.first(row["n"]), self._folder / f"{row['n']}"))
        task.before()
        log = self._folder / "log"
        runs = [task.run(log) for _ in range(self._repeats)]
        theirs: CallsByName = task.answer()
        ours = CallsByName(theirs.names, self._expected[: row["n"]])
        differing, most = ours.differing(theirs)
        require(differing <= most, f"{differing:,} calls differ", library=task.library)
        what = {name: row[name] for name in ("n", "threads", "verb", "rule", "case", "clients")}
        what |= {"input": "plain", "library": task.library, "differing": differing}
        return figure_row(what, Spent.median(runs), row["floor"])


def serve_rows(
    backend: Backend, inputs: Inputs, rule: str, *, pairs: int, repeats: int, compare: bool
) -> Iterator[dict[str, Any]]:
    """Yield rows of a server's calls; see `Serving`.

    Clients are connected and have their reads in memory; the floor is the index in this process
    with the same reads. To `compare`, Kraken 2's program with ``--memory-mapping`` calls pairs in
    files; where it is not installed, rows have it as ``absent``.
    """
    rows = Serving(backend, inputs, rule, pairs, repeats)
    if not compare or rule != _KRAKEN2:
        yield from rows.rows()
    elif shutil.which(_KRAKEN2) is None:
        yield from rows.rows(absent=_KRAKEN2)
    else:
        yield from rows.rows(partial(mapped_kraken2, inputs))


def _taxids(index: Any, reads: Mates) -> np.ndarray:
    taxids = index.call(reads.letters, reads.offsets, reads.mates, reads.offsets).taxids
    return np.asarray(taxids if isinstance(taxids, np.ndarray) else taxids.get())


def _cpu_seconds(process: int) -> float:
    """Return the processor time of another process and of this one."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


def _peak_nbytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * _KIBIBYTE
