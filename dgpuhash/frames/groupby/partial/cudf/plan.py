"""How a groupby of cuDF frames in parts runs: on the GPU of each part, and of each owner."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import (
    index_of,
    levels_of_index,
    numbered,
    order_of,
    plain_array,
    take_series,
)
from dgpuhash.frames.groupby.aggregates.states import numbers_of_words
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.cudf.assembly import frame_of
from dgpuhash.frames.groupby.cudf.group_by import CudfGroupBy, labels_of
from dgpuhash.frames.groupby.cudf.groups import CudfGroups, compared
from dgpuhash.frames.groupby.cudf.keys import column_of_key, grouping_keys
from dgpuhash.frames.groupby.cudf.states import CudfStates, reduce_states
from dgpuhash.frames.groupby.cudf.values import CudfValues, series_of_array
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.partial.cudf.fold import Folds, Gathered, folded_fields
from dgpuhash.frames.groupby.partial.cudf.result import FoldedCudfGroups, FoldedValues
from dgpuhash.frames.groupby.partial.cudf.rows import portable, result_of
from dgpuhash.frames.groupby.partial.kinds import (
    KINDS,
    Part,
    fields_of,
    kinds_for,
    place_of,
    prefix_of,
)
from dgpuhash.frames.groupby.partial.plan import GroupPlan
from dgpuhash.frames.groupby.partial.result import FoldedStates
from dgpuhash.frames.groupby.partial.rows import rows_of
from dgpuhash.frames.groupby.partial.verbs import (
    AGGREGATING,
    OF_ANY_ORDER,
    OF_COLUMNS,
    OF_DISTINCT,
    Asked,
    Verb,
)
from dgpuhash.frames.groupby.reduction import Wanted
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.merge.distinct import number_keys
from dgpuhash.tables.columns.aggregates import ColumnReduction

Reduce: TypeAlias = Callable[["PlannedCudfGroups", Sequence[int], Sequence[Wanted]], list[Any]]


class PlannedCudfGroups(CudfGroupBy):
    """Groups whose aggregates are what a function returns for columns and aggregates of these."""

    def __init__(
        self, frame: Any, groups: Any, reduce: Reduce, *, as_index: bool = True,
        selection: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(frame, groups, as_index=as_index, selection=selection)
        self._reduce = reduce

    def _of_columns(self, selection: Any) -> Self:
        return type(self)(
            self._frame, self._groups, self._reduce, as_index=self._as_index, selection=selection
        )  # fmt: skip

    def _reduced(self, wanted: Sequence[Wanted]) -> list[Any]:
        return self._reduce(self, self.positions, wanted)

    def values_of(self, place: int) -> CudfValues:
        """Return one of the columns that are aggregated."""
        return self._columns[place]

    def kinds_of(self, wanted: Wanted) -> tuple[str, ...] | None:
        """Return the kinds of states that an aggregate takes; None where it needs rows."""
        values: Any = self._columns[wanted.place]
        kinds = kinds_for(values, wanted.how, wanted.options)
        # Labels are found by numbers that equal the extreme.
        unlabelled = wanted.how.startswith("idx") and not values.is_number
        return None if kinds is None or unlabelled or "decimal" in kinds else kinds

    def settle_dtypes(self, wanted: Sequence[Wanted], *, full: bool) -> list[Any]:
        """Return the aggregates of rows of nulls, which have the dtypes of all rows."""
        found = []
        for each in wanted:
            if AGGREGATES[each.how].labels:
                labels = frames_named("cudf").series(self._frame.index)
                found.append(labels.iloc[: len(self)].reset_index(drop=True))
            else:
                found.extend(super()._reduced([each]))
        return found

    @property
    def positions(self) -> list[int]:
        """The positions of what is aggregated among the columns of the frame."""
        if self._frame.ndim == 1:
            return [0]
        labels = list(self._frame.columns)
        return [labels.index(label) for label in self._labels]


def null_rows(source: Any) -> Any:
    """Return a row of nulls like those of a frame or Series without rows."""
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
    """How a groupby of a cuDF frame in parts runs.

    States have the form of those of `GroupPlan`; they are cuDF frames, made, folded and told on the
    GPU. Each fold groups the states of several parts at once by the same kernels. Decimals' sums,
    covariances and correlations need the rows of a group.
    """

    on_gpu: ClassVar[bool] = True

    def __getstate__(self) -> dict[str, Any]:
        # What is cached are more frames, each of which takes time to pickle.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of(
        cls, meta: Any, by: Any = None, *, how: Verb | str, level: Any = None, sort: bool = True,
        dropna: bool = True, observed: bool = True, as_index: bool = True, selection: Any = None,
    ) -> CudfPlan:  # fmt: skip
        """Return the plan of one verb of a groupby; see `GroupPlan.of`."""
        verb = how if isinstance(how, Verb) else Verb(how)
        source = meta.iloc[:0]
        if not hasattr(CudfGroupBy, verb.name):
            raise UnsupportedError(
                f"{verb.name} of groups of cuDF frames; convert the frame with .to_pandas(), or "
                "with .to_backend('pandas') of Dask"
            )
        keys = grouping_keys(source, by, level)
        if not observed and any(hasattr(key.values.dtype, "categories") for key in keys):
            raise UnsupportedError(
                "observed=False of cuDF frames; group with observed=True, or frame.to_pandas()"
            )
        groups = CudfGroups(keys, 0, sort=sort, dropna=dropna)
        if selection is not None:
            selection = CudfGroupBy(source, groups)[selection]._selection
        # Rows of no values have the dtypes of all, which results of no rows have not.
        few = null_rows(source)
        asked = Asked(full=True)
        probe = PlannedCudfGroups(
            few,
            CudfGroups(grouping_keys(few, by, level), len(few), sort=sort, dropna=False),
            asked.reduce, as_index=as_index, selection=selection,
        )  # fmt: skip
        made = verb.of(probe).iloc[:0]
        if made.index.nlevels > 1:
            # Slices of cuDF have a marker there.
            made.index.name = None
        by_states = verb.name in AGGREGATING - {"cov", "corr"}
        read = sorted(asked.positions) if by_states else probe.positions
        if verb.name not in OF_COLUMNS and selection is None:
            read = list(range(source.shape[1])) if source.ndim == 2 else [0]
        labelled = bool(asked.hows & {"idxmin", "idxmax"})
        if labelled and source.index.nlevels > 1:
            raise UnsupportedError("labels of several levels; give the frame one of one level")
        columns = portable(keys)
        return cls(
            source, by, level, sort, dropna, True, as_index, selection, verb,
            asked.kinds if by_states else None, tuple(read), made,
            KeyEncoder.for_frame(columns, list(columns.columns)),
            labels=verb.name not in OF_COLUMNS or labelled,
            distinct=bool(asked.hows) and asked.hows <= OF_DISTINCT,
            in_order=not (sort and asked.hows and asked.hows <= OF_ANY_ORDER),
            keeps_rows=all(key.in_frame for key in keys) and asked.of_numbers,
        )  # fmt: skip

    @functools.cached_property
    def keys(self) -> list[GroupingKey]:
        """The keys, without rows."""
        return grouping_keys(self.source, self.by, self.level)

    def reduce(self, part: Any, number: int) -> Any:
        """Return the states of a part, or its rows; see `GroupPlan.reduce`."""
        keys = self.keys_of(part)
        if self.wanted is None:
            return rows_of(self, part, keys, number)
        groups = CudfGroups(keys, len(part), sort=False, dropna=self.dropna)
        columns = []
        for place, kinds in self.wanted.items():
            assert isinstance(place, int)
            values = CudfValues(self.column_of(part, place))
            columns.append((CudfStates(values, groups, place, as_pairs=True), kinds))
        if any(states.in_two_passes(kinds) for states, kinds in columns):
            groups.number()
        reduce_states(groups, columns, sizes=True)
        made: dict[str, Any] = dict(zip(self.key_labels, groups.columns, strict=True))
        made |= {"n": groups.sizes, "at": place_of(number, groups.first_rows)}
        labels = functools.cache(lambda: frames_named("cudf").series(part.index))
        for place, (states, kinds) in zip(self.wanted, columns, strict=True):
            piece = Part(
                states, number,
                label_of=lambda rows: take_series(numbered(labels()), rows, nulls=True),
            )  # fmt: skip
            for kind in kinds:
                fields = zip(KINDS[kind].fields, KINDS[kind].made(piece), strict=True)
                made.update({prefix_of(place) + name: array for name, array in fields})
        return self._to_frame(made)

    def folded(self, parts: Sequence[Any]) -> Any:
        """Return the states of all parts as one frame, in which each key occurs once."""
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
            fields = self._fields(whole, place)
            for name, found in folded_fields(folds, kinds, fields, _ranks).items():
                if isinstance(found, Gathered):
                    column = whole[prefix_of(place) + name]
                    found = take_series(column, found.rows)
                made[prefix_of(place) + name] = found
        return self._to_frame({label: made[label] for label in whole.columns})

    def _of_one_pass(self, states: Any) -> dict[str, tuple[ColumnReduction, Any]] | None:
        """Return the folds of all fields and their dtypes; None where one takes several passes."""
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
        return self._to_frame({label: made[label] for label in states.columns})

    def _fields(self, states: Any, place: Any) -> dict[str, Any]:
        """Return the fields of a column's states: arrays of numbers, and columns of values."""
        number = CudfValues(self.column_of(self.source, place)).is_number
        assert self.wanted is not None
        made = {}
        for name in fields_of(self.wanted[place]):
            column = states[prefix_of(place) + name]
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
        """Return the first of the rows of a frame that are equal, by position."""
        return number_keys(compared([(label, rows[label]) for label in rows.columns]))[1]

    def codes_of_part(self, part: Any, _: int) -> Any:
        """Return the codes of the keys of a part's rows."""
        return self.encoder.encode_rows(portable(grouping_keys(part, self.by, self.level))).codes

    def _to_frame(self, columns: dict[str, Any]) -> Any:
        """Return a frame of arrays and Series by label."""
        made, size = list(columns.values()), len(next(iter(columns.values())))
        return self.frame_of(made, pd.Index(list(columns)), frames_named("cudf").range_index(size))

    def nulls_of(self, values: Any) -> Any:
        """Return a mask of the nulls of a key, None where there are none."""
        return frames_named("cudf").array(values.isna().astype(bool)) if values.has_nulls else None

    def portable(self, states: Any) -> Any:
        """Return the keys of states as columns that are equal where keys are."""
        return portable(self.keys_of_states(states))

    def keys_of_states(self, states: Any) -> list[GroupingKey]:
        """Return the keys of states, called as those of the source."""
        return [
            GroupingKey(key.name, column_of_key(states[label]), key.column, key.in_frame)
            for key, label in zip(self.keys, self.key_labels, strict=True)
        ]

    def result(self, states: Any) -> Any:
        """Return the result of states in which each key occurs once, or of rows in any order."""
        if not len(states):
            return self.meta
        form: Any = self.forms[self.form_of(states)]
        if form.needs_rows:
            return result_of(form, states)
        groups = FoldedCudfGroups(
            self.keys_of_states(states), _array(states["n"]), _array(states["at"]), sort=self.sort
        )
        folded: dict[int, FoldedStates] = {}

        def states_of(place: int) -> FoldedStates:
            fields = {
                name: groups.arranged(each) if isinstance(each, groups.xp.ndarray) else each
                for name, each in self._fields(states, place).items()
            }
            lacking = bool((fields["count"] < groups.sizes).any())
            values = FoldedValues(self.column_of(self.source, place), lacking=lacking)
            return FoldedStates(values, groups, fields)

        def reduce(
            _: PlannedCudfGroups, positions: Sequence[int], asked: Sequence[Wanted]
        ) -> list[Any]:
            found = []
            for column, how, options, _ in asked:
                place = positions[column]
                if place not in folded:
                    folded[place] = states_of(place)
                states = folded[place]
                if AGGREGATES[how].labels:
                    rows = groups.xp.where(states.count > 0, groups.first_rows, -1)
                    index = index_of([states.words[how]], [None])
                    found.append(labels_of(states, how, options, rows, index))
                else:
                    found.append(AGGREGATES[how].result(states, options))
            return found

        return self.told(
            PlannedCudfGroups(
                self.source, groups, reduce, as_index=self.as_index, selection=self.selection
            )
        )

    def told(self, groups: Any) -> Any:
        """Return the answer of groups."""
        return self.verb.of(groups)

    def keys_of(self, part: Any) -> list[GroupingKey]:
        """Return the keys of a part, in the dtypes of those of the source."""
        return [
            GroupingKey(
                key.name, _as_dtype(key.values, like.values, key.name), key.column, key.in_frame
            )
            for key, like in zip(grouping_keys(part, self.by, self.level), self.keys, strict=True)
        ]

    def column_of(self, part: Any, position: int) -> Any:
        """Return a column of a part by its position in the source, in its dtype there."""
        if part.ndim == 1:
            return _as_dtype(part.reset_index(drop=True), self.source, self.source.name)
        label = self.source.columns[position]
        return _as_dtype(part[label].reset_index(drop=True), self.source[label], label)


def _reduction(array: Any, fold: str) -> ColumnReduction:
    """Return the reduction that folds the numbers of states: a sum of integers, or an extreme."""
    if fold == "sum":
        return ColumnReduction(array, "i8", "integer", "sum")
    kind = "u" if array.dtype.kind == "b" else array.dtype.kind
    return ColumnReduction(array, f"{kind}{array.dtype.itemsize}", "rank", fold)


def _array(column: Any) -> Any:
    """Return the numbers of a column of states, which has no nulls; on its memory."""
    found = plain_array(column.to_pylibcudf()[0], column.dtype)
    return frames_named("cudf").array(column) if found is None else found


def _ranks(column: Any, name: str) -> Any:
    """Return numbers in the order of a column's values, by which nulls are never chosen."""
    frames = frames_named("cudf")
    xp: Any = frames.xp
    made = xp.empty(len(column), np.int64)
    made[order_of([column])] = xp.arange(len(column))
    if name == "greatest" and column.has_nulls:
        # Nulls come last.
        made[frames.array(column.isna().astype(bool))] = -1
    return made


def _as_dtype(series: Any, like: Any, label: Any) -> Any:
    """Return a column of a part in the dtype that the plan knows.

    Raises
    ------
    ColumnError
        When it has other values.
    """
    dtype = like.dtype
    if series.dtype == dtype or (hasattr(dtype, "categories") and series.dtype.name == dtype.name):
        return series
    try:
        frame = frames_named("cudf").conform(series.to_frame(0), like.to_frame(0))
    except ColumnError as error:
        raise ColumnError(
            f"column {label!r} of a part is {series.dtype}, and {dtype} in the plan; give all "
            "parts one dtype with .astype"
        ) from error
    return frame[0].rename(series.name)
