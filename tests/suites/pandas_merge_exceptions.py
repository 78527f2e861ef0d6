"""pandas' tests of merges that may fail with ours, each with the reason."""

from __future__ import annotations

__all__ = ["EXCEPTIONS"]

# By file and test, as "test_merge.py::TestMerge::test_merge_common"; "[...]" names one parameter
# set of it. They count as failed.
EXCEPTIONS: dict[str, str] = {
    "test_merge.py::test_merge_multiindex_reset_index_mixed": (
        "a warning about pandas' own indexing of columns, which is not done here"
    ),
}
