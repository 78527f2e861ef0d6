"""Benchmark builds and classification against Kraken 2 and MetaCache."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

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

RULES = ("kraken2", "metacache")
# Kraken 2 keeps the keys of its minimizers in part only.
_ONE_IN = 10_000


@dataclass(frozen=True, slots=True)
class CallsByName:
    """The taxid of each pair, by its name.

    Attributes
    ----------
    names : list of str
    taxids : array of int64
        0 where there is none.
    """

    names: list[str]
    taxids: np.ndarray

    @classmethod
    def read(cls, path: Path, columns: tuple[int, int], sep: str = "\t") -> CallsByName:
        """Return the calls of a file, given its columns of names and taxids.

        Examples
        --------
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "calls")
        >>> _ = path.write_text("# a comment\\nr1/1\\t|\\t562\\nr2\\t|\\t--\\n")
        >>> calls = CallsByName.read(path, (0, 1), "\\t|\\t")
        >>> calls.names, calls.taxids.tolist()
        (['r1', 'r2'], [562, 0])
        """
        with path.open() as file:
            lines = [line.rstrip("\n").split(sep) for line in file if not line.startswith("# ")]
        name, taxid = columns
        return cls(
            [line[name].removesuffix("/1") for line in lines],
            np.array([0 if line[taxid] == "--" else int(line[taxid]) for line in lines], np.int64),
        )

    def differing(self, other: CallsByName) -> tuple[int, int]:
        """Return how many calls differ, and how many may."""
        if self.names != other.names:
            return max(len(self.names), len(other.names)), 0
        return int((self.taxids != other.taxids).sum()), len(self.names) // _ONE_IN


@dataclass(frozen=True, slots=True)
class _Tool:
    """A program that builds databases and calls reads by one rule.

    Attributes
    ----------
    library : str
    database : path
    before : callable
        Prepares what is no part of a build.
    build : tuple of command
    made : tuple of path
        What a build writes.
    call : callable
        Returns the command that calls two files, and writes calls to a third.
    columns, sep
        Of `Calls.read`.
    """

    library: str
    before: Callable[[], object]
    build: tuple[Command, ...]
    made: tuple[Path, ...]
    call: Callable[[tuple[Path, Path], Path], Command]
    columns: tuple[int, int]
    sep: str = "\t"

    def builds(self, inputs: Inputs, compare: bool) -> ProgramTask:
        """Return the task that builds a database, checked by its calls."""
        task = self.calls(inputs, inputs.reads("plain")) if compare else None

        def answer() -> Any:
            if task is None:
                return None
            task.run(inputs.folder / "log")
            made = task.answer()
            task.clean()
            return made

        return ProgramTask(self.library, self.build, self.made, answer, self.before)

    def calls(self, inputs: Inputs, reads: tuple[Path, Path]) -> ProgramTask:
        """Return the task that calls the pairs of files, building the database if needed."""
        target = inputs.folder / f"{self.library.split()[0]}.calls"
        report = target.with_suffix(".report")

        def before() -> None:
            if all(path.exists() for path in self.made):
                return
            self.before()
            for command in self.build:
                run_program(command, inputs.folder / "log")

        return ProgramTask(
            self.library,
            (self.call(reads, target),),
            (target, report),
            lambda: CallsByName.read(target, self.columns, self.sep),
            before,
        )


def building(
    inputs: Inputs, rule: str, device: Device, compare: bool, metacache: str | None
) -> Question:
    """Return the benchmark of building a database from plain files until it is usable."""
    tools = _tools(inputs, rule, device, compare, metacache)
    compare = len(tools) > 1
    return Question(
        "build", rule, "plain", inputs.letters, reading("genomes", inputs.plain),
        tuple(tool.builds(inputs, compare) for tool in tools), _differing, keeps=True,
    )  # fmt: skip


def classifying(
    inputs: Inputs, rule: str, kind: str, device: Device, compare: bool, metacache: str | None
) -> Question:
    """Return the benchmark of calling all pairs with an existing database."""
    tools = _tools(inputs, rule, device, compare, metacache)
    return Question(
        "classify", rule, kind, inputs.pairs, reading("pairs", inputs.reads(kind)),
        tuple(tool.calls(inputs, inputs.reads(kind)) for tool in tools), _differing,
    )  # fmt: skip


def mapped_kraken2(inputs: Inputs, reads: tuple[Path, Path]) -> ProgramTask:
    """Return the task of Kraken 2 that calls the pairs of files with its table mapped."""
    task = _kraken2(inputs).calls(inputs, reads)
    program, *arguments = task.commands[0]
    command = (program, "--memory-mapping", *arguments)
    return replace(task, library=f"{task.library} --memory-mapping", commands=(command,))


def _differing(one: CallsByName | None, other: CallsByName | None) -> tuple[int, int]:
    return (0, 0) if one is None or other is None else one.differing(other)


def _tools(
    inputs: Inputs, rule: str, device: Device, compare: bool, metacache: str | None
) -> list[_Tool]:
    tools = [_ours(inputs, rule, device)]
    if rule == "kraken2" and compare:
        tools.append(_kraken2(inputs))
    if rule == "metacache" and metacache is not None:
        tools.append(_metacache(inputs, metacache))
    return tools


def _ours(inputs: Inputs, rule: str, device: Device) -> _Tool:
    database = inputs.folder / f"{rule}.dgki"
    build: Command = (*OURS, "build", *inputs.plain, "--rule", rule, "--device", device)
    build += ("--taxonomy", inputs.taxonomy, "-o", database)

    def call(reads: tuple[Path, Path], target: Path) -> Command:
        # Kraken 2's lines and report are more than names and taxids.
        style = "kraken" if rule == "kraken2" else "tsv"
        report = target.with_suffix(".report")
        command: Command = (*OURS, "classify", database, *reads, "--paired", "--device", device)
        return (*command, "--format", style, "--output", target, "--report", report)

    columns = (1, 2) if rule == "kraken2" else (0, 1)
    return _Tool("dgpuhash", lambda: None, (build,), (database,), call, columns)


def _kraken2(inputs: Inputs) -> _Tool:
    database = inputs.folder / "kraken2"
    folder = str(database)

    def before() -> None:
        """Copy the taxonomy and the genomes into the database's folder, as it wants them."""
        if (database / "library").exists():
            return
        shutil.copytree(inputs.taxonomy, database / "taxonomy", copy_function=shutil.copyfile)
        for path in inputs.plain:
            run_program(
                ("kraken2-build", "--add-to-library", path, "--db", folder, "--no-masking"),
                inputs.folder / "log",
            )

    def call(reads: tuple[Path, Path], target: Path) -> Command:
        packed = ("--gzip-compressed",) if reads[0].suffix == ".gz" else ()
        return (
            *("kraken2", "--db", folder, "--threads", str(threads()), "--paired", *packed),
            *("--output", target, "--report", target.with_suffix(".report"), *reads),
        )

    build: Command = ("kraken2-build", "--build", "--db", folder, "--no-masking")
    build += ("--threads", str(threads()))
    made = tuple(database / name for name in ("hash.k2d", "opts.k2d", "taxo.k2d"))
    made += (database / "seqid2taxid.map",)
    name = f"Kraken {version_of('kraken2', '--version')}"
    return _Tool(name, before, (build,), made, call, (1, 2))


def _metacache(inputs: Inputs, program: str) -> _Tool:
    database = inputs.folder / "metacache"

    def call(reads: tuple[Path, Path], target: Path) -> Command:
        return (
            *(program, "query", database, *reads, "-pairfiles", "-out", target),
            *("-threads", str(threads())),
            *("-taxids-only", "-omit-ranks", "-no-summary", "-no-query-params"),
        )

    taxonomy = inputs.taxonomy
    maps = sorted(taxonomy.glob("*.accession2taxid"))
    build: Command = (program, "build", database, *inputs.plain, "-taxonomy", taxonomy)
    if maps:
        build += ("-taxpostmap", *maps)
    made = tuple(database.with_suffix(ending) for ending in (".meta", ".cache0"))
    name = f"MetaCache {version_of(program, 'info')}".strip()
    return _Tool(name, lambda: None, (build,), made, call, (0, 1), "\t|\t")
