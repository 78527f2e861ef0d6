"""Tasks' cached pickles: written once, and loaded once by each worker."""

from __future__ import annotations

import pickle

import dask.dataframe as dd
import pandas as pd

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.serialization import Cache, CachedPickle, schema_key
from dgpuhash.distributed.query.merge_tasks import Probe


class Thing:
    """Object that counts its pickles and unpickles."""

    pickled = made = 0

    def __reduce__(self):
        Thing.pickled += 1
        return make, ()


def make() -> Thing:
    Thing.made += 1
    return Thing()


def test_a_thing_is_pickled_and_opened_once():
    sealed = CachedPickle.of(Thing())
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


def test_empty_frames_that_are_alike_are_made_once(threads):
    frame = pd.DataFrame({"k": range(8), "v": range(8)})
    wider = frame.astype({"v": "float64"})
    with (
        DistributedIndex.build(frame, on="k", client=threads) as one,
        DistributedIndex.build(frame + 1, on="k", client=threads) as other,
        DistributedIndex.build(wider, on="k", client=threads) as third,
    ):
        found = [pickle.loads(pickle.dumps(each._current())) for each in (one, other, third)]
    assert found[0].meta is found[1].meta is not found[2].meta
    assert [list(each.meta.dtypes) for each in found] == [
        list(each.dtypes) for each in (frame, frame, wider)
    ]


def test_frames_with_rows_or_categories_are_pickled_as_they_are(threads):
    frame = pd.DataFrame({"k": range(8), "v": pd.Categorical(list("abababab"))})
    assert schema_key(frame.iloc[:0]) is None
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        descriptor = pickle.loads(pickle.dumps(index._current()))
    assert list(descriptor.meta["v"].cat.categories) == ["a", "b"]


def test_equal_labels_of_other_types_are_other_schemas():
    found = {schema_key(pd.DataFrame({label: [1]}).iloc[:0]) for label in (1, 1.0, True)}
    assert len(found) == 3 and None not in found
    alike = pd.DataFrame({1: [2]}).iloc[:0]
    assert schema_key(alike) == schema_key(pd.DataFrame({1: [3]}).iloc[:0])


def test_a_merge_is_planned_once_for_indexes_that_are_alike(threads, monkeypatch):
    planned = []
    plan = Probe.of.__func__
    monkeypatch.setattr(
        Probe,
        "of",
        classmethod(lambda cls, *args, **how: planned.append(args) or plan(cls, *args, **how)),
    )
    left = dd.from_pandas(pd.DataFrame({"k": [3, 5], "first planned here": [1, 2]}), npartitions=1)
    for stored in (10, 20, 2.5):
        frame = pd.DataFrame({"k": range(8), "v": [stored] * 8})
        with DistributedIndex.build(frame, on="k", client=threads) as index:
            merged = index.merge(left).compute()
            assert merged["v"].tolist() == [stored] * 2
            assert index.merge(left).dtypes["v"] == frame["v"].dtype
    assert len(planned) == 2


def test_the_oldest_entries_of_a_cache_are_evicted():
    made: list[int | None] = []
    cache = Cache[int, int](most=3)

    def entry(name: int | None) -> int:
        return cache.get(name, lambda: made.append(name) or len(made))

    assert [entry(name) for name in (1, 2, 3, 1, 4, 2, 1)] == [1, 2, 3, 1, 4, 2, 5]
    # What has no name is made each time.
    assert [entry(None), entry(None)] == [6, 7]
    assert made == [1, 2, 3, 4, 1, None, None]


def test_entries_of_objects_are_not_those_of_their_successors():
    cache, made = Cache[int, int](most=200), []

    def entry(thing: object) -> int:
        return cache.get_of(thing, lambda each: made.append(type(each)) or len(made))

    first = Cache[int, int](most=1)
    assert [entry(first), entry(first)] == [1, 1]
    # Each has the id of the one before, which is gone.
    assert [entry(Cache[int, int](most=1)) for _ in range(100)] == list(range(2, 102))
