"""Dask's tests of groupbys that may fail with ours, each with the reason."""

from __future__ import annotations

__all__ = ["EXCEPTIONS"]

_REFUSED = "asks that it be refused as Dask does, and it is made here"
_PARTS = "asks for the partitions or the expression that Dask has by a guess or split_every"
_WORDS = "asks for Dask's words where aggregates of texts are refused"
_UNALIGNED = (
    "asks that keys of other rows be refused, which belong to rows by their labels as in pandas"
)
_DIVISIONS = "asks that apply by the index keeps divisions; rows go to owners of keys here"

# By file and test, as "test_groupby.py::test_split_out"; "[...]" names one parameter set of it.
# They count as failed. All test the graph or the words of Dask, not the rows.
EXCEPTIONS: dict[str, str] = {
    "test_groupby.py::test_apply_divisions": _DIVISIONS,
    "test_groupby.py::test_groupby_column_and_index_apply": _DIVISIONS,
    "test_groupby.py::test_groupby_agg_column_projection": (
        "asks for the operands of Dask's expression"
    ),
    "test_groupby.py::test_groupby_agg_params[10-4-use_dask_default-True-True]": _PARTS,
    "test_groupby.py::test_groupby_agg_params[10-4-use_dask_default-False-True]": _PARTS,
    "test_groupby.py::test_groupby_agg_params[10-False-use_dask_default-True-True]": _PARTS,
    "test_groupby.py::test_groupby_agg_params[10-False-use_dask_default-False-True]": _PARTS,
    "test_groupby.py::test_groupby_nested_dict": "names results as pandas refuses to",
    "test_groupby.py::test_groupby_split_out_num": _PARTS,
    "test_groupby.py::test_groupy_non_aligned_index": _UNALIGNED,
    "test_groupby.py::test_groupby_median": _PARTS,
    "test_groupby.py::test_groupby_reduction_shuffle": _PARTS,
    "test_groupby.py::test_groupby_series": _UNALIGNED,
    "test_groupby.py::test_groupby_split_every": _PARTS,
    "test_groupby.py::test_split_out_automatically": _PARTS,
    "test_groupby.py::test_groupby_nunique": _REFUSED,
    "test_groupby.py::test_groupby_with_pd_grouper": _REFUSED,
    "test_groupby.py::test_series_groupby_not_supported": _REFUSED,
    "test_groupby.py::test_shuffle_aggregate_defaults": _PARTS,
    "test_groupby.py::test_groupby_numeric_only_None_column_name": _WORDS,
    "test_groupby.py::test_groupby_numeric_only_not_implemented": _WORDS,
    "test_groupby.py::test_groupby_reduction_split": _PARTS,
    "test_groupby.py::test_series_groupby_errors": _UNALIGNED,
    "test_groupby.py::test_split_apply_combine_on_series": (
        "asks for the order of rows with one label, which are in partitions of their own here"
    ),
    "test_groupby.py::test_groupby_unaligned_index": _UNALIGNED,
    "test_groupby.py::test_groupby_respect_shuffle_context": "asks for Dask's shuffle by tasks",
}
