"""Faults that break into a round."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import dask
from distributed import Client
from distributed.protocol import core

from dgpuhash import config
from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.distributed.ingest import commit
from dgpuhash.distributed.ingest.shuffle_tasks import shuffle_partition
from dgpuhash.errors import OutOfMemoryError
from rounds import pool
from rounds.cluster import Cluster

__all__ = ["FAULTS", "Fault"]

LIBRARYS_SILENCE = config.seconds("liveness.timeout")


class Fault:
    """Base of faults; it breaks nothing.

    Parameters
    ----------
    cluster : Cluster
        A cluster without faults.
    generator : random.Random
        Draws the victim, and whatever else is left to chance.
    """

    name: ClassVar[str] = "none"
    works: ClassVar[tuple[str, ...]] = (
        "build",
        "insert",
        "erase",
        "merge",
        "lookup",
        "save",
        "rebalance",
        "rebuild",
        "durable",
        "map",
        "map insert",
        "map find",
        "bulk build",
        "bulk insert",
        "bulk merge",
        "frames inner",
        "frames outer",
        "frames copied",
        "update",
        "retract",
    )
    #: Of a batch.
    rows: ClassVar[int] = 3000
    #: The kind of cluster that it needs: "hosts" of a network, "cpus", "gpus"; None: any.
    needs: ClassVar[str | None] = None
    #: Whether the verb has to succeed.
    harmless: ClassVar[bool] = False
    #: Whether memory ends, which tasks that bring an answer that Dask has may meet as well.
    starves: ClassVar[bool] = False
    #: Whether the cluster forgets every index, and the scheduler needs a process of its own.
    forgets: ClassVar[bool] = False

    def __init__(self, cluster: Cluster, generator: random.Random) -> None:
        self.cluster = cluster
        pids = cluster.pids()
        self.victim = generator.choice(sorted(pids))
        self.pid = pids[self.victim]
        self.generator = generator
        self._timers: list[threading.Timer] = []
        self.prepare()

    @property
    def client(self) -> Client:
        """The client of the cluster."""
        return self.cluster.client

    def prepare(self) -> None:
        """Prepare the fault before the verb begins."""

    def strike(self) -> None:
        """Cause the fault in the middle of the verb."""

    def undo(self) -> None:
        """Repair the fault as far as possible after the verb has ended."""

    def join(self) -> None:
        """Wait until the strike has finished."""
        for timer in self._timers:
            timer.join()

    def _soon(self, seconds: float, work: Callable[[], None]) -> None:
        self._timers.append(threading.Timer(seconds, work))
        self._timers[-1].start()


class Kill(Fault):
    """SIGKILL of a worker."""

    name = "kill"

    def strike(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class Stop(Fault):
    """SIGSTOP of a worker."""

    name = "stop"
    #: Seconds after which a silent worker is given up; None: the library's own.
    silence: ClassVar[float | None] = None

    def prepare(self) -> None:
        if self.silence is not None:
            self._wait_for(self.silence)

    def strike(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def undo(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        if self.silence is not None:
            # A worker that was given up ends when it goes on.
            self._wait_for(LIBRARYS_SILENCE, on_error="ignore")

    def _wait_for(self, seconds: float, on_error: str = "raise") -> None:
        be_patient(seconds)
        self.client.run(be_patient, seconds, on_error=on_error)


class Scheduler(Fault):
    """Kill of the scheduler, which restarts a second later without state.

    Its workers end when they notice, and come back as well: what a client has submitted while it
    had no scheduler waits for workers without end, as Dask has it.
    """

    name = "scheduler"
    forgets = True

    def strike(self) -> None:
        self.cluster.kill_scheduler()
        self._soon(1.0, self.cluster.start_scheduler)
        self._soon(4.0, self.cluster.restart_ended)


class Late(Fault):
    """Late answers of one worker to requests for its shard."""

    name = "late"
    works = tuple(work for work in Fault.works if work not in ("save", "rebuild", "durable"))
    harmless = True

    def prepare(self) -> None:
        seconds = self.generator.choice([0.5, 3.0, 6.0])
        self.client.run(delay, seconds, workers=[self.victim])

    def undo(self) -> None:
        self.client.run(delay, 0.0, workers=[self.victim])


class Twice(Fault):
    """Two runs of each partition's task, of which one counts."""

    name = "twice"
    works = ("build", "insert", "erase", "update", "retract")
    harmless = True

    def prepare(self) -> None:
        commit.shuffle_partition = put_twice

    def undo(self) -> None:
        commit.shuffle_partition = shuffle_partition


class Again(Fault):
    """Loss of results that tasks of merges have left, again and again, so that they run again."""

    name = "again"
    works = ("frames inner", "frames outer", "frames copied")
    harmless = True

    def prepare(self) -> None:
        self._ended = threading.Event()
        self._losing = threading.Thread(target=self._lose, daemon=True)

    def strike(self) -> None:
        self._losing.start()

    def undo(self) -> None:
        self._ended.set()

    def _lose(self) -> None:
        for seed in range(30):
            if self._ended.wait(0.1):
                return
            with suppress(Exception):
                self.client.run_on_scheduler(lose_results, seed)


class AtOnce(Fault):
    """No fault but a second client that inserts at the same time."""

    name = "at once"
    works = ("inserts",)
    harmless = True


class Memory(Fault):
    """Failure of an allocation of the tables on one worker."""

    name = "memory"
    needs = "cpus"
    works = Late.works

    def prepare(self) -> None:
        self.client.run(fail_allocation, self.generator.randrange(60), workers=[self.victim])

    def undo(self) -> None:
        self.client.run(fail_allocation, None, workers=[self.victim])


class Unread(Fault):
    """Failure to load received arrays on one worker.

    The worker behaves as one whose GPU has no free memory.
    """

    name = "unread"
    needs = "cpus"
    starves = True
    works = Late.works

    def strike(self) -> None:
        self.client.run(refuse_arrays, True, workers=[self.victim])

    def undo(self) -> None:
        self.client.run(refuse_arrays, False, workers=[self.victim])


class Limit(Fault):
    """End of one worker's address space, at any moment of its work."""

    name = "limit"
    needs = "cpus"
    starves = True
    works = ("build", "insert")
    rows = 600_000

    def prepare(self) -> None:
        self.headroom = self.generator.choice([0, 1 << 18, 1 << 20, 1 << 22])

    def strike(self) -> None:
        size = int(Path(f"/proc/{self.pid}/statm").read_text().split()[0])
        end = size * resource.getpagesize() + self.headroom
        resource.prlimit(self.pid, resource.RLIMIT_AS, (end, resource.RLIM_INFINITY))

    def undo(self) -> None:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        try:
            resource.prlimit(self.pid, resource.RLIMIT_AS, unlimited)
        except ProcessLookupError:
            return


class Ballast(Fault):
    """Allocation of nearly all memory of one GPU, at any moment of its work."""

    name = "ballast"
    needs = "gpus"
    starves = True
    works = Late.works
    rows = 600_000

    def prepare(self) -> None:
        self.headroom = self.generator.choice([0, 1 << 16, 1 << 20, 1 << 22, 1 << 24])

    def strike(self) -> None:
        self.client.run(pool.fill, self.headroom, workers=[self.victim])

    def undo(self) -> None:
        # A worker that has no memory for what its scheduler sends it leaves.
        if self.victim in self.client.nthreads():
            self.client.run(pool.free, workers=[self.victim])


class Cut(Fault):
    """Loss of a host's network for good."""

    name = "cut"
    needs = "hosts"
    works = tuple(work for work in Late.works if work not in ("erase", "lookup", "rebalance"))

    def prepare(self) -> None:
        self.host = self.generator.randrange(2, len(self.cluster) + 1)

    def strike(self) -> None:
        self.cluster.hosts.cut(self.host)

    def undo(self) -> None:
        self.cluster.hosts.mend(self.host)


class Away(Cut):
    """Loss of a host's network for five seconds."""

    name = "away"

    def strike(self) -> None:
        super().strike()
        self._soon(5.0, super().undo)

    def undo(self) -> None:
        """Do nothing: the network came back by itself."""


FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        Kill,
        Stop,
        Scheduler,
        Late,
        Away,
        Cut,
        Memory,
        Unread,
        Limit,
        Ballast,
        AtOnce,
        Twice,
        Again,
    )
}


def be_patient(seconds: float) -> None:
    """Set this process's time limit for unresponsive workers and clients."""
    dask.config.set({"dgpuhash.liveness.timeout": seconds})


def put_twice(frame: Any, sealed: Any, partition: int, *others: Any) -> Any:
    """Run `shuffle_partition` in two attempts, of which one counts.

    It is the first or the last one.
    """
    receipts = [shuffle_partition(frame, sealed, partition, *others) for _ in range(2)]
    return receipts[partition % 2]


def delay(seconds: float, dask_worker: Any) -> None:
    """Delay the answers of this worker; less for a group's many messages."""
    delays = {"match": seconds, "put": seconds, "collective": seconds / 20}
    for operation, some in delays.items():
        handler = dask_worker.handlers.get(f"dgpuhash_{operation}")
        if handler is None:
            continue
        prompt = getattr(handler, "prompt", handler)

        async def late(prompt: Any = prompt, some: float = some, **message: Any) -> Any:
            await asyncio.sleep(some)
            return await prompt(**message)

        late.prompt = prompt
        # What a request of the worker to itself calls.
        late.__wrapped__ = prompt.__wrapped__
        dask_worker.handlers[f"dgpuhash_{operation}"] = late if seconds else prompt


def fail_allocation(number: int | None) -> None:
    """Let an allocation of this worker fail, by its number from now on.

    None: no allocation fails.
    """
    plain = getattr(CpuBackend.empty, "plain", CpuBackend.empty)
    left = [number]

    def empty(self: CpuBackend, shape: Any, dtype: Any) -> Any:
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                left[0] = None
                raise OutOfMemoryError("0 bytes are free, by order of a test")
        return plain(self, shape, dtype)

    empty.plain = plain
    CpuBackend.empty = plain if number is None else empty


def refuse_arrays(refused: bool) -> None:
    """Let the load of received arrays fail on this worker, or work again."""
    plain = getattr(core.merge_and_deserialize, "plain", core.merge_and_deserialize)

    def load(header: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if header.get("serializer") == "dask":
            raise MemoryError("no array is loaded, by order of a test")
        return plain(header, *args, **kwargs)

    load.plain = plain
    core.merge_and_deserialize = load if refused else plain


def lose_results(seed: int, dask_scheduler: Any) -> None:
    """Forget some results of tasks of merges; the scheduler has them made again."""
    names = ("dgpuhash_probe", "dgpuhash_put", "dgpuhash_reduce", "dgpuhash-receipt")
    there = [
        key
        for key, task in dask_scheduler.tasks.items()
        if task.state == "memory" and any(name in str(key) for name in names)
    ]
    lost = random.Random(seed).sample(there, min(len(there), 2))
    dask_scheduler.transitions(dict.fromkeys(lost, "released"), stimulus_id=f"lost-{seed}")
