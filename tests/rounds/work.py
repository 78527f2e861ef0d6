"""Verbs of an index that a round breaks into."""

from __future__ import annotations

import shutil
import threading
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from distributed import Client
from distributed.comm import CommClosedError

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.ingest import commit
from dgpuhash.errors import DgpuhashError, FormatError, IndexLost
from rounds.rows import batch, on_device, on_host, probes, same_rows, slowly

__all__ = ["WORKS", "Unfetched", "Work", "Wrong", "fetched"]


# Seconds for an answer that is computed to come to the client.
FETCHED = 10.0


class Wrong(AssertionError):
    """Error of a wrong answer."""


class Unfetched(Exception):
    """Error of an answer that Dask keeps and does not deliver.

    The worker that has it is silent, and Dask waits for a time limit of its own; or the scheduler
    ended while it was asked for it.
    """


class Work(ABC):
    """One verb, with the rows stored before and after it.

    It checks its own answer.

    Parameters
    ----------
    client : distributed.Client
    folder : Path
        Folder of saved indexes.
    seed : int
    rows : int
        Rows of a batch.
    device : str
        Device of the rows.
    pace : float
        Seconds to read a partition.
    """

    name: ClassVar[str]
    #: Whether the verb goes by phases, and the module that calls them.
    changes: ClassVar[bool] = True
    phases: ClassVar[ModuleType] = commit
    #: Of the rows.
    columns: ClassVar[tuple[str, ...]] = ("k", "v", "name")
    #: Whether Dask keeps the answer, and may lose it by itself.
    kept_by_dask: ClassVar[bool] = False

    def __init__(
        self, client: Client, folder: Path, seed: int, rows: int, device: str, pace: float
    ) -> None:
        self.seed = seed
        self.rows = rows
        self.device = device
        self.pace = pace
        self.folder = folder / f"saved-{uuid.uuid4().hex}"
        self.client = client
        self.before = self.batch(seed)
        self.after = self.before
        self.index: DistributedIndex | None = None
        #: Set when the fault has struck.
        self.struck = threading.Event()
        self.start(client)

    def start(self, client: Client) -> None:
        """Prepare the verb."""
        source = self.slowly(self.before, 6, 0)
        self.index = DistributedIndex.build(source, on="k", client=client, name=self.called)

    def batch(self, number: int) -> pd.DataFrame:
        """Return rows that no other batch has."""
        return batch(number, self.rows)[list(self.columns)]

    def slowly(
        self, frame: pd.DataFrame, npartitions: int = 9, seconds: float | None = None
    ) -> Any:
        """Return `frame` on the device, in partitions that take time to read."""
        pace = self.pace if seconds is None else seconds
        return slowly(frame, npartitions, pace, self.device)

    def contents(self, index: DistributedIndex) -> pd.DataFrame:
        """Return all rows of the index, found by their keys."""
        keys = on_device(pd.DataFrame({"k": np.arange(1000)}), self.device)
        found = on_host(index.lookup(keys))
        rows = found[found["v"] >= 0].astype({"v": "int64"})
        if len(rows) != len(index):
            raise Wrong(f"{len(rows)} rows are found and {len(index)} are counted")
        return rows

    def load(self, client: Client) -> DistributedIndex:
        """Load the saved index."""
        device = None if self.device == "cpu" else self.device
        return DistributedIndex.load(str(self.folder), client, device=device)

    @property
    def called(self) -> str:
        """The name of the index."""
        return f"round-{self.name}-{self.seed}"

    @abstractmethod
    def carry_out(self, client: Client) -> None:
        """Run the verb; raise Wrong if its answer is wrong."""

    def settle(self, client: Client, succeeded: bool) -> None:
        """Check the index after the cluster was repaired.

        All rows of the verb are stored or, if the verb failed, none.

        Raises
        ------
        Wrong
            When other rows are found, or rows that were acknowledged are not.
        """
        assert self.index is not None
        index = self.index
        index._given_client = client
        try:
            index.refresh()
            found = self.contents(index)
        except DgpuhashError:
            index.rebuild()
            found = self.contents(index)
        allowed = [self.after] if succeeded else [self.before, self.after]
        if not any(same_rows(found, wanted) for wanted in allowed):
            raise Wrong(f"{len(found)} rows are found, of {[len(each) for each in allowed]}")
        self.end()

    def begin_again(self, client: Client) -> None:
        """Check the index after the cluster has lost all state.

        The index must report the loss, and can be built anew.

        Raises
        ------
        Wrong
            When the index does not report the loss, or has other rows when built anew.
        """
        if self.index is not None:
            self.index._given_client = client
            try:
                found = self.contents(self.index)
            except IndexLost:
                pass
            else:
                raise Wrong(f"{len(found)} rows are found that cannot be there")
        source = self.slowly(self.before, 6, 0)
        self.index = DistributedIndex.build(source, on="k", client=client, name=self.called)
        if not same_rows(self.contents(self.index), self.before):
            raise Wrong("an index that was built anew has other rows")
        self.end()

    def end(self) -> None:
        """Free the resources of the round."""
        if self.index is not None:
            self.index.close()


class Build(Work):
    name = "build"

    def start(self, client: Client) -> None:
        self.source = self.slowly(self.before)

    def carry_out(self, client: Client) -> None:
        self.index = DistributedIndex.build(self.source, on="k", client=client, name=self.called)

    def settle(self, client: Client, succeeded: bool) -> None:
        if not succeeded:
            # Its name must be free, and nothing of it in the way.
            self.carry_out(client)
        super().settle(client, succeeded=True)


class Insert(Work):
    name = "insert"

    def start(self, client: Client) -> None:
        super().start(client)
        self.added = self.batch(self.seed + 1)
        self.source = self.slowly(self.added)
        self.after = pd.concat([self.before, self.added], ignore_index=True)

    def carry_out(self, client: Client) -> None:
        assert self.index is not None
        if self.index.insert(self.source) != len(self.added):
            raise Wrong("another number of rows was inserted")


class Erase(Work):
    name = "erase"

    def start(self, client: Client) -> None:
        super().start(client)
        self.keys = pd.DataFrame({"k": np.arange(self.seed % 3, 900, 3)})
        self.source = self.slowly(self.keys)
        self.after = self.before[~self.before["k"].isin(self.keys["k"])]

    def carry_out(self, client: Client) -> None:
        assert self.index is not None
        if self.index.erase(self.source) != len(self.before) - len(self.after):
            raise Wrong("another number of rows was erased")


class Merge(Work):
    name = "merge"
    kept_by_dask = True
    changes = False

    def carry_out(self, client: Client) -> None:
        assert self.index is not None
        left = probes()
        merged = self.merged(client, left)
        wanted = left.merge(self.before, on="k", how="left")
        if not same_rows(on_host(merged), on_host(wanted)):
            raise Wrong("the merge has other rows")

    def merged(self, client: Client, left: pd.DataFrame) -> Any:
        """Return the left merge."""
        assert self.index is not None
        return fetched(client, self.index.merge(self.slowly(left, 12), how="left"), None)


class Lookup(Work):
    """Repeated lookups, of which the fault breaks into one; another follows."""

    name = "lookup"
    changes = False

    def carry_out(self, client: Client) -> None:
        assert self.index is not None
        asked = probes()[["k"]]
        wanted = on_host(asked.merge(self.before, on="k", how="left"))
        asked = on_device(asked, self.device)
        for _ in range(4):
            last = self.struck.is_set()
            if not same_rows(on_host(self.index.lookup(asked)), wanted):
                raise Wrong("the lookup has other rows")
            if last:
                return


class Save(Work):
    """Save over a saved index, with rows inserted in between."""

    name = "save"
    changes = False

    def start(self, client: Client) -> None:
        super().start(client)
        assert self.index is not None
        self.index.save(self.folder)
        added = self.batch(self.seed + 1)
        self.saved = self.before
        self.index.insert(on_device(added, self.device))
        self.before = pd.concat([self.before, added], ignore_index=True)
        self.after = self.before

    def carry_out(self, client: Client) -> None:
        assert self.index is not None
        self.index.save(self.folder)

    def settle(self, client: Client, succeeded: bool) -> None:
        try:
            with self.load(client) as loaded:
                found = self.contents(loaded)
        except FormatError as error:
            raise Wrong(f"what was saved cannot be read: {error}") from error
        allowed = [self.after] if succeeded else [self.saved, self.after]
        if not any(same_rows(found, wanted) for wanted in allowed):
            raise Wrong(f"{len(found)} saved rows, of {[len(each) for each in allowed]}")
        super().settle(client, succeeded)


class Rebalance(Work):
    """Rebalance from all workers but one to all."""

    name = "rebalance"

    def start(self, client: Client) -> None:
        source = self.slowly(self.before, 6, 0)
        some = sorted(client.nthreads())[:-1]
        self.index = DistributedIndex.build(
            source, on="k", client=client, name=self.called, workers=some
        )

    def carry_out(self, client: Client) -> None:
        assert self.index is not None
        self.index.rebalance()


class Durable(Insert):
    """Insert that is written to a log before it is acknowledged."""

    name = "durable"
    acknowledged = False

    def start(self, client: Client) -> None:
        super().start(client)
        assert self.index is not None
        self.index.close()
        # Of a round with another fault and the same seed.
        shutil.rmtree(self.folder, ignore_errors=True)
        source = self.slowly(self.before, 6, 0)
        self.index = DistributedIndex.build(
            source, on="k", client=client, name=self.called, durable=str(self.folder)
        )

    def carry_out(self, client: Client) -> None:
        super().carry_out(client)
        self.acknowledged = True

    def settle(self, client: Client, succeeded: bool) -> None:
        super().settle(client, succeeded)
        with self.load(client) as loaded:
            found = self.contents(loaded)
        allowed = [self.after] if succeeded else [self.before, self.after]
        if not any(same_rows(found, wanted) for wanted in allowed):
            raise Wrong(f"{len(found)} rows of the log, of {[len(each) for each in allowed]}")

    def begin_again(self, client: Client) -> None:
        with self.load(client) as loaded:
            found = self.contents(loaded)
        allowed = [self.after] if self.acknowledged else [self.before, self.after]
        if not any(same_rows(found, wanted) for wanted in allowed):
            raise Wrong(f"{len(found)} rows of the log")
        super().begin_again(client)


class TwoInserts(Insert):
    """Inserts of two clients at once."""

    name = "inserts"

    def start(self, client: Client) -> None:
        super().start(client)
        self.others = self.batch(self.seed + 2)
        self.after = pd.concat([self.after, self.others], ignore_index=True)

    def carry_out(self, client: Client) -> None:
        failed: list[Exception] = []

        def insert() -> None:
            try:
                with Client(client.scheduler.address, set_as_default=False) as second:
                    other = DistributedIndex.open(self.called, second)
                    other.insert(self.slowly(self.others))
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=insert)
        thread.start()
        super().carry_out(client)
        thread.join()
        if failed:
            raise failed[0]


class Rebuild(Work):
    """Rebuild of a shard that was lost before."""

    name = "rebuild"

    def start(self, client: Client) -> None:
        self.index = DistributedIndex.build(
            self.slowly(self.before), on="k", client=client, name=self.called
        )
        client.run(drop, self.index._descriptor.uid, workers=self.index.workers[:1])

    def carry_out(self, client: Client) -> None:
        assert self.index is not None
        if 0 not in self.index.rebuild().parts:
            raise Wrong("the shard was not made anew")


def fetched(client: Client, answer: Any, seconds: float | None = FETCHED) -> Any:
    """Fetch an answer that Dask keeps; raise Unfetched if it is not delivered."""
    future = client.compute(answer)
    try:
        return future.result(seconds)
    except (TimeoutError, CommClosedError) as error:
        if future.status == "error":  # It is a task's.
            raise
        raise Unfetched(str(error)) from error


def drop(uid: str, dask_worker: Any) -> None:
    """Drop the shard of an index on this worker."""
    plugin_of(dask_worker).shards.drop(uid)


WORKS: dict[str, type[Work]] = {
    work.name: work
    for work in (Build, Insert, Erase, Merge, Lookup, Save, Rebalance, Rebuild, Durable, TwoInserts)
}
