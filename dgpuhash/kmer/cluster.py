"""Run k-mer work as tasks of a Dask cluster, rerunning those of a lost worker."""

from __future__ import annotations

import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from dask.utils import parse_bytes
from distributed import Client, Future, KilledWorker

from dgpuhash.distributed.cluster.client import (
    client_of,
    holders_of,
    identity_of,
    seceding,
    sync_with_scheduler,
    workers_of,
)
from dgpuhash.distributed.cluster.dask_internals import CANCELLED, CommClosedError, never_steal
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.cluster.rpc import call_scheduler
from dgpuhash.distributed.cluster.user_errors import install_log_filter, raise_without_traceback
from dgpuhash.errors import IndexLost, SequenceError, SpecError
from dgpuhash.kmer.sequences.files import STDIN

Item = TypeVar("Item")

MODES = ("auto", "distributed", "independent", "replicated")
# Between two looks at whether there are workers; how long none may be there.
_LOOK_SECONDS = 2.0
_LONELY_LOOKS = 15
# Batches of each worker that are under way: one is read, and of some others workers wait for what
# those find that read.
_AHEAD = 4
# Tasks that ask a part of an index, which would be sent to the worker that takes them over.
_ASKING_PARTS = (f"{NAME}-find",)
# Of a worker's memory, that an index may take on each of them.
_REPLICATED_SHARE = 0.25
_ATTEMPTS = 4
_PAUSE_SECONDS = 0.5
_REMEDY = "start workers, and build the index again, or load it where it was saved"


class Workers:
    """The workers of a cluster, to run tasks on.

    A task's results stay with the worker that ran it. When it is lost, Dask runs the task again on
    another one, and the tasks whose results that needs: so tasks change nothing that they are
    given.

    Parameters
    ----------
    client : distributed.Client

    Raises
    ------
    IndexLost
        When there are no workers.
    """

    def __init__(self, client: Client) -> None:
        self.client: Client = client_of(client)
        if not workers_of(self.client):
            raise IndexLost(f"the cluster has no workers; {_REMEDY}")
        call_scheduler(self.client, never_steal, _ASKING_PARTS)
        # When workers were looked for, and which were there; the same of results.
        self._seen: tuple[float, list[str]] = (0.0, [])
        self._homes: tuple[float, dict[Any, str | None]] = (0.0, {})

    @property
    def addresses(self) -> list[str]:
        """The addresses of the current workers."""
        return workers_of(self.client)

    @property
    def memory(self) -> int:
        """Smallest memory limit of a worker in bytes; 0 without limits."""
        workers = identity_of(self.client, n_workers=-1)["workers"].values()
        limits = [parse_bytes(each["memory_limit"] or 0) for each in workers]
        return min((each for each in limits if each), default=0)

    def mode_for(self, mode: str, nbytes: int) -> tuple[str, str]:
        """Return the mode for an index of about this size, and the reason.

        Raises
        ------
        SpecError
            When there is no such mode.
        """
        if mode not in MODES:
            raise SpecError(f"mode={mode!r}; use one of {', '.join(MODES)}")
        if mode != "auto":
            return mode, "it was asked for"
        if len(self.addresses) == 1:
            return "replicated", "there is one worker"
        memory, share = self.memory, _REPLICATED_SHARE
        about = f"about {nbytes:,} bytes"
        if not memory:
            return "replicated", f"{about}, and workers have no limit of memory"
        if nbytes <= memory * share:
            return "replicated", f"{about} are at most {share:.0%} of a worker's {memory:,}"
        return "distributed", f"{about} are more than {share:.0%} of a worker's {memory:,}"

    def near(self, number: int) -> str | None:
        """Return a worker's address by number; neighbouring numbers get different workers."""
        seen, addresses = self._seen
        if time.monotonic() - seen > _LOOK_SECONDS or not addresses:
            addresses = self.addresses
            self._seen = time.monotonic(), addresses
        return addresses[number % len(addresses)] if addresses else None

    def homes(self, results: Sequence[Future]) -> list[str | None]:
        """Return the address of a worker with each result; None for a lost result.

        Results that are large are asked there: Dask would send them where less is to do.
        """
        seen, homes = self._homes
        keys = [each.key for each in results]
        if time.monotonic() - seen > _LOOK_SECONDS or homes.keys() != set(keys):
            there = holders_of(self.client, results)
            homes = {key: next(iter(there.get(key, ())), None) for key in keys}
            self._homes = time.monotonic(), homes
        return [homes[key] for key in keys]

    def submit(
        self, call: Callable[..., Any], *args: Any, near: str | None = None, first: bool = False
    ) -> Future:
        """Run a module's function as a task, preferably on the worker `near`.

        `first`: before tasks that wait for a worker already.
        """
        # Dask tells by names of keys how long tasks take.
        key = f"{NAME}-{call.__name__.replace('_', '-')}-{uuid4().hex}"
        where: dict[str, Any] = {"priority": int(first), "key": key}
        if near is not None:
            where |= {"workers": [near], "allow_other_workers": True}
        return self.client.submit(_ran, call, *args, **where)

    def split(self, future: Future, n: int, near: str | None = None) -> list[Future]:
        """Return the n items of a task's result as separate futures.

        Elsewhere all of the result would be sent for each item.
        """
        return [self.submit(operator.getitem, future, at, near=near) for at in range(n)]

    def result(self, future: Future) -> Any:
        """Return the result of a task.

        Raises
        ------
        IndexLost
            When workers, or all that was needed, are lost.
        """
        (found,) = self.results([future])
        return found

    def results(self, futures: Sequence[Future]) -> list[Any]:
        """Return the results of tasks."""
        with _losses(), seceding(self.client):
            self._wait(futures)
            gather = partial(self.client.gather, list(futures), asynchronous=True)
            return list(sync_with_scheduler(self.client, gather))

    def finish(self, futures: Sequence[Future]) -> None:
        """Wait for tasks without fetching their results; raise the error of a failed one."""
        with _losses(), seceding(self.client):
            self._wait(futures)
            for future in futures:
                if future.status != "finished":
                    future.result()

    def _wait(self, futures: Sequence[Future]) -> None:
        lonely = 0
        # `distributed.wait` waits on the loop of the newest client, which may be another one.
        for future in futures:
            while not future.done():
                try:
                    future.exception(timeout=_LOOK_SECONDS)
                except TimeoutError:
                    lonely = 0 if workers_of(self.client) else lonely + 1
                    if lonely > _LONELY_LOOKS:
                        raise IndexLost(f"the cluster has no workers any more; {_REMEDY}") from None

    def in_order(
        self, items: Iterable[Item], begin: Callable[[int, Item], list[Future]]
    ) -> Iterator[tuple[Item, Callable[[], list[Any]]]]:
        """Yield items and their tasks' results in order, with the next tasks in flight.

        Parameters
        ----------
        items : iterable
        begin : callable
            Is given an item and its number, and returns its tasks. It is called again when their
            results were lost.
        """
        running: deque[tuple[int, Item, list[Future]]] = deque()
        most = _AHEAD * max(len(self.addresses), 1)
        for number, item in enumerate(items):
            running.append((number, item, begin(number, item)))
            if len(running) >= most:
                yield self._first(running, begin)
        while running:
            yield self._first(running, begin)

    def _first(
        self,
        running: deque[tuple[int, Item, list[Future]]],
        begin: Callable[[int, Item], list[Future]],
    ) -> tuple[Item, Callable[[], list[Any]]]:
        number, item, futures = running.popleft()

        def take() -> list[Any]:
            nonlocal futures
            for attempt in range(_ATTEMPTS):
                try:
                    return self.results(futures)
                except IndexLost:
                    if attempt + 1 == _ATTEMPTS or not self.addresses:
                        raise
                    futures = begin(number, item)
            raise AssertionError

        return item, take

    def sent(self, data: Any, number: int) -> Future:
        """Send data to one of the current workers."""
        for attempt in range(_ATTEMPTS):
            addresses = self.addresses
            where = [addresses[(number + attempt) % len(addresses)]] if addresses else None
            try:
                send = partial(
                    self.client.scatter, [data], hash=False, workers=where, asynchronous=True
                )
                with _losses(), seceding(self.client):
                    (there,) = sync_with_scheduler(self.client, send)
                return there
            except (IndexLost, KeyError, OSError) as error:
                # The scheduler knows no address of a worker that left, or cannot connect to it yet.
                if attempt + 1 == _ATTEMPTS:
                    raise IndexLost(f"no worker keeps the reads sent to it; {_REMEDY}") from error
                # The scheduler is about to notice.
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError


class LettersDone:
    """Progress reporter: counts the letters of finished tasks.

    Parameters
    ----------
    progress : callable or None
        Is told numbers of letters, one call at a time.
    total : int
    """

    def __init__(self, progress: Callable[[int], object] | None, total: int) -> None:
        self._progress, self._left = progress, total
        self._lock = threading.Lock()

    def of(self, task: Future, letters: int) -> Future:
        """Return a task after registering its letters for progress."""
        if self._progress is not None:
            task.add_done_callback(lambda done: self._tell(letters, done.status == "finished"))
        return task

    def finish(self) -> None:
        """Report all remaining letters; later tasks report nothing."""
        self._tell(self._left, True)

    def _tell(self, letters: int, is_done: bool) -> None:
        with self._lock:
            letters = min(letters, self._left)
            if self._progress is not None and is_done and letters:
                self._left -= letters
                self._progress(letters)


@contextmanager
def _losses() -> Iterator[None]:
    """Translate Dask's errors about lost workers to IndexLost."""
    try:
        yield
    except (KilledWorker, CancelledError, *CANCELLED, CommClosedError) as error:
        raise IndexLost(f"workers of the cluster were lost ({error}); {_REMEDY}") from error


def _ran(call: Callable[..., Any], *args: Any) -> Any:
    install_log_filter()
    with raise_without_traceback():
        return call(*args)


def check_files(files: Sequence[str]) -> None:
    """Raise SequenceError if workers cannot read one of the files."""
    if STDIN in files:
        raise SequenceError("workers cannot read the standard input; name files that they see")


def seen_by_workers(name: str) -> str:
    """Return an absolute file name, because workers run in other folders."""
    return name if "://" in name else str(Path(name).absolute())
