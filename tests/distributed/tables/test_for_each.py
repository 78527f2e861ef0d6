"""Functions that shards call with their entries."""

from __future__ import annotations

from itertools import chain

import dask.array as da
import numpy as np
import pytest

from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.errors import KeyTypeError, UnsupportedError

pytestmark = pytest.mark.cluster
KEYS = np.arange(0, 3000, 3)


def listed(keys, values, *rows):
    columns = [each for each in (keys, values, *rows) if each is not None]
    return list(zip(*(each.tolist() for each in columns), strict=True))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("mode", ["distributed", "independent"])
def test_each_key_is_called_where_it_is_stored(client, lazy, mode):
    asked = np.arange(2999, -1, -1)
    given = da.from_array(asked, chunks=(900, 0, 2100)) if lazy else asked
    with DistributedMap("i8", "M8[s]", mode=mode, client=client, piece_rows=700) as table:
        table.upsert(KEYS, KEYS.astype("M8[s]"))
        epoch = table.epoch
        results = table.for_each(given, lambda *its: (len(its[0]), listed(*its)))
        entries = sorted(entry for _, its in results for entry in its)
        values = KEYS.astype("M8[s]").tolist()
        assert entries == list(zip(KEYS.tolist(), values, (2999 - KEYS).tolist(), strict=True))
        assert len(results) >= 2 and table.epoch == epoch
        everything = sorted(chain.from_iterable(table.for_all(listed)))
        assert everything == list(zip(KEYS.tolist(), values, strict=True))


def test_sets_and_multimaps(client):
    with DistributedSet("u4", client=client) as table:
        assert table.for_all(listed) == []
        table.insert(KEYS.astype("u4"))
        found = table.for_each(np.array([7, 9], "u4"), listed)
        assert [each for each in found if each] == [[(9, 1)]]
        assert sum(len(each) for each in table.for_all(listed)) == len(KEYS)
    with DistributedMultiMap("i8", "i8", client=client) as table:
        table.insert([1, 2, 1], [10, 20, 30])
        found = sorted(chain.from_iterable(table.for_each([2, 1], listed)))
        assert found == [(1, 10, 1), (1, 30, 1), (2, 20, 0)]


def test_functions_that_fail_and_text(client):
    def fail(keys, values, *rows):
        raise ZeroDivisionError("of a function")

    with DistributedMap.from_arrays(KEYS, KEYS, client=client) as table:
        for call in (lambda: table.for_each(KEYS, fail), lambda: table.for_all(fail)):
            with pytest.raises(ZeroDivisionError, match="of a function"):
                call()
        with pytest.raises(UnsupportedError, match="call a Python function, not str; give one"):
            table.for_each(KEYS, "[](auto key, auto value, auto row) {}")
        with pytest.raises(KeyTypeError):
            table.for_each(np.array([0.5]), listed)
        assert table.contains(KEYS).all()
