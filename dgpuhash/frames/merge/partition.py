"""Merges of one partition with rows that are stored elsewhere, as every partition gives them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes import Frames, frames_of
from dgpuhash.frames.keys.categories import as_values, is_unknown, with_texts
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.matches import with_unmatched
from dgpuhash.frames.merge.agreement import matched_keys, with_all_categories
from dgpuhash.frames.merge.arguments import FILTERS, JoinArguments
from dgpuhash.frames.merge.distinct import occurs
from dgpuhash.frames.merge.index import index_of, null_labels
from dgpuhash.frames.merge.keys import JoinKeys, as_series
from dgpuhash.frames.merge.result import MergePlan
from dgpuhash.frames.merge.rows import RowPairs, complete

__all__ = ["PartitionPlan"]

_BLANK = "blank"


@dataclass(frozen=True, repr=False)
class PartitionPlan:
    """How partitions of one side are merged with stored rows of the other.

    Rows of the stored side are kept as a frame of keys, columns and labels, which `stored` makes.

    Attributes
    ----------
    arguments : JoinArguments
    probing : {"left", "right"}
        The side whose partitions ask; rows of the other one are stored.
    left, right : DataFrame
        A few rows of each side's dtypes; values do not matter.
    """

    arguments: JoinArguments
    probing: str
    left: pd.DataFrame
    right: pd.DataFrame

    @classmethod
    def of(
        cls, left: pd.DataFrame, right: pd.DataFrame, arguments: JoinArguments, probing: str = ""
    ) -> PartitionPlan:
        """Return the plan for sides like these samples, which have two rows or more.

        Raises
        ------
        MergeError, ColumnError, KeyTypeError, ShapeError, SpecError
            As `dgpuhash.merge`, for what the columns tell.
        """
        if arguments.columns is not None:
            right = arguments.narrowed(right)
        plan = cls(arguments, probing or ("right" if arguments.joined == "right" else "left"),
                   left, right)  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            _ = plan.meta
        return plan

    def __repr__(self) -> str:
        names = [pair.name for pair in self.keys.pairs]
        stored = "right" if self.probing == "left" else "left"
        return (
            f"<{self.arguments.how} merge by {names!r}: partitions of the {self.probing} side ask, "
            f"of the {stored} side {list(self.storing.columns)!r} are stored>"
        )

    @property
    def _frames(self) -> Frames:
        return frames_of(self.left)

    @property
    def is_filter(self) -> bool:
        """Whether the results are rows of the left side."""
        return self.arguments.how in FILTERS

    @property
    def keeps_labels(self) -> bool:
        """Whether the rows of a partition keep their labels, and no others come beside them."""
        if self.is_filter or self.has_tail:
            return self.is_filter
        keys = self.keys
        by_index = keys.right_index if self.probing == "left" else keys.left_index
        # Levels that are keys of both sides stay the index.
        return by_index or any(pair.of_levels for pair in keys.pairs)

    @property
    def query_how(self) -> str:
        """What the stored side is asked for: rows, or which keys it has or lacks."""
        if not self.is_filter:
            return "inner"
        return "anti" if self.arguments.how == "anti" else "semi"

    @property
    def has_tail(self) -> bool:
        """Whether stored rows without a match are wanted, too."""
        joined = self.arguments.joined
        storing = "right" if self.probing == "left" else "left"
        return not self.is_filter and joined in ("outer", storing)

    @property
    def keeps_unmatched(self) -> bool:
        """Whether rows of the probing side are kept where nothing matches."""
        return self.arguments.joined in ("outer", self.probing)

    @functools.cached_property
    def keys(self) -> JoinKeys:
        """The keys of the samples."""
        return self.arguments.keys(self.left, self.right)

    @functools.cached_property
    def plan(self) -> MergePlan:
        """The plan of a merge of the samples, with what casts and labels every partition gets."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            how = self.arguments.joined
            if self.is_filter:
                return MergePlan.of(self.left, self.right, self.keys, how, suffixes=("", "_y"))
            return MergePlan.of(
                self.left, self.right, self.keys, how, suffixes=self.arguments.suffixes,
                indicator=self.arguments.indicator, promotes=False,
            )  # fmt: skip

    @functools.cached_property
    def meta(self) -> Any:
        """An empty frame like every partition of the result.

        Columns of a side that may lack a row have the dtype that they get then.
        """
        plan = self.plan
        if self.arguments.how == "isin":
            return self._frames.series(self._frames.xp.zeros(0, bool), self.left.index[:0])
        if self.is_filter:
            return self.left.iloc[:0]
        xp = self._frames.xp
        none, both = xp.array([0, -1]), xp.arange(2)
        pairs = {
            "inner": RowPairs(both, both),
            "left": RowPairs(both, none),
            "right": RowPairs(none, both),
            "outer": RowPairs(xp.array([0, 1, -1]), xp.array([0, -1, 1])),
        }[plan.how]
        return plan.frame(pairs, plan.index(pairs)).iloc[:0]

    @property
    def storing(self) -> pd.DataFrame:
        """The sample of the side that is stored."""
        return self.right if self.probing == "left" else self.left

    @functools.cached_property
    def _labels_wanted(self) -> bool:
        """Whether the result tells labels of rows of the stored side."""
        keys = self.keys
        levels = any(
            label is not None and label not in frame.columns
            for pair in keys.pairs
            for label, frame in ((pair.left_label, self.left), (pair.right_label, self.right))
        )
        return not self.is_filter and (keys.left_index or keys.right_index or levels)

    @functools.cached_property
    def key_labels(self) -> list[Hashable]:
        """Labels of the stored frame's key columns."""
        return [f"k{place}" for place in range(self._key_frame(self.storing, stored=True).shape[1])]

    @functools.cached_property
    def stored_meta(self) -> pd.DataFrame:
        """An empty frame like the stored ones."""
        return self.stored(self.storing).iloc[:0]

    @property
    def stored_description(self) -> tuple[Any, ...]:
        """What decides about `stored`: plans with an equal one can ask the same rows."""
        meta, keys = self.stored_meta, self.keys
        sources = [
            (pair.right_label if self.probing == "left" else pair.left_label) for pair in keys.pairs
        ]
        dtypes = [(label, str(dtype), repr(dtype)) for label, dtype in meta.dtypes.items()]
        places = [] if self.is_filter else self._kept_places
        kept = [self.storing.columns[place] for place in places]
        index = keys.right_index if self.probing == "left" else keys.left_index
        named = [pair.name for pair in keys.pairs] if index else []
        how = self.arguments.how == "cross", self.arguments.nulls_equal, index
        return repr(dtypes), repr(sources), repr(kept), repr(named), *how, self._labels_wanted

    def encoder(self) -> KeyEncoder:
        """Return a new encoder of the stored keys."""
        return KeyEncoder.for_frame(self.stored(self.storing), self.key_labels)

    def stored(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a partition of the stored side as they are kept."""
        frame = self._told(frame, self.storing)
        made = self._key_frame(frame, stored=True)
        made.columns = pd.Index([f"k{place}" for place in range(made.shape[1])])
        for label, column in self._payload(frame).items():
            made[label] = column
        return made

    def _payload(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the columns that are kept beside the keys."""
        columns: dict[str, Any] = {}
        if self.is_filter:
            return columns
        for place in self._kept_places:
            if place not in self._same_as_key:
                columns[f"c{place}"] = as_series(frame.iloc[:, place])
        if self._labels_wanted:
            for level in range(frame.index.nlevels):
                columns[f"i{level}"] = as_series(frame.index.get_level_values(level))
        return columns

    @functools.cached_property
    def _kept_places(self) -> list[int]:
        """Positions of the stored side's columns that results may need."""
        sample = self.storing
        dropped = self.keys.dropped if self.probing == "left" else []
        if self.has_tail:
            dropped = []
        return [place for place, label in enumerate(sample.columns) if label not in dropped]

    @functools.cached_property
    def _same_as_key(self) -> dict[int, str]:
        """Key columns that are columns of the stored side as they are, by their positions."""
        side = 1 if self.probing == "left" else 0
        found, place = {}, 0
        for pair, columns in zip(self.keys.pairs, self.keys.columns, strict=True):
            label = (pair.left_label, pair.right_label)[side]
            own = (pair.left, pair.right)[side]
            if len(columns) == 1 and columns[0][side].dtype == own.dtype and label is not None:
                places = np.flatnonzero([each == label for each in self.storing.columns])
                if len(places) == 1:
                    found[int(places[0])] = f"k{place}"
            place += len(columns)
        return found

    def _stored_label(self, place: int) -> Hashable:
        """Return the label under which a column of the stored side is kept."""
        return self._same_as_key.get(place, f"c{place}")

    @functools.cached_property
    def fetched(self) -> list[Hashable]:
        """Labels of the stored columns that a probe asks for."""
        if self.is_filter:
            return []
        dropped = set(self.keys.dropped) if self.probing == "left" else set()
        wanted = [
            self._stored_label(place)
            for place in self._kept_places
            if self.storing.columns[place] not in dropped
        ]
        if self._labels_wanted:
            wanted += [f"i{level}" for level in range(self.storing.index.nlevels)]
        there = set(wanted)
        return [label for label in self.stored_meta.columns if label in there]

    def _as_side(self, found: pd.DataFrame, *, whole: bool) -> pd.DataFrame:
        """Return stored rows as a frame of their side; all of its columns if `whole`."""
        dropped = set(self.keys.dropped) if self.probing == "left" and not whole else set()
        columns: dict[Hashable, Any] = {}
        labels: list[int] = []
        for place in self._kept_places:
            if self.storing.columns[place] not in dropped:
                column = as_series(found[self._stored_label(place)])
                unknown = is_unknown(self.storing.dtypes.iloc[place])
                columns[len(labels)] = as_values(column) if unknown else column
                labels.append(place)
        made = found.iloc[:, :0]
        if columns and self._frames.name == "cudf":
            made = self._frames.make(columns)
        elif columns:
            made = pd.DataFrame(columns, index=pd.RangeIndex(len(found)), copy=False)
        made.columns = self.storing.columns[labels]
        if self._labels_wanted:
            levels = [found[f"i{level}"] for level in range(self.storing.index.nlevels)]
            if is_unknown(self.storing.index.dtype):
                levels = [as_values(levels[0])]
            made.index = index_of(levels, list(self.storing.index.names))
        return made

    @functools.cached_property
    def _unknown_pairs(self) -> list[bool]:
        """Of each key whether its categories are unknown on both sides."""
        return [
            is_unknown(key.left.dtype) and is_unknown(key.right.dtype) for key in self.keys.pairs
        ]

    def _told(self, frame: pd.DataFrame, sample: pd.DataFrame) -> pd.DataFrame:
        """Return a partition with texts for categories that Dask does not know.

        Keys of which only one side's are unknown stay, to be compared with values of the other.
        """
        if frame is sample:
            return frame
        labels = [{key.left_label, key.right_label} for key in self.keys.pairs]
        both = zip(labels, self._unknown_pairs, strict=True)
        compared = {label for some, unknown in both if unknown for label in some}
        return with_texts(frame, sample.dtypes, compared, set().union(*labels) - compared)

    @property
    def probing_meta(self) -> pd.DataFrame:
        """An empty frame like the partitions that ask."""
        return (self.left if self.probing == "left" else self.right).iloc[:0]

    def asked(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of a partition of the probing side, called as the stored ones."""
        sample = self.left if self.probing == "left" else self.right
        made = self._key_frame(self._told(frame, sample), stored=False)
        made.columns = pd.Index(self.key_labels)
        return made

    def _key_frame(self, frame: pd.DataFrame, *, stored: bool) -> pd.DataFrame:
        """Return the columns that are compared, of a partition of one side."""
        left = (self.probing == "left") != stored
        samples = (frame, self.right) if left else (self.left, frame)
        keys = self.keys if frame is (self.left if left else self.right) else None
        keys = keys or self.arguments.keys(*samples)
        made = keys.frames[0 if left else 1].copy(deep=False)
        if self.arguments.how == "cross":
            blank: dict[Hashable, Any] = {0: self._frames.xp.zeros(len(frame), np.int8)}
            return self._frames.make(blank)
        if not self.arguments.nulls_equal:
            # Another number on each side: rows with nulls meet no others.
            made[_BLANK] = ~complete(made) * np.int8(1 if stored else 2)
        return made

    def result(self, frame: pd.DataFrame, query_rows: Any, found: Any) -> Any:
        """Return the merge of a partition with the stored rows that it found.

        Parameters
        ----------
        frame : DataFrame
            The partition.
        query_rows : int64 array
            For each row of `found` the row of the partition that matches it, ascending; for
            filters the rows to keep.
        found : DataFrame or None
            Stored rows, with the columns `fetched`.
        """
        xp = self._frames.xp
        if self.arguments.how == "isin":
            there = xp.zeros(len(frame), bool)
            there[query_rows] = True
            return self._frames.series(there, frame.index)
        if self.is_filter:
            return frame.take(query_rows)
        other: Any = xp.arange(len(query_rows), dtype=np.int64)
        own: Any = query_rows
        if self.keeps_unmatched:
            own, other = with_unmatched(len(frame), query_rows, other, xp)
        elif len(own) == len(frame) and bool((own == xp.arange(len(own))).all()):
            own = None
        return self._made(frame, self._as_side(found, whole=False), own, other, query_rows)

    def tail(self, found: pd.DataFrame) -> pd.DataFrame:
        """Return the stored rows that nothing matches, with all stored columns."""
        sample = (self.left if self.probing == "left" else self.right).iloc[:0]
        nobody = self._frames.xp.full(len(found), -1, dtype=np.int64)
        return self._made(sample, self._as_side(found, whole=True), nobody, None, None)

    def merged(
        self, left: pd.DataFrame, right: pd.DataFrame, check: Callable[[int], None] | None = None
    ) -> Any:
        """Return the merge of two partitions that have all rows with their keys.

        Outer merges are sorted by their keys, as those of frames. `check` is told the number of
        rows before they are made.
        """
        arguments, keys = self.arguments, self.arguments.keys(left, right)
        if self.is_filter:
            there = occurs(*keys.frames, nulls_equal=arguments.nulls_equal)
            kept = ~there if arguments.how == "anti" else there
            return self.result(left, self._frames.xp.flatnonzero(kept), None)
        pairs = arguments.pairs(keys, left, right, check)
        return self.put_together(left, right, keys, pairs)

    def _made(
        self, frame: pd.DataFrame, stored: pd.DataFrame, own: Any, other: Any, query_rows: Any
    ) -> pd.DataFrame:
        """Return the result of a partition and stored rows."""
        left_probes = self.probing == "left"
        left, right = (frame, stored) if left_probes else (stored, frame)
        pairs = RowPairs(own, other) if left_probes else RowPairs(other, own)
        if query_rows is None:
            keys = self.arguments.keys(left, right)
        else:
            samples = (frame, self.right) if left_probes else (self.left, frame)
            keys = self.arguments.keys(*samples)
            keys = matched_keys(keys, self.probing, query_rows, fetched=self._labels_wanted)
        return self.put_together(left, right, keys, pairs)

    def put_together(
        self, left: pd.DataFrame, right: pd.DataFrame, keys: JoinKeys, pairs: RowPairs
    ) -> pd.DataFrame:
        """Return the given rows of both sides as the result has them."""
        plan, how = self.plan, self.arguments.how
        if any(self._unknown_pairs):
            left, right, keys = with_all_categories(left, right, keys, self._unknown_pairs)
        made = plan.over(left, right, keys)
        index = made.index(pairs)
        if self._frames.name == "pandas" and keys.left_index != keys.right_index:
            labelled, rows = (left, pairs.left) if keys.right_index else (right, pairs.right)
            if not len(labelled) and rows is not None:
                # pandas takes the labels of the other side then, which partitions must not.
                index = null_labels(self.meta.index, len(rows))
        if how.endswith("_anti"):
            other, size = ("right", len(right)) if plan.how == "left" else ("left", len(left))
            absent = pairs.rows(other, size) < 0
            index, pairs = index[absent], pairs.kept(absent, len(left), len(right))
        return plan.conformed(made.frame(pairs, index), self.meta)
