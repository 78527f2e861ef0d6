"""PartitionPlan: plan for merging each probe partition with stored build rows."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes import Frames, as_series, frames_of
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.dataframes.pandas_take import null_labels
from dgpuhash.frames.dataframes.partition_dtypes import is_nullable, with_nullable, with_plain
from dgpuhash.frames.dataframes.promotion import nullable_frame
from dgpuhash.frames.keys.categories import as_values, with_texts
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.matches import with_unmatched
from dgpuhash.frames.merge.arguments import FILTERS, JoinArguments, Suffixes, check_suffixes
from dgpuhash.frames.merge.distinct import occurs
from dgpuhash.frames.merge.index import index_of
from dgpuhash.frames.merge.keys import (
    JoinKeys,
    index_keys,
    key_values,
    matched_keys,
    of_objects,
    reconcile_keys,
    with_all_categories,
)
from dgpuhash.frames.merge.result import MergePlan
from dgpuhash.frames.merge.rows import RowPairs

_BLANK = "blank"


@dataclass(frozen=True, repr=False)
class PartitionPlan:
    """Plan for merging probe partitions with stored rows of the build side.

    Build rows are stored as a frame of keys, columns and index labels; `stored` returns it.

    Attributes
    ----------
    arguments : JoinArguments
    probing : {"left", "right"}
        The probe side; rows of the other side are stored.
    left, right : DataFrame
        A few rows of each side's dtypes; values do not matter.
    """

    arguments: JoinArguments
    probing: str
    left: pd.DataFrame
    right: pd.DataFrame
    _keeps_dtypes: ClassVar[bool] = False

    @classmethod
    def of(
        cls, left: pd.DataFrame, right: pd.DataFrame, arguments: JoinArguments, probing: str = ""
    ) -> PartitionPlan:
        """Return the plan for sides like these samples of two rows or more.

        Raises
        ------
        MergeError, ColumnError, KeyTypeError, ShapeError, SpecError
            As `dgpuhash.merge`, for what the columns tell.
        """
        if arguments.columns is not None:
            right = arguments.narrowed(right)
        if frames_of(left).promotion == "pandas":
            left, right = cls._with_objects(arguments, left, right)
        plan = cls(arguments, probing or ("right" if arguments.joined == "right" else "left"),
                   left, right)  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            _ = plan.meta
        return plan

    @classmethod
    def _with_objects(
        cls, arguments: JoinArguments, left: pd.DataFrame, right: pd.DataFrame
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return samples with object keys of types comparable with the other side's."""
        return _with_numbers_as_objects(arguments, left, right)

    def __getstate__(self) -> dict[str, Any]:
        # A copy: threads that share a plan add cached properties while others pickle it.
        return dict(vars(self))

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
        """Whether the result has rows of the left side alone."""
        return self.arguments.how in FILTERS

    @property
    def _in_pandas_dtypes(self) -> bool:
        """Whether partitions keep pandas' dtypes, regardless of their frame's meta."""
        return self.arguments.promote == "each" and self._frames.promotion == "pandas"

    @property
    def keeps_labels(self) -> bool:
        """Whether the result has the index labels of the partition's rows alone."""
        if self.is_filter or self.has_tail:
            return self.is_filter
        keys = self.keys
        by_index = keys.right_index if self.probing == "left" else keys.left_index
        # Levels that are keys of both sides stay the index.
        return by_index or any(pair.of_levels for pair in keys.pairs)

    @property
    def query_how(self) -> str:
        """What to request from the build side: rows, or which keys it has or lacks."""
        if not self.is_filter:
            return "inner"
        return "anti" if self.arguments.how == "anti" else "semi"

    @property
    def has_tail(self) -> bool:
        """Whether unmatched build rows are in the result."""
        joined = self.arguments.joined
        storing = "right" if self.probing == "left" else "left"
        return not self.is_filter and joined in ("outer", storing)

    @property
    def keeps_unmatched(self) -> bool:
        """Whether unmatched probe rows are in the result."""
        return self.arguments.joined in ("outer", self.probing)

    @functools.cached_property
    def keys(self) -> JoinKeys:
        """The keys of the samples, which determine how to compare them."""
        keys = self.arguments.keys(self.left, self.right)
        as_text = [self._frames.compares_as_text(*pair.dtypes) for pair in keys.pairs]
        return replace(keys, as_text=as_text)

    @property
    def _agreeing(self) -> JoinKeys:
        """The keys whose dtypes must agree."""
        return self.keys

    @functools.cached_property
    def plan(self) -> MergePlan:
        """The merge plan of the samples, with the casts and labels of every partition."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            how, keys = self.arguments.joined, self._agreeing
            made = MergePlan.of(
                self.left, self.right, keys, how, suffixes=self.arguments.suffixes,
                indicator=self.arguments.indicator, promote=self.arguments.promote or "nullable",
            )  # fmt: skip
            return made if keys is self.keys else replace(made, keys=self.keys)

    @functools.cached_property
    def meta(self) -> Any:
        """An empty frame like every result partition.

        Columns of a side that may lack a row have the dtype that they get then; with
        ``promote="each"`` those of Dask's meta, which is the merge of the samples.
        """
        if self.is_filter:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                self._agreeing.check_agreement()
            if self.arguments.how == "isin":
                return self._frames.series(self._frames.xp.zeros(0, bool), self.left.index[:0])
            return self.left.iloc[:0]
        plan = self.plan
        if self._in_pandas_dtypes and not self.arguments.how.endswith("_anti"):
            left, right = (_with_one_object(side) for side in (self.left, self.right))
            pairs = self.arguments.pairs(self.arguments.keys(left, right), left, right)
            return plan.frame(pairs, plan.index(pairs)).iloc[:0]
        xp = self._frames.xp
        none, both = xp.array([0, -1]), xp.arange(2)
        pairs = {
            "inner": RowPairs(both, both),
            "left": RowPairs(both, none),
            "right": RowPairs(none, both),
            "outer": RowPairs(xp.array([0, 1, -1]), xp.array([0, -1, 1])),
        }[plan.how]
        return plan.frame(pairs, plan.index(pairs)).iloc[:0]

    @functools.cached_property
    def _either_meta(self) -> Any:
        """The meta, with shared key columns nullable if they are on either side.

        Rows of a partition decide from which side pandas takes them.
        """
        made = self.meta.copy(deep=False)
        for pair in self.keys.pairs:
            if pair.left_label == pair.right_label and pair.name in made.columns:
                for side in (pair.left, pair.right):
                    if is_nullable(side.dtype):
                        made[pair.name] = side.array[:0]
        return made

    @property
    def storing(self) -> pd.DataFrame:
        """The sample of the build side."""
        return self.right if self.probing == "left" else self.left

    @functools.cached_property
    def _labels_wanted(self) -> bool:
        """Whether the result has index labels of build rows."""
        keys = self.keys
        levels = any(
            label is not None and label not in frame.columns
            for pair in keys.pairs
            for label, frame in ((pair.left_label, self.left), (pair.right_label, self.right))
        )
        return not self.is_filter and (keys.left_index or keys.right_index or levels)

    @functools.cached_property
    def key_labels(self) -> list[Hashable]:
        """Labels of the stored key columns."""
        return [f"k{place}" for place in range(self._key_frame(self.storing, stored=True).shape[1])]

    @functools.cached_property
    def stored_meta(self) -> pd.DataFrame:
        """An empty frame like the stored rows."""
        return self.stored(self.storing).iloc[:0]

    @property
    def stored_description(self) -> tuple[Any, ...]:
        """The options that determine `stored`; plans with equal ones can share a build."""
        meta, keys, side = self.stored_meta, self.keys, 1 if self.probing == "left" else 0
        sources = [
            (pair.right_label if self.probing == "left" else pair.left_label) for pair in keys.pairs
        ]
        dtypes = [(label, str(dtype), repr(dtype)) for label, dtype in meta.dtypes.items()]
        places = [] if self.is_filter else self._kept_places
        kept = [self.storing.columns[place] for place in places]
        index = keys.right_index if self.probing == "left" else keys.left_index
        named = [pair.name for pair in keys.pairs] if index else []
        how = self.arguments.how == "cross", self.arguments.nulls_equal, index
        # What is compared depends on the other side where it is no column as it is.
        others = [
            None if len(columns) == 1 and columns[0][side] is pair.values[side]
            else tuple(map(str, pair.dtypes))
            for pair, columns in zip(keys.pairs, keys.columns, strict=True)
        ]  # fmt: skip
        told = repr(dtypes), repr(sources), repr(kept), repr(named), repr(others)
        return *told, *how, self._labels_wanted, self._in_pandas_dtypes

    def encoder(self) -> KeyEncoder:
        """Return a new encoder of the stored keys."""
        stored = self.stored(self.storing)
        if self._in_pandas_dtypes:
            # Partitions may have nulls among integers.
            stored = nullable_frame(stored)
        return KeyEncoder.for_frame(stored, self.key_labels)

    def stored(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a build partition in stored form."""
        frame = self._unpromoted(frame, self.storing)
        made = self._key_frame(frame, stored=True)
        made.columns = pd.Index([f"k{place}" for place in range(made.shape[1])])
        for label, column in self._payload(self._told(frame)).items():
            made[label] = column
        # Of each partition: beside those of others, booleans have no dtype that may be either.
        return nullable_frame(made, kinds="b") if self._in_pandas_dtypes else made

    def _payload(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the columns to store beside the keys."""
        columns: dict[str, Any] = {}
        if self.is_filter:
            return columns
        for place in self._kept_places:
            if place not in self._same_as_key:
                dtype = self.storing.dtypes.iloc[place]
                columns[f"c{place}"] = of_objects(as_series(frame.iloc[:, place]), dtype)
        if self._labels_wanted:
            for level in range(frame.index.nlevels):
                labels = frame.index.get_level_values(level)
                dtype = self.storing.index.get_level_values(level).dtype
                columns[f"i{level}"] = of_objects(as_series(labels), dtype)
        return columns

    @functools.cached_property
    def _kept_places(self) -> list[int]:
        """Positions of the build side's columns that results may need."""
        dropped = self.keys.dropped if self.probing == "left" and not self.has_tail else []
        return [place for place, label in enumerate(self.storing.columns) if label not in dropped]

    @functools.cached_property
    def _same_as_key(self) -> dict[int, str]:
        """Key columns that equal a column of the build side, by position."""
        side = 1 if self.probing == "left" else 0
        found, place = {}, 0
        for pair, columns in zip(self.keys.pairs, self.keys.columns, strict=True):
            label = (pair.left_label, pair.right_label)[side]
            own = pair.values[side]
            if len(columns) == 1 and columns[0][side] is own and label is not None:
                places = np.flatnonzero([each == label for each in self.storing.columns])
                if len(places) == 1:
                    found[int(places[0])] = f"k{place}"
            place += len(columns)
        return found

    def _stored_label(self, place: int) -> Hashable:
        """Return the stored label of a column of the build side."""
        return self._same_as_key.get(place, f"c{place}")

    @functools.cached_property
    def fetched(self) -> list[Hashable]:
        """Labels of the stored columns that a probe requests."""
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
        """Return stored rows as a frame like the build side, with all columns if `whole`."""
        dropped = set(self.keys.dropped) if self.probing == "left" and not whole else set()
        columns: dict[Hashable, Any] = {}
        labels: list[int] = []
        for place in self._kept_places:
            if self.storing.columns[place] not in dropped:
                column = as_series(found[self._stored_label(place)])
                unknown = is_unknown(self.storing.dtypes.iloc[place])
                columns[len(labels)] = as_values(column) if unknown else column
                labels.append(place)
        made = self._frames.of_columns(columns) if columns else found.iloc[:, :0]
        made.columns = self.storing.columns[labels]
        if self._labels_wanted:
            levels = [found[f"i{level}"] for level in range(self.storing.index.nlevels)]
            if is_unknown(self.storing.index.dtype):
                levels = [as_values(levels[0])]
            made.index = index_of(levels, list(self.storing.index.names), guess=False)
        return made

    @functools.cached_property
    def _unknown_pairs(self) -> list[bool]:
        """For each key whether both sides' categories are unknown."""
        return [all(map(is_unknown, pair.dtypes)) for pair in self.keys.pairs]

    def _told(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a build partition with text for categories unknown to Dask.

        Partitions have categories of any dtypes, and are stored together.
        """
        if frame is self.storing:
            return frame
        return with_texts(frame, self.storing.dtypes, self.storing.index)

    @property
    def probing_meta(self) -> pd.DataFrame:
        """An empty frame like the probe partitions."""
        return (self.left if self.probing == "left" else self.right).iloc[:0]

    def asked(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of a probe partition, labelled as the keys of the build side."""
        sample = self.left if self.probing == "left" else self.right
        made = self._key_frame(self._unpromoted(frame, sample), stored=False)
        made.columns = pd.Index(self.key_labels)
        return made

    def _unpromoted(self, frame: pd.DataFrame, sample: pd.DataFrame) -> pd.DataFrame:
        """Return a partition with promoted integers and booleans as nullable ones."""
        return with_nullable(frame, sample) if self._in_pandas_dtypes else frame

    def _key_frame(self, frame: pd.DataFrame, *, stored: bool) -> pd.DataFrame:
        """Return the columns to compare of a partition of one side."""
        left = (self.probing == "left") != stored
        samples = (frame, self.right) if left else (self.left, frame)
        keys = self.keys
        if frame is not (self.left if left else self.right):
            keys = replace(self.arguments.keys(*samples), as_text=keys.as_text)
        made = keys.frames[0 if left else 1].copy(deep=False)
        if self.arguments.how == "cross":
            blank: dict[Hashable, Any] = {0: self._frames.xp.zeros(len(frame), np.int8)}
            return self._frames.make(blank)
        if not self.arguments.nulls_equal:
            # Another number on each side: rows with nulls meet no others.
            made[_BLANK] = ~keys.sides[0 if left else 1].complete * np.int8(1 if stored else 2)
        return made

    def result(
        self, frame: pd.DataFrame, query_rows: Any, found: Any, *, void: bool = False
    ) -> Any:
        """Return the merge of a partition with its matching stored rows.

        Parameters
        ----------
        frame : DataFrame
            The partition.
        query_rows : int64 array
            For each row of `found` the row of the partition that matches it, ascending; for
            filters the rows to keep.
        found : DataFrame or None
            Stored rows, with the columns `fetched`; `void` says that no row is stored at all.
        """
        xp = self._frames.xp
        if self.arguments.how == "isin":
            there = xp.zeros(len(frame), bool)
            there[query_rows] = True
            return self._frames.series(there, frame.index)
        if self.is_filter:
            return self._frames.keep(frame, query_rows)
        other: Any = xp.arange(len(query_rows), dtype=np.int64)
        own: Any = query_rows
        if self.keeps_unmatched:
            own, other = with_unmatched(len(frame), query_rows, other, xp)
        elif len(own) == len(frame) and bool((own == xp.arange(len(own))).all()):
            own = None
        stored = self._as_side(found, whole=False)
        return self._made(frame, stored, own, other, query_rows, meets=len(frame) and not void)

    def tail(self, found: pd.DataFrame) -> pd.DataFrame:
        """Return unmatched build rows as rows of the result."""
        sample = (self.left if self.probing == "left" else self.right).iloc[:0]
        nobody = self._frames.xp.full(len(found), -1, dtype=np.int64)
        return self._made(sample, self._as_side(found, whole=True), nobody, None, None, meets=True)

    def merged(
        self, left: pd.DataFrame, right: pd.DataFrame, check: Callable[[int], None] | None = None
    ) -> Any:
        """Return the merge of two partitions that contain all rows of their keys.

        Outer merges are sorted by their keys, as those of frames. `check` is told the number of
        rows before they are made.
        """
        arguments, keys = self.arguments, self.arguments.keys(left, right)
        if self.is_filter:
            there = occurs(*keys.sides, nulls_equal=arguments.nulls_equal)
            kept = ~there if arguments.how == "anti" else there
            return self.result(left, self._frames.xp.flatnonzero(kept), None)
        pairs = arguments.pairs(keys, left, right, check)
        return self.put_together(left, right, keys, pairs, meets=len(left) and len(right))

    def _made(
        self, frame: pd.DataFrame, stored: pd.DataFrame, own: Any, other: Any, query_rows: Any,
        *, meets: Any,
    ) -> pd.DataFrame:  # fmt: skip
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
        return self.put_together(left, right, keys, pairs, meets=meets)

    def put_together(
        self, left: pd.DataFrame, right: pd.DataFrame, keys: JoinKeys, pairs: RowPairs, *,
        meets: Any,
    ) -> pd.DataFrame:  # fmt: skip
        """Return rows of both sides in the result's form; `meets`: both have some."""
        plan, how = self.plan, self.arguments.how
        if any(self._unknown_pairs):
            left, right, keys = with_all_categories(left, right, keys, self._unknown_pairs)
        # pandas gives keys no common dtype where a side has no rows.
        made = plan.over(left, right, keys, cast=meets or not self._in_pandas_dtypes)
        index = made.index(pairs)
        if self._frames.promotion == "pandas" and keys.left_index != keys.right_index:
            labelled, rows = (left, pairs.left) if keys.right_index else (right, pairs.right)
            if not len(labelled) and rows is not None:
                # pandas takes the labels of the other side then, which partitions must not.
                index = null_labels(self.meta.index, len(rows))
        if how.endswith("_anti"):
            other, size = ("right", len(right)) if plan.how == "left" else ("left", len(left))
            absent = pairs.rows(other, size) < 0
            index, pairs = index[absent], pairs.kept(absent, len(left), len(right))
        frame = made.frame(pairs, index)
        if not self._in_pandas_dtypes:
            return self._frames.with_dtypes(frame, self.meta, kept=self._keeps_dtypes)
        rounded: list[Hashable | None] = made.rounded or []
        frame = with_plain(frame, self._either_meta, rounded)
        if rounded and self.arguments.on_rounding is not None:
            self.arguments.on_rounding(rounded)
        return frame


def _with_numbers_as_objects(
    arguments: JoinArguments, left: pd.DataFrame, right: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return samples with object keys that have values of the other side's number type.

    Which values objects are, only the partitions tell; those of other samples are texts.
    """
    objects = np.dtype(object)
    for pair in arguments.keys(left, right).pairs:
        ours, theirs = pair.dtypes
        if ours == objects and pd.api.types.is_numeric_dtype(theirs):
            left = _with_values(left, pair.left_label, pair.right)
        elif theirs == objects and pd.api.types.is_numeric_dtype(ours):
            right = _with_values(right, pair.right_label, pair.left)
    return left, right


def _with_values(frame: pd.DataFrame, label: Hashable | None, values: Any) -> pd.DataFrame:
    objects = values.iloc[: len(frame)].astype(object)
    if label is not None and label in frame.columns:
        made = frame.copy(deep=False)
        made[label] = objects.set_axis(frame.index)
        return made
    return frame.set_axis(pd.Index(objects, dtype=object, name=frame.index.name), axis=0)


def _with_one_object(sample: pd.DataFrame) -> pd.DataFrame:
    """Return a sample whose rows have the same object, as Dask's meta does."""
    made = sample
    for place, dtype in enumerate(sample.dtypes):
        if dtype == np.dtype(object):
            made = sample.copy(deep=False) if made is sample else made
            objects: Any = pd.Series(["foo"] * len(sample), sample.index, object)
            made.isetitem(place, objects)
    return made


class StandingPlan(PartitionPlan):
    """Plan for merging partitions with a standing index, whose rows stay unchanged."""

    # An index takes partitions of other dtypes than was said, and answers with what it has.
    _keeps_dtypes: ClassVar[bool] = True

    @classmethod
    def to_index(
        cls, left: pd.DataFrame, right: pd.DataFrame, how: str, left_on: Sequence[Hashable],
        right_on: Sequence[Hashable], suffixes: Suffixes, indicator: bool | str = False,
        promote: str | None = None,
    ) -> PartitionPlan:  # fmt: skip
        """Return the plan for samples of the partitions and of the index.

        Raises as `PartitionPlan.of` and `index_keys`.
        """
        check_suffixes(suffixes)
        arguments = JoinArguments(
            how, left_on=list(left_on), right_on=list(right_on), suffixes=suffixes,
            indicator=indicator, promote=promote,
        )  # fmt: skip
        return cls.of(left, right, arguments, "left")

    @classmethod
    def _with_objects(
        cls, arguments: JoinArguments, left: pd.DataFrame, right: pd.DataFrame
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return samples with null object keys where the other side has no text.

        An index has no other objects for keys than texts and nulls.
        """
        sides, objects = [left, right], np.dtype(object)
        for labels in zip(arguments.left_on, arguments.right_on, strict=True):
            dtypes = [side[label].dtype for side, label in zip(sides, labels, strict=True)]
            for place, other in enumerate(reversed(dtypes)):
                if dtypes[place] == objects and not pd.api.types.is_string_dtype(other):
                    sides[place] = sides[place].copy(deep=False)
                    sides[place][labels[place]] = pd.Series(None, sides[place].index, objects)
        return sides[0], sides[1]

    @functools.cached_property
    def keys(self) -> JoinKeys:
        named = self.arguments.left_on, self.arguments.right_on
        given = key_values(self.left, named[0])
        return index_keys(given, named[0], self.right, named[1])

    @property
    def _agreeing(self) -> JoinKeys:
        return reconcile_keys(self.keys)

    @functools.cached_property
    def key_labels(self) -> list[Hashable]:
        """Labels of the index's key columns."""
        return [pair.right_label for pair in self.keys.pairs]

    @functools.cached_property
    def stored_meta(self) -> pd.DataFrame:
        """An empty frame like the index's rows."""
        return self.right.iloc[:0]

    def _stored_label(self, place: int) -> Hashable:
        label: Hashable = self.right.columns[place]
        return label
