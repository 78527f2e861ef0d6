"""Calls that type checkers refuse; the comment names mypy's code for each."""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import Client

import dgpuhash
from dgpuhash.distributed import DistributedIndex, DistributedMap, DistributedSet
from dgpuhash.kmer import MinimizerIndex

client: Client
keys = np.arange(3)
frame = pd.DataFrame({"k": keys})
ages = dgpuhash.HashMap("int64", "float32")

# Text and single values are no keys.
ages.insert("a", 3)  # call-overload
ages.upsert(5, 3)  # arg-type
ages.contains(["a", "b"])  # list-item
dgpuhash.HashSet.from_keys(7)  # arg-type
dgpuhash.unique(None)  # call-overload
# Names that are not there: of devices, and what to keep, combine and reduce by.
dgpuhash.HashSet("int64", device="gpu")  # arg-type
ages.insert(keys, keys, keep="newest")  # call-overload
ages.insert(keys, keys, combine="mean")  # call-overload
dgpuhash.group_reduce(keys, keys, "median")  # arg-type
# Settings that no class and no method has, or of another type.
dgpuhash.HashSet("int64", loud=0.5)  # call-arg
dgpuhash.HashMap.from_arrays(keys, keys, capasity=5)  # call-arg
dgpuhash.MultiMap.from_arrays(keys, keys, cap="two")  # arg-type
# Joins by another name, and of what is no frame.
dgpuhash.join_indices(keys, keys, how="right")  # arg-type
dgpuhash.merge(frame, frame, how="asof")  # call-overload
dgpuhash.merge(frame, keys)  # call-overload
dgpuhash.merge(frame, frame, validate="1:n")  # call-overload
frame_index = dgpuhash.FrameIndex.build({"k": [1]}, on="k")  # arg-type
frame_index.merge(frame, how="cross")  # arg-type
# Answers of one kind in place of another.
dgpuhash.unique(keys).to_list()  # attr-defined
count: int = dgpuhash.value_counts(keys)  # assignment
# On a cluster: modes, rules, transports.
DistributedIndex.build(frame, on="k", mode="sharded")  # arg-type
DistributedMap("i8", "i8", mode="independent", conflict="mean")  # arg-type
DistributedSet("i8", exchange="tcp")  # arg-type
# K-mers: options of calls, and letters as text.
MinimizerIndex.load("x").classify("reads.fq", confidence="high")  # arg-type
MinimizerIndex.load("x").call("ACGT", [0, 4])  # arg-type
