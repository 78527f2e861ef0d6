"""Print the demo's output: a progress bar for each phase, tables at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Phase:
    """Finished phase: its name, seconds and rows.

    `rows` is None where a speed means nothing.
    """

    name: str
    seconds: float
    rows: int | None


class DemoReport:
    """Collector and printer of phases.

    Examples
    --------
    >>> report = DemoReport(Console(quiet=True))
    >>> with report, report.phase("count", rows=3) as advance:
    ...     advance(1)
    >>> report.phases[0].name, report.phases[0].rows
    ('count', 3)
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.phases: list[Phase] = []
        self.notes: list[str] = []
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<44}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> DemoReport:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def phase(
        self, name: str, rows: int | None = None, steps: int = 1
    ) -> Iterator[Callable[[int], None]]:
        """Time the block as one phase, with a progress bar.

        Yields a function that advances the bar by a number of steps.
        """
        task = self._progress.add_task(name, total=steps)
        start = time.perf_counter()
        yield lambda count: self._progress.advance(task, count)
        self.phases.append(Phase(name, time.perf_counter() - start, rows))
        self._progress.update(task, completed=steps)

    def note(self, text: str) -> None:
        """Add a sentence that `print_notes` prints at the end.

        Text printed above moving bars would be lost.
        """
        self.notes.append(text)

    def print_notes(self) -> None:
        """Print the notes in the order in which they were added."""
        for text in self.notes:
            self.console.print(Text(text))

    def print_phases(self) -> None:
        """Print the seconds, rows and rows per second of each phase."""
        table = Table("phase", title="What it took")
        for name in ("seconds", "rows", "rows/s"):
            table.add_column(name, justify="right")
        for phase in self.phases:
            rows = "" if phase.rows is None else f"{phase.rows:,}"
            speed = "" if phase.rows is None else f"{phase.rows / phase.seconds:,.0f}"
            table.add_row(phase.name, f"{phase.seconds:.2f}", rows, speed)
        self.console.print(table)

    def print_frame(self, frame: pd.DataFrame, title: str) -> None:
        """Print `frame` as a table with right-aligned numbers."""
        self.console.print(table_of(frame, title))


def rounded_text(column: pd.Series) -> Iterable[str]:
    """Return values as text for display.

    Thousands are separated, floats have one decimal, and nulls become a dash.
    """
    return map(_text, column)


def table_of(
    frame: pd.DataFrame,
    title: str | None = None,
    texts: Callable[[pd.Series], Iterable[str]] = rounded_text,
) -> Table:
    """Return `frame` as a rich table with right-aligned numbers.

    Parameters
    ----------
    frame : pandas.DataFrame
    title : str, optional
    texts : callable
        Returns a column's values as text.

    Examples
    --------
    >>> table_of(pd.DataFrame({"rows": [1200], "load": [0.5]})).row_count
    1
    """
    table = Table(title=title)
    for name, dtype in frame.dtypes.items():
        numeric = pd.api.types.is_numeric_dtype(dtype)
        table.add_column(str(name), justify="right" if numeric else "left")
    columns = [texts(column) for _, column in frame.items()]
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    return table


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    if pd.isna(value):  # type: ignore[call-overload]
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    return str(value)
