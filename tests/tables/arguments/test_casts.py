"""Casts of numbers between dtypes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import dgpuhash as dg
from dgpuhash.tables.arguments.casts import as_float

# The least numbers of float32, and those next to the least with all bits.
LEAST = np.array([0, 1, 5, 0x7FFFFF, 0x800000, 0x800001], np.uint32)
LEAST = np.concatenate([LEAST, LEAST | np.uint32(2**31)]).view(np.float32)
BETWEEN = LEAST.astype(np.float64)[:, None] * [1.0, 1.25, 1.5, 1.75]
OTHERS = [np.inf, -np.inf, np.nan, 1e300, -3.5, 0.1, 2.0**-1074]


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["float32", "float64"])
def test_floats_are_rounded_as_numpy_does(device, source, target):
    with np.errstate(over="ignore"):
        values = np.concatenate([BETWEEN.ravel(), OTHERS]).astype(source)
        expected = values.astype(target)
    made = device.host(as_float(device.array(values), np.dtype(target)), target)
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(np.signbit(made), np.signbit(expected))


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["float32", "float64"])
def test_tables_tell_the_least_floats_apart(device, source, target):
    keys = LEAST[LEAST != 0]
    table = dg.HashMap.from_arrays(
        device.array(keys.astype(target)), device.array(keys.astype(target)), device=device.name
    )
    asked = device.array(keys.astype(source))
    values, found = table.find(asked)
    assert device.host(found, bool).all()
    np.testing.assert_array_equal(device.host(values, target), keys.astype(target))
    assert device.host(dg.isin(asked, device.array(keys.astype(target))), bool).all()
    # Half of the least number is none of float32's.
    halves = device.array(keys.astype(np.float64)[:1] / 2)
    assert not device.host(table.contains(halves), bool).any()
    if source == "float32":
        table.insert(asked, asked)
        assert len(table) == len(keys)


def test_groups_of_the_least_floats(device):
    keys, values = np.repeat(np.arange(len(LEAST)), 2), np.repeat(LEAST, 2)
    hows = ["min", "max", "first", "last", "mean"]
    uniques, groups = dg.group_reduce(device.array(keys), device.array(values), hows)
    np.testing.assert_array_equal(device.host(uniques, keys.dtype), np.arange(len(LEAST)))
    for how in hows:
        np.testing.assert_array_equal(device.host(groups[how], np.float32), LEAST)
