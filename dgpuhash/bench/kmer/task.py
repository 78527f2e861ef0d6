"""One way to answer a question: programs to run, and how their answer is read."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgpuhash.bench.kmer.programs import Command, Spent, measured

FLOOR = "reading alone"
# Read and parsed as counts and builds read them: nothing is done with the letters.
_READ = {
    "genomes": "read_sequences(sys.argv[1:], overlap=30)",
    "pairs": "read_pairs(*sys.argv[1:])",
}


@dataclass(frozen=True, slots=True)
class Task:
    """One program's way to answer a question.

    Attributes
    ----------
    library : str
        Its name and version.
    commands : tuple
        Programs to run, one after another.
    made : tuple of path
        Files and folders that they write, which are removed before each run.
    answer : callable
        Reads the answer, the same for all programs.
    before : callable
        What is done once, and not measured.
    """

    library: str
    commands: tuple[Command, ...]
    made: tuple[Path, ...] = ()
    answer: Callable[[], Any] = lambda: None
    before: Callable[[], object] = lambda: None

    @property
    def ours(self) -> bool:
        """Whether it is this package."""
        return self.library == "dgpuhash"

    def run(self, log: Path) -> Spent:
        """Remove what the last run made, run the programs and return what they took."""
        self.clean()
        spent = Spent()
        for command in self.commands:
            spent += measured(command, log)
        return spent

    def clean(self) -> None:
        """Remove what the programs write."""
        for path in self.made:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Question:
    """What several programs answer.

    Attributes
    ----------
    verb : str
        ``count``, ``build`` or ``classify``.
    rule : str
        Of builds and calls: ``kraken2`` or ``metacache``; empty of counts.
    kind : str
        Of the files: ``plain`` or ``gz``.
    n : int
        Letters, or pairs of reads.
    floor : Task
        Reads and parses the same files.
    tasks : tuple of Task
        Ours first.
    differing : callable
        How many rows of two answers differ, and how many may.
    keeps : bool
        Whether what was made stays for other questions.
    """

    verb: str
    rule: str
    kind: str
    n: int
    floor: Task
    tasks: tuple[Task, ...]
    differing: Callable[[Any, Any], tuple[int, int]]
    keeps: bool = False


def reading(what: str, files: Iterable[Path]) -> Task:
    """Return the task that reads and parses ``genomes``, or a file of ``pairs`` and its mate."""
    program = f"import sys\nfrom dgpuhash.kmer import {_READ[what].partition('(')[0]}\n"
    program += f"for batch in {_READ[what]}: pass"
    return Task(FLOOR, ((sys.executable, "-c", program, *files),))
