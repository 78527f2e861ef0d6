"""GroupPlan: plan of a partial aggregation: reduce parts, merge states, finalize."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.dataframes import as_series, frames_of
from dgpuhash.frames.groupby.aggregates.pairs import Moments
from dgpuhash.frames.groupby.aggregates.states import states_of
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import Values, nulls_of, take_values
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, grouping_keys, levels_of
from dgpuhash.frames.groupby.groups import Groups, numbered
from dgpuhash.frames.groupby.partial.fold import array_of, fold_states, plain
from dgpuhash.frames.groupby.partial.keys import (
    Categories,
    as_dtype,
    categorical_columns,
    categories_of,
    extend_categories,
    known_keys,
    portable,
    without_unknown_categories,
)
from dgpuhash.frames.groupby.partial.kinds import (
    KIND_OF_PAIRS,
    KINDS,
    Operand,
    PairColumn,
    Place,
    fields_of,
    lost_fields,
    place_of,
    prefix_of,
    words_of,
)
from dgpuhash.frames.groupby.partial.result import FoldedGroups, FoldedStates
from dgpuhash.frames.groupby.partial.rows import mostly_distinct_rows, result_of, rows_of
from dgpuhash.frames.groupby.partial.verbs import (
    AGGREGATING,
    OF_ANY_ORDER,
    OF_COLUMNS,
    OF_DISTINCT,
    OF_PAIRS,
    GroupByCall,
    Planned,
    PlannedGroups,
    Requirements,
    settle_dtype,
)
from dgpuhash.frames.groupby.reduction import Wanted
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder

_OF_LIBRARIES: dict[str, type[GroupPlan]] = {}


@dataclass(frozen=True)
class GroupPlan:
    """Plan of a partial aggregation of frames: reduce parts, merge states, finalize.

    Each part is reduced where it lies, to its `states`: a frame with a row for each group, keys
    first. States of several parts are folded where the groups belong, and these give the result.
    States mean the same everywhere: they are sent, saved and folded in any order.

    Columns whose categories the plan does not know are grouped and aggregated as objects. No value
    changes the dtypes of `meta`: sums and products of integers have 64 bits, and integers that can
    lack a value are float64.

    Attributes
    ----------
    on_gpu : bool
        Whether parts and states are cuDF frames.
    source : DataFrame or Series
        Without rows.
    by, level : as for `dgpuhash.groupby`
        Labels, levels, functions and mappings, which each part has.
    sort, dropna, observed, as_index : bool
    selection : label or list of labels or None
    verb : Verb
    wanted : dict
        By the position of a column of the source, or by those of a pair of columns, the kinds of
        states that it takes; None where rows are needed.
    meta : DataFrame, Series or Index
        The result without rows.
    encoder : KeyEncoder
        Of the keys as `portable` columns.
    labels : bool
        Whether rows come with their labels, where they are needed.
    distinct : bool
        Whether one of several equal rows is enough.
    in_order : bool
        Whether the order of rows counts.
    keeps_rows : bool
        Whether rows are no larger than states where a part has few of each key.
    rows_as : callable, optional
        Returns rows, where they are needed, with the dtypes in which they are aggregated.

    Examples
    --------
    >>> import pandas as pd
    >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
    >>> plan = GroupPlan.of(sales.iloc[:0], "shop", how=GroupByCall("mean"))
    >>> parts = [plan.reduce(sales.iloc[number : number + 1], number) for number in range(3)]
    >>> plan.result(plan.folded(parts))["price"].to_dict()
    {'a': 3.0, 'b': 1.0}
    """

    on_gpu: ClassVar[bool] = False
    grouped_type: ClassVar[type[Planned]] = PlannedGroups
    source: Any
    by: Any
    level: Any
    sort: bool
    dropna: bool
    observed: bool
    as_index: bool
    selection: Any
    verb: GroupByCall
    wanted: dict[Place, tuple[str, ...]] | None
    read: tuple[int, ...]
    meta: Any
    encoder: KeyEncoder
    labels: bool
    distinct: bool
    in_order: bool
    keeps_rows: bool
    rows_as: Callable[[Any], Any] | None = None

    def __init_subclass__(cls, *, library: str) -> None:
        """Register the plan class of another library."""
        _OF_LIBRARIES[library] = cls

    @classmethod
    def of(
        cls, meta: Any, by: Any = None, *, how: GroupByCall | str, level: Any = None,
        sort: bool = True, dropna: bool = True, observed: bool = True, as_index: bool = True,
        selection: Any = None,
    ) -> GroupPlan:  # fmt: skip
        """Return the plan for one verb of a groupby.

        Parameters
        ----------
        meta : DataFrame or Series
            A frame like the parts; its rows are not read.
        by, level, sort, dropna, observed, as_index
            As for `dgpuhash.groupby`.
        how : Verb or str
            The verb, or its name.
        selection : label or list of labels, optional
            What ``groups[selection]`` chooses.

        Raises
        ------
        ColumnError, ShapeError, SpecError, KeyTypeError, UnsupportedError
            As `dgpuhash.groupby` and the verb raise.
        """
        plans = _OF_LIBRARIES.get(frames_of(meta).name, cls)
        verb = how if isinstance(how, GroupByCall) else GroupByCall(how)
        source = plans.without_rows(meta, verb)
        keys = plans.known_keys(meta.iloc[:0], by, level, observed=observed)
        groups = plans.groups(keys, 0, sort=sort, dropna=dropna)
        full = observed or not any(hasattr(key.values.dtype, "categories") for key in keys)
        needed = Requirements(full=full)
        if selection is not None:
            probe: Any = plans.grouped_type(source, groups, needed.reduce)
            selection = probe[selection]._selection
        probe = plans.grouped_type(
            *plans.rows_to_try(source, groups, by, level), needed.reduce, needed.moments,
            as_index=as_index, selection=selection,
        )  # fmt: skip
        answer = plans.answer_without_rows(verb.of(probe))
        by_states = verb.name in AGGREGATING and not (plans.on_gpu and verb.name in OF_PAIRS)
        read = sorted(needed.positions) if by_states else probe._positions
        if verb.name not in OF_COLUMNS and selection is None:
            read = list(range(source.shape[1])) if source.ndim == 2 else [0]
        labelled = bool(needed.hows & {"idxmin", "idxmax"})
        if labelled and plans.on_gpu and source.index.nlevels > 1:
            raise UnsupportedError("the frame's index has several levels; give it one of one level")
        columns = plans.portable_keys(keys)
        return plans(
            source, by, level, sort, dropna, full, as_index, selection, verb,
            needed.kinds if by_states else None, tuple(read), answer,
            KeyEncoder.for_frame(columns, list(columns.columns)),
            labels=verb.name not in OF_COLUMNS - {"nlargest", "nsmallest"} or labelled,
            distinct=bool(needed.hows) and needed.hows <= OF_DISTINCT,
            in_order=not (sort and needed.hows and needed.hows <= OF_ANY_ORDER),
            keeps_rows=full and all(key.in_frame for key in keys) and needed.of_numbers,
        )  # fmt: skip

    @classmethod
    def without_rows(cls, meta: Any, verb: GroupByCall) -> Any:
        """Return an empty frame like the parts; raise if the verb is not supported."""
        return without_unknown_categories(meta.iloc[:0])

    known_keys = staticmethod(known_keys)

    @classmethod
    def groups(
        cls, keys: list[GroupingKey], rows: int, *, sort: Any, dropna: Any, observed: Any = True
    ) -> Any:  # fmt: skip
        """Return the groups of rows with these keys."""
        return Groups(keys, rows, sort=sort, dropna=dropna, observed=observed)

    @classmethod
    def rows_to_try(cls, source: Any, groups: Any, by: Any, level: Any) -> tuple[Any, Any]:
        """Return a trial frame and its groups, whose results have the final dtypes."""
        return source, groups

    @classmethod
    def answer_without_rows(cls, answer: Any) -> Any:
        """Return the result of trial rows as an empty result."""
        return answer

    def __getstate__(self) -> dict[str, Any]:
        # Cached properties are more frames to pickle, and other threads add them meanwhile.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @staticmethod
    def portable_keys(keys: Sequence[GroupingKey]) -> Any:
        """Return keys as columns that compare equal across parts."""
        return portable([as_series(key.values) for key in keys], [key.name for key in keys])

    @property
    def needs_rows(self) -> bool:
        """Whether parts contribute rows instead of states."""
        return self.wanted is None

    @functools.cached_property
    def row_plan(self) -> GroupPlan | None:
        """The plan for parts that contribute rows instead of states; None without a choice."""
        return replace(self, wanted=None) if self.keeps_rows and not self.needs_rows else None

    @property
    def forms(self) -> list[GroupPlan]:
        """The plans for each form of contribution: states, and rows."""
        return [self] if self.row_plan is None else [self, self.row_plan]

    def form_of(self, states: Any) -> int:
        """Return the number of the form of a contribution: states or rows."""
        return int(self.row_plan is not None and "n" not in states)

    @functools.cached_property
    def keys(self) -> list[GroupingKey]:
        """The keys, without rows."""
        return self.known_keys(self.source, self.by, self.level, observed=True)

    @functools.cached_property
    def key_labels(self) -> list[str]:
        """The labels of the keys in states."""
        made = [f"key{place}" for place in range(len(self.keys))]
        if self.wanted is None:
            labels = [] if self.source.ndim == 1 else list(self.source.columns)
            for place, key in enumerate(self.keys):
                if key.in_frame:
                    made[place] = f"c{labels.index(key.column)}"
        return made

    @functools.cached_property
    def places(self) -> list[int]:
        """The positions of the columns to read, and of others with the same label."""
        if self.source.ndim == 1:
            return [0]
        labels, keys = list(self.source.columns), {k.column for k in self.keys if k.in_frame}
        chosen = {labels[position] for position in self.read} | keys
        return [place for place, label in enumerate(labels) if label in chosen]

    @property
    def columns(self) -> list[Hashable]:
        """The labels of the source's columns to read."""
        if self.source.ndim == 1:
            return []
        return list(dict.fromkeys(self.source.columns[place] for place in self.places))

    @functools.cached_property
    def states_meta(self) -> pd.DataFrame:
        """Empty frame like the states."""
        return self.reduce(self.source, 0)

    def reduce(self, part: Any, number: int) -> pd.DataFrame:
        """Return the states of a part.

        Parameters
        ----------
        part : DataFrame or Series
            Like the source, with all of its columns or with `columns` alone.
        number : int
            The number of the part: rows of lower ones come first.

        Returns
        -------
        DataFrame
            A row for each group: its key (``key0`` and so on), its number of rows (``n``), its
            first row (``at``: 2^32 times the number of the part and the position in it) and the
            fields of `kinds`, with the position of the column before each. Where rows are needed,
            the rows of groups, with keys, ``at``, columns (``c0``) and labels (``i0``).

        Raises
        ------
        ColumnError
            When a column has another dtype than that of the source.
        """
        keys = self.keys_of(part)
        if self.wanted is None:
            return rows_of(self, part, keys, number)
        groups = self.groups(
            keys, len(part), sort=False, dropna=self.dropna and self.observed, observed=True
        )  # fmt: skip
        pieces = self.pieces_of(part, groups, number)
        columns: dict[str, Any] = dict(zip(self.key_labels, groups.columns, strict=True))
        columns["n"] = groups.sizes.astype(np.int64, copy=False)
        columns["at"] = place_of(number, groups.positions(groups.ends("first")))
        for place, kinds in self.wanted.items():
            for kind in kinds:
                arrays = zip(KINDS[kind].fields, KINDS[kind].made(pieces[place]), strict=True)
                columns.update({prefix_of(place) + name: array for name, array in arrays})
        return self.frame_of_states(columns)

    def pieces_of(self, part: Any, groups: Any, number: int) -> dict[Place, Operand]:
        """Return the columns, or pairs, that a part's states are computed from, by position."""
        assert self.wanted is not None
        like = self.source.index

        def label_of(rows: Any) -> Any:
            labels = as_dtype(as_series(part.index), like.dtype, like.name)
            # Of groups without values any label, so that the dtype stays.
            return take_values(labels, groups.positions(np.maximum(rows, 0)))

        single = [place for place in self.wanted if isinstance(place, int)]
        columns = [
            (Values(groups.kept(self.column_of(part, place))), words_of(self.wanted[place]))
            for place in single
        ]
        states = dict(zip(single, states_of(groups, columns), strict=True))
        pieces: dict[Place, Operand] = {
            place: Operand(each, number, label_of=label_of) for place, each in states.items()
        }
        hows = {kind: how for how, kind in KIND_OF_PAIRS.items()}
        side = functools.cache(
            lambda place, kind: PairColumn(groups, self.column_of(part, place), hows[kind])
        )
        for place, kinds in self.wanted.items():
            if not isinstance(place, int):
                sides = [side(each, kinds[0]) for each in place]
                pieces[place] = Operand(None, number, groups, sides)
        return pieces

    def frame_of_states(self, columns: dict[str, Any]) -> Any:
        """Return a frame of arrays and columns by label, one row per group."""
        index = frames_of(self.source).range_index(len(columns["n"]))
        return self.frame_of(columns.values(), pd.Index(list(columns)), index)

    def reduce_part(self, part: Any, number: int, few: int = 0) -> tuple[Any, Any]:
        """Return the states of a part, and the codes of their keys if known.

        In their place it may be its rows: at most `few`, or such as have few of each key.
        """
        plan, rows = self.for_part(part), self.row_plan
        # Which categories it has beside those of the plan is no matter of single rows.
        if rows is not None and plan is self:
            if len(part) <= few:
                return rows.reduce(part, number), None
            found = mostly_distinct_rows(rows, part, number)
            if found is not None:
                return found
        return plan.reduce(part, number), None

    def reduce_parts(
        self, parts: Iterable[tuple[int, Any]], agree: Callable[[bool], bool]
    ) -> tuple[GroupPlan, list[Any]]:
        """Return the states of parts by number in one form, and the plan of this form.

        `agree` is told whether rows may be in place of states, and returns whether they are.
        """
        given = list(parts)
        if self.row_plan is not None:
            made = []
            for number, part in given:
                alike = self.for_part(part) is self
                found = mostly_distinct_rows(self.row_plan, part, number) if alike else None
                if found is None:
                    break
                made.append(found[0])
            if agree(len(made) == len(given)):
                return self.row_plan, made
        return self, [self.for_part(part).reduce(part, number) for number, part in given]

    def for_part(self, part: Any) -> GroupPlan:
        """Return the plan extended by the categories that only one part has."""
        return extend_categories(self, self.categories_of(part))

    def categories_of(self, part: Any) -> Categories:
        """Return a part's categories that the source lacks; none on a GPU."""
        return categories_of(self, part) if self._has_categories else ()

    @functools.cached_property
    def _has_categories(self) -> bool:
        return not self.on_gpu and any(categorical_columns(self, self.source))

    def encoded(self, states: pd.DataFrame) -> EncodedKeys:
        """Return codes of the states' keys that are equal across parts.

        Categories that the source lacks have the code of null: each part numbers them by itself.
        """
        form = self.forms[self.form_of(states)]
        for key, label in zip(self.keys, form.key_labels, strict=True):
            own: Any = states[label].dtype
            like: Any = key.values.dtype
            if isinstance(own, pd.CategoricalDtype) and len(own.categories) > len(like.categories):
                states = states.assign(**{label: states[label].cat.set_categories(like.categories)})
        return self.encoder.encode_rows(form.portable(states))

    def owners(self, states: pd.DataFrame, ranges: int) -> Any:
        """Return the hash range, below `ranges`, of each row of states.

        It is equal for equal keys, whatever part they are of.
        """
        return self.encoder.owners(self.encoded(states).codes, ranges)

    def folded(self, parts: Sequence[Any]) -> Any:
        """Return the merged states of all parts as one frame with distinct keys.

        Rows that are needed, or are in place of states, are those of all parts.
        """
        if self.needs_rows or self.form_of(parts[0]):
            return parts[0] if len(parts) == 1 else frames_of(parts[0]).concat(parts)
        return fold_states(self, parts)

    def frame_of(self, columns: Iterable[Any], labels: Any, index: Any) -> Any:
        """Return a frame of columns and arrays with these labels."""
        arrays = [plain(each) if isinstance(each, pd.Series) else each for each in columns]
        return frame_of(arrays, labels, index)

    def series_of(self, column: Any, index: Any) -> Any:
        """Return a Series like the source with these values and labels."""
        return pd.Series(plain(column), index=index, name=self.source.name)

    def levels_of(self, index: Any) -> list[Any]:
        """Return the levels of labels as Series."""
        return [as_series(level) for level in levels_of(index)]

    def nulls_of(self, values: Any) -> Any:
        """Return a mask of the nulls of a key, None if there are none."""
        return nulls_of(values)

    def first_rows(self, rows: Any) -> Any:
        """Return the positions of a frame's distinct rows."""
        return numbered([as_series(rows[label]) for label in rows])[1]

    def codes_of_part(self, part: Any, number: int) -> Any:
        """Return the key codes of a part's rows, if parts contribute rows."""
        return self.encoded(self.reduce(part, number)).codes

    def portable(self, states: Any) -> Any:
        """Return the states' keys as columns that compare equal across parts."""
        return self.portable_keys(self.keys_of_states(states))

    key_column = staticmethod(as_series)
    """Return a column of keys, numbered from 0."""

    def keys_of_states(self, states: Any) -> list[GroupingKey]:
        """Return the states' keys under the source's names."""
        return [
            GroupingKey(key.name, self.key_column(states[label]), key.column, key.in_frame)
            for key, label in zip(self.keys, self.key_labels, strict=True)
        ]

    def result(self, states: Any) -> Any:
        """Return the result of merged states, or of rows in any order."""
        form = self.forms[self.form_of(states)]
        if form.needs_rows:
            return result_of(form, states)
        if not self.on_gpu and not (self.sort and self.observed):
            order = np.argsort(states["at"].to_numpy(), kind="stable")
            states = states.take(order).reset_index(drop=True)
        return self.result_of(states, self.groups_of(states))

    def groups_of(self, states: pd.DataFrame) -> FoldedGroups:
        """Return the groups of merged states."""
        return FoldedGroups(
            self.keys_of_states(states), states["n"].to_numpy(),
            sort=self.sort, dropna=self.dropna, observed=self.observed,
        )  # fmt: skip

    def heads_of(self, groups: Groups, places: Any, first: Any) -> pd.DataFrame:
        """Return the groups' keys; if unsorted, with the position of their first rows."""
        heads = dict(zip(self.key_labels, groups.columns, strict=True))
        if not self.sort:
            heads["at"] = pd.Series(places.to_numpy()[first])
        return pd.DataFrame(heads, copy=False)

    def result_of(self, states: Any, groups: Any) -> Any:
        """Return the result of merged states for these groups."""
        states_of = functools.cache(lambda place: self.folded_states(states, groups, place))

        def reduce(_: Any, positions: Sequence[int], wanted: Sequence[Wanted]) -> list[Any]:
            return [self.aggregate(states_of(positions[each.place]), each) for each in wanted]

        def moments(
            _: Any, positions: Sequence[int], __: Sequence[int], how: str
        ) -> Callable[[int, int], Moments]:
            def of(first: int, second: int) -> Moments:
                places = positions[first], positions[second]
                if places not in (self.wanted or {}):
                    own = self.fields(states, groups, places[0])
                    return Moments(own["count"], *[own["moment"]] * 3)
                both = self.fields(states, groups, places)
                return Moments(*(both[name] for name in ("count", "mixed", "squares", "others")))

            return of

        return self.answer(self.grouped(self.source, groups, reduce, moments))

    def fields(self, states: Any, groups: Any, place: Place) -> dict[str, Any]:
        """Return the state fields of a column or pair by group."""
        assert self.wanted is not None
        kinds = self.wanted[place]
        labels = {
            name: prefix_of(place) + name for name in [*fields_of(kinds), *lost_fields(kinds)]
        }  # fmt: skip
        return {
            name: array_of(plain(states[label]), groups.states)
            for name, label in labels.items() if label in states.columns
        }  # fmt: skip

    def folded_states(self, states: Any, groups: Any, place: int) -> FoldedStates:
        """Return the states of a column's groups."""
        values = Values(self.column_of(self.source, place))
        return FoldedStates(values, groups, self.fields(states, groups, place))

    def aggregate(self, states: FoldedStates, wanted: Wanted) -> Any:
        """Return an aggregate of merged states, in a dtype independent of the values."""
        aggregate = AGGREGATES[wanted.how]
        if aggregate.labels:
            return states.labels(wanted.how, wanted.options)
        found = aggregate.result(states, wanted.options)
        return settle_dtype(found, states.values, wanted, full=self.observed)

    def answer(self, groups: Any) -> Any:
        """Return the verb's result for groups, keeping object keys as objects."""
        made = self.verb.of(groups)
        if self.on_gpu or self.as_index or made.ndim == 1 or made.columns.nlevels > 1:
            return made
        objects = [key.name for key in self.keys if key.in_frame and key.values.dtype == object]
        wanted = {
            name: object for name in objects if name in made and made[name].dtype != object
        }  # fmt: skip
        return made.astype(wanted) if wanted else made

    def grouped(self, frame: Any, groups: Any, reduce: Any, moments: Any = None) -> Any:
        """Return a groupby of a frame like the source, with aggregates by functions."""
        return self.grouped_type(
            frame, groups, reduce, moments, as_index=self.as_index, selection=self.selection
        )  # fmt: skip

    def grouped_rows(self, frame: Any, groups: Any) -> Any:
        """Return a groupby of rows from all parts."""
        groups.of_parts = True
        return self.grouped(
            frame, groups, lambda made, _, wanted: made.settle_dtypes(wanted, full=self.observed)
        )

    grouping_keys = staticmethod(grouping_keys)
    """Return the keys of a part; see `dgpuhash.groupby`."""

    def keys_of(self, part: Any) -> list[GroupingKey]:
        """Return the keys of a part in the source's dtypes."""
        keys = self.grouping_keys(part, self.by, self.level)
        return [
            replace(key, values=self.as_known(key.values, like.values, key.name))
            for key, like in zip(keys, self.keys, strict=True)
        ]

    @staticmethod
    def as_known(column: Any, like: Any, label: Any) -> Any:
        """Return a column of a part in the plan's dtype."""
        return as_dtype(column, like.dtype, label)

    def column_of(self, part: Any, position: int) -> pd.Series:
        """Return a column of a part by its position in the source, in its dtype there."""
        if part.ndim == 1:
            return as_dtype(as_series(part), self.source.dtype, self.source.name)
        dtype, name = self._schema[position]
        if part.shape[1] != self.source.shape[1]:
            position = self.places.index(position)
        return as_dtype(as_series(part.iloc[:, position]), dtype, name)

    @functools.cached_property
    def _schema(self) -> list[tuple[Any, Hashable]]:
        """The dtypes and labels of the columns of the source."""
        return list(zip(self.source.dtypes, self.source.columns, strict=True))
