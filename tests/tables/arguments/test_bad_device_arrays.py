"""Bad arrays on a GPU: error type, remedy, and an unchanged table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from verbs import KINDS, stored_keys, stores, table_of, verbs_with_keys

from dgpuhash import backend, errors
from dgpuhash.tables import HashMap, MultiMap

pytestmark = pytest.mark.gpu

GOOD = np.arange(3)

BAD_KEYS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda xp: xp.array([1j, 2, 3]), errors.KeyTypeError, "astype"),
    (lambda xp: xp.ones((3, 1), "int64"), errors.ShapeError, "ravel"),
    (lambda xp: xp.ones((), "int64"), errors.ShapeError, "ravel"),
    (lambda _: GOOD, errors.DeviceError, r"cupy\.asarray"),
    (lambda _: np.ma.masked_equal(GOOD, 1), errors.DgpuhashError, "asarray|compressed"),
    (lambda _: ["a", "b", "c"], errors.KeyTypeError, "astype|FrameIndex"),
    (lambda _: 7, errors.ShapeError, "a list"),
    (lambda _: None, errors.ShapeError, "a list"),
]


@pytest.fixture
def xp() -> Any:
    """Return the array library of the GPU."""
    return backend.get("cuda").xp


@pytest.mark.parametrize("case", range(len(BAD_KEYS)))
@pytest.mark.parametrize("kind", KINDS)
def test_bad_keys_change_nothing(xp: Any, kind: str, case: int) -> None:
    make, error, remedy = BAD_KEYS[case]
    good = xp.asarray(GOOD)
    table = table_of(kind, good)
    for verb in verbs_with_keys(table, good):
        with pytest.raises(error, match=remedy):
            verb(make(xp))
    assert stored_keys(table) == GOOD.tolist()


@pytest.mark.parametrize(
    ("make", "there"),
    [
        (lambda xp: xp.array([1.0, 2.5, 3]), [True, False, False]),
        (lambda xp: xp.array([1, 2, 3], "float16"), [True, True, False]),
        (lambda xp: xp.array([1, 2, 2**64 - 1], "uint64"), [True, True, False]),
        (lambda xp: xp.array([], "float64"), []),
        (lambda _: [1.5, 2, 3], [False, True, False]),
        (lambda _: [2**70, 1, 2], [False, True, True]),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_may_be_asked_for_are_not_stored(
    xp: Any, kind: str, make: Callable[[Any], Any], there: list[bool]
) -> None:
    good = xp.asarray(GOOD)
    table = table_of(kind, good)
    if there:
        for verb in stores(table, good):
            with pytest.raises(errors.KeyTypeError, match="astype"):
                verb(make(xp))
    assert table.contains(make(xp)).tolist() == there
    assert table.count(make(xp)).tolist() == [int(one) for one in there]
    assert stored_keys(table) == GOOD.tolist()
    table.erase(make(xp))
    assert len(table) == len(GOOD) - sum(there)


@pytest.mark.parametrize(
    ("make", "error", "remedy"),
    [
        (lambda xp: xp.arange(2, dtype="int32"), errors.ShapeError, "one value for each key"),
        (lambda xp: xp.ones((3, 3), "int32"), errors.ShapeError, "ravel"),
        (lambda xp: xp.ones(3), errors.KeyTypeError, "astype"),
        (lambda _: np.ones(3, "int32"), errors.DeviceError, "mixed"),
        (lambda _: [2**40, 0, 0], errors.KeyTypeError, "astype"),
        (lambda _: 5, errors.ShapeError, "a list"),
    ],
)
def test_bad_values_change_nothing(
    xp: Any, make: Callable[[Any], Any], error: type[Exception], remedy: str
) -> None:
    keys, good = xp.array([2, 3, 4]), xp.asarray(GOOD)
    table = HashMap.from_arrays(good, good.astype("int32"))
    lists = MultiMap.from_arrays(good, good.astype("int32"))
    for verb in (table.insert, table.upsert, lists.insert):
        with pytest.raises(error, match=remedy):
            verb(keys, make(xp))
    assert (len(table), len(lists)) == (3, 3)


def test_a_cpu_table_refuses_device_arrays(xp: Any) -> None:
    table = HashMap.from_arrays(GOOD, GOOD)
    for verb in (table.contains, table.find, table.erase):
        with pytest.raises(errors.DeviceError, match="device"):
            verb(xp.asarray(GOOD))
    with pytest.raises(errors.DeviceError, match="mixed"):
        table.insert(GOOD, xp.asarray(GOOD))
    assert len(table) == 3


def test_views_of_any_stride_and_empty_arrays_are_taken(xp: Any) -> None:
    wide = xp.arange(20)
    table = HashMap.from_arrays(wide[::-2], wide[1::2])
    values, found = table.find(wide[1::2][::-1])
    assert found.all()
    assert values.tolist() == wide[1::2].tolist()
    for verb in (table.contains, table.erase, table.count):
        assert len(verb(wide[:0])) == 0
    assert len(table) == 10
