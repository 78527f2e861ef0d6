"""How many files and functions of the package a warm verb passes through.

A reader who follows a verb to its kernel takes this trip. Comprehensions are no functions here, as
newer Pythons inline them. `code_lines` counts what else there is to read.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from code_lines import code_lines, lines_by_room

import dgpuhash
from dgpuhash import FrameIndex, HashMap
from dgpuhash.distributed import DistributedIndex, DistributedMap
from dgpuhash.distributed.groupby import steps

PACKAGE = str(Path(dgpuhash.__file__).parent) + os.sep
# Only large processes wait for memory.
WATCH = str(Path("distributed", "shards", "worker_memory.py"))
INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
ROWS = 1000
# Files and functions of each verb, with room for what waits on a busy machine.
MOST = {
    "HashMap.insert": (16, 34),
    "insert": (49, 322),
    "find": (51, 292),
    "build": (85, 445),
    "lookup": (56, 245),
    "merge": (58, 240),
    "merge_persisted": (58, 258),
    "frames merge": (24, 104),
    "frames semi": (29, 88),
    "frames standing": (32, 92),
    "frames groupby": (17, 70),
    "frames three aggregates": (29, 126),
    "lazy merge": (60, 295),
    "lazy merge of shards": (110, 655),
    "lazy groupby": (69, 300),
    "lazy groupby of owners": (84, 475),
    "persisted groupby": (71, 305),
    "transform": (92, 520),
}
# Calls of functions, also of libraries', that each verb makes of frames of 1,000 rows.
MOST_CALLS = {
    "merge": 748,
    "semi": 258,
    "standing": 782,
    "lookup": 984,
    "groupby": 315,
    "three aggregates": 675,
}
COUNTED_WITH = "3.1"


class Trip:
    """Recorder of the functions that all threads enter, between calls of `of`.

    Threads are followed that begin while it is installed.
    """

    def __init__(self) -> None:
        self._seen: set[CodeType] | None = None
        self._installed = True

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if not self._installed:
            sys.setprofile(None)
        elif event == "call" and self._seen is not None:
            self._seen.add(frame.f_code)

    @classmethod
    @contextmanager
    def installed(cls) -> Iterator[Trip]:
        trip, before, before_threads = cls(), sys.getprofile(), threading.getprofile()
        threading.setprofile(trip._note)
        sys.setprofile(trip._note)
        try:
            yield trip
        finally:
            sys.setprofile(before)
            threading.setprofile(before_threads)
            trip._installed = False

    def of(self, verb: Callable[[], object]) -> set[tuple[str, str, int]]:
        """Return the functions of the package that each warm call enters."""
        found = []
        # Of several calls, as the package's watchdogs run beside some.
        for _ in range(6):
            self._seen = set()
            try:
                verb()
            finally:
                seen, self._seen = self._seen, None
            found.append(
                {
                    (code.co_filename[len(PACKAGE) :], code.co_qualname, code.co_firstlineno)
                    for code in tuple(seen)
                    if code.co_filename.startswith(PACKAGE)
                    and not code.co_filename.endswith(WATCH)
                    and code.co_name not in {*INLINED, "memory_limit", "memory_share"}
                }
            )
        return set.intersection(*found[1:])


@pytest.fixture(scope="module")
def trips() -> Iterator[dict[str, set[tuple[str, str, int]]]]:
    rows = np.arange(ROWS)
    frame = pd.DataFrame({"k": rows, "v": rows.astype(float)})
    # Not one after the other: tables of such are arrays.
    scattered = frame.assign(k=rows * 2**40)
    other = scattered[::-1].rename(columns={"v": "w"})
    standing = FrameIndex.build(other, "k")
    with Trip.installed() as trip:
        here = HashMap(np.int64, np.int64, capacity=4 * ROWS)
        found = {"HashMap.insert": trip.of(lambda: here.insert(rows, rows))}
        found["frames merge"] = trip.of(lambda: dgpuhash.merge(scattered, other, on="k"))
        found["frames semi"] = trip.of(lambda: dgpuhash.merge(scattered, other, "semi", on="k"))
        found["frames standing"] = trip.of(lambda: standing.merge(scattered, "k"))
        groups = dgpuhash.groupby(scattered, "k")["v"]
        found["frames groupby"] = trip.of(groups.sum)
        found["frames three aggregates"] = trip.of(lambda: groups.agg(["sum", "mean", "nunique"]))
        with cluster_of(2, processes=False) as client:
            keys = da.from_array(rows, chunks=ROWS // 2).persist()
            lazy = dd.from_pandas(frame, npartitions=2)
            persisted = lazy.persist()
            built = []

            def build() -> None:
                built.append(DistributedIndex.build(persisted, on="k", client=client))

            with DistributedMap(np.int64, np.int64, capacity=4 * ROWS, client=client) as table:
                found["insert"] = trip.of(lambda: table.insert(keys, keys))
                found["find"] = trip.of(lambda: table.find(keys)[0].compute())
            found["build"] = trip.of(build)
            index = built[0]
            found["lookup"] = trip.of(lambda: index.lookup(rows))
            found["merge"] = trip.of(lambda: index.merge(lazy, on="k").compute())
            found["merge_persisted"] = trip.of(
                lambda: index.merge(persisted, on="k", persist=True).compute()
            )
            found |= lazy_trips(trip, scattered)
            for each in built:
                each.close()
        yield found


def lazy_trips(trip: Trip, frame: pd.DataFrame) -> dict[str, set[tuple[str, str, int]]]:
    """Return the trips of verbs of Dask frames; other rows each time, as answers are kept."""
    numbers = count()

    def lazy(name: str) -> dd.DataFrame:
        rows = frame.rename(columns={"v": name}).assign(**{name: float(next(numbers))})
        return dd.from_pandas(rows, npartitions=2)

    def merge() -> None:
        dgpuhash.merge(lazy("v"), lazy("w"), on="k").compute()

    def groupby() -> None:
        dgpuhash.groupby(lazy("v"), "k")["v"].sum().compute()

    found = {"lazy merge": trip.of(merge), "lazy groupby": trip.of(groupby)}
    found["persisted groupby"] = trip.of(
        lambda: dgpuhash.groupby(lazy("v").persist(), "k")["v"].sum().compute()
    )
    found["transform"] = trip.of(
        lambda: dgpuhash.groupby(lazy("v"), "k")["v"].transform("sum").compute()
    )
    with dask.config.set({"dgpuhash.placement.replicate": 1}):
        found["lazy merge of shards"] = trip.of(merge)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(steps._FEW_STATES, "cpu", 0)
        found["lazy groupby of owners"] = trip.of(groupby)
    return found


@pytest.mark.parametrize("verb", MOST)
def test_trip_is_short(trips, verb):
    trip = trips[verb]
    files = {file for file, _, _ in trip}
    # It was followed to the kernels, on whichever thread these run.
    assert str(Path("backend", "launches.py")) in files
    most_files, most_functions = MOST[verb]
    assert len(files) <= most_files and len(trip) <= most_functions, (
        f"{len(files)} files and {len(trip)} functions: {sorted(trip)}"
    )


@pytest.mark.skipif(
    not pd.__version__.startswith(COUNTED_WITH),
    reason=f"calls were counted with pandas {COUNTED_WITH}",
)
@pytest.mark.parametrize("verb", MOST_CALLS)
def test_verbs_of_frames_make_few_calls(verb):
    rows = np.arange(ROWS)
    left = pd.DataFrame({"k": rows, "v": rows.astype(float)})
    right = pd.DataFrame({"k": rows[::-1], "w": rows})
    standing, groups = FrameIndex.build(right, "k"), dgpuhash.groupby(left, "k")["v"]
    verbs: dict[str, Callable[[], object]] = {
        "merge": lambda: dgpuhash.merge(left, right, on="k"),
        "semi": lambda: dgpuhash.merge(left, right, "semi", on="k"),
        "standing": lambda: standing.merge(left, "k"),
        "lookup": lambda: standing.lookup(left["k"]),
        "groupby": groups.sum,
        "three aggregates": lambda: groups.agg(["sum", "mean", "nunique"]),
    }
    calls = min(calls_of(verbs[verb]) for _ in range(4))
    assert calls <= MOST_CALLS[verb]


def calls_of(verb: Callable[[], object]) -> int:
    """Return how many calls of Python functions a verb makes."""
    calls, before = [0], sys.getprofile()

    def note(_: FrameType, event: str, __: Any) -> None:
        calls[0] += event == "call"

    sys.setprofile(note)
    try:
        verb()
    finally:
        sys.setprofile(before)
    return calls[0]


def test_code_lines_are_without_texts_comments_and_blanks(tmp_path):
    code = 'x = (1,\n     2)  # both\n\ndef f():\n    "Does."\n    return x\n'
    source = f'"""Says."""\n\n# why\n{code}'
    assert code_lines(source) == 4
    (tmp_path / "room").mkdir()
    for place in ("room/one.py", "room/two.py", "alone.py"):
        (tmp_path / place).write_text(source)
    assert lines_by_room(tmp_path) == {"room": 8, "alone": 4}
