"""The switch: what it sets and restores, and the report of who answered."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from clusters import lazy
from dask.dataframe.dask_expr import _collection
from distributed import Client

import dgpuhash
from dgpuhash.errors import SpecError, UnsupportedError

PLACES = [
    (dd, "merge"),
    (_collection, "merge"),
    *((dd.DataFrame, name) for name in ("merge", "join", "drop_duplicates", "nunique", "groupby")),
    *((dd.Series, name) for name in ("drop_duplicates", "nunique", "value_counts", "groupby")),
]
ROWS = pd.DataFrame({"k": [1, 2, 2, 3], "x": [1.5, 2.5, 3.5, 4.5]})


def verbs() -> list[Any]:
    """Return what stands in each place."""
    return [vars(owner).get(name) for owner, name in PLACES]


@pytest.fixture
def original() -> list[Any]:
    return verbs()


def test_it_sets_once_and_restores_exactly(original):
    assert not dgpuhash.dask.report().enabled
    dgpuhash.dask.enable()
    stand_ins = verbs()
    changed = [own is not other for own, other in zip(stand_ins, original, strict=True)]
    # `DataFrame.merge` itself stays: it calls `merge`.
    assert changed == [name != "merge" or owner is not dd.DataFrame for owner, name in PLACES]
    assert dd.merge is _collection.merge
    dgpuhash.dask.enable()
    assert all(own is other for own, other in zip(verbs(), stand_ins, strict=True))
    dgpuhash.dask.disable()
    dgpuhash.dask.disable()
    assert all(own is other for own, other in zip(verbs(), original, strict=True))


def test_blocks_lie_in_each_other(original):
    with dgpuhash.dask.enabled(), dgpuhash.dask.enabled(fallback=False):
        assert dgpuhash.dask.report().enabled
        assert verbs() != original
    assert verbs() == original
    dgpuhash.dask.enable()
    with dgpuhash.dask.enabled():
        pass
    assert verbs() != original
    with dgpuhash.dask.enabled():
        dgpuhash.dask.disable()
        assert verbs() == original
        with dgpuhash.dask.enabled():
            assert verbs() != original
    assert verbs() == original


def test_blocks_of_threads_that_end_in_any_order(original):
    within, leave = threading.Barrier(9), threading.Event()

    def block() -> None:
        with dgpuhash.dask.enabled():
            within.wait()
            leave.wait()

    threads = [threading.Thread(target=block) for _ in range(8)]
    for thread in threads:
        thread.start()
    within.wait()
    assert verbs() != original
    leave.set()
    for thread in threads:
        thread.join()
    assert verbs() == original


def test_what_others_set_later_stays(monkeypatch):
    dgpuhash.dask.enable()
    ours = dd.DataFrame.join

    def join(*args: Any, **given: Any) -> Any:
        return ours(*args, **given)

    monkeypatch.setattr(dd.DataFrame, "join", join)
    dgpuhash.dask.disable()
    assert dd.DataFrame.join is join
    # It calls what stood in for Dask's, which is Dask's own now.
    assert len(lazy(ROWS, 2).join(ROWS[["x"]], rsuffix="_r").compute(scheduler="sync")) == 4
    assert dgpuhash.dask.report().answers == ()
    monkeypatch.undo()
    monkeypatch.setattr(dd.DataFrame, "join", ours.__wrapped__)


@pytest.mark.parametrize("kept", ["many", -1, [1]])
def test_bytes_that_are_none(kept):
    with pytest.raises(SpecError, match="kept="):
        dgpuhash.dask.enable(kept=kept)
    assert not dgpuhash.dask.report().enabled


def test_without_a_cluster_dask_answers():
    left = lazy(ROWS, 2)
    with dask.config.set({"scheduler": "sync", "dataframe.shuffle.method": "tasks"}):
        with dgpuhash.dask.enabled():
            assert len(left.merge(lazy(ROWS, 2), on="k").compute()) == 6
            assert left["k"].nunique().compute() == 3
            found = dgpuhash.dask.report()
        with dgpuhash.dask.enabled(fallback=False), pytest.raises(UnsupportedError):
            left.drop_duplicates()
    assert [(each.verb, each.by, each.times) for each in found.answers] == [
        ("merge", "Dask", 1),
        ("nunique", "Dask", 1),
    ]
    assert found.times("merge", "dgpuhash") == 0
    lines = str(found).splitlines()
    assert lines[0].endswith("enabled")
    assert lines[2].startswith("merge    Dask             1  UnsupportedError: Dask computes ")
    assert "<td>Dask</td>" in found._repr_html_()


@pytest.mark.cluster
def test_refusals_and_errors_of_dask(cluster: Client):
    left, right = lazy(ROWS, 2), lazy(ROWS, 3)
    with dgpuhash.dask.enabled():
        with pytest.raises(KeyError, match="nothing"):
            left.merge(right, on="nothing")
        with pytest.raises(ValueError, match="does not support how='some'"):
            left.merge(right, how="some")
        with pytest.raises(NotImplementedError):
            left.merge(right, left_on=left["k"], right_on="k")
        # Errors are no answers.
        assert dgpuhash.dask.report().answers == ()
        assert left.nunique(axis=1).compute().tolist() == [2, 2, 2, 2]
        (told,) = dgpuhash.dask.report().answers
        assert told.by == "Dask" and told.reason.startswith("UnsupportedError: nunique with axis")


def test_the_environment_enables_it_once_dask_is_there():
    program = (
        "import sys, dgpuhash; assert not {'dask', 'dgpuhash.dask'} & set(sys.modules);"
        "import dask.dataframe as dd; assert dgpuhash.dask.report().enabled;"
        "assert 'dgpuhash' in dd.DataFrame.join.__code__.co_filename"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=120, env={"DGPUHASH_DASK": "1"}
    )
