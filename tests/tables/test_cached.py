"""Attributes that are computed once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from dgpuhash.tables.cached import cached

SECONDS = 20


class Met:
    def __init__(self, meeting):
        self.meeting, self.times = meeting, 0

    @cached
    def there(self):
        """Whether another thread computes an attribute at the same time."""
        self.times += 1
        return self.meeting.wait(SECONDS) >= 0


def test_threads_do_not_wait_for_each_other():
    """They would for the lock that Python 3.11 has, as would a child that is forked meanwhile."""
    meeting = threading.Barrier(2)
    both = Met(meeting), Met(meeting)
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(lambda one=one: one.there) for one in both]:
            assert each.result(SECONDS)
    for one in both:
        assert one.there
        assert one.times == 1


def test_what_is_set_is_kept():
    one = Met(None)
    one.there = 5
    assert one.there == 5
    del one.there
    one.meeting = threading.Barrier(1)
    assert one.there
    assert Met.there.__doc__.startswith("Whether")
