"""The report: a Markdown document, with plots beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dgpuhash.bench.report.grids import Grid, grids
from dgpuhash.bench.report.plots import draw
from dgpuhash.bench.report.reading import BENCHES, Row, by_bench, read
from dgpuhash.bench.report.steps import draw_steps
from dgpuhash.errors import ExistsError, FormatError
from dgpuhash.tables.serialization import check_absent, publish

__all__ = ["markdown_table", "write"]

_DOCUMENT = "report.md"
_QUESTIONS = {
    "limits": "What this machine can do",
    "tables": "Sets and maps",
    "multi": "Multimaps",
    "group": "Grouping",
    "join": "Joins",
    "close": "Keys in the order of another table",
    "cpu": "The CPU",
    "exchange": "From all workers to all workers",
    "scaling": "More workers",
    "model": "Many workers: a model, not a measurement",
}


def write(
    paths: Sequence[str | Path],
    folder: str | Path,
    *,
    plots: bool = True,
    overwrite: bool = False,
) -> list[Path]:
    """Write ``report.md`` and its plots into `folder`; returns the files, the document first.

    What was measured on other machines, or with other versions, has tables and plots of its own.

    Parameters
    ----------
    paths : sequence of path
        Files that benchmarks wrote.
    folder : path
        Made when it is not there.
    plots : bool
        Whether to draw, for which matplotlib is needed.
    overwrite : bool
        Whether to replace files of these names that are in the folder.

    Raises
    ------
    ExistsError
        When there are such, and they are not to be replaced; nothing is written then.
    FormatError
        When a file holds something else, or nothing.
    UnsupportedError
        When there is no matplotlib.
    OSError
        When the folder cannot be made, or a file in it not be written.
    """
    rows = read(paths)
    if not rows:
        raise FormatError(
            f"there is no figure in {', '.join(map(str, paths))}; run 'dgpuhash bench tables "
            "--json FILE' first"
        )
    target = Path(folder)
    with _named(target, "made"):
        target.mkdir(parents=True, exist_ok=True)
    check_absent(target / _DOCUMENT, overwrite=overwrite)
    # Drawn apart, as it is known then which files there are.
    with _named(target, "written"), TemporaryDirectory(prefix=".report-", dir=target) as apart:
        made = _written(by_bench(rows), Path(apart), plots)
        names = [path.name for path in made]
        for name in names:
            check_absent(target / name, overwrite=overwrite)
        # A document is there when its plots are.
        for path in reversed(made):
            publish(path, target / path.name, overwrite=overwrite)
    return [target / name for name in names]


def _written(benches: dict[str, list[Row]], folder: Path, plots: bool) -> list[Path]:
    """The document and its plots in a folder."""
    drawn: list[tuple[str, Path]] = []
    lines = ["# dgpuhash bench", ""]
    for bench in sorted(benches, key=BENCHES.index):
        lines += [f"## {_QUESTIONS[bench]}", ""]
        for number, (machine, theirs) in enumerate(_by_machine(benches[bench]).items(), 1):
            lines += [machine, ""] if machine else []
            for grid in grids(bench, theirs):
                title = f"{grid.title[0].upper()}{grid.title[1:]}."
                lines += [title, "", *markdown_table(grid), ""]
            made = _draw(bench, theirs, folder, number) if plots else []
            lines += [line for title, path in made for line in (f"![{title}]({path.name})", "")]
            drawn += made
    document = folder / _DOCUMENT
    document.write_text("\n".join(lines))
    return [document, *(path for _, path in drawn)]


@contextmanager
def _named(folder: Path, done: str) -> Iterator[None]:
    try:
        yield
    except ExistsError:
        raise
    except OSError as error:
        raise OSError(
            f"{error.filename or folder} cannot be {done}: {error.strerror}; name a folder to "
            "fill, or a new one"
        ) from error


def _draw(bench: str, rows: Sequence[Row], folder: Path, number: int) -> list[tuple[str, Path]]:
    """The plots of one machine; the names of the files of further ones have its number."""
    ending = ".png" if number == 1 else f"-{number}.png"
    made = draw(bench, rows, folder, ending)
    return made + draw_steps(rows, folder, ending) if bench == "scaling" else made


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


def _by_machine(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by what they were measured on, a line for each machine and its versions."""
    made: dict[str, list[Row]] = {}
    for row in rows:
        said = ", ".join(f"{what} {value}" for what, value in row.get("machine", {}).items())
        made.setdefault(f"{said}." if said else "", []).append(row)
    return made
