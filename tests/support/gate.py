"""Gate on which the processes of a host wait while a test acts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from clusters import until

__all__ = ["Gate", "read_halfway"]


class Gate:
    """Gate on which processes wait until it is open.

    Parameters
    ----------
    folder : Path
        Folder that all processes share.
    """

    def __init__(self, folder: Path) -> None:
        self._come, self._open = folder / "somebody has come", folder / "the gate is open"

    @contextmanager
    def opened_after(self, act: Callable[[], object]) -> Iterator[None]:
        """Call `act` once a process waits at the gate, then open the gate."""

        def work() -> None:
            until(self._come.exists)
            try:
                act()
            finally:
                self._open.touch()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    @property
    def wait(self) -> Callable[[], None]:
        """Wait until the gate is open.

        Workers need not have the tests installed to call this.
        """
        come, opened = self._come, self._open

        def wait() -> None:
            import time

            come.touch()
            end = time.monotonic() + 60
            while not opened.exists():
                assert time.monotonic() < end
                time.sleep(0.02)

        return wait


def read_halfway(
    frame: pd.DataFrame, npartitions: int, gate: Gate, before: int = 0
) -> dd.DataFrame:
    """Return partitions of which only `before` are read until the gate opens."""
    ends = np.linspace(0, len(frame), npartitions + 1).astype(int)
    wait = gate.wait

    def read(number: int) -> pd.DataFrame:
        if number >= before:
            wait()
        return frame.iloc[ends[number] : ends[number + 1]]

    return dd.from_map(read, range(npartitions), meta=frame[:0])
