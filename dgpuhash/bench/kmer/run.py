"""Benchmark of counts, builds and calls, beside KMC, Jellyfish, Kraken 2 and MetaCache."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.kmer.counting import counting
from dgpuhash.bench.kmer.databases import RULES, building, classifying
from dgpuhash.bench.kmer.inputs import PAIRS, QUICK_PAIRS, Inputs, data_folder
from dgpuhash.bench.kmer.programs import Spent, installed, on_cores
from dgpuhash.bench.kmer.task import Question
from dgpuhash.errors import SpecError

__all__ = ["KINDS", "PEERS", "QUESTIONS", "REPEATS", "run"]

QUESTIONS = ("count", *(f"{verb}-{rule}" for rule in RULES for verb in ("build", "classify")))
KINDS = ("plain", "gz")
PEERS = ("kraken2", "kraken2-build", "kmc", "kmc_tools", "jellyfish", "wgsim")
REPEATS = 5
_QUICK_REPEATS = 1
_MEMORY = Path("/dev/shm")


def run(
    backend: Backend,
    *,
    questions: Sequence[str] = (),
    kinds: Sequence[str] = (),
    pairs: int | None = None,
    quick: bool = False,
    repeats: int | None = None,
    compare: bool = False,
    metacache: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each question, kind of files and program: wall and CPU time, and memory.

    The genomes of the role ``db`` below ``DGPUHASH_KMER_DATA`` (default: ``../shared/kmer``) are
    copied to memory; pairs of reads of 150 letters are made of them by wgsim. Every program is a
    process of its own, this package's command, too, with two threads on two cores, and writes to
    memory. Each runs once, and its answer is compared; then they take turns, of which the median
    counts. All have the same files, which lie in memory.

    Parameters
    ----------
    backend : Backend
        Of this package's command; other programs use the CPU.
    questions : sequence of str, optional
        Which of `QUESTIONS`; default: all.
    kinds : sequence of {"plain", "gz"}, optional
        How files of genomes and reads are stored; default: both. Databases are built from plain
        ones.
    pairs : int, optional
        Pairs of reads to make; default: 500,000.
    quick : bool
        Whether 50,000 pairs and one turn are enough where nothing else is given.
    repeats : int, optional
        Turns; default: 5.
    compare : bool
        Whether to run KMC, Jellyfish and Kraken 2.
    metacache : str, optional
        MetaCache's program, which is run, too.

    Raises
    ------
    SpecError
        When an option is impossible, there are no genomes, or a program is not installed.
    DgpuhashError
        When a program fails, or two answers differ.

    Notes
    -----
    ``amount`` is the CPU time in seconds, ``seconds`` the wall time, ``floor`` that of reading and
    parsing the files alone, and ``ratio`` is ``floor`` over ``seconds``. Rows of this package have
    the least wall time of the other programs as ``peer``.
    """
    for name, given, known in (("question", questions, QUESTIONS), ("kind", kinds, KINDS)):
        if foreign := [each for each in given if each not in known]:
            raise SpecError(f"{name} {foreign[0]!r}; use {', '.join(known)}")
    data = data_folder()
    if compare:
        installed(PEERS)
    if metacache is not None and shutil.which(metacache) is None:
        raise SpecError(f"--metacache {metacache}: no such program; give the path of MetaCache's")
    repeats = repeats or (_QUICK_REPEATS if quick else REPEATS)
    pairs = pairs or (QUICK_PAIRS if quick else PAIRS)
    room = _MEMORY if _MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="dgpuhash-kmer-", dir=room))
    try:
        inputs = Inputs(data, folder, pairs)
        with on_cores():
            for name in questions or QUESTIONS:
                verb, _, rule = name.partition("-")
                for kind in kinds or KINDS:
                    if verb == "count":
                        asked = counting(inputs, kind, backend.name, compare)
                    elif verb == "classify":
                        asked = classifying(inputs, rule, kind, backend.name, compare, metacache)
                    elif kind == (kinds or KINDS)[0]:
                        asked = building(inputs, rule, backend.name, compare, metacache)
                    else:
                        continue
                    yield from _rows(asked, folder / "log", repeats)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rows(asked: Question, log: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of one question, after all programs have answered it alike."""
    differing = _compared(asked, log)
    taken: dict[str, list[Spent]] = {}
    tasks = [asked.floor, *asked.tasks]
    for turn in range(repeats):
        for task in tasks:
            taken.setdefault(task.library, []).append(task.run(log))
            if not (asked.keeps and turn == repeats - 1):
                task.clean()
    floor = _median(taken[asked.floor.library])[0]
    theirs = [_median(taken[task.library])[0] for task in asked.tasks if not task.ours]
    for task in asked.tasks:
        seconds, cpu_seconds = _median(taken[task.library])
        row: dict[str, Any] = {
            "n": asked.n,
            "verb": asked.verb,
            "input": asked.kind,
            "library": task.library,
            "amount": _short(cpu_seconds),
            "unit": "CPU s",
            "seconds": _short(seconds),
            "floor": _short(floor),
            "ratio": _short(floor / seconds),
            "peak_nbytes": max(each.nbytes for each in taken[task.library]),
        }
        if asked.rule:
            row["rule"] = asked.rule
        if task.library in differing:
            row["differing"] = differing[task.library]
        if task.ours and theirs:
            row["peer"] = _short(min(theirs))
        yield {**row, "correct": True}


def _compared(asked: Question, log: Path) -> dict[str, int]:
    """Run every program once; return how many rows of others differ from ours, by name."""
    found: dict[str, int] = {}
    expected: Any = None
    asked.floor.run(log)
    for task in asked.tasks:
        task.before()
        task.run(log)
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
    return found


def _median(spent: Sequence[Spent]) -> tuple[float, float]:
    return (
        statistics.median(each.seconds for each in spent),
        statistics.median(each.cpu_seconds for each in spent),
    )


def _short(number: float) -> float:
    """Round to four significant digits, more than the figures' precision."""
    return float(f"{number:.4g}")
