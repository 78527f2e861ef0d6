"""Log changes of indexes and tables as events of Dask's event log.

A topic each: ``dgpuhash-build``, ``-insert``, ``-upsert``, ``-erase``, …, ``dgpuhash-merge`` and
``dgpuhash-loss``. `distributed.Client.get_events` reads them, and `subscribe_topic` follows them.
"""

from __future__ import annotations

import logging
from typing import Any

from distributed import Client

from dgpuhash.distributed.cluster.rpc import fire_and_forget, rpc_of_scheduler

# What a worker that ends says of its status; one that is killed says nothing.
_LEAVING = {"closing", "closing_gracefully"}

# Below Dask's own logger, whose handler, format and level hold for it.
_log = logging.getLogger("distributed.dgpuhash")
_bulk_log = logging.getLogger("distributed.dgpuhash.bulk")
# Among the lines of `Client.get_scheduler_logs`.
_scheduler_log = logging.getLogger("distributed.scheduler.dgpuhash")


def topic_of(verb: str) -> str:
    """Return the topic of the events of a verb.

    Examples
    --------
    >>> topic_of("insert")
    'dgpuhash-insert'
    """
    return f"dgpuhash-{verb}"


def log_event(client: Client, verb: str, **what: Any) -> None:
    """Log an event of `verb` on the scheduler, without waiting for it.

    `what` are numbers and texts. An event that cannot be sent is dropped: what it says has
    happened all the same.
    """
    _log.debug("%s: %s", verb, ", ".join(f"{name}={each!r}" for name, each in what.items()))

    def send() -> None:
        # The client may have lost its scheduler meanwhile.
        if client.status == "running":
            rpc = rpc_of_scheduler(client)
            fire_and_forget(rpc.log_event(topic=topic_of(verb), msg=what))

    loop: Any = client.loop
    loop.add_callback(send)


def log_loss(scheduler: Any, worker: str, **what: Any) -> None:
    """Log that a worker left with a shard of an index or table; runs on the scheduler.

    It is a warning unless the worker said that it leaves, as at the end of a cluster.
    """
    said = [event for _, event in scheduler.get_events(worker) if isinstance(event, dict)]
    expected = any(each.get("expected") or each.get("status") in _LEAVING for each in said)
    level = logging.INFO if expected else logging.WARNING
    _scheduler_log.log(level, "Worker %s left with a shard: %s", worker, what)
    scheduler.log_event(topic_of("loss"), {"worker": worker, "expected": expected, **what})


def log_execution(what: str, refused: str = "") -> None:
    """Log whether one broadcast did the work, or why tasks do."""
    _bulk_log.debug("%s %s", what, f"by tasks: {refused}" if refused else "in one phase")
