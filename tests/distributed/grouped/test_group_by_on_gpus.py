"""Groups of cuDF frames on workers: states on GPUs, logs, saves and moves; simulated and real."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from dask._dispatch import get_collection_type
from dask.dataframe.dispatch import concat_dispatch, make_meta_dispatch, meta_nonempty
from distributed import Client
from frames import paper_groups
from frames.test_gpu import on_gpu

from dgpuhash.distributed import DistributedGroupBy
from dgpuhash.frames.dataframes import dispatch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
REAL = pytest.param("cudf", marks=[pytest.mark.gpu, pytest.mark.cudf])
Library = Callable[[pd.DataFrame], Any]

NAMED: dict[str, Any] = {
    "n": ("v", "count"), "total": ("v", "sum"), "off": ("f", "var"), "whole": ("f", "sum"),
}  # fmt: skip


def rows(seed: int, count: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "k": rng.integers(0, 300, count), "v": rng.integers(-50, 50, count),
        "f": rng.integers(-999, 999, count) / 8,
    })  # fmt: skip


def spread(frame: pd.DataFrame, library: Library, parts: int = 3) -> Any:
    """Return a Dask frame of partitions of a library."""
    pieces = [frame.iloc[part::parts] for part in range(parts)]
    return dd.from_map(library, pieces, meta=library(frame.iloc[:0]))


@pytest.fixture(params=["paper", REAL])
def library(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Yield a function that makes frames of a library of those of pandas."""
    dispatch.frames_named.cache_clear()
    if request.param == "paper":
        paper_groups.install(monkeypatch)
        monkeypatch.setitem(sys.modules, "cudf.paper", paper_groups)
        monkeypatch.setitem(sys.modules, "dask_cudf", ModuleType("dask_cudf"))
        get_collection_type.register(paper_groups.DataFrame)(lambda _: dd.DataFrame)
        for each in (concat_dispatch, make_meta_dispatch, meta_nonempty):
            each.register(paper_groups.DataFrame)(each.dispatch(pd.DataFrame))
        yield paper_groups.DataFrame
    else:
        yield on_gpu
    dispatch.frames_named.cache_clear()


@pytest.fixture
def client(library: Library) -> Iterator[Client]:
    with cluster_of(2, processes=False) as client:
        yield client


def check(found: Any, given: list[pd.DataFrame]) -> None:
    whole = pd.concat(given).groupby("k").agg(**NAMED)
    host = found.to_pandas() if hasattr(found, "to_pandas") else found
    host = host.sort_index()
    assert host.index.tolist() == whole.index.tolist()
    for label in ("n", "total", "whole"):
        assert host[label].tolist() == whole[label].tolist()
    np.testing.assert_allclose(host["off"].astype("float64"), whole["off"], rtol=1e-12)


def test_changes_logs_saves_and_moves(client: Client, library: Library, tmp_path: Path) -> None:
    batches = [rows(seed) for seed in range(3)]
    log, save = str(tmp_path / "log"), str(tmp_path / "save")
    state = DistributedGroupBy.build(
        spread(batches[0], library), "k", client=client, durable=log, **NAMED
    )
    assert set(state.stats()["frames"]) == {"cudf"}
    assert state.update(spread(batches[1], library, 4)) == 300
    assert state.update(library(batches[2])) == 300
    check(state.result().compute(), batches)
    assert state.retract(spread(batches[1], library)) == 300
    check(state.result().compute(), [batches[0], batches[2]])
    assert len(state.changed(state.epoch - 1).compute()) == 300
    found = state.lookup(library(pd.DataFrame({"k": [5, 10**6]})))
    assert type(found).__module__.startswith("cudf")
    assert found["n"].to_pandas().isna().tolist() == [False, True]
    assert state.lookup([7])["total"].to_pandas().tolist() == [
        int(pd.concat([batches[0], batches[2]]).query("k == 7")["v"].sum())
    ]
    state.rebuild(whole=True)
    check(state.result().compute(), [batches[0], batches[2]])
    state.rebalance(sorted(client.scheduler_info()["workers"])[:1])
    check(state.result().compute(), [batches[0], batches[2]])
    state.save(save)
    state.update(library(batches[1]))
    check(state.result().compute(), [*batches])
    state.close()
    for url, there in ((save, [batches[0], batches[2]]), (log, batches)):
        loaded = DistributedGroupBy.load(url, client)
        check(loaded.result().compute(), there)
        loaded.update(batches[1].astype({"k": "Int64", "v": "Int64", "f": "Float64"}))
        check(loaded.result().compute(), [*there, batches[1]])
        loaded.close()


def test_merges_of_frames_with_groups(client: Client, library: Library) -> None:
    first = rows(9)
    state = DistributedGroupBy.build(spread(first, library), "k", client=client, **NAMED)
    asked = rows(10, 50)[["k"]]
    found = state.merge(spread(asked, library, 2), how="left").compute().to_pandas()
    wanted = first.groupby("k").agg(**NAMED)["total"]
    assert sorted(found["total"].tolist()) == sorted(wanted.loc[asked["k"]].tolist())
    state.close()
