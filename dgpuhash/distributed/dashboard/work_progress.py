"""Show progress bars of a cluster's bulk work in a terminal or notebook."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from distributed import Client
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.dashboard.cluster_figures import WorkPhase, figures_of
from dgpuhash.errors import DgpuhashError

# Seconds between two looks.
PERIOD = 0.5


class WorkProgress:
    """Context that shows the progress of a cluster's builds, changes, merges and groupbys.

    A bar counts the rows, or the partitions, of each piece of bulk work, whichever client began it.
    Only where there is a terminal or a notebook: else nobody is asked, and nothing is shown.

    Parameters
    ----------
    client : distributed.Client, optional
        Default: the current one.
    console : rich.console.Console, optional
        Where bars are shown; default: standard error, or the notebook.

    Raises
    ------
    UnsupportedError
        When there is no client.

    Examples
    --------
    >>> import pandas as pd
    >>> from distributed import Client
    >>> from dgpuhash.distributed import DistributedIndex, WorkProgress
    >>> client = Client(processes=False, n_workers=1, dashboard_address=None)
    >>> with WorkProgress():
    ...     index = DistributedIndex.build(pd.DataFrame({"k": [1, 2]}), on="k")
    >>> len(index)
    2
    >>> client.close()
    """

    def __init__(self, client: Client | None = None, *, console: Console | None = None) -> None:
        self._client = client_of(client)
        console = console or Console(stderr=True)
        self._shows = console.is_terminal or console.is_jupyter
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
            TimeElapsedColumn(), console=console, transient=True, disable=not self._shows,
        )  # fmt: skip
        self._of: dict[tuple[str, str], TaskID] = {}
        self._over = threading.Event()
        self._looking: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._shows:
            self._bars.start()
            self._looking = threading.Thread(target=self._look, daemon=True)
            self._looking.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._looking is not None:
            self._looking.join()
            self._bars.stop()

    def _look(self) -> None:
        # What goes wrong is told by the work itself.
        with suppress(DgpuhashError, OSError, RuntimeError):
            while not self._over.wait(PERIOD):
                self._show(self._client.run_on_scheduler(_phases))

    def _show(self, phases: Sequence[WorkPhase]) -> None:
        there = {(phase.name, phase.verb): phase for phase in phases}
        for gone in self._of.keys() - there.keys():
            self._bars.remove_task(self._of.pop(gone))
        for about, phase in there.items():
            if about not in self._of:
                self._of[about] = self._bars.add_task("")
            self._bars.update(
                self._of[about], completed=phase.done, total=phase.total or None,
                description=f"{phase.verb} {phase.name}: {phase.step}, {phase.unit}",
            )  # fmt: skip


def _phases(dask_scheduler: Any) -> list[WorkPhase]:
    """Return the bulk work in progress by the latest figures, and request new ones."""
    figures = figures_of(dask_scheduler)
    figures.ask(dask_scheduler)
    return figures.phases(dask_scheduler)
