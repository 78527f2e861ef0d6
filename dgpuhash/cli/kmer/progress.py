"""Show the progress of reading sequences: letters, rate and remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class LetterProgress:
    """Progress bar of letters read, shown if standard error is a terminal.

    Parameters
    ----------
    total : int or None
        Bytes of all files; None where that is not known.
    """

    def __init__(self, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self.bar: Progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task("reading", total=total)
        self._letters, self._start = 0, time.perf_counter()

    def letters(self, more: int) -> None:
        """Count letters that were read."""
        self._letters += more
        rate = self._letters / max(time.perf_counter() - self._start, 1e-9) / 1e6
        told = f"{self._letters:,} letters, {rate:,.1f} million a second"
        self.bar.update(self._task, description=told)

    def consumed(self, nbytes: int) -> None:
        """Count bytes of files that were read."""
        self.bar.advance(self._task, nbytes)

    def of(self, total: Callable[[], int]) -> Callable[[int], None]:
        """Return a counter of letters with a total for the bar."""

        def told(more: int) -> None:
            self.letters(more)
            self.bar.update(self._task, completed=self._letters, total=total())

        return told


@contextmanager
def letter_progress(total: int | None = None) -> Iterator[LetterProgress]:
    """Yield a progress bar for the block."""
    progress = LetterProgress(total)
    with progress.bar:
        yield progress


def nbytes_of(files: Sequence[str]) -> int | None:
    """Return the bytes of local files; None if one has no size."""
    paths = [Path(file) for file in files]
    if not all(path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths)
