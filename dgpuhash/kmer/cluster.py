"""Work on k-mers as tasks of a Dask cluster, which runs those of a lost worker again."""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dask.utils import parse_bytes
from distributed import Client, Future, KilledWorker, wait
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from dgpuhash.distributed.cluster.client import client_of, seceding, workers_of
from dgpuhash.distributed.cluster.user_errors import install_log_filter, raise_without_traceback
from dgpuhash.errors import IndexLost, SequenceError, SpecError
from dgpuhash.kmer.sequences.files import STDIN

__all__ = ["MODES", "Workers", "check_files", "seen_by_workers"]

Item = TypeVar("Item")

MODES = ("auto", "distributed", "independent", "replicated")
# Between two looks at whether there are workers; how long none may be there.
_LOOK_SECONDS = 2.0
_LONELY_LOOKS = 15
# Batches of each worker that are under way.
_AHEAD = 2
# Of a worker's memory, that an index may take on each of them.
_REPLICATED_SHARE = 0.25
_ATTEMPTS = 4
_PAUSE_SECONDS = 0.5
_REMEDY = "start workers, and build the index again, or load it where it was saved"


class Workers:
    """The workers of a cluster, for tasks.

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
        self.client = client_of(client)
        if not workers_of(self.client):
            raise IndexLost(f"the cluster has no workers; {_REMEDY}")

    @property
    def addresses(self) -> list[str]:
        """The addresses of the workers that are there."""
        return workers_of(self.client)

    @property
    def memory(self) -> int:
        """Bytes of the worker that has least; 0 when none has a limit."""
        told = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [parse_bytes(each["memory_limit"] or 0) for each in told]
        return min((each for each in limits if each), default=0)

    def mode_for(self, mode: str, nbytes: int) -> tuple[str, str]:
        """Return the mode of an index of about so many bytes, and why it is that.

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

    def submit(self, call: Callable[..., Any], *args: Any, near: str | None = None) -> Future:
        """Run a function of a module as a task, by choice on the worker `near`."""
        where: dict[str, Any] = {}
        if near is not None:
            where = {"workers": [near], "allow_other_workers": True}
        return self.client.submit(_ran, call, *args, pure=False, **where)

    def split(self, future: Future, n: int) -> list[Future]:
        """Return the n items of a task's result, each by itself."""
        return [self.client.submit(operator.getitem, future, at, pure=False) for at in range(n)]

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
            return list(self.client.gather(list(futures)))

    def _wait(self, futures: Sequence[Future]) -> None:
        lonely = 0
        while True:
            try:
                wait(list(futures), timeout=_LOOK_SECONDS)
            except TimeoutError:
                lonely = 0 if workers_of(self.client) else lonely + 1
                if lonely > _LONELY_LOOKS:
                    raise IndexLost(f"the cluster has no workers any more; {_REMEDY}") from None
            else:
                return

    def in_order(
        self,
        items: Iterable[Item],
        begin: Callable[[int, Any], Future],
        data: Callable[[Item], Any],
    ) -> Iterator[tuple[Item, Any]]:
        """Yield items and the results of their tasks in order, while the next ones are made.

        Parameters
        ----------
        items : iterable
        begin : callable
            Is told the number of an item, and given its data as a future; returns a task.
        data : callable
            Returns what of an item goes to a worker. It goes again when that was lost.
        """
        running: deque[tuple[int, Item, Future]] = deque()
        most = _AHEAD * max(len(self.addresses), 1)

        def begun(number: int, item: Item) -> Future:
            return begin(number, self._sent(data(item), number))

        for number, item in enumerate(items):
            running.append((number, item, begun(number, item)))
            if len(running) >= most:
                yield self._first(running, begun)
        while running:
            yield self._first(running, begun)

    def _sent(self, data: Any, number: int) -> Future:
        """Send data to one of the workers that are there."""
        for attempt in range(_ATTEMPTS):
            addresses = self.addresses
            where = [addresses[(number + attempt) % len(addresses)]] if addresses else None
            try:
                with _losses(), seceding(self.client):
                    (there,) = self.client.scatter([data], hash=False, workers=where)
                return there
            except IndexLost:
                if attempt + 1 == _ATTEMPTS:
                    raise
                # The scheduler is about to notice.
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError

    def _first(
        self, running: deque[tuple[int, Item, Future]], begun: Callable[[int, Item], Future]
    ) -> tuple[Item, Any]:
        number, item, future = running.popleft()
        for attempt in range(_ATTEMPTS):
            try:
                return item, self.result(future)
            except IndexLost:
                if attempt + 1 == _ATTEMPTS or not self.addresses:
                    raise
                future = begun(number, item)
        raise AssertionError


@contextmanager
def _losses() -> Iterator[None]:
    """Raise IndexLost in place of Dask's errors about lost workers."""
    try:
        yield
    except (KilledWorker, CancelledError, FutureCancelledError, CommClosedError) as error:
        raise IndexLost(f"workers of the cluster were lost ({error}); {_REMEDY}") from error


def _ran(call: Callable[..., Any], *args: Any) -> Any:
    install_log_filter()
    with raise_without_traceback():
        return call(*args)


def check_files(files: Sequence[str]) -> None:
    """Raise SequenceError when workers cannot read one of the files."""
    if STDIN in files:
        raise SequenceError("workers cannot read the standard input; name files that they see")


def seen_by_workers(name: str) -> str:
    """Return the name of a file as workers have it, which are in other folders."""
    return name if "://" in name else str(Path(name).absolute())
