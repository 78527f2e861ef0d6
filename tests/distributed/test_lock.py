"""Blocks that one client at a time is in."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import until
from distributed import Client

from dgpuhash.distributed.lock import ClientLock, free_of_the_dead, locked

pytestmark = pytest.mark.cluster


def name_again(client: str, dask_scheduler: Any) -> None:
    """What a scatter does that ends after its client was lost."""
    assert client not in dask_scheduler.clients
    dask_scheduler.client_desires_keys((), client)


def test_the_place_of_a_client_that_is_gone_is_free(threads: Client) -> None:
    with Client(threads.scheduler.address, set_as_default=False) as gone:
        lock = ClientLock("a block", gone)
        assert lock.acquire()
    until(lambda: gone.id not in threads.run_on_scheduler(known))
    threads.run_on_scheduler(name_again, gone.id)
    waiting = ClientLock("a block", threads)
    assert not waiting.acquire(timeout=0.1)
    threads.run_on_scheduler(free_of_the_dead, "a block")
    assert waiting.acquire(timeout=0.1)
    waiting.release()


def test_the_place_of_a_client_that_is_there_is_its_own(threads: Client) -> None:
    with Client(threads.scheduler.address, set_as_default=False) as other, locked(other, "held"):
        waiting = ClientLock("dgpuhash-held", threads)
        threads.run_on_scheduler(free_of_the_dead, "dgpuhash-held")
        assert not waiting.acquire(timeout=0.1)
    assert waiting.acquire(timeout=10)
    waiting.release()


def known(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.clients)
