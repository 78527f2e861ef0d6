"""Single-device index of DataFrame rows (pandas or cuDF), found by key.

This folder holds key encoding, joins and lookups.
"""

from __future__ import annotations

from dgpuhash.frames.dataframes import frames_named, frames_of, make_frame
from dgpuhash.frames.dataframes.pandas_checks import check_arrow_types
from dgpuhash.frames.index import FrameIndex
from dgpuhash.frames.key_input import Query, keys_frame
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder
from dgpuhash.frames.labels import column_labels, kept_columns, key_names
from dgpuhash.frames.lookup import Lookup, lookup_rows
from dgpuhash.frames.lookup_mixin import Searchable
from dgpuhash.frames.matches import Matches, in_query_order
from dgpuhash.frames.merge_result import (
    assemble,
    assemble_plain,
    check_how,
    join_columns,
    merge_meta,
    moved_columns,
)
from dgpuhash.frames.pages import POSITION_NBYTES, Page, Rest
from dgpuhash.frames.row_store import (
    Numbers,
    RowStore,
    numbers_of,
    numbers_together,
    refuse_mixture,
)
from dgpuhash.frames.serialization import frame_from_bytes, frame_to_bytes
from dgpuhash.frames.stats import FrameStats

__all__ = [
    "POSITION_NBYTES",
    "EncodedKeys",
    "FrameIndex",
    "FrameStats",
    "KeyEncoder",
    "Lookup",
    "Matches",
    "Numbers",
    "Page",
    "Query",
    "Rest",
    "RowStore",
    "Searchable",
    "assemble",
    "assemble_plain",
    "check_arrow_types",
    "check_how",
    "column_labels",
    "frame_from_bytes",
    "frame_to_bytes",
    "frames_named",
    "frames_of",
    "in_query_order",
    "join_columns",
    "kept_columns",
    "key_names",
    "keys_frame",
    "lookup_rows",
    "make_frame",
    "merge_meta",
    "moved_columns",
    "numbers_of",
    "numbers_together",
    "refuse_mixture",
]
