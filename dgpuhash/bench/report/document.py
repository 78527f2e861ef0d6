"""The report: a Markdown document, with plots beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dgpuhash.bench.report.grids import Grid, grids
from dgpuhash.bench.report.plots import draw
from dgpuhash.bench.report.reading import BENCHES, Row, by_bench, read
from dgpuhash.bench.report.steps import draw_steps
from dgpuhash.errors import FormatError

__all__ = ["markdown_table", "write"]

_QUESTIONS = {
    "limits": "What this machine can do",
    "tables": "Sets and maps",
    "multi": "Multimaps",
    "group": "Grouping",
    "join": "Joins",
    "cpu": "The CPU",
    "exchange": "From all workers to all workers",
    "scaling": "More workers",
    "model": "Many workers: a model, not a measurement",
}


def write(paths: Sequence[str | Path], folder: str | Path, *, plots: bool = True) -> list[Path]:
    """Write ``report.md`` and its plots into `folder`; returns the files, the document first.

    Parameters
    ----------
    paths : sequence of path
        Files that benchmarks wrote.
    folder : path
        Made when it is not there.
    plots : bool
        Whether to draw, for which matplotlib is needed.

    Raises
    ------
    FormatError
        When a file holds something else, or nothing.
    UnsupportedError
        When there is no matplotlib.
    OSError
        When the folder cannot be made.
    """
    rows = read(paths)
    if not rows:
        raise FormatError(
            f"there is no figure in {', '.join(map(str, paths))}; run 'dgpuhash bench tables "
            "--json FILE' first"
        )
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"{folder} cannot be made: {error.strerror}; name a folder to fill, or a new one"
        ) from error
    benches = by_bench(rows)
    drawn: dict[str, list[tuple[str, Path]]] = {}
    for bench, theirs in benches.items() if plots else ():
        drawn[bench] = draw(bench, theirs, target)
        if bench == "scaling":
            drawn[bench] += draw_steps(theirs, target)
    lines = ["# dgpuhash bench", ""]
    for bench in sorted(benches, key=BENCHES.index):
        lines += [f"## {_QUESTIONS[bench]}", "", *_machines(benches[bench]), ""]
        for grid in grids(bench, benches[bench]):
            lines += [f"{grid.title[0].upper()}{grid.title[1:]}.", "", *markdown_table(grid), ""]
        for title, path in drawn.get(bench, ()):
            lines += [f"![{title}]({path.name})", ""]
    document = target / "report.md"
    document.write_text("\n".join(lines))
    return [document, *(path for files in drawn.values() for _, path in files)]


def markdown_table(grid: Grid) -> list[str]:
    """The grid as lines of Markdown.

    Examples
    --------
    >>> markdown_table(Grid("", ("load", "find"), [("0.5", "30 (75%)")]))
    ['| load | find |', '|---|---:|', '| 0.5 | 30 (75%) |']
    """
    rule = "|---|" + "---:|" * (len(grid.header) - 1)
    return [
        f"| {' | '.join(grid.header)} |",
        rule,
        *(f"| {' | '.join(line)} |" for line in grid.lines),
    ]


def _machines(rows: Sequence[Row]) -> list[str]:
    """What the rows were measured on, a line for each machine and version."""
    machines = [row.get("machine", {}) for row in rows]
    said = (", ".join(f"{what} {value}" for what, value in each.items()) for each in machines)
    return [f"{line}." for line in dict.fromkeys(said) if line]
