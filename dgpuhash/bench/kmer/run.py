"""Benchmark counts, builds and calls against KMC, Jellyfish, Kraken 2 and MetaCache."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require, short
from dgpuhash.bench.kmer.counting import counting
from dgpuhash.bench.kmer.databases import RULES, building, classifying
from dgpuhash.bench.kmer.inputs import PAIRS, QUICK_PAIRS, Inputs, data_folder
from dgpuhash.bench.kmer.letters import Mutants
from dgpuhash.bench.kmer.on_device import LETTERS, OnDevice
from dgpuhash.bench.kmer.on_workers import weak_scaling
from dgpuhash.bench.kmer.programs import Question, Spent, figure_row, on_cores, require_programs
from dgpuhash.bench.kmer.programs import threads as threads_of
from dgpuhash.bench.kmer.serving import PAIRS as SERVED_PAIRS
from dgpuhash.bench.kmer.serving import serve_rows
from dgpuhash.bench.options import Devices, Option, PoolSize, Protocol, Turns
from dgpuhash.bench.workers.cluster import check_counts, counts_for
from dgpuhash.errors import SpecError
from dgpuhash.kmer.cluster import MODES

QUESTIONS = ("count", *(f"{verb}-{rule}" for rule in RULES for verb in ("build", "classify")))
CONSTRUCTIONS = tuple(f"construction-{rule}" for rule in RULES)
SCALINGS = tuple(f"scaling-{rule}" for rule in RULES)
SERVINGS = tuple(f"serve-{rule}" for rule in RULES)
ALL_QUESTIONS = (*QUESTIONS, *CONSTRUCTIONS, *SERVINGS, *SCALINGS)
CONSTRUCTED_LETTERS = 2_200_000_000
KINDS = ("plain", "gz", LETTERS)
# In the memory of a GPU a batch has more.
_PAIRS_ON_A_GPU = 2**22
# Of a worker with one, where they are text.
_PAIRS_IN_FILES = 2**20
_OF_KRAKEN2 = ("kraken2", "kraken2-build")
#: Programs that are run beside ours, by what is asked.
PEERS = {
    "count": ("kmc", "kmc_tools", "jellyfish"),
    "build-kraken2": _OF_KRAKEN2,
    "classify-kraken2": _OF_KRAKEN2,
    "construction-kraken2": _OF_KRAKEN2,
}
REPEATS = 5
_THREADS = 2
_QUICK_REPEATS = 1
_MEMORY = Path("/dev/shm")


def run(
    backend: Backend,
    *,
    questions: Annotated[Sequence[str], Option(choices=ALL_QUESTIONS)] = (),
    kinds: Annotated[Sequence[str], Option(("--input",), choices=KINDS)] = (),
    pairs: int | None = None,
    letters: int | None = None,
    quick: bool = False,
    repeats: Turns = None,
    threads: int | None = None,
    compare: bool = False,
    metacache: Annotated[str | None, Option(metavar="PATH")] = None,
    workers: Sequence[int] = (),
    modes: Annotated[Sequence[str], Option(choices=MODES)] = ("distributed",),
    protocol: Protocol = None,
    devs: Devices = None,
    rmm_pool_size: PoolSize = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each benchmark, kind of files and program: wall and CPU time, and memory.

    The genomes of the role ``db`` below ``DGPUHASH_KMER_DATA`` (default: ``../shared/kmer``) are
    copied to memory; pairs of reads of 150 letters are made of them by wgsim. Every program is a
    process of its own, this package's command, too, with as many threads as cores, and writes to
    memory. Each runs once, and its answer is compared; then they take turns, of which the median
    counts. All have the same files, which lie in memory.

    Letters that lie on the device are counted, indexed and called in this process, and so are pairs
    that are drawn there. Constructions are indexes of all genomes and of as many mutants, of which
    one letter in a hundred is drawn anew, as give `letters`; programs have these as files.

    Scalings are builds and calls on the workers of a cluster, of which each adds as many letters
    and pairs; see `dgpuhash.bench.kmer.on_workers`. Servings are calls by a server that clients
    ask; see `dgpuhash.bench.kmer.serving`.

    Parameters
    ----------
    backend : Backend
        Of this package's command; other programs use the CPU.
    questions : sequence of str, optional
        Questions; default: all but constructions, servings and scalings.
    kinds : sequence of {"plain", "gz", "letters"}, optional
        How genomes and reads are stored: in files, or as letters on the device; default: all.
        Databases are built from plain files.
    pairs : int, optional
        Pairs of reads to make; default: 500,000, of letters on a GPU 2**22, of a worker with a
        GPU 2**20, and of a server's client 1,000,000.
    letters : int, optional
        Letters of a construction, or of each worker, at least; default: 2,200,000,000, or all
        genomes once.
    quick : bool
        Measure 50,000 pairs in one turn, where nothing else is given.
    repeats : int, optional
        Turns, of which the median is taken; default: 5.
    threads : int, optional
        Threads of each program, and cores that it may use; default: 2.
    compare : bool
        Run KMC, Jellyfish and Kraken 2, too.
    metacache : str, optional
        MetaCache's program, which is run, too.
    workers : sequence of int, optional
        Workers of a scaling; default: 1, 2, 4 … up to the number of GPUs, or CPUs.
    modes : sequence of {"auto", "distributed", "independent", "replicated"}
        How a scaling's index lies on the workers; default: distributed.
    protocol, devs, rmm_pool_size : str, optional
        Of a scaling, as `dgpuhash bench scaling` takes them.

    Raises
    ------
    SpecError
        When an option is impossible, there are no genomes, or a program is not installed.
    DgpuhashError
        When a program fails, or two answers differ.

    Notes
    -----
    ``amount`` is the CPU time in seconds, ``seconds`` the wall time, ``floor`` that of reading and
    parsing the files alone, and ``ratio`` is ``floor`` over ``seconds``. Of letters on the device
    the floor is that of reading them once, and of a bare access to a table for each k-mer,
    minimizer or feature. Rows of this package have the least wall time of the other programs as
    ``peer``.
    """
    gpus = None if devs is None else devs.split(",")
    counts = list(workers) or counts_for(backend, gpus)
    check_counts(counts, gpus, backend)
    data = data_folder()
    if compare:
        names = [name for each in questions or QUESTIONS for name in PEERS.get(each, ())]
        require_programs(dict.fromkeys([*names, *(["wgsim"] if names else [])]))
    if metacache is not None and shutil.which(metacache) is None:
        raise SpecError(f"--metacache {metacache}: no such program; give the path of MetaCache's")
    repeats = repeats or (_QUICK_REPEATS if quick else REPEATS)
    files = pairs or (QUICK_PAIRS if quick else PAIRS)
    drawn = pairs or (
        QUICK_PAIRS if quick else _PAIRS_ON_A_GPU if backend.name == "cuda" else PAIRS
    )
    room = _MEMORY if _MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="dgpuhash-kmer-", dir=room))
    try:
        inputs = Inputs(data, folder, files)
        here = OnDevice(backend, inputs, drawn, repeats)
        with on_cores(threads or _THREADS):
            for name in questions or QUESTIONS:
                verb, _, rule = name.partition("-")
                if name in SCALINGS:
                    continue
                if name in SERVINGS:
                    most = pairs or (QUICK_PAIRS if quick else SERVED_PAIRS)
                    yield from serve_rows(
                        backend, inputs, rule, pairs=most, repeats=repeats, compare=compare
                    )
                    continue
                for kind in kinds or KINDS:
                    if verb == "construction":
                        yield from _construction_rows(
                            backend, here, inputs, rule, kind, letters or CONSTRUCTED_LETTERS,
                            compare, metacache,
                        )  # fmt: skip
                        continue
                    if kind == LETTERS:
                        yield here.row(verb, rule)
                        continue
                    if verb == "count":
                        asked = counting(inputs, kind, backend.name, compare)
                    elif verb == "classify":
                        asked = classifying(inputs, rule, kind, backend.name, compare, metacache)
                    elif kind == "plain":
                        asked = building(inputs, rule, backend.name, compare, metacache)
                    else:
                        continue
                    yield from _rows(asked, folder / "log", repeats)
        rules = [name.partition("-")[2] for name in questions if name in SCALINGS]
        if rules and "plain" in (kinds or KINDS):
            each = pairs or (_PAIRS_IN_FILES if backend.name == "cuda" and not quick else files)
            yield from weak_scaling(
                backend, inputs, rules, counts=counts, modes=modes, pairs=each, repeats=repeats,
                letters=letters or inputs.letters, protocol=protocol, devs=gpus,
                rmm_pool_size=rmm_pool_size,
            )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _construction_rows(
    backend: Backend, here: OnDevice, inputs: Inputs, rule: str, kind: str, letters: int,
    compare: bool, metacache: str | None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the rows of an index of genomes and mutants: programs once, from plain files."""
    if kind == LETTERS:
        yield here.construction(rule, letters)
    elif kind == "plain":
        mutants = Mutants(inputs, letters, backend)
        try:
            asked = building(mutants, rule, backend.name, compare, metacache)
            yield from _rows(replace(asked, verb="construction"), inputs.folder / "log", 0)
        finally:
            shutil.rmtree(mutants.folder)


def _rows(asked: Question, log: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of one benchmark, after all programs have given the same answer.

    Without repeats those runs are the ones that count.
    """
    differing, first = _compare_programs(asked, log)
    taken: dict[str, list[Spent]] = {} if repeats else {name: [spent] for name, spent in first}
    tasks = [asked.floor, *asked.tasks]
    for turn in range(repeats):
        for task in tasks:
            taken.setdefault(task.library, []).append(task.run(log))
            if not (asked.keeps and turn == repeats - 1):
                task.clean()
    floor = Spent.median(taken[asked.floor.library]).seconds
    theirs = [Spent.median(taken[task.library]).seconds for task in asked.tasks if not task.ours]
    for task in asked.tasks:
        spent = Spent.median(taken[task.library])
        what = {
            "n": asked.n, "threads": threads_of(), "verb": asked.verb, "rule": asked.rule,
            "input": asked.kind, "library": task.library,
        }  # fmt: skip
        row = figure_row(what, spent, floor)
        if task.library in differing:
            row["differing"] = differing[task.library]
        if task.ours and theirs:
            row["peer"] = short(min(theirs))
        yield row


def _compare_programs(asked: Question, log: Path) -> tuple[dict[str, int], list[tuple[str, Spent]]]:
    """Run every program once; return the differing rows of others, and each one's cost.

    Both are by names.
    """
    found: dict[str, int] = {}
    expected: Any = None
    spent = [(asked.floor.library, asked.floor.run(log))]
    for task in asked.tasks:
        task.before()
        spent.append((task.library, task.run(log)))
        answer = task.answer() if len(asked.tasks) > 1 else None
        if task.ours:
            expected = answer
        else:
            differing, most = asked.differing(expected, answer)
            require(
                differing <= most, f"{differing:,} rows of the answers differ, and {most:,} may,",
                verb=asked.verb, rule=asked.rule, library=task.library,
            )  # fmt: skip
            found[task.library] = differing
        if not asked.keeps:
            task.clean()
    return found, spent
