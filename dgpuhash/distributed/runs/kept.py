"""Build cache: keep hash tables of persisted frames on the workers for later merges."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dgpuhash import config
from dgpuhash.distributed.cluster.dask_internals import unwant_keys, want_keys, wanting_clients
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.cluster.rpc import call_worker, encode_call, fire_and_forget
from dgpuhash.distributed.shards.stats import shard_size

# Begins the keys of tasks that confirm a probe, which are made again with it.
RECEIPT = "dgpuhash-receipt"
# The name with which the scheduler wants the results that stay, as a client would.
KEEPER = f"{NAME}-kept"


@dataclass(frozen=True, slots=True)
class KeptStats:
    """Statistics of one client's cached builds.

    Attributes
    ----------
    builds, nbytes : int
    limit : int
        The most bytes.
    again : int
        Merges that took a build which was there.
    dropped : int
        Builds that had no room.
    """

    builds: int
    nbytes: int
    limit: int
    again: int
    dropped: int


@dataclass
class Kept:
    """A cached build.

    Attributes
    ----------
    client : str
        Whose it is.
    uid : str
    workers : tuple of str
        Who holds a shard of this name.
    sources : tuple of key
        The tasks whose results it was made of.
    nbytes : int
        As it was measured last.
    result_nbytes : int
        Those of the task's result, which has all rows where no worker has a shard.
    """

    client: str
    uid: str
    workers: tuple[str, ...]
    sources: tuple[Any, ...]
    nbytes: int
    result_nbytes: int


@dataclass
class Keeping:
    """A client's cache: its limit in bytes (None: by the workers' memory) and builds."""

    limit: int | None
    again: int = 0
    dropped: int = 0


class KeptBuilds:
    """Build cache of all clients, on the scheduler.

    A build is the result of its last task, and is there while somebody wants that. Here it is
    wanted in the name of `KEEPER`, until a partition of the frame is released, its client leaves or
    has no room for it, or rows of it are marked: marks belong to one computation.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._clients: dict[str, Keeping] = {}
        # The one that was asked longest ago comes first.
        self._kept: OrderedDict[Any, Kept] = OrderedDict()
        self._by_source: dict[Any, set[Any]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep_for(self, client: str, limit: int | None) -> None:
        """Keep the builds of a client from now on, in at most `limit` bytes."""
        self._clients.setdefault(client, Keeping(limit)).limit = limit
        self._make_room(client)

    def stop(self, client: str) -> None:
        """Drop a client's builds, and cache none from now on."""
        self._clients.pop(client, None)
        for key in [key for key, kept in self._kept.items() if kept.client == client]:
            self._drop(key)

    async def measured_stats(self, client: str) -> KeptStats | None:
        """Return the statistics of a client's cache; None without a cache."""
        await self.measure(client)
        keeping = self._clients.get(client)
        if keeping is None:
            return None
        mine = self._of(client)
        nbytes = sum(kept.nbytes for kept in mine)
        return KeptStats(
            len(mine), nbytes, self._limit(keeping), keeping.again, keeping.dropped
        )  # fmt: skip

    def keep(self, key: Any, uid: str, workers: Iterable[str]) -> None:
        """Cache a complete build, if its client has a cache and holds all inputs."""
        if not self._clients:
            return
        task = self._scheduler.tasks[key]
        sources = list(_sources(task))
        if not sources or None in sources or _marking(task):
            return
        for client in self._clients:
            if all(_wants(client, source) for source in sources):
                break
        else:
            return
        names = tuple(source.key for source in sources)
        nbytes = sum(max(0, source.nbytes) for source in sources)
        result_nbytes = max(0, task.nbytes)
        self._kept[key] = Kept(client, uid, tuple(workers), names, nbytes, result_nbytes)
        for name in names:
            self._by_source.setdefault(name, set()).add(key)
        want_keys(self._scheduler, KEEPER, [key])
        fire_and_forget(self.measure(client))

    def over(self, key: Any) -> None:
        """Drop builds whose input task, or whose result, is released."""
        if self._kept:
            for build in [key, *self._by_source.get(key, ())]:
                if build in self._kept:
                    self._drop(build)

    def note(self, tasks: Iterable[Any]) -> None:
        """Count the builds that new tasks probe, and drop those that they would mark."""
        if not self._kept:
            return
        new = set(tasks)
        for key in list(self._kept):
            task = self._scheduler.tasks.get(key)
            if task is None or not any(each.key in new for each in task.dependents):
                continue
            client = self._kept[key].client
            self._clients[client].again += 1
            self._kept.move_to_end(key)
            # Key tables are made by the first probes.
            fire_and_forget(self.measure(client))
            if _marking(task):
                self._drop(key)

    def _of(self, client: str) -> list[Kept]:
        return [kept for kept in self._kept.values() if kept.client == client]

    def _limit(self, keeping: Keeping) -> int:
        if keeping.limit is not None:
            return keeping.limit
        limits = (worker.memory_limit for worker in self._scheduler.workers.values())
        share, most = config.share("kept-builds.memory"), config.nbytes("kept-builds.most")
        return sum(min(most, int(each * share) or most) for each in limits)

    def _make_room(self, client: str) -> None:
        """Drop the builds in the order of their last use, until those of a client have room."""
        keeping = self._clients.get(client)
        if keeping is None:
            return
        limit = self._limit(keeping)
        while (mine := self._of(client)) and sum(kept.nbytes for kept in mine) > limit:
            oldest = next(key for key, kept in self._kept.items() if kept is mine[0])
            keeping.dropped += 1
            self._drop(oldest)

    async def measure(self, client: str) -> None:
        """Get the size of a client's builds from the workers, and drop those beyond the limit."""
        for kept in self._of(client):
            call = encode_call(build_size, kept.uid)
            try:
                calls = (call_worker(self._scheduler, each, call, None) for each in kept.workers)
                sizes = await asyncio.gather(*calls)
            except (OSError, TimeoutError):
                continue
            if None not in sizes:
                kept.nbytes = kept.result_nbytes + sum(sizes)
        self._make_room(client)

    def _drop(self, key: Any) -> None:
        """Want a build no more; it is freed with the loop's next turn, unless a probe needs it."""
        for name in self._kept.pop(key).sources:
            self._by_source[name].discard(key)
            if not self._by_source[name]:
                del self._by_source[name]
        # Not now: the scheduler may be amid other transitions.
        asyncio.get_running_loop().call_soon(self._release, key)

    def _release(self, key: Any) -> None:
        if key not in self._kept:
            unwant_keys(self._scheduler, KEEPER, [key])


def task_name(key: Any) -> str:
    """Return the name in the key of a task, without its number."""
    return str(key[0] if isinstance(key, tuple) else key)


def _sources(task: Any) -> Iterator[Any]:
    """Yield the input tasks of a build whose results clients hold.

    None for those that nobody holds.
    """
    stack, seen = list(task.dependencies), {task.key}
    while stack:
        each = stack.pop()
        if each.key in seen:
            continue
        seen.add(each.key)
        wanting = wanting_clients(each) - {KEEPER}
        if each.state == "memory" and wanting:
            yield each
        elif each.dependencies:
            stack += each.dependencies
        else:
            yield None


def _wants(client: str, task: Any) -> bool:
    return client in wanting_clients(task)


def _marking(task: Any) -> bool:
    """Return whether tasks that probe a build mark its rows."""
    return any(
        task_name(after.key).startswith(RECEIPT)
        for probe in task.dependents
        for after in probe.dependents
    )


def build_size(uid: str, dask_worker: Any) -> int | None:
    """Return the bytes of a worker's shard; None if unknown."""
    host = dask_worker.plugins.get(NAME)
    shard = None if host is None else host.shards.standing(uid)
    return None if shard is None else shard_size(shard.index)[1]
