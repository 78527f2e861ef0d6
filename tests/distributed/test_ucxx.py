"""The same index over UCXX, which works without a GPU too; deselected where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, cluster_of
from distributed import Client

pytest.importorskip("distributed_ucxx", reason="distributed-ucxx is not installed (extra 'ucx')")

from dgpuhash.distributed import DistributedIndex

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster_of(2, processes=True, protocol="ucxx") as client:
        yield client


@pytest.mark.parametrize("how", ["inner", "left"])
def test_merge_insert_and_lookup(client, how):
    right = pd.DataFrame({"k": np.arange(5000) % 1300, "v": np.arange(5000)})
    left = pd.DataFrame({"k": np.arange(4000) % 1500, "x": np.arange(4000) / 4})
    with DistributedIndex.build(
        dd.from_pandas(right, npartitions=3), on="k", client=client
    ) as index:
        assert all(worker.startswith("ucxx://") for worker in index.workers)
        probes = dd.from_pandas(left, npartitions=4, sort=False)
        assert_same(index.merge(probes, how=how).compute(), left.merge(right, on="k", how=how))
        index.insert(pd.DataFrame({"k": [1400], "v": [-1]}))
        assert index.lookup([1400])["v"].tolist() == [-1]
