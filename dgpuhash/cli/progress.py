"""Progress bar of a command: rows read, partitions written and other steps."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import pandas as pd
from distributed import Client, get_worker
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class RowProgress:
    """Progress bar of rows read per named frame, shown if standard error is a terminal.

    Tasks report to the client by Dask's events; a task that runs twice counts once.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> client = Client(processes=False, n_workers=1, dashboard_address=None)
    >>> with RowProgress(client) as progress:
    ...     frame = progress.counted(dd.from_dict({"k": [1, 2, 3]}, npartitions=2), "left", {})
    ...     int(frame["k"].sum().compute())
    6
    >>> progress.rows["left"]
    3
    >>> client.close()
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topic = f"dgpuhash-rows-{uuid.uuid4().hex}"
        self._read: dict[tuple[str, str], tuple[int, int]] = {}
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("reading", total=None)

    @property
    def rows(self) -> Counter[str]:
        """Rows read so far, by the names of their frames."""
        return self._sums(0)

    @property
    def null_keys(self) -> Counter[str]:
        """Rows read so far with a null key, by the names of their frames."""
        return self._sums(1)

    def _sums(self, place: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for (name, _), counts in list(self._read.items()):
            found[name] += counts[place]
        return found

    def counted(
        self, frame: Any, name: str, dtypes: dict[Any, str], keys: Sequence[Any] = ()
    ) -> Any:  # fmt: skip
        """Return a Dask frame cast to `dtypes` whose rows count under `name` as they are read."""
        meta = frame._meta.astype(dtypes)
        return frame.map_partitions(
            _count, self._topic, name, dtypes, list(keys), meta=meta, enforce_metadata=False
        )

    def writing(self, partitions: int) -> Callable[[], None]:
        """Return a callback for each written partition of a known number."""
        self._bar.update(self._task, total=partitions)
        return lambda: self._bar.advance(self._task)

    def step(self, said: str) -> None:
        """Show the name of the next step, for steps without a count."""
        self._bar.update(self._task, description=said, total=None, refresh=True)

    def __enter__(self) -> Self:
        self._client.subscribe_topic(self._topic, self._take)
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()
        self._client.unsubscribe_topic(self._topic)

    def _take(self, event: tuple[float, tuple[str, str, int, int]]) -> None:
        name, task, rows, nulls = event[1]
        self._read[name, task] = rows, nulls
        read = ", ".join(f"{rows:,} rows of {name}" for name, rows in sorted(self.rows.items()))
        self._bar.update(self._task, description=f"{read} read")


def _count(
    part: pd.DataFrame, topic: str, name: str, dtypes: dict[Any, str], keys: list[Any]
) -> pd.DataFrame:
    worker = get_worker()
    nulls = int(part[keys].isna().any(axis=1).sum())
    worker.log_event(topic, (name, str(worker.get_current_task()), len(part), nulls))
    return part.astype(dtypes) if dtypes else part
