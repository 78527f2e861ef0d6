"""One round: a fault in the middle of a verb, and what came of it."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from distributed.client import FutureCancelledError

from dgpuhash.errors import DgpuhashError
from rounds.cluster import Cluster
from rounds.faults import FAULTS, Fault
from rounds.tables import TABLE_WORKS
from rounds.work import WORKS, Work, Wrong

__all__ = ["SOON", "Outcome", "play"]

# Seconds from the fault to the answer or the error.
SOON = 30.0
# A verb that has not ended after as many more is left alone.
GIVEN_UP = 30.0


@dataclass(frozen=True)
class Outcome:
    """What came of a round.

    Attributes
    ----------
    kind : str
        ``right``: a right answer. ``error``: one of ours, and the index was right after
        `DistributedIndex.rebuild` at the latest. Anything else is a failure: ``late`` (after more
        than `SOON`), ``hang``, ``foreign`` (an error that is not ours), ``wrong`` (rows), ``stuck``
        (not to be repaired), ``crash`` (another process than the victim's ended by a signal).
    seconds : float
        From the fault to the answer or error.
    """

    fault: str
    work: str
    seed: int
    moment: str
    kind: str
    seconds: float
    message: str

    @property
    def failed(self) -> bool:
        """Whether this must not happen."""
        return self.kind not in {"right", "error"}


def play(cluster: Cluster, fault: str, seed: int, works: Sequence[str] | None = None) -> Outcome:
    """Play the round of this fault and seed on a cluster, which is mended first.

    Its verb is one of `works` that the fault is meant for; default: of all of these.
    """
    generator = random.Random(f"{fault} {seed}")
    cluster.mend()
    kind = FAULTS[fault]
    meant = [name for name in kind.works if works is None or name in works]
    name = meant[seed % len(meant)]
    try:
        work = (WORKS | TABLE_WORKS)[name](
            cluster.client, cluster.folder, seed, kind.rows, cluster.device
        )
        broken = kind(cluster, generator)
    except Exception as error:
        cluster.close()
        return Outcome(
            fault, name, seed, "before", "stuck", 0.0, f"{type(error).__name__}: {error}"
        )
    trigger = Trigger(broken, work, generator)
    with trigger.armed():
        raised, ended = attempted(lambda: work.carry_out(cluster.client))
    seconds = max(0.0, ended - trigger.struck)

    def outcome(kind: str, message: str) -> Outcome:
        return Outcome(fault, name, seed, trigger.moment, kind, seconds, message)

    try:
        broken.join()
        broken.undo()
        if isinstance(raised, Unfinished):
            cluster.close()
            return outcome("hang", f"no answer after {seconds:.0f} s")
        forgotten = cluster.forgotten
        if crashed := cluster.crashed(broken.pid):
            return outcome("crash", "; ".join(crashed))
        cluster.mend()
        if isinstance(raised, Wrong):
            return outcome("wrong", str(raised))
        if kind.forgets or cluster.forgotten > forgotten:
            unsettled, _ = attempted(lambda: work.begin_again(cluster.client))
        else:
            unsettled, _ = attempted(lambda: work.settle(cluster.client, raised is None))
    except Exception as error:
        cluster.close()
        return outcome("stuck", f"{type(error).__name__}: {error}")
    message = "" if raised is None else f"{type(raised).__name__}: {raised}"
    if unsettled is not None:
        if isinstance(unsettled, Unfinished):
            cluster.close()
        bad = "wrong" if isinstance(unsettled, Wrong) else "stuck"
        return outcome(bad, f"{message or 'done'}; then {type(unsettled).__name__}: {unsettled}")
    if crashed := cluster.crashed(broken.pid):
        return outcome("crash", f"afterwards {'; '.join(crashed)}")
    if raised is not None and (kind.harmless or not understood(raised, work)):
        return outcome("foreign", message)
    if seconds > SOON:
        return outcome("late", message)
    return outcome("right" if raised is None else "error", message)


def understood(raised: Exception, work: Work) -> bool:
    """Whether an error is ours; of a merge, which Dask computes, it may be Dask's own."""
    if isinstance(raised, FutureCancelledError):
        return work.name == "merge" and "scheduler-connection-lost" in str(raised)
    return isinstance(raised, DgpuhashError)


class Unfinished(Exception):
    """Work that goes on and on."""


def attempted(work: Callable[[], Any]) -> tuple[Exception | None, float]:
    """What `work` raised, if anything, and when it ended."""
    found: list[tuple[Exception | None, float]] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            found.append((error, time.monotonic()))
        else:
            found.append((None, time.monotonic()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON + GIVEN_UP)
    return found[0] if found else (Unfinished(), time.monotonic())


class Trigger:
    """Lets a fault strike at a moment that is left to chance.

    That is a time since the verb began, or, for verbs that go by phases, a call of the client: just
    before it, or some milliseconds into it.
    """

    def __init__(self, fault: Fault, work: Work, generator: random.Random) -> None:
        self.fault = fault
        self.struck = time.monotonic()
        self._timers: list[threading.Timer] = []
        self._done = False
        self._call: int | None = None
        self._phases = work.phases
        if work.changes and generator.random() < 0.6:
            self._call = generator.randrange(CALLS.get(work.name, 3))
            self._delay = generator.choice([0.0, 0.001, 0.003, 0.01])
            self.moment = f"call {self._call} + {self._delay:.3f} s"
        else:
            self._delay = generator.random() * DURATION[work.name]
            self.moment = f"{self._delay:.3f} s"

    @contextmanager
    def armed(self) -> Iterator[None]:
        """A block in which it strikes, once at most."""
        self.struck = time.monotonic()
        plain, number = self._phases.on_workers, itertools.count()

        def counted(*args: Any, **kwargs: Any) -> Any:
            if next(number) == self._call:
                self._strike_after(self._delay)
            return plain(*args, **kwargs)

        with mock.patch.object(self._phases, "on_workers", counted):
            if self._call is None:
                self._strike_after(self._delay)
            try:
                yield
            finally:
                for timer in self._timers:
                    timer.cancel()
                    timer.join()
                if not self._done:
                    self.moment += " (after)"
                    self._strike()

    def _strike_after(self, seconds: float) -> None:
        if seconds == 0.0:
            self._strike()
            return
        self._timers.append(threading.Timer(seconds, self._strike))
        self._timers[-1].start()

    def _strike(self) -> None:
        self._done = True
        self.struck = time.monotonic()
        self.fault.strike()


# Calls on all workers that a change makes: to open it, to prepare it, to apply it. A build asks for
# the workers' incarnations first; to rebalance, shards send their rows as well.
# Ranks of a table's group join it, connect and watch each other before its first verb.
CALLS = {"build": 4, "rebalance": 4, "rebuild": 4, "map": 4, "map insert": 1, "map find": 1}
# Seconds that the verbs take when nothing breaks, on two cores.
DURATION = {
    "build": 0.6,
    "insert": 0.5,
    "inserts": 0.8,
    "erase": 0.5,
    "merge": 0.8,
    "lookup": 0.2,
    "save": 0.06,
    "rebalance": 0.2,
    "rebuild": 1.2,
    "durable": 0.5,
    "map": 0.6,
    "map insert": 0.3,
    "map find": 0.3,
}
