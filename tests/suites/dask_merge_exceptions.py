"""Dask's tests of merges that may fail with ours, each with the reason."""

from __future__ import annotations

__all__ = ["EXCEPTIONS"]

_CLASS = "asks whether an expression is Dask's Merge"
_NAME = "compares names of optimized expressions, which are to be those of Dask's own rewriting"

# By file and test, as "test_multi.py::test_merge"; "[...]" names one parameter set of it. They
# count as failed. All but the last two test the graph that Dask makes, not the rows it has.
EXCEPTIONS: dict[str, str] = {
    "test_merge.py::test_merge_combine_similar_intermediate_projections": _CLASS,
    "test_merge.py::test_merge_avoid_overeager_filter_pushdown": _CLASS,
    "test_merge.py::test_merge_or_two_branches_no_pushdown": _CLASS,
    "test_merge.py::test_merge_filter_pushdown_broadcast": "asks for Dask's BroadcastJoin",
    "test_merge.py::test_merged_partitions_filtered": (
        "asks for the attributes of Dask's BroadcastJoin"
    ),
    "test_merge.py::test_filter_merge": _NAME,
    "test_merge.py::test_merge_or_two_branches": _NAME,
    "test_multi.py::test_merge_how_raises": "asks that cross joins be refused, which are made here",
    "test_merge.py::test_merge_leftsemi": (
        "asks that semi joins by an index be refused, which are made here"
    ),
}
