"""Task graphs: merges of persisted partitions take one task each."""

from __future__ import annotations

from collections import Counter

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, merged_lazily
from distributed import wait

from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import ColumnError, KeyTypeError

LEFT = pd.DataFrame({"k": np.arange(3000) % 150, "n": np.arange(3000)})
RIGHT = pd.DataFrame({"k": np.arange(100), "v": np.arange(100) * 2})
PARTITIONS = 12


def of_futures(client):
    """Return a Dask DataFrame of futures."""
    step = len(LEFT) // PARTITIONS
    pieces = [LEFT[start : start + step] for start in range(0, len(LEFT), step)]
    return dd.from_delayed(client.scatter(pieces), meta=LEFT[:0], verify_meta=False)


def persisted(client):
    left = client.persist(dd.from_pandas(LEFT, npartitions=PARTITIONS))
    wait(left)
    return left


def runs(client) -> Counter:
    """Return how often the cluster has run each task."""

    def ended(dask_scheduler):
        log = dask_scheduler.transition_log
        return Counter(str(row[0]) for row in log if row[1] == "processing")

    return client.run_on_scheduler(ended)


@pytest.fixture
def index(threads):
    with DistributedIndex.build(RIGHT, on="k", client=threads) as index:
        yield index


@pytest.mark.parametrize("made", [of_futures, persisted])
def test_a_partition_takes_one_task(threads, index, made):
    left = made(threads)
    merged, before = index.merge(left), runs(threads)
    kept = threads.persist(merged)
    wait(kept)
    assert (runs(threads) - before).total() == PARTITIONS
    assert kept.npartitions == PARTITIONS
    assert_same(kept.compute(), LEFT.merge(RIGHT, on="k"))


@pytest.mark.parametrize("made", [of_futures, persisted])
def test_it_is_a_frame_as_others_are(threads, index, made):
    merged = index.merge(made(threads), how="left")
    wanted = merged_lazily(LEFT, RIGHT, "left", on="k")
    assert merged.divisions == (None,) * (PARTITIONS + 1)
    assert list(merged.columns) == list(wanted)
    step = len(LEFT) // PARTITIONS
    assert_same(merged.partitions[2:4].compute(), wanted[2 * step : 4 * step])
    assert_same(merged.partitions[2:4].partitions[1].compute(), wanted[3 * step : 4 * step])
    assert_same(merged[["v"]].compute(), wanted[["v"]])
    lengths = merged.map_partitions(len)
    assert list(lengths.optimize(fuse=True).compute()) == [step] * PARTITIONS
    both = dd.concat([merged, merged.partitions[0]]).compute()
    assert_same(both, pd.concat([wanted, wanted[:step]]))
    assert_same(
        index.merge(merged, suffixes=("", "_")).compute(),
        wanted.merge(RIGHT, on="k", suffixes=("", "_")),
    )


def test_equal_merges_are_computed_once(threads, index):
    left = persisted(threads)
    one, other = index.merge(left), index.merge(left)
    assert one.__dask_keys__() == other.__dask_keys__()
    different = [
        index.merge(left, how="left"),
        index.merge(left.partitions[1:]),
        index.merge(of_futures(threads)),
    ]
    names = {frame.__dask_keys__()[0][0] for frame in (one, *different)}
    assert len(names) == 4


def without_its_keys(partition):
    return partition[["n"]]


def as_a_series(partition):
    return partition["k"]


@pytest.mark.parametrize(
    ("other", "error", "hint"),
    [
        (without_its_keys, ColumnError, r"no column \['k'\].*\['n'\]"),
        (as_a_series, KeyTypeError, r"not a Series.*to_frame\(\)"),
    ],
)
def test_a_partition_that_is_no_frame_with_the_keys_says_so(threads, index, other, error, hint):
    pieces = threads.scatter([LEFT, other(LEFT)])
    left = dd.from_delayed(pieces, meta=LEFT[:0], verify_meta=False)
    lazy = dd.from_map(lambda number: other(LEFT), range(3), meta=LEFT[:0])
    for at_once in (False, True):
        for frame in (left, lazy):
            with pytest.raises(error, match=hint):
                index.merge(frame, persist=at_once).compute()


def test_a_partition_that_failed_says_so(threads, index):
    def broken() -> pd.DataFrame:
        raise ValueError("broken")

    left = dd.from_delayed([threads.submit(broken, pure=False)], meta=LEFT[:0], verify_meta=False)
    with pytest.raises(ValueError, match="broken"):
        index.merge(left).compute()
