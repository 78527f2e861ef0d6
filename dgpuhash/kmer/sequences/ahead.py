"""Prefetch: compute the next items of an iterator on other threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


@contextmanager
def threads_of_a_generator(n: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool for a generator; wait for its threads unless it is abandoned.

    That may be the collector of garbage, in the midst of the start of another thread: if it waited
    for one, both would wait for ever.

    Examples
    --------
    >>> with threads_of_a_generator(2, "dgpuhash-example") as pool:
    ...     list(pool.map(str.lower, "AC"))
    ['a', 'c']
    """
    pool = ThreadPoolExecutor(n, name)
    waits = True
    try:
        yield pool
    except GeneratorExit:
        waits = False
        raise
    finally:
        pool.shutdown(wait=waits, cancel_futures=not waits)


def ahead(items: Iterator[Item], name: str = "dgpuhash-read") -> Iterator[Item]:
    """Yield items of an iterator that runs one item ahead on another thread.

    Parameters
    ----------
    items : iterator
    name : str
        Of the thread.

    Examples
    --------
    >>> list(ahead(iter("ACGT")))
    ['A', 'C', 'G', 'T']
    """
    end = object()
    with threads_of_a_generator(1, name) as thread:
        following = thread.submit(next, items, end)
        while (item := following.result()) is not end:
            following = thread.submit(next, items, end)
            yield item  # type: ignore[misc]
