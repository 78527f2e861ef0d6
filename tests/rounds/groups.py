"""Changes of aggregates that live on the workers, which a round breaks into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from distributed import Client

from dgpuhash.distributed import DistributedGroupBy
from dgpuhash.errors import IndexLost
from rounds.rows import on_host, same_rows, slowly
from rounds.work import Work, Wrong

__all__ = ["GROUP_WORKS"]

NAMED: dict[str, Any] = {"total": ("v", "sum"), "rows": ("v", "size")}


class Update(Work):
    """Update of groups with new rows."""

    name = "update"

    def start(self, client: Client) -> None:
        self.first, self.more = self.before, self.batch(self.seed + 1)
        self.source = self.slowly(self.more)
        both = pd.concat([self.first, self.more], ignore_index=True)
        self.given, self.before, self.after = self.first, grouped(self.first), grouped(both)
        self.state = self.made(client)

    def slowly(
        self, frame: pd.DataFrame, npartitions: int = 9, seconds: float | None = None
    ) -> Any:
        # Groups are those of frames on the host.
        return slowly(frame, npartitions, self.pace if seconds is None else seconds, "cpu")

    def made(self, client: Client) -> DistributedGroupBy:
        """Return the groups before the change."""
        rows = self.slowly(self.given, 6, 0)
        return DistributedGroupBy.build(rows, "k", client=client, name=self.called, **NAMED)

    def carry_out(self, client: Client) -> None:
        if self.state.update(self.source) != self.more["k"].nunique():
            raise Wrong("another number of groups was changed")

    def settle(self, client: Client, succeeded: bool) -> None:
        self.state._given_client = client
        try:
            self.state.refresh()
            found = self.results()
        except IndexLost:
            self.state.rebuild()
            found = self.results()
        allowed = [self.after] if succeeded else [self.before, self.after]
        if not any(same_rows(found, wanted) for wanted in allowed):
            raise Wrong(f"{len(found)} groups are found, of {[len(each) for each in allowed]}")
        self.end()

    def begin_again(self, client: Client) -> None:
        self.state._given_client = client
        try:
            found = self.results()
        except IndexLost:
            pass
        else:
            raise Wrong(f"{len(found)} groups are found that cannot be there")
        self.state = self.made(client)
        if not same_rows(self.results(), self.before):
            raise Wrong("groups that were built anew are others")
        self.end()

    def results(self) -> pd.DataFrame:
        """Return all groups, found by their keys."""
        found = self.state.lookup(pd.DataFrame({"k": np.arange(1000)}))
        there = found[found["rows"] > 0]
        if len(there) != len(self.state):
            raise Wrong(f"{len(there)} groups are found and {len(self.state)} are counted")
        return settled(there)

    def end(self) -> None:
        self.state.close()


class Retract(Update):
    """Retraction of rows that were added before."""

    name = "retract"

    def start(self, client: Client) -> None:
        super().start(client)
        self.given = pd.concat([self.first, self.more], ignore_index=True)
        self.before, self.after = self.after, self.before
        self.state.update(self.more)

    def carry_out(self, client: Client) -> None:
        if self.state.retract(self.source) != self.more["k"].nunique():
            raise Wrong("another number of groups was changed")


def grouped(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the groups of rows."""
    return settled(rows.groupby("k", as_index=False).agg(**NAMED))


def settled(found: pd.DataFrame) -> pd.DataFrame:
    """Return groups without nulls."""
    return on_host(found).astype("int64")


GROUP_WORKS: dict[str, type[Work]] = {work.name: work for work in (Update, Retract)}
