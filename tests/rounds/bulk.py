"""The verbs of an index that a round breaks into, on persisted frames: ranks do them together."""

from __future__ import annotations

from typing import Any

import pandas as pd
from distributed import Client, wait

from dgpuhash.distributed import group
from rounds.work import Build, Insert, Merge, Work, fetched

__all__ = ["BULK_WORKS"]


class Bulk(Work):
    """A verb on frames that the workers have."""

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

    def merged(self, client: Client, left: pd.DataFrame) -> Any:
        assert self.index is not None
        merged = self.index.merge(self.slowly(left, 12), how="left", persist=True)
        return fetched(client, merged)


BULK_WORKS: dict[str, type[Work]] = {work.name: work for work in (BulkBuild, BulkInsert, BulkMerge)}
