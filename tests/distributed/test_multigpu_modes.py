"""Independent and replicated indexes on several GPUs, cuDF over UCXX."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same_rows, device_frame, gpu_cluster, joined
from distributed import Client, futures_of, wait

from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import ColumnError, DeviceError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.multigpu,
    pytest.mark.cluster,
    pytest.mark.timeout(180),
    pytest.mark.skipif(importlib.util.find_spec("cudf") is None, reason="cuDF is not installed"),
]

MODES = ["independent", "replicated"]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with gpu_cluster(2) as client:
        yield client


@pytest.fixture
def left() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame({"k": rng.integers(0, 3000, 40_000), "x": rng.random(40_000)})


@pytest.fixture
def right() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return pd.DataFrame({"k": rng.integers(1000, 4000, 9000), "y": np.arange(9000)})


@pytest.mark.parametrize("mode", MODES)
def test_merges_inserts_erases_and_saves(client, left, right, mode, tmp_path):
    source = device_frame(right, 5)
    with DistributedIndex.build(source, on="k", client=client, mode=mode) as index:
        assert set(index.stats()["frames"]) == {"cudf"}
        for how in ("inner", "left", "semi", "anti"):
            result = index.merge(device_frame(left, 6), how=how).compute()
            assert type(result).__module__.startswith("cudf")
            wanted = joined(left, right, ["k"], how)
            if how == "inner":
                # Rows of a key come in the order of partitions, wherever they lie.
                pd.testing.assert_frame_equal(result.to_pandas().reset_index(drop=True), wanted)
            assert_same_rows(result, wanted)
        assert index.insert(device_frame(right[:100], 3)) == 100
        assert index.erase([1500]) == int((pd.concat([right, right[:100]])["k"] == 1500).sum())
        now = pd.concat([right, right[:100]]).query("k != 1500")
        assert len(index) == len(now)
        index.save(tmp_path / "saved")
    with DistributedIndex.load(tmp_path / "saved", client, device="cuda") as loaded:
        result = loaded.merge(device_frame(left, 2)).compute()
        assert_same_rows(result, left.merge(now, on="k"))


@pytest.mark.parametrize("mode", ["distributed", "replicated"])
def test_a_persisted_merge_is_there_when_it_returns(client, left, mode):
    rows = pd.DataFrame({"k": np.random.default_rng(3).permutation(3000), "y": np.arange(3000)})
    lefts = client.persist(device_frame(left, 4))
    wait(lefts)
    with DistributedIndex.build(device_frame(rows, 3), "k", client=client, mode=mode) as index:
        merged = index.merge(lefts, persist=True)
        assert {future.status for future in futures_of(merged)} == {"finished"}
        assert_same_rows(merged.compute(), left.merge(rows, on="k"))
        # Of rows that all have one partner the result has the columns themselves.
        del merged
        assert_same_rows(index.merge(lefts, persist=True).compute(), left.merge(rows, on="k"))
    assert_same_rows(lefts.compute(), left)


@pytest.mark.parametrize("rule", ["first", "last", "min", "max", "sum"])
def test_conflicts_are_settled_by_the_declared_rule(client, right, rule):
    rng = np.random.default_rng(4)
    rows = right.assign(x=np.where(rng.random(9000) < 0.4, np.nan, rng.integers(0, 9, 9000)))
    rows.loc[rows["k"] == 2000, "x"] = np.nan
    if rule in {"first", "last"}:
        wanted = rows.drop_duplicates("k", keep=rule)
    else:
        options = {"min_count": 1} if rule == "sum" else {}
        wanted = getattr(rows.groupby("k", as_index=False), rule)(**options)
    options = {"on": "k", "client": client, "mode": "independent", "conflict": rule}
    with DistributedIndex.build(device_frame(rows, 5), **options) as index:
        result = index.merge(device_frame(pd.DataFrame({"k": np.arange(5000)}), 3)).compute()
    assert_same_rows(result, pd.DataFrame({"k": np.arange(5000)}).merge(wanted, on="k"))


@pytest.mark.parametrize("mode", MODES)
def test_unique_keys(client, mode):
    rows = pd.DataFrame({"k": np.arange(3000), "v": np.arange(3000)})
    options = {"on": "k", "client": client, "mode": mode, "unique": True}
    with pytest.raises(ColumnError, match="unique"):
        DistributedIndex.build(device_frame(pd.concat([rows, rows[17:18]]), 4), **options)
    with DistributedIndex.build(device_frame(rows, 4), **options) as index:
        with pytest.raises(ColumnError, match=r"'k': 7\b"):
            index.insert(device_frame(pd.DataFrame({"k": [9000, 7], "v": [1, 2]}), 1))
        assert index.insert(device_frame(pd.DataFrame({"k": [9000], "v": [1]}), 1)) == 1
        assert index.contains([7, 9000, 9001]).tolist() == [True, True, False]


@pytest.mark.parametrize("mode", ["distributed", *MODES])
@pytest.mark.parametrize("dtype", ["int64", "float64", "str", "category"])
def test_keys_on_the_host_are_refused(client, mode, dtype):
    rows = pd.DataFrame({"k": pd.Series([1, 2, 3]).astype(dtype), "v": [1, 2, 3]})
    keys = [rows[["k"]], rows["k"]]
    if dtype != "category":
        keys.append(rows["k"].to_numpy())
    with DistributedIndex.build(device_frame(rows, 2), on="k", client=client, mode=mode) as index:
        for verb in (index.lookup, index.contains, index.find):
            for each in keys:
                with pytest.raises(DeviceError, match="an index of cudf rows; pass"):
                    verb(each)


@pytest.mark.parametrize("mode", ["distributed", *MODES])
def test_keys_with_nulls_are_asked_of_all_shards_at_once(client, mode):
    rows = pd.DataFrame({"k": [0.0, 1.5, None, 2.5] * 50, "v": np.arange(200)})
    left = pd.DataFrame({"k": [2.5, None, 7.0] * 80, "x": np.arange(240)})
    with DistributedIndex.build(device_frame(rows, 4), on="k", client=client, mode=mode) as index:
        for _ in range(5):
            result = index.merge(device_frame(left, 40), how="left").compute()
            assert_same_rows(result, left.merge(rows, on="k", how="left"))
