"""Benchmark k-mer counts against KMC and Jellyfish, and compare the histograms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dgpuhash.bench.kmer.inputs import Inputs
from dgpuhash.bench.kmer.programs import (
    OURS,
    Command,
    ProgramTask,
    Question,
    reading,
    run_program,
    threads,
    version_of,
)
from dgpuhash.typing import Device

_K = "31"
# Counts that KMC and Jellyfish tell apart in a histogram.
_MOST = 10**5
_COUNTERS = 2**32 - 1
_GIGABYTES = "8"


def counting(inputs: Inputs, kind: str, device: Device, compare: bool) -> Question:
    """Return the benchmark of counting all k-mers of 31 letters, single ones included."""
    files = inputs.genomes(kind)
    makers: tuple[Callable[[Inputs, str], ProgramTask], ...] = (_kmc, _jellyfish) if compare else ()
    return Question(
        "count", "", kind, inputs.letters, reading("genomes", files),
        (_ours(inputs, kind, device), *(make(inputs, kind) for make in makers)), _differing,
    )  # fmt: skip


def _ours(inputs: Inputs, kind: str, device: Device) -> ProgramTask:
    made = inputs.folder / "ours.dgkc"
    command: Command = (*OURS, "count", *inputs.genomes(kind), "--device", device)
    command += ("-k", _K, "-o", made)

    def answer() -> dict[int, int]:
        told = inputs.folder / "histogram"
        run_program((*OURS, "histogram", made), told)
        return _histogram(told)

    return ProgramTask("dgpuhash", (command,), (made,), answer)


def _kmc(inputs: Inputs, kind: str) -> ProgramTask:
    made, listed, room = (inputs.folder / name for name in ("kmc", "kmc.list", "kmc.folder"))
    room.mkdir(exist_ok=True)
    listed.write_text("\n".join(map(str, inputs.genomes(kind))))
    command = (
        *("kmc", "-hp", f"-k{_K}", "-ci1", f"-cs{_COUNTERS}", f"-t{threads()}", f"-m{_GIGABYTES}"),
        *("-fm", f"@{listed}", made, room),
    )

    def answer() -> dict[int, int]:
        told = inputs.folder / "histogram"
        run_program(
            ("kmc_tools", "-hp", "transform", made, "histogram", told, f"-cx{_MOST}"),
            inputs.folder / "log",
        )
        return _histogram(told)

    files = tuple(made.with_suffix(ending) for ending in (".kmc_pre", ".kmc_suf"))
    return ProgramTask(f"KMC {version_of('kmc')}", (command,), files, answer)


def _jellyfish(inputs: Inputs, kind: str) -> ProgramTask:
    made, listed = inputs.folder / "jellyfish.jf", inputs.folder / "jellyfish.list"
    files = inputs.genomes(kind)
    room = max(inputs.letters, 1000)
    command: tuple[str | Path, ...] = (
        *("jellyfish", "count", "-C", "-m", _K, "-s", str(room), "-t", str(threads()), "-o", made),
    )
    if kind == "plain":
        command += tuple(files)
    else:
        # It reads no gzip, but runs what does.
        listed.write_text("".join(f"gzip -dc '{path}'\n" for path in files))
        command += ("-g", listed, "-G", str(threads()))

    def answer() -> dict[int, int]:
        told = inputs.folder / "histogram"
        run_program(("jellyfish", "histo", "-h", str(_MOST), made), told)
        return _histogram(told)

    name = f"Jellyfish {version_of('jellyfish', '--version')}"
    return ProgramTask(name, (command,), (made,), answer)


def _histogram(path: Path) -> dict[int, int]:
    """Return the number of k-mers of each count, from lines of two numbers."""
    pairs = (map(int, line.split()) for line in path.read_text().splitlines())
    return {count: number for count, number in pairs if number}


def _differing(one: dict[int, int], other: dict[int, int]) -> tuple[int, int]:
    """Return the number of counts with different numbers of k-mers; 0 is required."""
    return sum(one.get(count) != other.get(count) for count in one.keys() | other.keys()), 0
