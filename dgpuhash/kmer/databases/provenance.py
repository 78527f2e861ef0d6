"""Provenance of an index: steps, dates, versions and files."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.kmer.references import Targets


class SourceFile(NamedTuple):
    """A file of references.

    Attributes
    ----------
    name : str
    sha256 : str
        The sum of its bytes, as ``sha256sum`` prints it; empty where it is not known.
    sequences, letters : int
        That the index has of it.

    Examples
    --------
    >>> SourceFile("a.fa", "", 2, 900).letters
    900
    """

    name: str
    sha256: str
    sequences: int
    letters: int


class Step(NamedTuple):
    """One step in the making of an index: a build, an add or a merge.

    Attributes
    ----------
    verb : {"build", "add", "merge"}
    date : str
        Of the end, in UTC.
    version : str
        Of dgpuhash.
    options : dict
        What it was told.
    files : list of SourceFile
        What it read; none where indexes were merged, whose own steps go before.

    Examples
    --------
    >>> Step("build", "2026-01-31T12:00:00+00:00", "1.0", {"k": 16}, []).options
    {'k': 16}
    """

    verb: str
    date: str
    version: str
    options: dict[str, Any]
    files: list[SourceFile]


def step_told(verb: str, n_files: int, **options: Any) -> dict[str, Any]:
    """Return a step of the present time in the form stored in files."""
    return {
        "verb": verb,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": _version(),
        "options": options,
        "files": n_files,
    }


@functools.cache
def _version() -> str:
    """Return the version of this package from its metadata file."""
    return version("dgpuhash")


def step_after(index: Any, n_files: int, **options: Any) -> dict[str, Any]:
    """Return the step for adding files: a build with its settings, or an add."""
    if index.targets.files:
        return step_told("add", n_files, **options)
    return step_told("build", n_files, **asdict(index.settings), **options)


def steps_of(told: Mapping[str, Any], targets: Targets) -> list[dict[str, Any]]:
    """Return the steps in a file, or one made from its list of files.

    Raises ValueError, KeyError or TypeError when what it tells are no steps.
    """
    nothing = {"verb": "build", "date": "", "version": "", "options": {}}
    some = [{**nothing, "files": len(targets.files)}] if targets.files else []
    steps = list(told.get("steps", some))
    if sum(each["files"] for each in steps) > len(targets.files):
        raise ValueError("its steps read more files than there are")
    provenance_of(steps, targets)
    return steps


def provenance_of(steps: Sequence[Mapping[str, Any]], targets: Targets) -> list[Step]:
    """Return steps with the files read by each."""
    n = len(targets.files)
    sequences = np.bincount(targets.file_of, minlength=n).tolist()
    letters = np.zeros(n, np.int64)
    np.add.at(letters, targets.file_of, targets.lengths)
    files = iter(
        [
            SourceFile(*each)
            for each in zip(
                targets.files, targets.file_sums, sequences, letters.tolist(), strict=True
            )
        ]
    )
    return [
        Step(
            each["verb"], each["date"], each["version"], dict(each["options"]),
            [next(files) for _ in range(each["files"])],
        )
        for each in steps
    ]  # fmt: skip


def summary_lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield a line for each step: its verb, a tab, and its options."""
    for step in steps:
        yield f"{step.verb}\t{_step_text(step)}"


def provenance_lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield a table of all files, after a line for each step and its options."""
    for number, step in enumerate(steps, 1):
        options = " ".join(f"{name}={_option_text(value)}" for name, value in step.options.items())
        yield f"# {number} {step.verb}: {_step_text(step)}{'; ' * bool(options)}{options}"
    yield "step\tfile\tsequences\tletters\tsha256"
    for number, step in enumerate(steps, 1):
        for file in step.files:
            told = file.sha256 or "-"
            yield f"{number}\t{file.name}\t{file.sequences}\t{file.letters}\t{told}"


def _step_text(step: Step) -> str:
    when = f"{step.date or 'no date'}, dgpuhash {step.version or 'of no known version'}"
    if step.verb == "merge":
        parts = step.options.get("sequences", [])
        return f"{when}, {len(parts)} indexes of {' + '.join(map(str, parts))} sequences"
    sequences = sum(file.sequences for file in step.files)
    letters = sum(file.letters for file in step.files)
    return f"{when}, {len(step.files)} files, {sequences} sequences, {letters} letters"


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
