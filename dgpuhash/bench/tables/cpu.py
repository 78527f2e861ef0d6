"""Benchmark of the CPU on sizes that pandas and its peers are used for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.distribution import Sample, draw
from dgpuhash.bench.figure import duration, require
from dgpuhash.bench.floors import Floors
from dgpuhash.bench.keys import keys_of
from dgpuhash.bench.peers import OURS, Task, measured_libraries
from dgpuhash.bench.peers.pandas import Pandas
from dgpuhash.bench.tables.group import Expected, sum_and_count
from dgpuhash.bench.tables.join import JoinInput
from dgpuhash.bench.timing import REPEATS, median_time
from dgpuhash.errors import DeviceError
from dgpuhash.tables import HashMap, join_indices

__all__ = ["run"]

_ROWS = 4_000_000
_KEY = np.dtype(np.int64)


def run(
    backend: Backend, *, n: int = _ROWS, compare: bool = False, repeats: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield rows for a map's build, its probe, a join, and sums by key.

    The map has `n` int64 keys; 2n keys are probed, joined and summed. ``build`` makes a `HashMap`
    of row numbers, ``probe`` looks up twice as many keys in it, all of them stored; ``join`` does
    both as one inner join; ``group sum`` sums the values of the 2n rows by key and counts the rows.

    Parameters
    ----------
    backend : Backend
        The CPU.
    n : int
        Distinct keys.
    compare : bool
        Measure the installed peers on the same data, too: pandas' Index (``get_indexer``) for build
        and probe, all of them for join and group sum.
    repeats : int, optional
        Runs whose median counts.

    Raises
    ------
    DeviceError
        When the backend is another device.
    DgpuhashError
        When an answer on the timed data, ours or a peer's, is wrong: see
        `dgpuhash.bench.tables.join` and `dgpuhash.bench.tables.group` for the pairs and the sums;
        a probe must give the row of its key.

    Notes
    -----
    Floors: an insert into a slot for each key that is built, a gather of a slot for each probe and
    for each row of the sums.
    """
    if backend.name != "cpu":
        raise DeviceError("the benchmark 'cpu' measures the CPU; leave out --device, or use 'cpu'")
    repeats = repeats or REPEATS[backend.name]
    floors = Floors(backend, repeats)
    right = Sample(backend, np.arange(1, n + 1), n, every=True)
    sides = JoinInput(backend, 2 * n, right, 1.0)
    batch = draw(backend, 2 * n, n)
    keys = keys_of(batch.numbers, _KEY)
    expected = Expected(backend, batch, keys)
    slots = 2 * _KEY.itemsize * n * 5 // 4
    build = n / floors.insert(64, n, slots)
    probe = 2 * n / floors.lookup(64, 2 * n, slots)
    least = {"build": build, "probe": probe, "join": build + probe, "group sum": probe}
    for peer in measured_libraries(backend, compare):
        library = OURS if peer is None else peer.name
        if peer is None:
            tasks = _ours(sides, keys, expected)
        else:
            tasks = peer.index(sides.right, sides.left) if isinstance(peer, Pandas) else {}
            tasks["join"] = peer.joins(sides.left, sides.right)["inner"]
            tasks["group sum"] = peer.groups(keys, expected.values)["sum + count"]
        for verb, task in tasks.items():
            where: dict[str, Any] = {"n": n, "library": library, "verb": verb}
            seconds, made = median_time(backend, task.work, repeats=repeats)
            found = task.read(made)
            if verb == "group sum":
                expected.check(verb, found, where)
            elif verb == "join":
                sides.check(verb, found, where)
            elif verb == "probe":
                sides.check("inner", (np.arange(2 * n), found[0]), where)
            del made, found
            yield duration(seconds, least[verb], **where)


def _ours(sides: JoinInput, keys: Any, expected: Expected) -> dict[str, Task]:
    rows = np.arange(len(sides.right))
    table = HashMap.from_arrays(sides.right, rows)

    def built(made: HashMap) -> tuple[Any]:
        require(len(made) == len(rows), "the table's size was wrong", n=len(rows), verb="build")
        return (made,)

    return {
        "build": Task(partial(HashMap.from_arrays, sides.right, rows), built),
        "probe": Task(partial(table.find, sides.left), lambda made: (made[0],)),
        "join": Task(partial(join_indices, sides.left, sides.right), lambda made: made),
        "group sum": sum_and_count(keys, expected.values),
    }
