"""FrameIndex: an index of pandas or cuDF rows on one device, by key columns.

This folder holds key encoding, joins and lookups.
"""

from __future__ import annotations

from dgpuhash.frames.dataframes import frames_named, frames_of, make_frame
from dgpuhash.frames.dataframes.pandas_checks import check_arrow_types
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.index import FrameIndex
from dgpuhash.frames.key_input import Query, keys_frame
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder
from dgpuhash.frames.labels import column_labels, key_names, stored_columns
from dgpuhash.frames.lookup import Lookup, lookup_rows
from dgpuhash.frames.lookup_mixin import LookupMixin
from dgpuhash.frames.matches import Matches, sort_by_query_row
from dgpuhash.frames.merge.accessor import FrameAccessor
from dgpuhash.frames.merge.arguments import check_how, join_columns, needed_columns
from dgpuhash.frames.pages import POSITION_NBYTES, Cursor, Page, RowLimit
from dgpuhash.frames.row_store import (
    NumericDtypes,
    RowStore,
    check_lossless_concat,
    numeric_dtypes,
    promote_dtypes,
)
from dgpuhash.frames.serialization import frame_from_bytes, frame_to_bytes
from dgpuhash.frames.stats import FrameStats

__all__ = [
    "POSITION_NBYTES",
    "Cursor",
    "EncodedKeys",
    "FrameAccessor",
    "FrameIndex",
    "FrameStats",
    "GroupBy",
    "KeyEncoder",
    "Lookup",
    "LookupMixin",
    "Matches",
    "NumericDtypes",
    "Page",
    "Query",
    "RowLimit",
    "RowStore",
    "check_arrow_types",
    "check_how",
    "check_lossless_concat",
    "column_labels",
    "frame_from_bytes",
    "frame_to_bytes",
    "frames_named",
    "frames_of",
    "join_columns",
    "key_names",
    "keys_frame",
    "lookup_rows",
    "make_frame",
    "needed_columns",
    "numeric_dtypes",
    "promote_dtypes",
    "sort_by_query_row",
    "stored_columns",
]
