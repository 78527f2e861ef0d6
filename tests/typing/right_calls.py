"""Calls that type checkers accept, and the types of their results."""

from __future__ import annotations

from array import array
from datetime import date
from typing import assert_type

import numpy as np
import pandas as pd

import dgpuhash
from dgpuhash.kmer import MinimizerIndex, SketchIndex
from dgpuhash.typing import Device, KeysLike


def on(device: Device) -> None:
    seen = dgpuhash.HashSet("int64", device=device, max_load=0.8)
    seen.insert([1, 2, 3])
    seen.insert(range(3))
    seen.insert(array("q", [4]))
    seen.insert(np.array(["2026-01-01"], "M8[D]"))
    seen.insert([date(2026, 1, 1)])
    seen.insert(pd.array([1, 2], "Int64"))


numbers = np.arange(2)
names = pd.Series([1, 2])
labels = pd.Index([1, 2])
ages = dgpuhash.HashMap.from_arrays(numbers, [0.5, 0.25], keep="first", method="cops", width=8)
assert_type(ages.insert(numbers, numbers), np.ndarray)
assert_type(ages.insert(names, numbers, combine="sum"), pd.Series)
assert_type(ages.contains(labels), pd.Index)
assert_type(ages.erase(numbers), np.ndarray)
assert_type(ages.find(numbers, default=-1.0), tuple[np.ndarray, np.ndarray])
assert_type(dgpuhash.MultiMap("i8", "S2").find(numbers)[1], np.ndarray)
assert_type(dgpuhash.CountMap.from_keys(numbers).find(numbers)[0], np.ndarray)
assert_type(dgpuhash.unique(numbers), np.ndarray)
assert_type(dgpuhash.isin(numbers, [1]), np.ndarray)
dgpuhash.lca([0, 0, 1])
dgpuhash.group_reduce(numbers, {"a": numbers, 2: [b"x", b"y"]}, {"a": ["min", "mean"], 2: "last"})

planes = pd.DataFrame({"tailnum": ["N1"], "seats": [55]})
assert_type(dgpuhash.merge(planes, planes, how="left", on="tailnum"), pd.DataFrame)
index = dgpuhash.FrameIndex.build(planes, on="tailnum")
assert_type(index.lookup(planes), pd.DataFrame)
assert_type(index.contains(pd.Series(["N1"])), pd.Series)
index.lookup(["N1", "N9"])
index.lookup("N1")

taxa = "taxonomy"
sketches = SketchIndex.build("a.fa", taxonomy=taxa, device="cpu", allow_unplaced=3, window=60)
assert_type(sketches, SketchIndex)
assert_type(MinimizerIndex.build("a.fa", taxonomy=taxa, k=35, progress=print), MinimizerIndex)


def of_users(keys: KeysLike) -> int:
    return int(dgpuhash.factorize(keys)[0].max())
