"""Joins of Dask frames on the processes of a cluster: Dask's own, and ours."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, ClassVar

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import futures_of, wait

import dgpuhash
from dgpuhash.bench.frames.checksum import Checksum, checksum_of_frame
from dgpuhash.bench.frames.engines import Engine
from dgpuhash.bench.frames.joins import Join
from dgpuhash.bench.peers import OURS
from dgpuhash.bench.workers.cluster import Workers

__all__ = ["ENGINES_ON_DASK", "Dask", "OursOnDask"]

_PARTITIONS_OF_A_WORKER = 4


class Dask(Engine):
    """Dask's merge of persisted frames, until the answer lies on the workers.

    Parameters
    ----------
    crew : Workers
        The cluster.
    """

    package = "dask"
    hows: ClassVar[dict[str, str]] = {
        **{how: how for how in ("inner", "left", "right", "outer")},
        "semi": "leftsemi",
    }

    def __init__(self, crew: Workers) -> None:
        self._crew = crew
        self.workers = len(crew)
        self.name = f"Dask {dask.__version__}"

    def join(self, join: Join, left: pd.DataFrame, right: pd.DataFrame) -> Callable[[], Any]:
        partitions = _PARTITIONS_OF_A_WORKER * self.workers
        lefts = self._persisted(left, partitions)
        rights = self._persisted(right, partitions if join.right == "big" else 1)
        return lambda: _finished(self._merged(lefts, rights, self.hows[join.how], join.on))

    def checksum(self, made: Any) -> Checksum:
        client = self._crew.client
        sums = client.map(checksum_of_frame, futures_of(made), pure=False)
        return reduce(add, client.gather(sums))

    def cpu_seconds(self) -> float:
        """Return the CPU time of the workers and of this process.

        The scheduler is in this process.
        """
        theirs = self._crew.client.run(time.process_time)
        return time.process_time() + sum(theirs.values())

    def _merged(self, left: Any, right: Any, how: str, on: str) -> Any:
        return left.merge(right, how=how, on=on)

    def _persisted(self, frame: pd.DataFrame, partitions: int) -> Any:
        """Return a Dask frame whose rows lie on the workers already."""
        cuts = np.linspace(0, len(frame), partitions + 1).astype(int)
        parts = [frame.iloc[first:end] for first, end in itertools.pairwise(cuts)]
        held = self._crew.client.scatter(parts, direct=True)
        return _finished(dd.from_delayed(held, meta=frame.iloc[:0], verify_meta=False))


class OursOnDask(Dask):
    """``dgpuhash.merge`` of persisted Dask frames."""

    package = "dgpuhash"
    hows: ClassVar[dict[str, str]] = {how: how for how in (*Dask.hows, "anti")}
    ours = True

    def __init__(self, crew: Workers) -> None:
        super().__init__(crew)
        self.name = f"{OURS} on Dask"

    def _merged(self, left: Any, right: Any, how: str, on: str) -> Any:
        return dgpuhash.merge(left, right, how=how, on=on)


def _finished(frame: Any) -> Any:
    made = frame.persist()
    wait(made)
    return made


ENGINES_ON_DASK: dict[str, type[Dask]] = {"dask": Dask, "dgpuhash-dask": OursOnDask}
