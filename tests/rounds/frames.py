"""Merges of two lazy frames, whose index lives as long as their tasks."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pandas as pd
from clusters import until
from distributed import Client

import dgpuhash
from rounds.rows import on_host, probes, same_rows
from rounds.work import Work, Wrong, fetched

__all__ = ["FRAME_WORKS"]


class FrameMerge(Work):
    """Merge of two frames; a lost worker delays it."""

    kept_by_dask = True
    changes = False
    how: ClassVar[str] = "inner"
    build: ClassVar[Any] = "auto"

    def start(self, client: Client) -> None:
        pass

    def carry_out(self, client: Client) -> None:
        # Of another name each time: Dask keeps errors of tasks by their names.
        pace = self.pace + random.random() / 1e6
        left, right = self.slowly(probes(), 12, pace), self.slowly(self.before, 9, pace)
        how = {"how": self.how, "build": self.build}
        merged = dgpuhash.merge(left, right, on="k", client=client, **how)
        self.check(fetched(client, merged, None), probes())

    def check(self, merged: Any, left: pd.DataFrame) -> None:
        """Raise Wrong unless the merge is the one that pandas gives."""
        wanted = left.merge(self.before, on="k", how=self.how)  # type: ignore[arg-type]
        if not same_rows(on_host(merged), on_host(wanted)):
            raise Wrong(f"the {self.how} merge has other rows: {len(merged)} of {len(wanted)}")

    def settle(self, client: Client, succeeded: bool) -> None:
        if not succeeded:
            self.carry_out(client)
        until(lambda: not any(client.run(shards_here).values()))

    def begin_again(self, client: Client) -> None:
        self.settle(client, succeeded=False)


class FrameInner(FrameMerge):
    name = "frames inner"


class FrameOuter(FrameMerge):
    name = "frames outer"
    how = "outer"


class FrameCopied(FrameMerge):
    name = "frames copied"
    how = "left"
    build = "replicate"


def shards_here(dask_worker: Any) -> int:
    """Return how many shards a worker holds, ready or being built."""
    host = dask_worker.plugins.get("dgpuhash")
    return 0 if host is None else len(host.shards._shards) + len(host.shards._staged)


FRAME_WORKS: dict[str, type[Work]] = {
    work.name: work for work in (FrameInner, FrameOuter, FrameCopied)
}
