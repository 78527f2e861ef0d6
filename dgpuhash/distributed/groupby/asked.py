"""Serializable description of a groupby, the input of its plan."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from dask.dataframe.dispatch import meta_nonempty

from dgpuhash.distributed.cluster.expressions import token_of
from dgpuhash.distributed.cluster.serialization import Cache, schema_key
from dgpuhash.errors import SpecError
from dgpuhash.frames import frames_of
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.dataframes.partition_dtypes import PandasDtypes
from dgpuhash.frames.dataframes.promotion import nullable_rows
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.grouping_keys import levels_of
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.verb import groupby
from dgpuhash.frames.keys.seeds import KeySeeds
from dgpuhash.frames.merge.arguments import OnRounding


@dataclass(frozen=True, slots=True)
class Ranges:
    """Number of hash ranges of a groupby's keys.

    Attributes
    ----------
    of_groups : int
        Of the answer of an aggregate.
    of_rows : int
        Where a function of a user gets rows, which is slower than sending them.
    of_pairs : int
        Of pairs of a key and a value, which are more than groups.
    """

    of_groups: int
    of_rows: int
    of_pairs: int


class MadeUpRowsError(SpecError, TypeError):
    """A user's function failed on the sample rows that determine its result type."""


@dataclass(frozen=True)
class Asked:
    """Description of a groupby: keys, options, aggregates and the form of the result.

    Attributes
    ----------
    by, level : Any
        As in `dgpuhash.groupby`.
    sort, dropna, observed, as_index : bool
    selection : label or list of labels, optional
        What is aggregated; None: all columns beside the keys.
    verb : Verb
    names : mapping
        What key columns that were added to the frame are called in the result.
    meta : DataFrame or Series, optional
        An empty result, where functions of a user make it.
    on_rounding : callable, optional
        Given where partitions may have integers and booleans as pandas promotes them beside nulls,
        whatever Dask's meta says: they are nullable then, and results have pandas' dtypes. It is
        called in tasks with the labels of columns of which that rounds an integer.
    """

    by: Any
    level: Any = None
    sort: bool = True
    dropna: bool = True
    observed: bool = True
    as_index: bool = True
    selection: Any = None
    verb: GroupByCall = field(default_factory=lambda: GroupByCall("size"))
    names: Mapping[Hashable, Hashable] = field(default_factory=dict)
    meta: Any = None
    on_rounding: OnRounding | None = None

    def shown(self, meta: Any) -> Shown:
        """Return the final formatting of results, given the empty result `meta`."""
        names = dict(self.names)
        if self.on_rounding is None:
            return Shown(names, objects=() if self.meta is not None else _object_levels(meta))
        # What functions of a user return stays.
        as_pandas = PandasDtypes(meta, self.on_rounding, labels_only=self.meta is not None)
        return Shown(names, as_pandas)

    def plan(self, meta: Any, seeds: KeySeeds) -> GroupPlan:
        """Return the plan for partitions like an empty frame: reduce, merge states, finalize."""
        schema = schema_key(meta)
        # It takes milliseconds to try it, and optimisation asks again and again.
        name = None if schema is None else (token_of(self), schema, token_of(seeds))
        return _plans.get(name, lambda: self._planned(meta, seeds))

    def _planned(self, meta: Any, seeds: KeySeeds) -> GroupPlan:
        # Of categories that only partitions know, and which all count, rows with a null have the
        # other keys' values: `UnknownCategories` drops their groups.
        later = not self.observed and self._are_unknown(meta)
        source = meta if self.on_rounding is None else nullable_rows(meta)
        plan = GroupPlan.of(
            source, self.by, level=self.level, sort=self.sort, dropna=self.dropna and not later,
            observed=self.observed or later, as_index=self.as_index, selection=self.selection,
            how=self.verb,
        )  # fmt: skip
        plan = replace(plan, encoder=replace(plan.encoder, seeds=seeds))
        if self.on_rounding is None:
            return plan
        if any("prod" in kinds for kinds in (plan.wanted or {}).values()):
            # Products of integers wrap, and those of floats, which pandas has beside nulls, do not.
            plan = plan.row_plan or plan
        elif self.meta is None:
            return plan
        # They are multiplied, and functions of a user get them, as pandas has them.
        like = meta.iloc[:0] if meta.ndim == 1 else meta.iloc[:0, plan.places]
        return replace(plan, rows_as=PandasDtypes(like, self.on_rounding))

    def _are_unknown(self, meta: Any) -> bool:
        """Return whether Dask does not know the categories of a key."""
        return any(is_unknown(key.values.dtype) for key in self.groups(meta)._groups.keys)

    def groups(self, meta: Any) -> GroupBy:
        """Return the groupby of an empty frame, which checks the selected columns."""
        found: GroupBy = groupby(
            meta, self.by, level=self.level, sort=self.sort, dropna=self.dropna,
            observed=self.observed, as_index=self.as_index,
        )  # fmt: skip
        return found

    def tried(self, meta: Any) -> Any:
        """Return an empty result of the user's functions, by a trial on a few sample rows.

        Raises
        ------
        MadeUpRowsError
            When they fail with these.
        """
        groups: Any = self.groups(meta_nonempty(meta))
        groups = groups if self.selection is None else groups[self.selection]
        try:
            return Shown(dict(self.names))(self.verb.of(groups).iloc[:0])
        except Exception as error:
            raise MadeUpRowsError(
                f"{self.verb.name} calls a function that fails on two sample rows of the frame's "
                f"dtypes "
                f"({type(error).__name__}: {error}); give meta=, an empty frame or Series like the "
                "result"
            ) from error

    def narrowed(self, columns: Sequence[Any], wanted: Sequence[Any]) -> Asked | None:
        """Return the description for a selection of result columns; None for all.

        Parameters
        ----------
        columns : sequence of label
            Those of the result.
        wanted : sequence of label
        """
        kept = set(wanted)
        if not self.as_index or self.names or self.meta is not None or kept >= set(columns):
            return None
        if self.verb.name == "agg":
            func, named = self.verb.arguments[:1], self.verb.options
            if not func or func[0] is None:
                left = {label: each for label, each in named.items() if label in kept}
                return replace(self, verb=replace(self.verb, options=left)) if left else None
            if isinstance(func[0], Mapping):
                left = {label: each for label, each in func[0].items() if _head(label, kept)}
                given = (left, *self.verb.arguments[1:])
                return replace(self, verb=replace(self.verb, arguments=given)) if left else None
        if self.verb.name in {"size", "cov", "corr", "value_counts"}:
            return None
        heads = {label[0] if isinstance(label, tuple) else label for label in kept}
        chosen = self.selection if isinstance(self.selection, list) else list(columns)
        if any(isinstance(label, tuple) for label in columns):
            chosen = list(dict.fromkeys(label[0] for label in columns))
        return replace(self, selection=[label for label in chosen if label in heads])


def _head(label: Hashable, kept: set[Hashable]) -> bool:
    """Return whether a column, or one at a lower level, is selected."""
    return label in kept or any(isinstance(each, tuple) and each[0] == label for each in kept)


@dataclass(frozen=True)
class Shown:
    """Function that renames results and casts them to pandas' dtypes.

    Attributes
    ----------
    names : dict
        What keys and columns are called.
    as_pandas : callable, optional
        Returns a result with other dtypes.
    objects : tuple of int
        The places of levels of labels that are objects, whatever type their values have.

    Examples
    --------
    >>> Shown({"k0": "shop"})(pd.Series([1], pd.Index([5], name="k0"))).index.name
    'shop'
    """

    names: dict[Hashable, Hashable]
    as_pandas: Callable[[Any], Any] | None = None
    objects: tuple[int, ...] = ()

    def __call__(self, result: Any) -> Any:
        if self.objects:
            result = result.set_axis(_with_objects(result.index, self.objects), axis=0)
        return _call(result if self.as_pandas is None else self.as_pandas(result), self.names)


def _object_levels(meta: Any) -> tuple[int, ...]:
    """Return the positions of index levels of dtype object."""
    if frames_of(meta).name == "cudf":
        return ()
    levels = enumerate(levels_of(meta.index))
    return tuple(place for place, each in levels if each.dtype == np.dtype(object))


def _with_objects(index: Any, places: Sequence[int]) -> Any:
    if not isinstance(index, pd.MultiIndex):
        return index.astype(object)
    made: Any = index
    for place in places:
        level = made.levels[place].astype(object)
        made = made.set_levels(level, level=place, verify_integrity=False)
    return made


def _call(result: Any, names: Mapping[Hashable, Hashable]) -> Any:
    def name(label: Any) -> Any:
        return names.get(label, label) if isinstance(label, Hashable) else label

    if not names:
        return result
    made = result.copy(deep=False)
    made.index = result.index.set_names([name(each) for each in result.index.names])
    if made.ndim == 1:
        return made.rename(name(made.name))
    labels = np.empty(made.shape[1], object)
    labels[:] = [name(label) for label in made.columns]
    made.columns = pd.Index(labels, name=made.columns.name).infer_objects()
    return made


_plans = Cache[tuple[str, str, str], GroupPlan](most=256)
