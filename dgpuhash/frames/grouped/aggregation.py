"""Aggregation: the columns, keys, aggregates and labels of incremental states."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of_class
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, FormatError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes import as_series, frames_of
from dgpuhash.frames.dataframes.cudf_columns import order_of
from dgpuhash.frames.dataframes.remedies import cast_remedy
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import key_order
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.partial.cudf.host import host_like, in_dtypes, on_device, on_host
from dgpuhash.frames.groupby.partial.cudf.plan import FoldedCudfGroups
from dgpuhash.frames.groupby.partial.fold import plain
from dgpuhash.frames.groupby.partial.kinds import KINDS, fields_of, lost_fields, prefix_of
from dgpuhash.frames.groupby.partial.result import FoldedGroups
from dgpuhash.frames.groupby.reduction import requests
from dgpuhash.frames.grouped import fields
from dgpuhash.frames.grouped.fields import EPOCH, OWN
from dgpuhash.frames.labels import key_names
from dgpuhash.frames.merge.index import index_of

Named = tuple[Hashable, Hashable, str, tuple[tuple[str, Any], ...]]


@dataclass(frozen=True)
class Aggregation:
    """Named aggregates of columns by keys.

    Attributes
    ----------
    source : DataFrame
        An empty frame with the columns that are read.
    by : tuple of labels
        The key columns.
    named : tuple of (label, label, str, tuple)
        For each result its label, its column, the name of the aggregate, and pairs of options.
    dropna : bool
        Whether rows with a null in a key are in no group.
    sort : bool
        Whether results come in the order of the keys.
    like : cudf.DataFrame, optional
        The same as `source` where the frames are cuDF's: they are reduced on their GPU. States of
        numbers, datetimes and booleans stay there, too; others are on the host.
    """

    source: Any
    by: tuple[Hashable, ...]
    named: tuple[Named, ...]
    dropna: bool = True
    sort: bool = True
    like: Any = None

    @classmethod
    def of(
        cls, meta: Any, by: Sequence[Hashable], named: Mapping[Any, Any], *, dropna: bool,
        sort: bool,
    ) -> Aggregation:  # fmt: skip
        """Return the aggregation of frames like `meta`.

        Raises
        ------
        ColumnError, KeyTypeError
            When a column is missing or doubled, or cannot be a key.
        SpecError
            When no aggregate is named, there is none of that name, or a label is taken.
        UnsupportedError
            When an aggregate needs the rows of its groups.
        """
        given = meta
        if on_gpu := _is_cudf(meta):
            meta = host_like(meta)
        if not isinstance(meta, pd.DataFrame):
            raise UnsupportedError(
                f"{type(meta).__module__.partition('.')[0]} frames are not supported; give pandas "
                "or cuDF frames, such as .to_pandas() makes"
            )
        for option, value in (("dropna", dropna), ("sort", sort)):
            if not isinstance(value, bool):
                raise SpecError(f"{option}={value!r}; give True or False")
        keys = key_names(meta, by)
        if not named:
            raise SpecError("no aggregate is named; give one, such as total=('price', 'sum')")
        asked = requests(meta.columns, None, named)
        made = tuple(
            (each.label, meta.columns[each.place], each.how, tuple((each.given or {}).items()))
            for each in asked
        )
        taken = [label for label, *_ in made if label in keys]
        own = [each for each in (*keys, *named) if isinstance(each, str) and each.startswith(OWN)]
        if taken or own:
            raise SpecError(
                f"results cannot be called {taken!r} as keys are; choose other labels" if taken
                else f"labels {own!r} begin as those of states; choose others"
            )  # fmt: skip
        read = {*keys, *(column for _, column, _, _ in made)}
        labels = list(key_names(meta, [label for label in meta.columns if label in read]))
        source = meta[labels].iloc[:0].reset_index(drop=True).copy()
        like = given[labels].iloc[:0].reset_index(drop=True) if on_gpu else None
        groups = cls(source, keys, made, dropna, sort, like)
        groups._check_states()
        return groups

    def _check_states(self) -> None:
        """Raise UnsupportedError for aggregates without states."""
        plans = [self._plan] if self.like is None else [self._plan, self._plan_on_gpu]
        rows = any(plan.needs_rows for plan in plans)
        wrong = [
            how for _, column, how, options in self.named
            if AGGREGATES[how].labels
            or (rows and any(
                _plan(self, [(column, how, options)], like).needs_rows
                for like in (self.source, self.like) if like is not None
            ))
        ]  # fmt: skip
        if wrong:
            raise UnsupportedError(
                f"{', '.join(map(repr, dict.fromkeys(wrong)))} of these columns cannot be "
                f"updated incrementally, because all rows would have to be stored; compute it "
                f"with ddf.dgpuhash.groupby"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self._packed,)

    @functools.cached_property
    def _packed(self) -> bytes:
        return pickle.dumps(tuple(getattr(self, each.name) for each in fields_of_class(self)))

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `from_json`, without the source."""
        return {
            "by": list(self.by),
            "named": [[label, column, how, list(map(list, options))]
                      for label, column, how, options in self.named],
            "dropna": self.dropna,
            "sort": self.sort,
        }  # fmt: skip

    @classmethod
    def from_json(cls, source: Any, body: dict[str, Any]) -> Aggregation:
        """Return the aggregation that `to_json` described.

        Raises
        ------
        FormatError
            When that is damaged.
        """
        try:
            named = tuple(
                (label, column, str(how), tuple((name, value) for name, value in options))
                for label, column, how, options in body["named"]
            )
            if len({(label, column) for label, column, *_ in named}) < len(named):
                raise ValueError("two results of one name")
            groups = cls(source, tuple(body["by"]), named, body["dropna"], body["sort"])
            assert LabelledResults(groups).meta is not None
            return groups
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"not the description of groups ({error!r})") from error

    @functools.cached_property
    def _plan(self) -> GroupPlan:
        return _plan(self, self._asked, self.source)

    @property
    def _asked(self) -> list[tuple[Hashable, str, Any]]:
        return [(column, how, options) for _, column, how, options in self.named]

    @functools.cached_property
    def _plan_on_gpu(self) -> GroupPlan:
        return _plan(self, self._asked, self.like)

    @functools.cached_property
    def are_on_gpu(self) -> bool:
        """Whether states are cuDF frames: those of keys and values of fixed size."""
        if self.like is None:
            return False
        states = self._plan_on_gpu.states_meta
        return all(map(_is_fixed, frames_of(states).dtypes(states)))

    @property
    def key_frame(self) -> Any:
        """Empty frame with the keys, of the library of the states."""
        return self.like if self.are_on_gpu else self.source

    @functools.cached_property
    def nullable_states(self) -> list[Hashable]:
        """The labels of the states that may be null: keys, first and last values."""
        places = (self._plan.wanted or {}).items()
        ends = {"first", "last", "first of all", "last of all"}
        return [*self.by, *(
            f"{OWN}{prefix_of(place)}{field}"
            for place, kinds in places for field in fields_of(kinds) if field in ends
        )]  # fmt: skip

    @functools.cached_property
    def results_on_gpu(self) -> Any:
        """Empty cuDF frame like the results, if the frames are on a GPU."""
        made = self._plan_on_gpu.meta.copy(deep=False)
        labels = [*self.by, *(label for label, *_ in self.named)]
        made.columns = pd.Index(labels, tupleize_cols=False)
        return made

    @functools.cached_property
    def _own_labels(self) -> dict[str, Hashable]:
        """The states' labels by the plan's labels, without the first rows of groups."""
        plan = self._plan
        made: dict[str, Hashable] = {}
        for label in map(str, plan.states_meta):
            if label in plan.key_labels:
                made[label] = self.by[plan.key_labels.index(label)]
            elif label != "at":
                made[label] = f"{OWN}{label}"
        return made

    @functools.cached_property
    def is_retractable(self) -> bool:
        """Whether rows can be removed from all aggregates."""
        return _are_retractable(self._plan)

    @functools.cached_property
    def _lost_labels(self) -> dict[str, str]:
        """The labels of the states' error bounds by the plan's labels."""
        wanted = (self._plan.wanted or {}).items() if self.is_retractable else ()
        labels = [prefix_of(place) + name for place, kinds in wanted for name in lost_fields(kinds)]
        return {label: f"{OWN}{label}" for label in labels}

    @functools.cached_property
    def states(self) -> Any:
        """Empty frame like the states: keys, fields and the epoch."""
        return self.reduce(self.like, 0) if self.are_on_gpu else self.saved_states

    @functools.cached_property
    def saved_states(self) -> Any:
        """Empty pandas frame like saved states."""
        return self._with_labels(self._plan.states_meta)

    @functools.cached_property
    def results(self) -> Any:
        """Empty frame like the results: the keys, then the aggregates."""
        return self.results_on_gpu if self.are_on_gpu else self.results_of(self.states)

    @functools.cached_property
    def saved_results(self) -> Any:
        """Empty pandas frame like the results of saved states."""
        return replace(self, like=None).results if self.are_on_gpu else self.results

    def check(self, given: Any) -> None:
        """Raise ColumnError if a frame lacks a needed column or its dtype.

        Numbers of NumPy's dtypes may be narrower ones, and texts may be objects.
        """
        key_names(given, list(self.source.columns))
        if _is_cudf(given):
            if self.like is None:
                raise UnsupportedError(
                    "a cuDF frame was given for groups built from pandas frames; give "
                    "frame.to_pandas()"
                )
            given, dtypes = given[list(self.source.columns)], frames_of(given).dtypes
            if self.are_on_gpu and dtypes(given) == dtypes(self.like):
                return
            given = host_like(given)
        for label in self.source.columns:
            own, wanted = given[label].dtype, self.source[label].dtype
            if own != wanted and not _fits(given[label], wanted):
                remedy = cast_remedy(given[label], wanted, "the groups", "adding")
                raise ColumnError(
                    f"column {label!r} is {own}, and the groups were built with {wanted}; "
                    f"{remedy}, nothing was changed"
                )

    def reduce(self, frame: Any, number: int) -> Any:
        """Return the states of a frame's groups, as the part of a given number."""
        self.check(frame)
        part = frame[list(self.source.columns)]
        if _is_cudf(part):
            found = self._plan_on_gpu.reduce(part, number)
            if not self.are_on_gpu:
                found = in_dtypes(on_host(found), self._plan.states_meta)
        else:
            found = self._plan.for_part(part).reduce(part, number)
        made = self._with_labels(found)
        if self.is_retractable and self.like is None:
            self._check_sums(part, made)
        elif self.are_on_gpu and not _is_cudf(part):
            return self.from_save(made)
        return made

    def _with_labels(self, found: Any) -> Any:
        """Return a plan's states under the labels of these, with an epoch and error bounds."""
        labels = self._own_labels
        made = found[list(labels)]
        made.columns = pd.Index(list(labels.values()), tupleize_cols=False)
        made[EPOCH] = frames_of(made).xp.zeros(len(made), np.int64)
        return self.complete(made)

    def to_save(self, states: Any) -> Any:
        """Return states as a pandas frame, as those of pandas frames are."""
        return in_dtypes(on_host(states), self.saved_states) if self.are_on_gpu else states

    def from_save(self, states: Any) -> Any:
        """Return saved states to insert, with columns that earlier versions did not save."""
        made = self.complete(states)
        return on_device(made, self.states) if self.are_on_gpu else made

    def complete(self, states: Any) -> Any:
        """Return states with columns added that earlier versions did not save.

        Nor did they save how many values are NaN of which nothing but extremes was asked, or the
        sizes of floats, which are taken for no larger than their sums.
        """
        own = list(self._own_labels.values())
        given: dict[str, float] = {str(each): 0 for each in own if str(each).endswith(" stray")}
        given |= dict.fromkeys(self._lost_labels.values(), 0.0)
        made = states.copy(deep=False)
        for label in [each for each in given if each not in states.columns]:
            made[label] = frames_of(states).xp.full(len(states), given[label])
        for place, kinds in self.kinds.items():
            prefix = f"{OWN}{place} "
            if "magnitude" in kinds and f"{prefix}magnitude" not in states.columns:
                made[f"{prefix}magnitude"] = np.abs(states[f"{prefix}real"])
                made[f"{prefix}nonzero"] = states[f"{prefix}count"]
        return made[[*own, EPOCH, *self._lost_labels.values()]]

    def _check_sums(self, part: Any, states: Any) -> None:
        """Raise UnsupportedError if a sum of finite values overflows."""
        if not fields.unbounded_mask(self.kinds, states).any():
            return
        finite = part.copy(deep=False)
        for place, kinds in self.kinds.items():
            if "real" in kinds:
                column = part.iloc[:, place]
                infinite = np.isinf(column.to_numpy(dtype=np.float64, na_value=0.0))
                finite[part.columns[place]] = column.mask(infinite)
        # The same groups: of those without infinite values the count is the same.
        counts = self._plan.for_part(finite).reduce(finite, 0)
        for place, kinds in self.kinds.items():
            there = counts[f"{place} count"].to_numpy() == states[f"{OWN}{place} count"].to_numpy()
            endless = fields.unbounded_mask({place: kinds}, states)
            if (rows := np.flatnonzero(endless & there)).size:
                raise fields.overflow(states[list(self.by)].iloc[rows[0]].to_dict())

    def results_of(
        self, states: Any, columns: Sequence[Hashable] | None = None, *, checked: bool = True
    ) -> Any:
        """Return the results of states, one row each.

        Parameters
        ----------
        states : DataFrame
        columns : sequence of label, optional
            The results that are wanted; keys come always. Default: all.
        checked : bool
            Whether deviations must be known in spite of the rows that were retracted.

        Raises
        ------
        LostDigitsError
            When one is not.
        """
        named = [label for label, *_ in self.named if columns is None or label in columns]
        plan = self._plan_of(tuple(named))
        labels: dict[str, Hashable] = {**self._own_labels, **(self._lost_labels if checked else {})}
        like = states[list(labels.values())]
        like.columns = pd.Index(list(labels))
        keys = plan.keys_of_states(like)
        if self.are_on_gpu:
            if not len(states):
                return self.results[[*self.by, *named]]
            made = states[list(self.by)]
            sizes, rows = fields.numbers_in(like["n"]), frames_of(like).xp.arange(len(like))
            found = plan.result_of(like, _EachRowOnGpu(keys, sizes, rows, sort=False))
            for place, label in enumerate(named):
                made[label] = found[_number(place)]
            return made
        found = plan.result_of(like, _EachRow(keys, like["n"].to_numpy()))
        arrays = [plain(states[label]) for label in self.by]
        for place, label in enumerate(named):
            made = found[_number(place)]
            # pandas infers a dtype of objects, which differs from worker to worker.
            objects = len(states) and self.results[label].dtype == object
            arrays.append(plain(made.astype(object) if objects else made))
        names = pd.Index([*self.by, *named], tupleize_cols=False)
        return frame_of(arrays, names, pd.RangeIndex(len(states)))

    def _plan_of(self, named: tuple[Hashable, ...]) -> GroupPlan:
        """Return the plan of some of the results, where the states are."""
        if len(named) == len(self.named):
            return self._plan_on_gpu if self.are_on_gpu else self._plan
        if named not in self._plans:
            asked = [(column, how, options) for label, column, how, options in self.named
                     if label in named] or [(self.by[0], "size", ())]  # fmt: skip
            self._plans[named] = _plan(self, asked, self.like if self.are_on_gpu else self.source)
        return self._plans[named]

    @functools.cached_property
    def _plans(self) -> dict[tuple[Hashable, ...], GroupPlan]:
        return {}

    @functools.cached_property
    def kinds(self) -> dict[int, tuple[str, ...]]:
        """The kinds of states of each aggregated column, by position."""
        wanted = self._plan.wanted or {}
        return {place: kinds for place, kinds in wanted.items() if isinstance(place, int)}

    def check_retractable(self) -> None:
        """Raise UnsupportedError if rows cannot be removed from the aggregates."""
        wrong = []
        for label, column, how, options in self.named:
            if not _are_retractable(_plan(self, [(column, how, options)], self.source)):
                wrong.append(f"{label!r} ({how})")
        if wrong:
            raise UnsupportedError(
                f"rows cannot be retracted from {', '.join(wrong)}, because the value without "
                f"them is unknown; build groups of count, size, sum, mean, var, std and sem alone"
            )


@functools.lru_cache(maxsize=32)
def _remade(packed: bytes) -> Aggregation:
    """Return the unpickled aggregation, cached because its plan takes time to make."""
    return Aggregation(*pickle.loads(packed))


class _EachRow(FoldedGroups):
    """Groups with one row of states each, in order.

    Parameters
    ----------
    keys : list of GroupingKey
    sizes : int64 array
        The number of rows that each is of.
    """

    def __init__(self, keys: list[GroupingKey], sizes: Any) -> None:
        self.keys, self.columns = keys, [key.values for key in keys]
        self.sorts = self.drops = [False] * len(keys)
        self.rows, self.is_observed = None, True
        self.states = self.codes = self.kept_codes = np.arange(len(sizes))
        self.sizes = sizes


class _EachRowOnGpu(FoldedCudfGroups):
    """Groups with one row of states each, in order, with the nulls of those on the host."""

    fewest = 0
    keeps_nan = False


@dataclass(frozen=True)
class LabelledResults:
    """Partitions of results with the keys as index.

    Attributes
    ----------
    groups : Aggregation
    columns : tuple of label, optional
        The results that are wanted; default: all.
    """

    groups: Aggregation
    columns: tuple[Hashable, ...] | None = None

    @property
    def wanted(self) -> list[Hashable]:
        """The labels of the requested results."""
        if self.columns is not None:
            return list(self.columns)
        return [label for label, *_ in self.groups.named]

    @property
    def meta(self) -> Any:
        """Empty frame like a partition."""
        return self.restore(self.groups.results)

    def restore(self, rows: Any) -> Any:
        """Return results with the keys as index, sorted if requested."""
        if self.groups.are_on_gpu:
            return self._with_keys(rows)
        if self.groups.like is not None:
            return self._on_gpu(rows)
        keys = [as_series(rows[label]) for label in self.groups.by]
        if self.groups.sort:
            order = key_order(keys)
            rows = frames_of(rows).take(rows, order)
            keys = [as_series(rows[label]) for label in self.groups.by]
        values = rows[self.wanted]
        return values.set_axis(index_of(keys, list(self.groups.by), guess=False), axis=0)

    def _on_gpu(self, rows: Any) -> Any:
        if self.groups.sort:
            order = key_order([as_series(rows[label]) for label in self.groups.by])
            rows = frames_of(rows).take(rows, order)
        made = on_device(rows, self.groups.results_on_gpu[list(rows.columns)])
        return self._with_index(made)

    def _with_keys(self, rows: Any) -> Any:
        if self.groups.sort:
            rows = frames_of(rows).take(rows, order_of([rows[label] for label in self.groups.by]))
        return self._with_index(rows)

    def _with_index(self, made: Any) -> Any:
        values = made[self.wanted]
        values.index = index_of([made[label] for label in self.groups.by], list(self.groups.by))
        return values

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "dgpuhash-labelled", self.columns


def _is_fixed(dtype: Any) -> bool:
    """Return whether values of a dtype are numbers, datetimes or booleans of fixed size."""
    own = getattr(dtype, "numpy_dtype", dtype)
    return isinstance(own, np.dtype) and own.kind in "biufmM"


def _is_cudf(frame: Any) -> bool:
    return type(frame).__module__.partition(".")[0] == "cudf"


def _plan(
    groups: Aggregation, named: Sequence[tuple[Hashable, str, Any]], source: Any
) -> GroupPlan:  # fmt: skip
    """Return the plan of some aggregates, named by numbers."""
    asked = {
        _number(place): pd.NamedAgg(column, how, **dict(options))
        for place, (column, how, options) in enumerate(named)
    }
    plan = GroupPlan.of(
        source, list(groups.by), how=GroupByCall("agg", options=asked), sort=False,
        dropna=groups.dropna, as_index=False,
    )  # fmt: skip
    if plan.wanted is None or not _are_retractable(plan):
        return plan
    # What retracted rows took from sums of floats is bounded by the sizes of all values.
    wanted = {
        place: (*kinds, "magnitude") if "real" in kinds else kinds
        for place, kinds in plan.wanted.items()
    }
    return replace(plan, wanted=wanted)


def _are_retractable(plan: GroupPlan) -> bool:
    """Return whether rows can be removed from all states of a plan."""
    wanted = (plan.wanted or {}).values()
    return all(KINDS[kind].retracted is not None for kinds in wanted for kind in kinds)


def _number(place: int) -> str:
    return f"{OWN}{place}"


def _fits(column: Any, wanted: Any) -> bool:
    """Return whether all values of a column are also values of another dtype."""
    own = column.dtype
    if isinstance(wanted, pd.StringDtype):
        objects = pd.api.types.infer_dtype(column, skipna=True) if own.kind == "O" else ""
        return isinstance(own, pd.StringDtype) or objects in {"string", "empty"}
    if isinstance(own, pd.CategoricalDtype) and isinstance(wanted, pd.CategoricalDtype):
        # Which categories there are is seen when rows are read.
        return own.ordered == wanted.ordered
    if not isinstance(own, np.dtype) or not isinstance(wanted, np.dtype):
        return False
    return own.kind in "iuf" and wanted.kind in "iuf" and np.can_cast(own, wanted)
