"""Benchmark joins of two columns, by the size of the build side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, require
from dgpuhash.bench.keys import Distribution, KeyDraw, keys_of, uniform_floats
from dgpuhash.bench.limits import Floors
from dgpuhash.bench.memory import rows_that_fit
from dgpuhash.bench.options import HitRates, Spread
from dgpuhash.bench.peers import Task, measured_libraries
from dgpuhash.bench.timing import REPEATS, median_time
from dgpuhash.errors import SpecError
from dgpuhash.frames import FrameIndex
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.merge.verb import merge
from dgpuhash.tables import HashMap

BUILDS = {"cuda": (2**20, 2**24, 2**27), "cpu": (2**12, 2**16, 2**20)}
_ROWS = {"cuda": 2**27, "cpu": 2**21}
_KEY = np.dtype(np.int64)
_LOAD = 0.8


def run(
    backend: Backend,
    *,
    n: Sequence[int] | None = None,
    builds: Sequence[int] | None = None,
    distribution: Spread = "unique",
    hit_rates: HitRates = (1.0,),
    compare: bool = False,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each join, build size, hit rate and library.

    Keys are int64. ``inner``, ``left`` and ``semi`` are joins to pairs of row numbers; ``standing``
    is the inner join by an existing `HashMap` of row numbers (where keys are unique). ``merge``
    joins frames of a key and a row number, on a GPU where cuDF is installed: ours by
    `dgpuhash.merge`, and as ``standing merge`` by an existing `FrameIndex`.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    n : sequence of int, optional
        Rows of the left side, the probe side.
    builds : sequence of int, optional
        Rows of the right side, the build side.
    distribution : str
        Distribution of keys on the right side.
    hit_rates : sequence of float
        Shares of left rows that have a partner.
    compare : bool
        Measure the installed peers on the same data, too.
    repeats : int, optional
        Runs whose median counts.

    Raises
    ------
    SpecError
        When an option is impossible, or there is no peer.
    DgpuhashError
        When an answer on the timed data, ours or a peer's, is wrong. The number of pairs must be
        the one that follows from the numbers that keys are made of; all pairs must differ, and each
        must join two rows of one number.

    Notes
    -----
    The floor is an insert into a slot for each right row and a gather of a slot for each left row;
    pairs beyond one for each left row are not in it.
    """
    repeats = repeats or REPEATS[backend.name]
    spread = Distribution.of(distribution)
    floors = Floors(backend, repeats)
    for hit_rate in hit_rates:
        if not 0 <= hit_rate <= 1:
            raise SpecError(f"a hit rate of {hit_rate}; use shares from 0 to 1")
    sizes = n or (rows_that_fit(backend, _ROWS[backend.name], 2 * _KEY.itemsize),)
    for library in measured_libraries(backend, compare):
        for rows, build in itertools.product(sizes, builds or BUILDS[backend.name]):
            right = spread.sample(backend, build)
            nbytes = int(2 * _KEY.itemsize * right.distinct() / _LOAD)
            probing = rows / floors.lookup(64, rows, nbytes)
            floor = probing + build / floors.insert(64, build, nbytes)
            for hit_rate in hit_rates:
                what: dict[str, Any] = {"n": rows, "build": build, "distribution": str(spread)}
                what |= {"hit_rate": hit_rate, "library": library.name}
                sides = JoinInput(backend, rows, right, hit_rate)
                tasks = library.joins(sides.left, sides.right)
                tasks |= sides.standing_merges() if library.ours else {}
                for verb, task in tasks.items():
                    where = {**what, "verb": verb}
                    seconds, made = median_time(backend, task.work, repeats=repeats)
                    sides.check(verb, task.read(made), where)
                    del made
                    standing = verb.startswith("standing")
                    yield duration(seconds, probing if standing else floor, **where)


class JoinInput:
    """Two columns of keys, and the expected pairs of their join.

    Attributes
    ----------
    left, right : array of int64
        Keys.
    """

    def __init__(self, backend: Backend, n: int, right: KeyDraw, hit_rate: float) -> None:
        self._backend, self._sample = backend, right
        # Partners are drawn from the right rows; a number above `right.most` has none.
        rows = (uniform_floats(backend, n, 3) * len(right)).astype(np.int64)
        self._numbers = right.numbers[rows]
        if hit_rate < 1:
            alone = uniform_floats(backend, n, 4) >= hit_rate
            self._numbers = backend.xp.where(alone, self._numbers + right.most, self._numbers)
        self.left: Any = keys_of(self._numbers, _KEY)
        self.right: Any = keys_of(right.numbers, _KEY)

    def standing_merges(self) -> dict[str, Task]:
        """Return the joins with a table or index that exists, and merges of cuDF frames."""
        made = {}
        if self._sample.distinct() == len(self._sample):
            table = HashMap.from_arrays(
                self.right, self._backend.xp.arange(len(self.right)), max_load=_LOAD
            )
            made["standing"] = Task(partial(table.match, self.left), lambda rows: rows)
        if self._backend.name == "cuda" and find_spec("cudf"):
            made |= self._of_frames()
        return made

    def _of_frames(self) -> dict[str, Task]:
        """Return the tasks of merges of cuDF frames."""
        frames = frames_named("cudf")
        lefts, rights = (
            frames.make({"key": keys, name: self._backend.xp.arange(len(keys))})
            for name, keys in (("left", self.left), ("right", self.right))
        )
        index = FrameIndex.build(rights, "key")

        def rows(merged: Any) -> tuple[Any, Any]:
            return merged["left"].values, merged["right"].values

        return {
            "merge": Task(partial(merge, lefts, rights, on="key"), rows),
            "standing merge": Task(partial(index.merge, lefts), rows),
        }

    def check(self, verb: str, found: tuple[Any, ...], where: dict[str, Any]) -> None:
        """Raise if pairs of rows are not those of the join."""
        left, right = found
        xp = self._backend.xp
        counts = xp.concatenate([self._sample.counts(), self._backend.zeros(1, np.int64)])
        partners = counts[xp.minimum(self._numbers, self._sample.most + 1)]
        if verb == "semi":
            pairs = int((partners > 0).sum())
            require(len(left) == pairs, "the number of rows was wrong", **where)
            require((partners[left] > 0).all(), "a row without a partner was kept", **where)
            seen = self._backend.zeros(len(partners), bool)
            seen[left] = True
            require(int(seen.sum()) == pairs, "a row came twice", **where)
            if right is None:
                return
        else:
            pairs = int((xp.maximum(partners, 1) if verb == "left" else partners).sum())
            require(len(left) == len(right) == pairs, "the number of pairs was wrong", **where)
        matched = right >= 0
        alone = ~matched
        if verb != "left":
            require(not alone.any(), "a row without a partner was kept", **where)
        require((partners[left[alone]] == 0).all(), "a partner was lost", **where)
        left, right = left[matched], right[matched]
        require(
            (self._numbers[left] == self._sample.numbers[right]).all(), "a pair was wrong", **where
        )
        if verb != "semi":
            codes = left.astype(np.int64) * len(self.right) + right
            codes.sort()
            require((codes[1:] != codes[:-1]).all(), "a pair came twice", **where)
