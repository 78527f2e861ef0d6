"""One round: a fault in the middle of a verb, and its outcome."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from distributed.client import FutureCancelledError, FuturesCancelledError

from dgpuhash.errors import DgpuhashError, IndexLost
from rounds.bulk import BULK_WORKS
from rounds.cluster import Cluster
from rounds.faults import FAULTS, Fault
from rounds.frames import FRAME_WORKS
from rounds.groups import GROUP_WORKS
from rounds.tables import TABLE_WORKS
from rounds.work import WORKS, Unfetched, Work, Wrong

__all__ = ["SOON", "Outcome", "meant_for", "play"]

# Seconds from the fault to the answer or the error.
SOON = 30.0
# A verb that has not ended after as many more is left alone.
GIVEN_UP = 30.0
# Seconds for what comes before and after a verb: much of it is the rounds' own work, which takes
# long on a busy machine.
AROUND = 240.0
# Seconds that a partition takes to be read.
PACE = 0.1
# How often an index is mended again.
AGAIN = 2


@dataclass(frozen=True)
class Outcome:
    """Outcome of a round.

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
        """Whether the outcome is a failure."""
        return self.kind not in {"right", "error"}


def play(
    cluster: Cluster, fault: str, seeds: Sequence[int], works: Sequence[str] | None = None
) -> list[Outcome]:
    """Play the rounds of a fault and seeds on a cluster, repaired before.

    The verbs of all rounds are running when the fault strikes. They are some of `works` that the
    fault is meant for; default: of all verbs.
    """
    generator = random.Random(f"{fault} {seeds[0]}")
    cluster.mend()
    kind = FAULTS[fault]
    meant = meant_for(fault, works)
    names = [meant[seed % len(meant)] for seed in seeds]

    def outcome(number: int, kind: str, message: str, seconds: float = 0.0) -> Outcome:
        return Outcome(fault, names[number], seeds[number], moment, kind, seconds, message)

    moment = "before it"
    # Verbs that are at work at once share the workers' threads.
    share = max(1.0, len(seeds) / 8)
    made = all_begun(
        cluster,
        [
            partial(begun, cluster, kind, name, seed, PACE / share)
            for name, seed in zip(names, seeds, strict=True)
        ],
    )
    if failed := [each.raised for each in made if each.raised is not None]:
        cluster.close()
        message = f"{type(failed[0]).__name__}: {failed[0]}"
        return [outcome(number, "stuck", message) for number in range(len(seeds))]
    played = [each.result for each in made]
    broken = kind(cluster, generator)
    trigger = Trigger(broken, played, generator, share)
    with trigger.armed():
        verbs = [partial(work.carry_out, cluster.client) for work in played]
        tried = attempted(verbs, SOON + GIVEN_UP)
    moment = trigger.moment
    seconds = [max(0.0, each.ended - trigger.struck) for each in tried]
    crashed: list[str] = []
    settled: list[Attempt] = []
    try:
        broken.join()
        broken.undo()
        if any(isinstance(each.raised, Unfinished) for each in tried):
            cluster.close()
        else:
            forgotten = cluster.forgotten
            crashed = cluster.crashed(broken.pid)
            cluster.mend()
            again = kind.forgets or cluster.forgotten > forgotten
            settled = settled_by(
                cluster,
                [
                    partial(mended, cluster, work, again, each.raised is None)
                    for work, each in zip(played, tried, strict=True)
                ],
            )
            crashed += cluster.crashed(broken.pid)
    except Exception as error:
        settled = [Attempt(error, 0.0) for _ in played]
    if any(isinstance(each.raised, Unfinished) for each in settled):
        cluster.close()
    found = []
    for number, (work, each) in enumerate(zip(played, tried, strict=True)):
        after = settled[number].raised if settled else None
        found.append(
            outcome(number, *judged(kind, work, each.raised, after, crashed, seconds[number]))
        )
    return found


def meant_for(fault: str, works: Sequence[str] | None) -> list[str]:
    """Return the verbs among `works`, or all, that a fault is meant for."""
    return [name for name in FAULTS[fault].works if works is None or name in works]


def all_begun(cluster: Cluster, works: Sequence[Callable[[], Work]]) -> list[Attempt]:
    """Prepare the verbs; retry if a worker was lost meanwhile.

    A busy machine may lose one.
    """
    made = attempted(works)
    for _ in range(AGAIN):
        if not any(isinstance(each.raised, IndexLost) for each in made):
            break
        for each in made:
            if each.raised is None:
                with suppress(DgpuhashError):
                    each.result.end()
        cluster.mend()
        made = attempted(works)
    return made


def settled_by(cluster: Cluster, works: Sequence[Callable[[], Any]]) -> list[Attempt]:
    """Check after the verbs; retry if a worker was lost meanwhile.

    A busy machine may lose one.
    """
    settled = attempted(works)
    for _ in range(AGAIN):
        lost = [n for n, each in enumerate(settled) if isinstance(each.raised, IndexLost)]
        if lost:
            cluster.mend()
            for number, each in zip(lost, attempted([works[n] for n in lost]), strict=True):
                settled[number] = each
    return settled


def mended(cluster: Cluster, work: Work, again: bool, succeeded: bool) -> None:
    """Check after a verb, perhaps with another client."""
    work.client = cluster.client
    if again:
        work.begin_again(cluster.client)
    else:
        work.settle(cluster.client, succeeded)


def begun(cluster: Cluster, fault: type[Fault], name: str, seed: int, pace: float) -> Work:
    """Prepare a verb and its fault."""
    kind = (WORKS | BULK_WORKS | TABLE_WORKS | FRAME_WORKS | GROUP_WORKS)[name]
    return kind(cluster.client, cluster.folder, seed, fault.rows, cluster.device, pace)


def judged(
    fault: type[Fault],
    work: Work,
    raised: Exception | None,
    after: Exception | None,
    crashed: Sequence[str],
    seconds: float,
) -> tuple[str, str, float]:
    """Return the kind of an outcome, its message and its seconds."""
    message = "" if raised is None else f"{type(raised).__name__}: {raised}"
    if isinstance(raised, Unfinished):
        return "hang", f"no answer after {seconds:.0f} s", seconds
    if crashed:
        return "crash", "; ".join([*crashed, message]), seconds
    if isinstance(raised, Wrong):
        return "wrong", message, seconds
    if after is not None:
        bad = "wrong" if isinstance(after, Wrong) else "stuck"
        return bad, f"{message or 'done'}; then {type(after).__name__}: {after}", seconds
    if raised is not None and (fault.harmless or not understood(raised, work, fault)):
        return "foreign", message, seconds
    if seconds > SOON:
        return "late", message, seconds
    return ("right" if raised is None else "error"), message, seconds


def understood(raised: Exception, work: Work, fault: type[Fault]) -> bool:
    """Return whether an error is one of this package, or an allowed one.

    An answer that Dask keeps may fail with Dask's own error.
    """
    dasks = isinstance(raised, FutureCancelledError | FuturesCancelledError | Unfetched)
    starved = isinstance(raised, MemoryError) and fault.starves
    return isinstance(raised, DgpuhashError) or ((dasks or starved) and work.kept_by_dask)


class Unfinished(Exception):
    """Error of work that does not end in time."""


@dataclass
class Attempt:
    """Exception of some work, if any, and the time of its end."""

    raised: Exception | None
    ended: float
    result: Any = None


def attempted(works: Sequence[Callable[[], Any]], seconds: float = AROUND) -> list[Attempt]:
    """Run works at the same time; return their attempts within this time."""
    found: dict[int, Attempt] = {}

    def run(number: int) -> None:
        try:
            result = works[number]()
        except Exception as error:
            found[number] = Attempt(error, time.monotonic())
        else:
            found[number] = Attempt(None, time.monotonic(), result)

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(works))
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return [
        found.get(number, Attempt(Unfinished(), time.monotonic())) for number in range(len(works))
    ]


class Trigger:
    """Trigger that causes a fault at a random moment.

    The moment is a time since the verbs began or, at random, a call of the client if one of the
    verbs has phases: just before the call, or some milliseconds into it.
    """

    def __init__(
        self,
        fault: Fault,
        works: Sequence[Work],
        generator: random.Random,
        stretch: float = 1.0,
    ) -> None:
        self.fault, self.works = fault, works
        work = generator.choice(works)
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
            self._delay = generator.random() * DURATION[work.name] * stretch
            self.moment = f"{self._delay:.3f} s"

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Run a block in which the fault is caused once at most."""
        self.struck = time.monotonic()
        plain, number = self._phases.run_on_workers, itertools.count()

        def counted(*args: Any, **kwargs: Any) -> Any:
            if next(number) == self._call:
                self._strike_after(self._delay)
            return plain(*args, **kwargs)

        with mock.patch.object(self._phases, "run_on_workers", counted):
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
        for work in self.works:
            work.struck.set()


# Calls on all workers that a change makes: to open it, to prepare it, to apply it. A build asks for
# the workers' incarnations first; to rebalance, shards send their rows as well.
# Ranks of a table's group join it, connect and watch each other before its first verb.
CALLS = {
    "build": 4,
    "rebalance": 4,
    "rebuild": 4,
    "map": 4,
    "map insert": 1,
    "map find": 1,
    "bulk build": 4,
    "bulk insert": 1,
    "bulk merge": 1,
}
# Seconds that the verbs take when nothing breaks, on two cores.
DURATION = {
    "build": 0.6,
    "insert": 0.5,
    "inserts": 0.8,
    "update": 0.5,
    "retract": 0.5,
    "erase": 0.5,
    "merge": 0.8,
    "frames inner": 1.2,
    "frames outer": 1.4,
    "frames copied": 1.0,
    "lookup": 0.2,
    "save": 0.06,
    "rebalance": 0.2,
    "rebuild": 1.2,
    "durable": 0.5,
    "map": 0.6,
    "map insert": 0.3,
    "map find": 0.3,
    "bulk build": 0.2,
    "bulk insert": 0.1,
    "bulk merge": 0.2,
}
