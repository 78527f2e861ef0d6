"""Merges of one partition with rows that are stored elsewhere, as every partition gives them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.matches import with_unmatched
from dgpuhash.frames.merge.agreement import agree
from dgpuhash.frames.merge.arguments import FILTERS, JoinArguments
from dgpuhash.frames.merge.index import index_of
from dgpuhash.frames.merge.keys import JoinKeys, KeyPair, as_series
from dgpuhash.frames.merge.result import MergePlan, without
from dgpuhash.frames.merge.rows import RowPairs

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
    def is_filter(self) -> bool:
        """Whether the results are rows of the left side."""
        return self.arguments.how in FILTERS

    @property
    def keeps_labels(self) -> bool:
        """Whether the rows of a partition keep their labels, and no others come beside them."""
        if self.is_filter:
            return True
        keys = self.keys
        by_index = keys.right_index if self.probing == "left" else keys.left_index
        return by_index and not self.has_tail

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
                indicator=self.arguments.indicator,
            )  # fmt: skip

    @functools.cached_property
    def meta(self) -> Any:
        """An empty frame like every partition of the result.

        Columns of a side that may lack a row have the dtype that they get then.
        """
        plan = self.plan
        if self.arguments.how == "isin":
            return pd.Series([], self.left.index[:0], dtype=bool)
        if self.is_filter:
            return self.left.iloc[:0]
        none, both = np.array([0, -1]), np.arange(2)
        pairs = {
            "inner": RowPairs(both, both),
            "left": RowPairs(both, none),
            "right": RowPairs(none, both),
            "outer": RowPairs(np.array([0, 1, -1]), np.array([0, -1, 1])),
        }[plan.how]
        return plan.frame(pairs, plan.index(pairs)).iloc[:0]

    # The stored side.

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
        kept = [self.storing.columns[place] for place in self._kept_places]
        if self.is_filter:
            kept = []
        index = keys.right_index if self.probing == "left" else keys.left_index
        named = [pair.name for pair in keys.pairs] if index else []
        how = self.arguments.how == "cross", self.arguments.nulls_equal, index
        return repr(dtypes), repr(sources), repr(kept), repr(named), *how, self._labels_wanted

    def encoder(self) -> KeyEncoder:
        """Return a new encoder of the stored keys."""
        return KeyEncoder.for_frame(self.stored(self.storing), self.key_labels)

    def stored(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a partition of the stored side as they are kept."""
        made = self._key_frame(frame, stored=True)
        made.columns = pd.Index([f"k{place}" for place in range(made.shape[1])])
        kept = {} if self.is_filter else self._payload(frame)
        for label, column in kept.items():
            made[label] = column
        return made

    def _payload(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the columns that are kept beside the keys."""
        columns = {}
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
        columns: dict[int, Any] = {}
        labels: list[int] = []
        for place in self._kept_places:
            if self.storing.columns[place] not in dropped:
                columns[len(labels)] = as_series(found[self._stored_label(place)])
                labels.append(place)
        made = pd.DataFrame(columns, index=pd.RangeIndex(len(found)), copy=False)
        made.columns = self.storing.columns[labels]
        if self._labels_wanted:
            levels = [found[f"i{level}"] for level in range(self.storing.index.nlevels)]
            made.index = index_of(levels, list(self.storing.index.names))
        return made

    # The probing side.

    @property
    def probing_meta(self) -> pd.DataFrame:
        """An empty frame like the partitions that ask."""
        return (self.left if self.probing == "left" else self.right).iloc[:0]

    def asked(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of a partition of the probing side, called as the stored ones."""
        made = self._key_frame(frame, stored=False)
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
            return pd.DataFrame({0: np.zeros(len(frame), np.int8)})
        if not self.arguments.nulls_equal:
            # Another number on each side: rows with nulls meet no others.
            nulls = made.isna().any(axis=1).to_numpy()
            made[_BLANK] = nulls * np.int8(1 if stored else 2)
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
        if self.arguments.how == "isin":
            there = np.zeros(len(frame), bool)
            there[query_rows] = True
            return pd.Series(there, frame.index)
        if self.is_filter:
            return frame.iloc[query_rows]
        other: Any = np.arange(len(query_rows), dtype=np.int64)
        own: Any = query_rows
        if self.keeps_unmatched:
            own, other = with_unmatched(len(frame), query_rows, other, np)
        elif len(own) == len(frame) and bool((own == np.arange(len(own))).all()):
            own = None
        stored = self._as_side(found, whole=False)
        return self._made(frame, stored, own, other, query_rows)

    def tail(self, found: pd.DataFrame) -> pd.DataFrame:
        """Return the stored rows that nothing matches, with all stored columns."""
        sample = (self.left if self.probing == "left" else self.right).iloc[:0]
        nobody = np.full(len(found), -1, dtype=np.int64)
        stored = self._as_side(found, whole=True)
        return self._made(sample, stored, nobody, None, None)

    def _made(
        self, frame: pd.DataFrame, stored: pd.DataFrame, own: Any, other: Any, query_rows: Any
    ) -> pd.DataFrame:
        """Return the result of a partition and stored rows."""
        plan, arguments = self.plan, self.arguments
        left_probes = self.probing == "left"
        left, right = (frame, stored) if left_probes else (stored, frame)
        pairs = RowPairs(own, other) if left_probes else RowPairs(other, own)
        keys = self._partition_keys(frame, stored, query_rows)
        there = {*right.columns, *right.index.names}
        right = without(right, [label for label in keys.dropped if label in there])
        left, right = self._cast(left, plan.left), self._cast(right, plan.right)
        made = MergePlan(left, right, keys, plan.how, plan.labels, plan.indicator)
        index = made.index(pairs)
        if arguments.how.endswith("_anti"):
            absent = pairs.rows("right" if left_probes else "left", len(stored)) < 0
            index, pairs = index[absent], pairs.kept(absent, len(left), len(right))
        return conformed(made.frame(pairs, index), self.meta)

    def _partition_keys(
        self, frame: pd.DataFrame, stored: pd.DataFrame, query_rows: Any
    ) -> JoinKeys:
        """Return the keys of a partition and stored rows.

        Values of stored rows are those of the rows that they match, where they were not fetched.
        """
        left_probes = self.probing == "left"
        samples = (frame, self.right) if left_probes else (self.left, frame)
        own = self.arguments.keys(*samples)
        if query_rows is None:
            whole = (frame, stored) if left_probes else (stored, frame)
            return self.arguments.keys(*whole)
        pairs = []
        for pair in own.pairs:
            mine, theirs = (pair.left, pair.right) if left_probes else (pair.right, pair.left)
            values = mine
            if self._labels_wanted or mine.dtype != theirs.dtype:
                values = _cast_key(mine.take(query_rows).reset_index(drop=True), theirs.dtype)
            ours, others = (mine, values) if left_probes else (values, mine)
            pairs.append(
                KeyPair(pair.name, pair.left_label, pair.right_label, ours, others, pair.of_levels)
            )
        return JoinKeys(pairs, own.left_index, own.right_index)

    def _cast(self, frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
        """Return a side with the dtypes that the plan gives its keys."""
        labels = {pair.name for pair in self.keys.pairs}
        for label in labels:
            if label in like.columns and frame[label].dtype != like[label].dtype and any(
                agree(pair) for pair in self.keys.pairs if pair.name == label
            ):  # fmt: skip
                frame = frame.copy(deep=False)
                frame[label] = frame[label].astype(like[label].dtype)
        return frame


def _cast_key(values: pd.Series, dtype: Any) -> pd.Series:
    try:
        return values.astype(dtype)
    except (TypeError, ValueError):
        return values


def conformed(frame: pd.DataFrame, meta: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the dtypes of `meta`, where they differ."""
    for place, (ours, wanted) in enumerate(zip(frame.dtypes, meta.dtypes, strict=True)):
        if ours != wanted and not isinstance(wanted, pd.CategoricalDtype):
            frame.isetitem(place, frame.iloc[:, place].astype(wanted).array)
    index: Any = frame.index
    if index.nlevels == 1 and index.dtype != meta.index.dtype:
        frame.index = index.astype(meta.index.dtype)
    return frame
