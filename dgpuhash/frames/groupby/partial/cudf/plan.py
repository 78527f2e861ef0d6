"""CudfPlan: plan of a partial aggregation of cuDF frames."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dgpuhash import backend
from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import (
    index_of,
    levels_of_index,
    numbered_series,
    order_of,
    plain_array,
    take_series,
)
from dgpuhash.frames.groupby.aggregates.states import numbers_of_words
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.cudf.assembly import frame_of
from dgpuhash.frames.groupby.cudf.group_by import CudfGroupBy, labels_of
from dgpuhash.frames.groupby.cudf.groups import (
    CudfGroups,
    as_keys,
    column_of_key,
    grouping_keys,
    observed_keys,
)
from dgpuhash.frames.groupby.cudf.states import CudfStates, reduce_states
from dgpuhash.frames.groupby.cudf.values import CudfValues, series_of_array
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.partial.fold import Folds, Gathered, folded_fields
from dgpuhash.frames.groupby.partial.kinds import (
    Operand,
    Place,
    fields_of,
    lost_fields,
    prefix_of,
)
from dgpuhash.frames.groupby.partial.plan import GroupPlan
from dgpuhash.frames.groupby.partial.result import FoldedStates
from dgpuhash.frames.groupby.partial.verbs import GroupByCall, Planned
from dgpuhash.frames.groupby.reduction import Wanted
from dgpuhash.frames.merge.distinct import number_keys
from dgpuhash.tables.columns.aggregates import ColumnReduction

if TYPE_CHECKING:
    from dgpuhash.backend import Backend
    from dgpuhash.frames.dataframes.base import Frames


class FoldedCudfGroups(CudfGroups):
    """Groups of all parts, from states that merged keys once.

    Parameters
    ----------
    keys : list of GroupingKey
        The key of each group, which differ.
    sizes : int64 array
        The numbers of rows.
    firsts : int64 array
        The first row of each, as a number that tells the part, too.
    sort : bool
        Whether groups come in the order of their keys, or of their first rows.
    """

    fewest: ClassVar[int] = 1
    """The fewest values of which there is a sum."""

    def __init__(self, keys: list[GroupingKey], sizes: Any, firsts: Any, *, sort: bool) -> None:
        self.keys: list[GroupingKey] = keys
        self.rows: int = len(sizes)
        self.sorts: bool = sort
        # Rows with nulls that are in no group have no state.
        self.drops: list[bool] = [False] * len(keys)
        self.frames: Frames = frames_named("cudf")
        self.xp: Any = self.frames.xp
        self.backend: Backend = backend.get(self.frames.device)
        self._grouped, self._words = None, {}
        rows = self.xp.arange(len(sizes))
        self._numbered = rows, rows
        self._sizes, self._firsts = sizes, firsts

    @functools.cached_property
    def order(self) -> Any | None:
        """The group numbers in the order of the result, None for ascending ones."""
        if self.sorts:
            return CudfGroups.order.func(self)  # type: ignore[attr-defined]
        firsts = self._firsts
        if not len(firsts) or bool((firsts[1:] >= firsts[:-1]).all()):
            return None
        return self.backend.stable_order(firsts)

    @functools.cached_property
    def sizes(self) -> Any:  # type: ignore[override]
        """The number of rows of each group of the result."""
        return self.arrange(self._sizes)

    def chosen(self, field: Any, void: Any | None) -> Any:
        """Return values of the result's groups by number, null where masked."""
        rows = self.first_rows
        rows = rows if void is None else self.xp.where(void, -1, rows)
        return take_series(field, rows, nulls=True).rename(None)


class FoldedValues(CudfValues):
    """Dtype of a column, and whether a group has no value of it."""

    def __init__(self, series: Any, *, lacking: bool, fewest: int) -> None:
        super().__init__(series)
        self._lacking = lacking
        self.fewest = fewest

    @property
    def nulls(self) -> Any | None:
        """A placeholder that says that a row is null."""
        return True if self._lacking else None


def portable(keys: Sequence[GroupingKey]) -> Any:
    """Return columns that are equal where keys are equal, in any part.

    Categories are compared by their values, of which each part may have others.
    """
    made: list[Any] = []
    frames = frames_named("cudf")
    for key in keys:
        if hasattr(key.values.dtype, "categories"):
            made.append(key.values)
        else:
            found = frames.key_columns(key.values, key.values, key.name)
            made.extend(ours.series for ours, _ in found)
    return frames.make({f"p{place}": each for place, each in enumerate(made)})


class PlannedCudfGroups(Planned, CudfGroupBy):
    """Groupby of a cuDF frame whose aggregates come from a function."""

    def values_of(self, place: int) -> CudfValues:
        """Return one of the columns to aggregate."""
        return self._columns[place]

    def kinds_of(self, wanted: Wanted) -> tuple[str, ...] | None:
        """Return the kinds of states for an aggregate; None if it needs rows."""
        values, kinds = self.values_of(wanted.place), super().kinds_of(wanted)
        # Labels are found by numbers that equal the extreme.
        unlabelled = wanted.how.startswith("idx") and not values.is_number
        return None if kinds is None or unlabelled or "decimal" in kinds else kinds

    def settle_dtypes(self, wanted: Sequence[Wanted], *, full: bool) -> list[Any]:
        """Return the aggregates of null rows, whose dtypes hold for all rows."""
        found = []
        for each in wanted:
            if AGGREGATES[each.how].labels:
                labels = frames_named("cudf").series(self._frame.index)
                found.append(labels.iloc[: len(self)].reset_index(drop=True))
            else:
                found.extend(CudfGroupBy._reduced(self, [each]))
        return found


def null_rows(source: Any) -> Any:
    """Return a row of nulls with the schema of an empty frame or Series."""
    frames = frames_named("cudf")
    none = frames.xp.full(1, -1, "int64")
    whole = source.to_frame("value") if source.ndim == 1 else source
    labels = levels_of_index(source.index)
    made = frames.take_or_null(whole.reset_index(drop=True), none)
    made.columns = whole.columns
    levels = [take_series(each, none, nulls=True).rename(None) for each in labels]
    made.index = index_of(levels, list(source.index.names))
    return made["value"].rename(source.name) if source.ndim == 1 else made


# Fields that are values of a column or labels, whatever their dtype.
_OF_VALUES = frozenset({"first", "last", "first of all", "last of all", "idxmin", "idxmax"})


class CudfPlan(GroupPlan, library="cudf"):
    """Plan of a partial aggregation of cuDF frames.

    States have the form of those of `GroupPlan`; they are cuDF frames, made, folded and told on the
    GPU. Each fold groups the states of several parts at once by the same kernels. Decimals' sums,
    covariances and correlations need the rows of a group.
    """

    on_gpu: ClassVar[bool] = True
    grouped_type: ClassVar[type[Planned]] = PlannedCudfGroups

    @classmethod
    def without_rows(cls, meta: Any, verb: GroupByCall) -> Any:
        """Return an empty frame like the parts; see `GroupPlan.without_rows`."""
        if not hasattr(CudfGroupBy, verb.name):
            raise UnsupportedError(
                f"{verb.name} is not supported for groups of cuDF frames; convert the frame with "
                ".to_pandas(), or a Dask frame with .to_backend('pandas')"
            )
        return meta.iloc[:0]

    known_keys = staticmethod(observed_keys)
    grouping_keys = staticmethod(grouping_keys)
    portable_keys = staticmethod(portable)
    key_column = staticmethod(column_of_key)

    @classmethod
    def groups(
        cls, keys: list[GroupingKey], rows: int, *, sort: Any, dropna: Any, observed: Any = True
    ) -> CudfGroups:  # fmt: skip
        """Return the groups of rows with these keys."""
        return CudfGroups(keys, rows, sort=sort, dropna=dropna)

    @classmethod
    def rows_to_try(cls, source: Any, groups: Any, by: Any, level: Any) -> tuple[Any, Any]:
        """Return a row of nulls, because results of no rows have other dtypes."""
        few = null_rows(source)
        keys = grouping_keys(few, by, level)
        return few, CudfGroups(keys, len(few), sort=groups.sorts, dropna=False)

    @classmethod
    def answer_without_rows(cls, answer: Any) -> Any:
        """Return the result of trial rows as an empty result."""
        made = answer.iloc[:0]
        if made.index.nlevels > 1:
            # Slices of cuDF have a marker there.
            made.index.name = None
        return made

    def pieces_of(self, part: Any, groups: CudfGroups, number: int) -> dict[Place, Operand]:
        """Return the columns that a part's states are computed from, by position."""
        assert self.wanted is not None
        states = {
            place: CudfStates(
                CudfValues(self.column_of(part, place)), groups, place, as_pairs=True
            )
            for place in self.wanted if isinstance(place, int)
        }  # fmt: skip
        columns = [(each, self.wanted[place]) for place, each in states.items()]
        if any(each.in_two_passes(kinds) for each, kinds in columns):
            groups.number()
        reduce_states(groups, columns, sizes=True)
        labels = functools.cache(lambda: numbered_series(frames_named("cudf").series(part.index)))

        def label_of(rows: Any) -> Any:
            return take_series(labels(), rows, nulls=True)

        return {place: Operand(each, number, label_of=label_of) for place, each in states.items()}

    def folded(self, parts: Sequence[Any]) -> Any:
        """Return the merged states of all parts as one frame with distinct keys."""
        whole = parts[0] if len(parts) == 1 else frames_named("cudf").concat(list(parts))
        if self.needs_rows or self.form_of(whole):
            return whole
        groups = CudfGroups(self.keys_of_states(whole), len(whole), sort=False, dropna=False)
        reductions = self._of_one_pass(whole)
        if reductions is not None:
            # Before anything needs the numbers of groups: the pass that finds them does it.
            groups.reduce({label: each for label, (each, _) in reductions.items()})
        if len(groups) == len(whole):
            return whole
        if reductions is not None:
            return self._folded_in_one_pass(whole, groups, reductions)
        folds = Folds(groups.numbers, len(groups))
        made: dict[str, Any] = dict(zip(self.key_labels, groups.columns, strict=True))
        made["n"] = folds.sums([_array(whole["n"])])[0]
        made["at"] = folds.extreme("least", _array(whole["at"]))
        for place, kinds in (self.wanted or {}).items():
            fields = self._columns_of(whole, place)
            for name, found in folded_fields(folds, kinds, fields, _ranks).items():
                if isinstance(found, Gathered):
                    column = whole[prefix_of(place) + name]
                    found = take_series(column, found.rows)
                made[prefix_of(place) + name] = found
        return self.frame_of_states({label: made[label] for label in whole.columns})

    def _of_one_pass(self, states: Any) -> dict[str, tuple[ColumnReduction, Any]] | None:
        """Return the folds and dtypes of all fields; None if one takes several passes."""
        made = {"n": ("sum", _array(states["n"])), "at": ("least", _array(states["at"]))}
        for place, kinds in (self.wanted or {}).items():
            assert isinstance(place, int)
            number = CudfValues(self.column_of(self.source, place)).is_number
            for kind in kinds:
                extreme = kind if kind in {"least", "greatest"} and number else None
                if extreme is None and kind not in {"count", "stray", "sum", "wide"}:
                    return None
                for name in fields_of([kind]):
                    label = prefix_of(place) + name
                    made[label] = extreme or "sum", _array(states[label])
        return {
            label: (_reduction(array, fold), array.dtype) for label, (fold, array) in made.items()
        }

    def _folded_in_one_pass(
        self, states: Any, groups: CudfGroups, reductions: dict[str, tuple[ColumnReduction, Any]]
    ) -> Any:  # fmt: skip
        made: dict[str, Any] = dict(zip(self.key_labels, groups.columns, strict=True))
        for label, (reduction, dtype) in reductions.items():
            words = groups.words(label, reduction)
            sums = reduction.fold == "sum"
            made[label] = (
                words.view(np.int64) if sums else numbers_of_words(words, dtype, groups.xp)
            )
        return self.frame_of_states({label: made[label] for label in states.columns})

    def _columns_of(self, states: Any, place: Any) -> dict[str, Any]:
        """Return the state fields of a column: number arrays and value columns."""
        number = CudfValues(self.column_of(self.source, place)).is_number
        assert self.wanted is not None
        made = {}
        kinds = self.wanted[place]
        for name in [*fields_of(kinds), *lost_fields(kinds)]:
            if (label := prefix_of(place) + name) not in states:
                # Parts have lost nothing.
                continue
            column = states[label]
            values = name in _OF_VALUES or (name in {"least", "greatest"} and not number)
            made[name] = column if values else _array(column)
        return made

    def frame_of(self, columns: Iterable[Any], labels: Any, index: Any) -> Any:
        """Return a frame of Series and arrays with these labels."""
        xp: Any = frames_named("cudf").xp
        series = [
            series_of_array(xp.ascontiguousarray(each)) if isinstance(each, xp.ndarray) else each
            for each in columns
        ]
        return frame_of(series, labels, index)

    def series_of(self, column: Any, index: Any) -> Any:
        """Return a Series like the source with these values and labels."""
        made = column.rename(self.source.name)
        made.index = index
        return made

    def levels_of(self, index: Any) -> list[Any]:
        """Return the levels of labels as Series."""
        return levels_of_index(index)

    def first_rows(self, rows: Any) -> Any:
        """Return the positions of a frame's distinct rows."""
        return number_keys(as_keys([(label, rows[label]) for label in rows.columns]))[1]

    def codes_of_part(self, part: Any, _: int) -> Any:
        """Return the codes of the keys of a part's rows."""
        return self.encoder.encode_rows(portable(grouping_keys(part, self.by, self.level))).codes

    def nulls_of(self, values: Any) -> Any:
        """Return a mask of the nulls of a key, None if there are none."""
        return frames_named("cudf").array(values.isna().astype(bool)) if values.has_nulls else None

    def result(self, states: Any) -> Any:
        """Return the result of merged states, or of rows in any order."""
        return super().result(states) if len(states) else self.meta

    def groups_of(self, states: Any) -> Any:
        """Return the groups of merged states."""
        return FoldedCudfGroups(
            self.keys_of_states(states), _array(states["n"]), _array(states["at"]), sort=self.sort
        )

    def grouped_rows(self, frame: Any, groups: Any) -> Any:
        """Return a groupby of rows from all parts."""
        return CudfGroupBy(frame, groups, as_index=self.as_index, selection=self.selection)

    def fields(self, states: Any, groups: Any, place: Place) -> dict[str, Any]:
        """Return the state fields of a column: numbers by group and value columns."""
        return {
            name: groups.arrange(each) if isinstance(each, groups.xp.ndarray) else each
            for name, each in self._columns_of(states, place).items()
        }

    def folded_states(self, states: Any, groups: Any, place: int) -> FoldedStates:
        """Return the states of a column's groups."""
        fields = self.fields(states, groups, place)
        lacking = bool((fields["count"] < groups.sizes).any())
        column = self.column_of(self.source, place)
        values = FoldedValues(column, lacking=lacking, fewest=groups.fewest)
        return FoldedStates(values, groups, fields)

    def aggregate(self, states: FoldedStates, wanted: Wanted) -> Any:
        """Return an aggregate of merged states."""
        aggregate, groups = AGGREGATES[wanted.how], states.groups
        if not aggregate.labels:
            return aggregate.result(states, wanted.options)
        rows = groups.xp.where(states.count > 0, groups.first_rows, -1)
        index = index_of([states.words[wanted.how]], [None])
        return labels_of(states, wanted.how, wanted.options, rows, index)

    @staticmethod
    def as_known(column: Any, like: Any, label: Any) -> Any:
        """Return a column of a part in the plan's dtype.

        Raises
        ------
        ColumnError
            When it has other values.
        """
        dtype = like.dtype
        if column.dtype == dtype or (
            hasattr(dtype, "categories") and column.dtype.name == dtype.name
        ):
            return column
        try:
            frame = frames_named("cudf").conform(column.to_frame(0), like.to_frame(0))
        except ColumnError as error:
            raise ColumnError(
                f"column {label!r} is {column.dtype} in a partition, and {dtype} in the plan; give "
                "all partitions one dtype with .astype"
            ) from error
        return frame[0].rename(column.name)

    def column_of(self, part: Any, position: int) -> Any:
        """Return a column of a part by its position in the source, in its dtype there."""
        if part.ndim == 1:
            return self.as_known(part.reset_index(drop=True), self.source, self.source.name)
        label = self.source.columns[position]
        return self.as_known(part[label].reset_index(drop=True), self.source[label], label)


def _reduction(array: Any, fold: str) -> ColumnReduction:
    """Return the reduction that merges a field: an integer sum, or an extreme."""
    if fold == "sum":
        return ColumnReduction(array, "i8", "integer", "sum")
    kind = "u" if array.dtype.kind == "b" else array.dtype.kind
    return ColumnReduction(array, f"{kind}{array.dtype.itemsize}", "rank", fold)


def _array(column: Any) -> Any:
    """Return a null-free state column as an array on its memory."""
    found = plain_array(column.to_pylibcudf()[0], column.dtype)
    return frames_named("cudf").array(column) if found is None else found


def _ranks(column: Any, name: str) -> Any:
    """Return numbers in the order of a column's values, in which nulls never win."""
    frames = frames_named("cudf")
    xp: Any = frames.xp
    made = xp.empty(len(column), np.int64)
    made[order_of([column])] = xp.arange(len(column))
    if name == "greatest" and column.has_nulls:
        # Nulls come last.
        made[frames.array(column.isna().astype(bool))] = -1
    return made
