"""What a groupby is asked for, as expressions carry it: a plan is made of it anywhere."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from dask.base import tokenize
from dask.dataframe.dispatch import meta_nonempty

from dgpuhash.distributed.cluster.serialization import put_in_cache
from dgpuhash.distributed.merge.sides import named_schema_key
from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.partial import GroupPlan, Verb
from dgpuhash.frames.groupby.verb import groupby
from dgpuhash.frames.keys.categories import is_unknown
from dgpuhash.frames.keys.seeds import KeySeeds

__all__ = ["Asked", "Ranges", "called"]

# Plans that are kept of frames on GPUs.
_MOST_PLANS = 64


@dataclass(frozen=True, slots=True)
class Ranges:
    """How many hash ranges the keys of groups have.

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
    """A function that fails with rows that are made up to know what it returns."""


@dataclass(frozen=True)
class Asked:
    """Keys of groups, how they are made, and what is asked of them.

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
    """

    by: Any
    level: Any = None
    sort: bool = True
    dropna: bool = True
    observed: bool = True
    as_index: bool = True
    selection: Any = None
    verb: Verb = field(default_factory=lambda: Verb("size"))
    names: Mapping[Hashable, Hashable] = field(default_factory=dict)
    meta: Any = None

    def plan(self, meta: Any, seeds: KeySeeds) -> GroupPlan:
        """Return how partitions like an empty frame are reduced, folded and told."""
        kind = named_schema_key(meta)
        if kind is None:
            return self._planned(meta, seeds)
        # It takes milliseconds to try it, and optimisation asks again and again.
        asked = tokenize(self, kind, seeds)
        found = _plans.get(asked)
        if found is None:
            found = self._planned(meta, seeds)
            put_in_cache(_plans, asked, found, _MOST_PLANS)
        return found

    def _planned(self, meta: Any, seeds: KeySeeds) -> GroupPlan:
        plan = GroupPlan.of(
            meta, self.by, level=self.level, sort=self.sort, dropna=self.dropna,
            observed=self.observed or self._are_unknown(meta), as_index=self.as_index,
            selection=self.selection, how=self.verb,
        )  # fmt: skip
        return replace(plan, encoder=replace(plan.encoder, seeds=seeds))

    def _are_unknown(self, meta: Any) -> bool:
        """Return whether only the partitions know the categories of a key."""
        return any(is_unknown(key.values.dtype) for key in self.groups(meta)._groups.keys)

    def groups(self, meta: Any) -> GroupBy:
        """Return the groups of an empty frame, which check what is chosen of them."""
        found: GroupBy = groupby(
            meta, self.by, level=self.level, sort=self.sort, dropna=self.dropna,
            observed=self.observed, as_index=self.as_index,
        )  # fmt: skip
        return found

    def tried(self, meta: Any) -> Any:
        """Return an empty result of functions, which are tried with a few rows that are made up.

        Raises
        ------
        MadeUpRowsError
            When they fail with these.
        """
        groups: Any = self.groups(meta_nonempty(meta))
        groups = groups if self.selection is None else groups[self.selection]
        try:
            return called(self.verb.of(groups).iloc[:0], self.names)
        except Exception as error:
            raise MadeUpRowsError(
                f"{self.verb.name} of a function that fails with two rows like those of the frame "
                f"({type(error).__name__}: {error}); give meta=, an empty frame or Series like the "
                "result"
            ) from error

    def narrowed(self, columns: Sequence[Any], wanted: Sequence[Any]) -> Asked | None:
        """Return what is asked for where only some columns of the result are; None for all.

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
    """Return whether a column is wanted, or one beneath it."""
    return label in kept or any(isinstance(each, tuple) and each[0] == label for each in kept)


def called(result: Any, names: Mapping[Hashable, Hashable]) -> Any:
    """Return a result whose keys and columns are called otherwise.

    Examples
    --------
    >>> called(pd.Series([1], pd.Index([5], name="k0")), {"k0": "shop"}).index.name
    'shop'
    """

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


_plans: dict[str, GroupPlan] = {}
