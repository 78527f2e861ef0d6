"""Verbs of an index on persisted frames, run collectively by all ranks."""

from __future__ import annotations

from typing import Any

import pandas as pd
from distributed import Client, wait

from dgpuhash.distributed.collective import group
from rounds.rows import probes
from rounds.work import Build, Insert, Merge, Work, fetched

__all__ = ["BULK_WORKS"]


class Bulk(Work):
    """Verb on frames that the workers hold."""

    phases = group
    columns = ("k", "v")

    def slowly(
        self, frame: pd.DataFrame, npartitions: int = 9, seconds: float | None = None
    ) -> Any:
        held = self.client.persist(super().slowly(frame, npartitions, 0))
        wait(held)
        return held


class BulkBuild(Bulk, Build):
    name = "bulk build"


class BulkInsert(Bulk, Insert):
    name = "bulk insert"


class BulkMerge(Bulk, Merge):
    name = "bulk merge"
    changes = True

    def start(self, client: Client) -> None:
        super().start(client)
        # To bring it to the workers is Dask's own work, which waits for those that are stopped.
        self.left = self.slowly(probes(), 12)

    def merged(self, client: Client, left: pd.DataFrame) -> Any:
        assert self.index is not None
        return fetched(client, self.index.merge(self.left, how="left", persist=True))


BULK_WORKS: dict[str, type[Work]] = {work.name: work for work in (BulkBuild, BulkInsert, BulkMerge)}
