"""What a state of groups aggregates: which columns by which keys, under which labels."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, FormatError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.order import key_order
from dgpuhash.frames.groupby.partial import GroupPlan, Verb
from dgpuhash.frames.groupby.partial.cudf.host import host_like, in_dtypes, on_device, on_host
from dgpuhash.frames.groupby.partial.folded import FoldedGroups
from dgpuhash.frames.groupby.partial.kinds import KINDS
from dgpuhash.frames.groupby.requests import requests
from dgpuhash.frames.labels import key_names
from dgpuhash.frames.merge.index import index_of
from dgpuhash.frames.merge.keys import as_series

__all__ = ["EPOCH", "OWN", "Aggregation", "LabelledResults"]

OWN = "dgpuhash "
"""What labels of columns of states begin with that are no keys."""
EPOCH = f"{OWN}epoch"
"""Column of states with the last epoch that changed a group; 0 for those of the epoch to come."""
SIZE = f"{OWN}n"

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
        The same as `source` where the frames are cuDF's: they are reduced on their GPU, and their
        states are held on the host.
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
                f"groups of {type(meta).__module__.partition('.')[0]} frames; give frames of "
                "pandas or cuDF, such as .to_pandas() makes"
            )
        for option, value in (("dropna", dropna), ("sort", sort)):
            if not isinstance(value, bool):
                raise SpecError(f"{option}={value!r}; give True or False")
        keys = key_names(meta, by)
        if not named:
            raise SpecError("no aggregate is named; give one, such as total=('price', 'sum')")
        asked = requests(meta.columns, None, named, one=False)
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
        """Raise UnsupportedError for aggregates that do not follow from states."""
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
                f"{', '.join(map(repr, dict.fromkeys(wrong)))} of these columns cannot be kept up "
                "to date, as all rows would have to stay; compute it with ddf.dgpuhash.groupby"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self._packed,)

    @functools.cached_property
    def _packed(self) -> bytes:
        return pickle.dumps(tuple(getattr(self, each.name) for each in fields(self)))

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
            groups = cls(source, tuple(body["by"]), named, body["dropna"], body["sort"])
            assert groups.results is not None
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
    def results_on_gpu(self) -> Any:
        """Empty cuDF frame like the results, where the frames are cuDF's."""
        made = self._plan_on_gpu.meta.copy(deep=False)
        made.columns = self.results.columns
        return made

    @functools.cached_property
    def _own_labels(self) -> dict[str, Hashable]:
        """The labels of states by those of the plan; without the first rows of groups."""
        plan = self._plan
        made: dict[str, Hashable] = {}
        for label in map(str, plan.states_meta):
            if label in plan.key_labels:
                made[label] = self.by[plan.key_labels.index(label)]
            elif label != "at":
                made[label] = f"{OWN}{label}"
        return made

    @functools.cached_property
    def states(self) -> Any:
        """Empty frame like the states: the keys, then numbers and values, and the epoch."""
        return self.reduce(self.source, 0)

    @functools.cached_property
    def results(self) -> Any:
        """Empty frame like the results: the keys, then the aggregates."""
        return self.results_of(self.states)

    def check(self, given: Any) -> None:
        """Raise ColumnError unless a frame has the columns that are read, and their dtypes.

        Numbers of NumPy's dtypes may be narrower ones, and texts may be objects.
        """
        key_names(given, list(self.source.columns))
        if _is_cudf(given):
            if self.like is None:
                raise UnsupportedError(
                    "a cuDF frame for groups that were built of pandas frames; give .to_pandas()"
                )
            given = host_like(given[list(self.source.columns)])
        for label in self.source.columns:
            own, wanted = given[label].dtype, self.source[label].dtype
            if own != wanted and not _fits(given[label], wanted):
                raise ColumnError(
                    f"column {label!r} is {own}, and the groups were built with {wanted}; convert "
                    f"it with .astype({str(wanted)!r}), nothing was changed"
                )

    def reduce(self, frame: Any, number: int) -> Any:
        """Return the states of the groups of a frame, the part of that number."""
        self.check(frame)
        part = frame[list(self.source.columns)]
        if _is_cudf(part):
            states = on_host(self._plan_on_gpu.reduce(part, number))
            found = in_dtypes(states, self._plan.states_meta)
        else:
            found = self._plan.reduce(part, number)
        labels = self._own_labels
        made = found[list(labels)].set_axis(pd.Index(list(labels.values())), axis=1)
        made[EPOCH] = np.zeros(len(made), np.int64)
        return made

    def results_of(self, states: Any) -> Any:
        """Return the results of states, a row for each of theirs."""
        plan, labels = self._plan, self._own_labels
        like = states[list(labels.values())].set_axis(pd.Index(list(labels)), axis=1)
        found = plan.result_of(like, _EachRow(plan.keys_of_states(like), like["n"].to_numpy()))
        keys = [states[label].array for label in self.by]
        values = [found[_number(place)].array for place in range(len(self.named))]
        names = pd.Index([*self.by, *(label for label, *_ in self.named)], tupleize_cols=False)
        return frame_of([*keys, *values], names, pd.RangeIndex(len(states)))

    @functools.cached_property
    def kinds(self) -> dict[int, tuple[str, ...]]:
        """The kinds of states of each column that is aggregated, by its position."""
        wanted = self._plan.wanted or {}
        return {place: kinds for place, kinds in wanted.items() if isinstance(place, int)}

    def counts(self, states: Any) -> list[Any]:
        """Return the numbers of rows, and of values of each column, that states are of."""
        labels = [SIZE, *(f"{OWN}{place} count" for place in self.kinds)]
        return [states[label].to_numpy() for label in labels]

    def infinite(self, states: Any) -> Any:
        """Return a mask of the states with a sum that is no finite number."""
        found = np.zeros(len(states), bool)
        for place, kinds in self.kinds.items():
            if "real" in kinds:
                found |= ~np.isfinite(states[f"{OWN}{place} real"].to_numpy())
        return found

    def check_retractable(self) -> None:
        """Raise UnsupportedError when rows cannot be taken off the aggregates again."""
        wrong = []
        for label, column, how, options in self.named:
            kinds = _plan(self, [(column, how, options)], self.source).wanted or {}
            if any(KINDS[kind].retracted is None for each in kinds.values() for kind in each):
                wrong.append(f"{label!r} ({how})")
        if wrong:
            raise UnsupportedError(
                f"rows cannot be taken off {', '.join(wrong)}, whose value before them is not "
                "known; build groups of count, size, sum, mean, var, std and sem alone"
            )


@functools.lru_cache(maxsize=32)
def _remade(packed: bytes) -> Aggregation:
    """Return the aggregation of these bytes, one for all changes: its plan takes time to make."""
    return Aggregation(*pickle.loads(packed))


class _EachRow(FoldedGroups):
    """Groups of one row of states each, in their order.

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


@dataclass(frozen=True)
class LabelledResults:
    """Partitions of results with their keys as labels.

    Attributes
    ----------
    groups : Aggregation
    """

    groups: Aggregation

    @property
    def meta(self) -> Any:
        """Empty frame like a partition."""
        return self.restored(self.groups.results)

    def restored(self, rows: Any) -> Any:
        """Return results with the keys as labels, in their order where that is wanted."""
        if self.groups.like is not None:
            return self._on_gpu(rows)
        keys = [as_series(rows[label]) for label in self.groups.by]
        if self.groups.sort:
            order = key_order(keys)
            rows = frames_of(rows).take(rows, order)
            keys = [as_series(rows[label]) for label in self.groups.by]
        values = rows[[label for label, *_ in self.groups.named]]
        return values.set_axis(index_of(keys, list(self.groups.by)), axis=0)

    def _on_gpu(self, rows: Any) -> Any:
        if self.groups.sort:
            order = key_order([as_series(rows[label]) for label in self.groups.by])
            rows = frames_of(rows).take(rows, order)
        made = on_device(rows, self.groups.results_on_gpu)
        values = made[[label for label, *_ in self.groups.named]]
        values.index = index_of([made[label] for label in self.groups.by], list(self.groups.by))
        return values

    def __dask_tokenize__(self) -> str:
        return "dgpuhash-labelled"


def _is_cudf(frame: Any) -> bool:
    return type(frame).__module__.partition(".")[0] == "cudf"


def _plan(
    groups: Aggregation, named: Sequence[tuple[Hashable, str, Any]], source: Any
) -> GroupPlan:  # fmt: skip
    """Return the plan of some aggregates, called by numbers."""
    asked = {
        _number(place): pd.NamedAgg(column, how, **dict(options))
        for place, (column, how, options) in enumerate(named)
    }
    return GroupPlan.of(
        source, list(groups.by), how=Verb("agg", options=asked), sort=False,
        dropna=groups.dropna, as_index=False,
    )  # fmt: skip


def _number(place: int) -> str:
    return f"{OWN}{place}"


def _fits(column: Any, wanted: Any) -> bool:
    """Return whether the values of a column are values of another dtype as well."""
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
