"""pandas' tests of merges that may fail with ours, each with the reason."""

from __future__ import annotations

__all__ = ["EXCEPTIONS"]

# By file and test, as "test_merge.py::TestMerge::test_merge_common"; "[...]" names one parameter
# set of it. They count as failed.
EXCEPTIONS: dict[str, str] = {
    "test_merge.py::TestMergeDtypes::test_merge_ea_with_string[outer-U]": (
        "nullable text beside object: the key of unmatched rows stays nullable text here"
    ),
    "test_merge.py::TestMergeDtypes::test_merge_ea_with_string[right-U]": "the same",
    "test_merge.py::test_merge_multiindex_reset_index_mixed": (
        "a warning about pandas' own indexing of columns, which is not done here"
    ),
    "test_join.py::TestJoin::test_join_mixed_non_unique_index": (
        "labels of numbers and text together are refused by name"
    ),
    "test_multi.py::test_merge_multiindex_with_tuple_valued_level": "tuples are refused by name",
    "test_merge_antijoin.py::test_merge_antijoin_with_mixed_dtypes": (
        "numbers and text in one column are refused by name"
    ),
}
