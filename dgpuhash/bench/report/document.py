"""Write a Markdown report of figures with plots, and print its tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from dgpuhash.bench.report.grid import Grid, figure_text
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.plots import draw, draw_steps
from dgpuhash.bench.report.reading import BENCHES, Row, by_bench, read
from dgpuhash.errors import ExistsError, FormatError
from dgpuhash.tables.serialization import check_absent, rename_into_place

_DOCUMENT = "report.md"


def write(
    paths: Sequence[str | Path], folder: str | Path, *, plots: bool = True, overwrite: bool = False
) -> list[Path]:
    """Write ``report.md`` and its plots into `folder`; return the files.

    The document is the first of the files. Each machine, and each set of package versions, has its
    own tables and plots.

    Parameters
    ----------
    paths : sequence of path
        Files that benchmarks wrote.
    folder : path
        Created if it does not exist.
    plots : bool
        Whether to draw plots, which needs matplotlib.
    overwrite : bool
        Whether to replace existing files of the same names.

    Raises
    ------
    ExistsError
        When such files exist and `overwrite` is false; nothing is written then.
    FormatError
        When a file holds anything but figures, or there is no figure.
    UnsupportedError
        When matplotlib is not installed.
    OSError
        When the folder cannot be created, or a file in it cannot be written.
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
    # Drawn into a temporary folder first, which tells the names of the files.
    with _named(target, "written"), TemporaryDirectory(prefix=".report-", dir=target) as apart:
        made = _write(by_bench(rows), Path(apart), plots)
        names = [path.name for path in made]
        for name in names:
            check_absent(target / name, overwrite=overwrite)
        # The document is published after its plots.
        for path in reversed(made):
            rename_into_place(path, target / path.name, overwrite=overwrite)
    return [target / name for name in names]


def _write(benches: dict[str, list[Row]], folder: Path, plots: bool) -> list[Path]:
    """Write the document and its plots into a folder; return the files."""
    drawn: list[tuple[str, Path]] = []
    lines = ["# dgpuhash bench", ""]
    for bench in sorted(benches, key=list(BENCHES).index):
        lines += [f"## {BENCHES[bench]}", ""]
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
    """Draw the plots of one machine; return titles and files.

    File names of the second and later machines end with their number.
    """
    ending = ".png" if number == 1 else f"-{number}.png"
    made = draw(bench, rows, folder, ending)
    return made + draw_steps(rows, folder, ending) if bench == "scaling" else made


def markdown_table(grid: Grid) -> list[str]:
    """Return the grid as lines of Markdown.

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
    """Group rows by a line of text that names their machine and versions."""
    made: dict[str, list[Row]] = {}
    for row in rows:
        said = ", ".join(f"{what} {value}" for what, value in row.get("machine", {}).items())
        made.setdefault(f"{said}." if said else "", []).append(row)
    return made


_FILE_WIDTH = 300
_NAMES = (
    "mode", "exchange", "workers", "leaving", "limit", "figure", "verb", "keys", "rule", "input",
    "scale", "fraction",
    "library", "pairs", "n",
    "build", "groups", "distribution", "multiplicity", "load", "width", "hit_rate",
    "batch", "footprint", "line", "space", "failed", "chain", "length",
)  # fmt: skip


def show_progress(bench: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, printing each as one line on standard error."""
    console = Console(stderr=True)
    start = time.monotonic()
    with console.status(f"measuring {bench} …") as status:
        for count, row in enumerate(rows, 1):
            console.print(_line(row), style="dim", highlight=False)
            status.update(f"measuring {bench}: {count} rows in {time.monotonic() - start:.0f} s …")
            yield row


def summary(bench: str, machine: dict[str, str], rows: Sequence[Row]) -> None:
    """Print all tables of a benchmark on standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    console.print(", ".join(f"{what} {value}" for what, value in machine.items()), style="dim")
    for grid in grids(bench, rows):
        made = Table(title=grid.title, title_justify="left")
        for name in grid.header:
            made.add_column(name, justify="right")
        for line in grid.lines:
            made.add_row(*line)
        console.print(made)


def _line(row: Row) -> str:
    what = " ".join(f"{name}={row[name]}" for name in _NAMES if name in row)
    if row.get("model"):
        what = f"model: {what}"
    if row.get("verb") == "memory":
        return f"{what} at_rest={row['at_rest']} while_built={row['while_built']}"
    unit = row.get("unit", "TB/s")
    return f"{what}: {figure_text(row)} {'' if unit == 'TB/s' else unit}"
