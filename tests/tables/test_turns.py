"""Who works on a table at once, and who waits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dgpuhash.tables.turns import Turns, changes, reads

SECONDS = 20.0


class Table:
    """Verbs that do what they are told while it is their turn."""

    def __init__(self):
        self._turns = Turns()

    @reads
    def read(self, work):
        return work()

    @changes
    def change(self, work):
        return work()


def test_readers_work_at_once():
    table, meeting = Table(), threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(table.read, lambda: meeting.wait(SECONDS)) for _ in range(3)]:
            done.result(SECONDS)


@pytest.mark.parametrize("first", ["read", "change"])
@pytest.mark.parametrize("second", ["read", "change"])
def test_a_change_is_alone(first, second):
    table, inside, go_on = Table(), threading.Event(), threading.Event()
    order = []

    def stay():
        inside.set()
        assert go_on.wait(SECONDS)
        order.append("first")

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(getattr(table, first), stay)
        assert inside.wait(SECONDS)
        two = pool.submit(getattr(table, second), lambda: order.append("second"))
        if first == second == "read":
            two.result(SECONDS)
        go_on.set()
        one.result(SECONDS)
        two.result(SECONDS)
    assert order == (["second", "first"] if first == second == "read" else ["first", "second"])


def test_whoever_changes_may_enter_again():
    table = Table()
    assert table.change(lambda: table.read(lambda: table.change(lambda: 5))) == 5
    assert table.read(lambda: 6) == 6


def test_a_verb_that_fails_frees_the_table():
    table = Table()
    for verb in (table.read, table.change):
        with pytest.raises(ZeroDivisionError):
            verb(lambda: 1 / 0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(table.change, lambda: 7).result(SECONDS) == 7
