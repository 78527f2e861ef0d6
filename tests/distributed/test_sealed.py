"""What tasks carry is pickled once, and looked into once by each worker."""

from __future__ import annotations

import pickle

import dask.dataframe as dd
import pandas as pd

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.sealed import Sealed


class Thing:
    """Counts how often it is pickled and made of a pickle."""

    pickled = made = 0

    def __reduce__(self):
        Thing.pickled += 1
        return make, ()


def make() -> Thing:
    Thing.made += 1
    return Thing()


def test_a_thing_is_pickled_and_opened_once():
    sealed = Sealed.of(Thing())
    found = {id(pickle.loads(pickle.dumps(sealed)).opened()) for _ in range(3)}
    assert len(found) == 1
    assert (Thing.pickled, Thing.made) == (1, 1)


def test_equal_merges_have_equal_keys(threads):
    frame = pd.DataFrame({"k": range(8), "v": range(8)})
    left = dd.from_pandas(frame[["k"]], npartitions=4)
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        one, other = index.merge(left), index.merge(left)
        assert one.compute().reset_index(drop=True).equals(frame)
        assert one.__dask_keys__() == other.__dask_keys__()
        assert one.__dask_keys__() != index.merge(left, how="left").__dask_keys__()
