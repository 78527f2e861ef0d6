"""How a groupby of a frame in parts runs: what each part gives, and what follows from all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes import as_series, frames_of
from dgpuhash.frames.groupby.aggregates.pairs import Moments
from dgpuhash.frames.groupby.aggregates.states import states_of
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import Values, nulls_of, taken
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, grouping_keys, levels_of
from dgpuhash.frames.groupby.groups import Groups, numbered
from dgpuhash.frames.groupby.partial.fold import folded
from dgpuhash.frames.groupby.partial.keys import (
    Categories,
    as_dtype,
    categorical_columns,
    categories_of,
    extended,
    known,
    known_keys,
    portable,
)
from dgpuhash.frames.groupby.partial.kinds import (
    KIND_OF_PAIRS,
    KINDS,
    PairColumn,
    Part,
    Place,
    fields_of,
    lost_fields,
    place_of,
    prefix_of,
    words_of,
)
from dgpuhash.frames.groupby.partial.result import (
    FoldedGroups,
    FoldedStates,
)
from dgpuhash.frames.groupby.partial.rows import mostly_distinct_rows, result_of, rows_of
from dgpuhash.frames.groupby.partial.storage import array_of, plain
from dgpuhash.frames.groupby.partial.verbs import (
    AGGREGATING,
    OF_ANY_ORDER,
    OF_COLUMNS,
    OF_DISTINCT,
    Asked,
    PlannedGroups,
    Verb,
    settle_dtype,
)
from dgpuhash.frames.groupby.reduction import Wanted
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyEncoder

_OF_LIBRARIES: dict[str, type[GroupPlan]] = {}


@dataclass(frozen=True)
class GroupPlan:
    """How a groupby of a frame in parts runs.

    Each part is reduced where it lies, to its `states`: a frame with a row for each group, keys
    first. States of several parts are folded where the groups belong, and these give the result.
    Partial results are values that mean the same everywhere, so they can be sent,
    saved and folded in any order; the part's number tells the order of rows.

    Columns whose categories are not known to the plan are grouped and aggregated as objects. The
    dtypes of `meta` do not depend on the values of a frame: sums and products of integers are
    of 64 bits, and integers that can lack a value are float64.

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
    >>> plan = GroupPlan.of(sales.iloc[:0], "shop", how=Verb("mean"))
    >>> parts = [plan.reduce(sales.iloc[number : number + 1], number) for number in range(3)]
    >>> plan.result(plan.folded(parts))["price"].to_dict()
    {'a': 3.0, 'b': 1.0}
    """

    on_gpu: ClassVar[bool] = False
    source: Any
    by: Any
    level: Any
    sort: bool
    dropna: bool
    observed: bool
    as_index: bool
    selection: Any
    verb: Verb
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
        """Take the plans of frames of another library."""
        _OF_LIBRARIES[library] = cls

    @classmethod
    def of(
        cls, meta: Any, by: Any = None, *, how: Verb | str, level: Any = None, sort: bool = True,
        dropna: bool = True, observed: bool = True, as_index: bool = True, selection: Any = None,
    ) -> GroupPlan:  # fmt: skip
        """Return the plan of one verb of a groupby.

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
        own = _OF_LIBRARIES.get(frames_of(meta).name, cls)
        if own is not cls:
            return own.of(
                meta, by, how=how, level=level, sort=sort, dropna=dropna, observed=observed,
                as_index=as_index, selection=selection,
            )  # fmt: skip
        verb = how if isinstance(how, Verb) else Verb(how)
        source = known(meta.iloc[:0])
        keys = known_keys(meta.iloc[:0], by, level, observed=observed)
        groups = Groups(keys, 0, sort=sort, dropna=dropna, observed=True)
        if selection is not None:
            selection = GroupBy(source, groups)[selection]._selection
        full = observed or not any(
            isinstance(key.values.dtype, pd.CategoricalDtype) for key in keys
        )
        asked = Asked(full=full)
        probe = PlannedGroups(
            source, groups, asked.reduce, asked.moments, as_index=as_index,
            selection=selection,
        )  # fmt: skip
        made = verb.of(probe)
        wanted = asked.kinds if verb.name in AGGREGATING else None
        read = sorted(asked.positions) if verb.name in AGGREGATING else probe._positions
        if verb.name not in OF_COLUMNS and selection is None:
            read = list(range(source.shape[1])) if source.ndim == 2 else [0]
        encoder = KeyEncoder.for_frame(
            columns := portable([key.values for key in keys], [key.name for key in keys]),
            list(columns),
        )
        return cls(
            source, by, level, sort, dropna, full, as_index, selection, verb, wanted, tuple(read),
            made, encoder,
            labels=verb.name not in OF_COLUMNS - {"nlargest", "nsmallest"}
            or bool(asked.hows & {"idxmin", "idxmax"}),
            distinct=bool(asked.hows) and asked.hows <= OF_DISTINCT,
            in_order=not (sort and asked.hows and asked.hows <= OF_ANY_ORDER),
            keeps_rows=full and all(key.in_frame for key in keys) and asked.of_numbers,
        )  # fmt: skip

    @property
    def needs_rows(self) -> bool:
        """Whether parts give their rows, not states of groups."""
        return self.wanted is None

    @functools.cached_property
    def row_plan(self) -> GroupPlan | None:
        """The plan of parts that give rows in place of states; None where all give one kind."""
        return replace(self, wanted=None) if self.keeps_rows and not self.needs_rows else None

    @property
    def forms(self) -> list[GroupPlan]:
        """The plans of what parts may give: states, and rows in place of them."""
        return [self] if self.row_plan is None else [self, self.row_plan]

    def form_of(self, states: Any) -> int:
        """Return the number of the form that states have, or rows in place of them."""
        return int(self.row_plan is not None and "n" not in states)

    @functools.cached_property
    def keys(self) -> list[GroupingKey]:
        """The keys, without rows."""
        return known_keys(self.source, self.by, self.level, observed=True)

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
        """The positions of the columns that are read, and of others that are called alike."""
        if self.source.ndim == 1:
            return [0]
        labels, keys = list(self.source.columns), {k.column for k in self.keys if k.in_frame}
        chosen = {labels[position] for position in self.read} | keys
        return [place for place, label in enumerate(labels) if label in chosen]

    @property
    def columns(self) -> list[Hashable]:
        """The labels of the columns of the source that are read."""
        if self.source.ndim == 1:
            return []
        return list(dict.fromkeys(self.source.columns[place] for place in self.places))

    @functools.cached_property
    def states_meta(self) -> pd.DataFrame:
        """The states of no rows."""
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
            the rows that are in a group, with their keys, ``at``, columns (``c0``) and labels
            (``i0``).

        Raises
        ------
        ColumnError
            When a column has another dtype than that of the source.
        """
        keys = self.keys_of(part)
        if self.wanted is None:
            return rows_of(self, part, keys, number)
        groups = Groups(
            keys, len(part), sort=False, dropna=self.dropna and self.observed, observed=True
        )  # fmt: skip
        made: dict[str, Any] = dict(zip(self.key_labels, groups.columns, strict=True))
        like = self.source.index

        def label_of(rows: Any) -> Any:
            labels = as_dtype(as_series(part.index), like.dtype, like.name)
            # Of groups without values any label, so that the dtype stays.
            return taken(labels, groups.positions(np.maximum(rows, 0)))

        single = [place for place in self.wanted if isinstance(place, int)]
        asked = [
            (Values(groups.kept(self.column_of(part, place))), words_of(self.wanted[place]))
            for place in single
        ]
        found = dict(zip(single, states_of(groups, asked), strict=True))
        made["n"] = groups.sizes.astype(np.int64)
        made["at"] = place_of(number, groups.positions(groups.ends("first")))
        hows = {kind: how for how, kind in KIND_OF_PAIRS.items()}
        paired = functools.cache(
            lambda place, kind: PairColumn(groups, self.column_of(part, place), hows[kind])
        )
        for place, kinds in self.wanted.items():
            if isinstance(place, int):
                piece = Part(found[place], number, label_of=label_of)
            else:
                piece = Part(None, number, groups, [paired(each, kinds[0]) for each in place])
            for kind in kinds:
                fields = zip(KINDS[kind].fields, KINDS[kind].made(piece), strict=True)
                made.update({prefix_of(place) + name: array for name, array in fields})
        return frame_of(list(made.values()), pd.Index(list(made)), pd.RangeIndex(len(groups)))

    def reduce_part(self, part: Any, number: int, few: int = 0) -> tuple[Any, Any]:
        """Return the states of a part, and the codes of their keys where these are known.

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
        """Return the states of parts by number in one form, and the plan of this.

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
        """Return the plan that reduces a part: with the categories that only the part has, too."""
        return extended(self, self.categories_of(part))

    def categories_of(self, part: Any) -> Categories:
        """Return the categories of a part that are not those of the source; none on a GPU."""
        return categories_of(self, part) if self._has_categories else ()

    @functools.cached_property
    def _has_categories(self) -> bool:
        return not self.on_gpu and any(categorical_columns(self, self.source))

    def encoded(self, states: pd.DataFrame) -> EncodedKeys:
        """Return the codes of the keys of states, which are equal for equal keys of any part.

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
        """Return the range of hashes, below `ranges`, of each row of states.

        It is equal for equal keys, whatever part they are of.
        """
        return self.encoder.owners(self.encoded(states).codes, ranges)

    def folded(self, parts: Sequence[Any]) -> Any:
        """Return the states of all parts as one frame, in which each key occurs once.

        Rows that are needed, or are in place of states, are those of all parts.
        """
        if self.needs_rows or self.form_of(parts[0]):
            return parts[0] if len(parts) == 1 else frames_of(parts[0]).concat(parts)
        return folded(self, parts)

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
        """Return a mask of the nulls of a key, None where there are none."""
        return nulls_of(values)

    def first_rows(self, rows: Any) -> Any:
        """Return the first of the rows of a frame that are equal, by position."""
        return numbered([as_series(rows[label]) for label in rows])[1]

    def codes_of_part(self, part: Any, number: int) -> Any:
        """Return the codes of the keys of a part's rows, where parts give rows."""
        return self.encoded(self.reduce(part, number)).codes

    def portable(self, states: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of states as columns that are equal where keys are."""
        columns = [as_series(states[label]) for label in self.key_labels]
        return portable(columns, [key.name for key in self.keys])

    def keys_of_states(self, states: pd.DataFrame) -> list[GroupingKey]:
        """Return the keys of states, called as those of the source."""
        return [
            GroupingKey(key.name, as_series(states[label]), key.column, key.in_frame)
            for key, label in zip(self.keys, self.key_labels, strict=True)
        ]

    def result(self, states: pd.DataFrame) -> Any:
        """Return the result of states in which each key occurs once, or of rows in any order."""
        form = self.forms[self.form_of(states)]
        if form.needs_rows:
            return result_of(form, states)
        if not self.sort or not self.observed:
            order = np.argsort(states["at"].to_numpy(), kind="stable")
            states = states.take(order).reset_index(drop=True)
        return self.result_of(states, self.groups_of(states))

    def groups_of(self, states: pd.DataFrame) -> FoldedGroups:
        """Return the groups of states in which each key occurs once."""
        return FoldedGroups(
            self.keys_of_states(states), states["n"].to_numpy(),
            sort=self.sort, dropna=self.dropna, observed=self.observed,
        )  # fmt: skip

    def heads_of(self, groups: Groups, places: Any, first: Any) -> pd.DataFrame:
        """Return the keys of groups; unless they are sorted, with the place of their first rows."""
        heads = dict(zip(self.key_labels, groups.columns, strict=True))
        if not self.sort:
            heads["at"] = pd.Series(places.to_numpy()[first])
        return pd.DataFrame(heads, copy=False)

    def result_of(self, states: pd.DataFrame, groups: FoldedGroups) -> Any:
        """Return the result of folded states, whose groups these are."""
        assert self.wanted is not None
        wanted = self.wanted
        found_of: dict[int, FoldedStates] = {}

        def reduce(_: GroupBy, positions: Sequence[int], asked: Sequence[Wanted]) -> list[Any]:
            found = []
            for each in asked:
                place = positions[each.place]
                if place not in found_of:
                    values = Values(self.column_of(self.source, place))
                    found_of[place] = FoldedStates(values, groups, fields(place))
                found.append(self._settled(found_of[place], each))
            return found

        def fields(place: Place) -> dict[str, Any]:
            kinds = wanted[place]
            names = [*fields_of(kinds), *lost_fields(kinds)]
            labels = {name: prefix_of(place) + name for name in names}
            return {
                name: array_of(plain(states[label]), groups.states)
                for name, label in labels.items() if label in states.columns
            }  # fmt: skip

        def moments(
            _: GroupBy, positions: Sequence[int], __: Sequence[int], how: str
        ) -> Callable[[int, int], Moments]:
            def of(first: int, second: int) -> Moments:
                places = positions[first], positions[second]
                if places not in wanted:
                    own = fields(places[0])
                    return Moments(own["count"], *[own["moment"]] * 3)
                both = fields(places)
                return Moments(*(both[name] for name in ("count", "mixed", "squares", "others")))

            return of

        return self.told(self.grouped(self.source, groups, reduce, moments))

    def told(self, groups: GroupBy) -> Any:
        """Return the answer of groups; keys that are columns of objects stay objects."""
        made = self.verb.of(groups)
        if self.as_index or made.ndim == 1 or made.columns.nlevels > 1:
            return made
        objects = [key.name for key in self.keys if key.in_frame and key.values.dtype == object]
        wanted = {
            name: object for name in objects if name in made and made[name].dtype != object
        }  # fmt: skip
        return made.astype(wanted) if wanted else made

    def grouped(self, frame: Any, groups: Groups, reduce: Any, moments: Any = None) -> GroupBy:
        """Return groups of a frame like the source, of which functions make aggregates."""
        return PlannedGroups(
            frame, groups, reduce, moments, as_index=self.as_index, selection=self.selection
        )  # fmt: skip

    def _settled(self, states: FoldedStates, each: Wanted) -> Any:
        aggregate = AGGREGATES[each.how]
        if aggregate.labels:
            return states.labels(each.how, each.options)
        found = aggregate.result(states, each.options)
        return settle_dtype(found, states.values, each, full=self.observed)

    def keys_of(self, part: Any) -> list[GroupingKey]:
        """Return the keys of a part, in the dtypes of those of the source."""
        return [
            GroupingKey(
                key.name,
                as_dtype(key.values, like.values.dtype, key.name),
                key.column,
                key.in_frame,
            )
            for key, like in zip(grouping_keys(part, self.by, self.level), self.keys, strict=True)
        ]

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
