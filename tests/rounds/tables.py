"""Verbs of a distributed map that a round breaks into."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any, ClassVar

import dask.array as da
import numpy as np
from distributed import Client

from dgpuhash.distributed import DistributedMap
from dgpuhash.distributed.collective import group
from dgpuhash.errors import IndexLost
from rounds.work import Work, Wrong, fetched

__all__ = ["TABLE_WORKS"]


class TableWork(Work):
    """Verb of a map from keys to their triples; the map is whole or lost."""

    phases: ClassVar[ModuleType] = group
    kept_by_dask: ClassVar[bool] = True
    #: Whether what failed may have lost the table.
    loses: ClassVar[bool] = True

    def start(self, client: Client) -> None:
        self.stored = keys_of(self.seed, self.rows)
        self.kept = self.stored
        self.table: DistributedMap | None = self.made(client)

    def made(self, client: Client) -> DistributedMap:
        """Return the table as it is before the verb."""
        keys = self.stored
        return DistributedMap.from_arrays(
            keys, keys * 3, client=client, device=self.device, piece_rows=max(1, self.rows // 6)
        )

    def chunks(self, keys: np.ndarray) -> Any:
        """Return `keys` on the device, in chunks that take time to read."""
        lazy = da.from_array(keys, -(-len(keys) // 9))
        return lazy.map_blocks(late, self.pace / 5, self.device, dtype=keys.dtype)

    def settle(self, client: Client, succeeded: bool) -> None:
        if self.table is not None:
            try:
                self.check(self.table, [self.kept] if succeeded else [self.stored, self.kept])
            except IndexLost as lost:
                there = set(self.table.workers) <= set(client.nthreads())
                if there and (succeeded or not self.loses):
                    raise Wrong(f"its workers are there, and it is lost: {lost}") from lost
            self.table.close()
            self.table = None
        self.begin_again(client)

    def begin_again(self, client: Client) -> None:
        self.table = self.made(client)
        self.check(self.table, [self.stored])
        self.end()

    def check(self, table: DistributedMap, allowed: list[np.ndarray]) -> None:
        """Raise Wrong unless the table has exactly one of the allowed key sets."""
        asked = np.concatenate([self.stored, self.kept, keys_of(self.seed + 2, 1000)])
        values, found = table.find(asked, default=-1)
        for keys in allowed:
            there = np.isin(asked, keys)
            same = (found == there).all() and (values == np.where(there, asked * 3, -1)).all()
            if same and len(table) == len(np.unique(keys)):
                return
        raise Wrong(f"{found.sum()} of {len(asked)} keys are found, {len(table)} are counted")

    def end(self) -> None:
        if self.table is not None:
            self.table.close()


class MapBuild(TableWork):
    name = "map"

    def start(self, client: Client) -> None:
        self.stored = keys_of(self.seed, self.rows)
        self.kept = self.stored
        self.table = None
        self.given = self.chunks(self.stored)

    def carry_out(self, client: Client) -> None:
        self.table = DistributedMap.from_arrays(self.given, self.given * 3, client=client)


class MapInsert(TableWork):
    name = "map insert"

    def start(self, client: Client) -> None:
        super().start(client)
        self.added = keys_of(self.seed + 1, self.rows)
        self.given = self.chunks(self.added)
        self.kept = np.concatenate([self.stored, self.added])

    def carry_out(self, client: Client) -> None:
        assert self.table is not None
        fresh = on_host(fetched(client, self.table.insert(self.given, self.given * 3)))
        if fresh.sum() != len(np.unique(self.kept)) - len(np.unique(self.stored)):
            raise Wrong("another number of keys is new")


class MapFind(TableWork):
    name = "map find"
    loses = False

    def start(self, client: Client) -> None:
        super().start(client)
        self.asked = np.concatenate([self.stored[::2], keys_of(self.seed + 1, self.rows // 2)])
        self.given = self.chunks(self.asked)

    def carry_out(self, client: Client) -> None:
        assert self.table is not None
        values, found = self.table.find(self.given, default=-1)
        there = np.isin(self.asked, self.stored)
        right = (on_host(fetched(client, found)) == there).all()
        if (
            not right
            or (on_host(fetched(client, values)) != np.where(there, self.asked * 3, -1)).any()
        ):
            raise Wrong("the answers are not right")


TABLE_WORKS: dict[str, type[Work]] = {work.name: work for work in (MapBuild, MapInsert, MapFind)}


def keys_of(number: int, rows: int) -> np.ndarray:
    """Return keys that hardly occur in another batch."""
    return np.random.default_rng(number).integers(0, 1 << 40, rows)


def late(chunk: np.ndarray, seconds: float, device: str) -> Any:
    time.sleep(seconds)
    if device == "cpu":
        return chunk
    import cupy

    return cupy.asarray(chunk)


def on_host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else array
