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
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from code_lines import code_lines, lines_by_room

import dgpuhash
from dgpuhash import HashMap
from dgpuhash.distributed import DistributedIndex, DistributedMap

PACKAGE = str(Path(dgpuhash.__file__).parent) + os.sep
INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
ROWS = 1000
# Files and functions of each verb, with room for what waits on a busy machine.
MOST = {
    "HashMap.insert": (16, 34),
    "insert": (64, 320),
    "find": (62, 295),
    "build": (86, 445),
    "lookup": (63, 262),
    "merge": (60, 242),
    "merge_persisted": (58, 256),
}


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
                    if code.co_filename.startswith(PACKAGE) and code.co_name not in INLINED
                }
            )
        return set.intersection(*found[1:])


@pytest.fixture(scope="module")
def trips() -> Iterator[dict[str, set[tuple[str, str, int]]]]:
    rows = np.arange(ROWS)
    frame = pd.DataFrame({"k": rows, "v": rows.astype(float)})
    with Trip.installed() as trip:
        here = HashMap(np.int64, np.int64, capacity=4 * ROWS)
        found = {"HashMap.insert": trip.of(lambda: here.insert(rows, rows))}
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
            for each in built:
                each.close()
        yield found


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


def test_code_lines_are_without_texts_comments_and_blanks(tmp_path):
    code = 'x = (1,\n     2)  # both\n\ndef f():\n    "Does."\n    return x\n'
    source = f'"""Says."""\n\n# why\n{code}'
    assert code_lines(source) == 4
    (tmp_path / "room").mkdir()
    for place in ("room/one.py", "room/two.py", "alone.py"):
        (tmp_path / place).write_text(source)
    assert lines_by_room(tmp_path) == {"room": 8, "alone": 4}
