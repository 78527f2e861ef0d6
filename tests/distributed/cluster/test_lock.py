"""Distributed lock: blocks that only one client at a time runs."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from clusters import until
from distributed import Client

from dgpuhash.distributed import DistributedSet
from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.lock import ClientLock, hold_lock, release_dead_leases
from dgpuhash.distributed.collective.group import Group
from dgpuhash.errors import ReentranceError, UnsupportedError

pytestmark = pytest.mark.cluster


def name_again(client: str, dask_scheduler: Any) -> None:
    """Repeat the last step of a scatter after its client was lost."""
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
    threads.run_on_scheduler(release_dead_leases, "a block")
    assert waiting.acquire(timeout=10)
    waiting.release()


def test_the_place_of_a_client_that_is_there_is_its_own(threads: Client) -> None:
    with Client(threads.scheduler.address, set_as_default=False) as other, hold_lock(other, "held"):
        waiting = ClientLock("dgpuhash-held", threads)
        threads.run_on_scheduler(release_dead_leases, "dgpuhash-held")
        assert not waiting.acquire(timeout=0.1)
    assert waiting.acquire(timeout=10)
    waiting.release()


@pytest.mark.timeout(60)
def test_a_lock_that_is_granted_after_an_interrupt_is_free(threads: Client) -> None:
    with Client(threads.scheduler.address, set_as_default=False) as other:
        with hold_lock(other, "granted"):
            before = signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                with pytest.raises(KeyboardInterrupt), hold_lock(threads, "granted"):
                    pass
            finally:
                signal.signal(signal.SIGALRM, before)
        with hold_lock(other, "granted"):
            pass


def test_a_thread_does_not_wait_for_itself(threads: Client) -> None:
    with hold_lock(threads, "held"):
        with pytest.raises(ReentranceError, match=r"held.*returned"), hold_lock(threads, "held"):
            pass
        with hold_lock(threads, "other"):
            pass
    with hold_lock(threads, "held"):
        pass


def test_a_handler_does_not_spoil_the_verb_that_it_interrupts(
    threads: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its phase would come after the one that it interrupts, with the epoch before."""
    refused = []

    def handler(*_: Any) -> None:
        for verb in (table.insert, table.contains, table.erase):
            with pytest.raises(ReentranceError, match=r"DistributedSet.*returned"):
                verb([1, 7])
            refused.append(verb)

    with DistributedSet("i8", client=threads) as table:
        table.insert([1, 2])
        before, run = signal.signal(signal.SIGUSR1, handler), Group.run

        def struck(*args: Any, **kwargs: Any) -> Any:
            made = run(*args, **kwargs)
            signal.raise_signal(signal.SIGUSR1)
            return made

        try:
            with monkeypatch.context() as patched:
                patched.setattr(Group, "run", struck)
                table.insert([3])
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert len(refused) == 3
        assert table.contains([1, 2, 3, 7]).tolist() == [True, True, True, False]
        assert table.insert([7]).tolist() == [True]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_the_event_loop_of_its_parent(threads: Client) -> None:
    table = DistributedSet("i8", client=threads)
    table.insert([1, 2])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            for work in (lambda: client_of(threads), lambda: len(table), lambda: table.insert([3])):
                with pytest.raises(UnsupportedError, match="forked"):
                    work()
            # Neither ends what the parent has.
            table.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert table.contains([1, 3]).tolist() == [True, False]
    table.close()


def known(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.clients)
