"""Run peer programs as processes, and measure their time and memory."""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgpuhash.bench.figure import short
from dgpuhash.errors import DgpuhashError, SpecError

Command = tuple[str | Path, ...]

OURS: tuple[str, ...] = (sys.executable, "-m", "dgpuhash", "kmer")
"""How this package's command begins."""

_SAID = 2000
# A process has at least the peak of the one that starts it: here, of a small one.
_LAUNCHER = """
import os, sys, time
start = time.perf_counter()
try:
    pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
except OSError as error:
    sys.exit(str(error))
_, status, used = os.wait4(pid, 0)
seconds = time.perf_counter() - start
figures = f"{seconds} {used.ru_utime + used.ru_stime} {used.ru_maxrss}"
os.write(int(sys.argv[1]), figures.encode())
sys.exit(abs(os.waitstatus_to_exitcode(status)))
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """Time and memory of a program.

    Attributes
    ----------
    seconds, cpu_seconds : float
        Until it ended; and of processors, by all its processes.
    nbytes : int
        The most memory that one of its processes had.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    nbytes: int = 0

    @classmethod
    def median(cls, runs: Sequence[Spent]) -> Spent:
        """Return the median of each time, and the most memory."""
        wall, cpu = zip(*((run.seconds, run.cpu_seconds) for run in runs), strict=True)
        most = max(run.nbytes for run in runs)
        return cls(statistics.median(wall), statistics.median(cpu), most)

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
            max(self.nbytes, other.nbytes),
        )


def figure_row(what: dict[str, Any], spent: Spent, floor: float) -> dict[str, Any]:
    """Return the row of a figure beside the `floor` in seconds; an empty rule is left out.

    Examples
    --------
    >>> row = figure_row({"verb": "count", "rule": ""}, Spent(2.0, 3.0, 10), 1.0)
    >>> row["verb"], row["seconds"], row["ratio"], "rule" in row
    ('count', 2.0, 0.5, False)
    """
    return {
        **{name: value for name, value in what.items() if value != ""},
        "amount": short(spent.cpu_seconds), "unit": "CPU s", "seconds": short(spent.seconds),
        "floor": short(floor), "ratio": short(floor / spent.seconds), "peak_nbytes": spent.nbytes,
        "correct": True,
    }  # fmt: skip


def run_program(command: Command, log: Path) -> Spent:
    """Run a program to its end and return its time and memory; `log` gets its output.

    Raises
    ------
    DgpuhashError
        When it fails.

    Examples
    --------
    >>> import tempfile
    >>> spent = run_program(("true",), Path(tempfile.mkdtemp(), "log"))
    >>> 0 < spent.seconds < 60 and spent.nbytes > 0
    True
    """
    words = [str(word) for word in command]
    environment = {**os.environ, "DGPUHASH_NUM_THREADS": str(threads())}
    reading, writing = os.pipe()
    with log.open("wb") as said, os.fdopen(reading) as told:
        process = subprocess.Popen(
            [sys.executable, "-IS", "-c", _LAUNCHER, str(writing), *words], pass_fds=[writing],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(writing)
        try:
            figures = told.read().split()
            process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if process.returncode:
        words = words if len(words) < 8 else [*words[:8], "…"]
        raise DgpuhashError(
            f"{' '.join(words)} ended with {process.returncode}: "
            f"{log.read_text(errors='replace')[-_SAID:].strip()}"
        )
    seconds, cpu_seconds, kibibytes = map(float, figures)
    return Spent(seconds, cpu_seconds, int(kibibytes) * 1024)


def threads() -> int:
    """Return the number of threads for each program: one per usable core.

    Examples
    --------
    >>> with on_cores(1):
    ...     threads()
    1
    """
    return len(os.sched_getaffinity(0))


@contextmanager
def on_cores(cores: int) -> Iterator[None]:
    """Limit this process and its children to a number of cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def require_programs(names: Iterable[str]) -> None:
    """Raise SpecError unless programs of these names are installed.

    Examples
    --------
    >>> require_programs(["sh"])
    >>> require_programs(["sh", "no-such-program"])
    Traceback (most recent call last):
    dgpuhash.errors.SpecError: no-such-program is not installed; 'make peers' installs ...
    """
    if lacking := [name for name in names if shutil.which(name) is None]:
        has = "is" if len(lacking) == 1 else "are"
        raise SpecError(
            f"{', '.join(lacking)} {has} not installed; 'make peers' installs Debian's kraken2, "
            "kmc, jellyfish and samtools, and without --compare only wgsim of samtools is needed"
        )


def version_of(*command: str) -> str:
    """Return the version that a program reports; empty if none.

    Examples
    --------
    >>> version_of("python3", "--version")[:2]
    '3.'
    """
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d[\w.]*", told.stdout + told.stderr)
    return found.group() if found else ""


FLOOR = "reading alone"
# Read and parsed as counts and builds read them: nothing is done with the letters.
_READ = {
    "genomes": "read_sequences(sys.argv[1:], overlap=30)",
    "pairs": "read_pairs(*sys.argv[1:])",
}


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """One program's way to run a benchmark.

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
        """Whether the program is this package."""
        return self.library == "dgpuhash"

    def run(self, log: Path) -> Spent:
        """Remove the last run's output, run the programs and return their cost."""
        self.clean()
        spent = Spent()
        for command in self.commands:
            spent += run_program(command, log)
        return spent

    def clean(self) -> None:
        """Remove the programs' output."""
        for path in self.made:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Question:
    """Benchmark that several programs run.

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
    floor: ProgramTask
    tasks: tuple[ProgramTask, ...]
    differing: Callable[[Any, Any], tuple[int, int]]
    keeps: bool = False


def reading(what: str, files: Iterable[Path]) -> ProgramTask:
    """Return the task that reads and parses ``genomes``, or a file of ``pairs`` and its mate."""
    program = f"import sys\nfrom dgpuhash.kmer import {_READ[what].partition('(')[0]}\n"
    program += f"for batch in {_READ[what]}: pass"
    return ProgramTask(FLOOR, ((sys.executable, "-c", program, *files),))
