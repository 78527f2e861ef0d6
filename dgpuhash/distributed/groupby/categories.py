"""Group by categoricals with categories unknown to Dask: union those of the partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from dgpuhash.distributed.cluster.dask_internals import UNKNOWN_CATEGORIES
from dgpuhash.frames import frames_of
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.groupby.grouping_keys import levels_of
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.keys import Categories, recoded
from dgpuhash.frames.groupby.partial.rows import result_of
from dgpuhash.frames.keys.categories import in_one_order, together
from dgpuhash.frames.keys.seeds import KeySeeds
from dgpuhash.frames.merge.index import index_of

if TYPE_CHECKING:
    from dgpuhash.distributed.groupby.asked import Asked

# The only category of metas that a plan is made of.
_BLANK = "dgpuhash category"


@dataclass(frozen=True, slots=True)
class PartCategories:
    """Categories of a partition that the plan lacks.

    Attributes
    ----------
    unknown : tuple of Index
        Those of the columns whose categories Dask does not know.
    others : Categories
        Those of the other columns, where they are not those that Dask knows.
    """

    unknown: tuple[pd.Index, ...] = ()
    others: Categories = ()

    @classmethod
    def of(cls, plan: GroupPlan, unknown: UnknownCategories | None, part: Any) -> PartCategories:
        """Return the categories of a partition."""
        return cls(() if unknown is None else unknown.categories(part), plan.categories_of(part))


@dataclass(frozen=True)
class UnknownCategories:
    """Columns with unknown categories, and the results for the union of all partitions'.

    Until then their values are objects. All results have the categories of all partitions, in the
    order in which these have them.

    Attributes
    ----------
    asked : Asked
    source : DataFrame or Series
        Without rows, as Dask knows it.
    seeds : KeySeeds
    """

    asked: Asked
    source: Any
    seeds: KeySeeds

    @classmethod
    def of(cls, asked: Asked, source: Any, seeds: KeySeeds) -> UnknownCategories | None:
        """Return this for a frame with such columns, None for other frames."""
        if frames_of(source).name == "cudf":
            # Categories of its partitions are united where these are folded.
            return None
        made = cls(asked, source, seeds)
        return made if made.places else None

    @property
    def places(self) -> list[int]:
        """The positions of the columns."""
        return [n for n, each in enumerate(_columns(self.source)) if is_unknown(each.dtype)]

    def categories(self, part: Any) -> tuple[pd.Index, ...]:
        """Return the categories of a partition's columns."""
        columns = _columns(part)
        found = (columns[place] for place in self.places)
        return tuple(
            each.cat.categories if isinstance(each.dtype, pd.CategoricalDtype) else pd.Index([])
            for each in found
        )

    def meta(self) -> Any:
        """Return an empty result with unknown categories, as the source has."""
        blank = pd.Index([_BLANK])
        return _unknown(self._plan([blank] * len(self.places), self.source).meta)

    def result(
        self, plan: GroupPlan, states: pd.DataFrame, found: Sequence[tuple[pd.Index, ...]]
    ) -> Any:
        """Return the result of partial states or rows.

        Parameters
        ----------
        plan : GroupPlan
            Of objects in place of categories.
        states : DataFrame
            Its states, or rows where it needs them.
        found : sequence of tuple of Index
            The categories of all partitions.
        """
        columns = [_columns(self.source)[place] for place in self.places]
        categories = [
            in_one_order(each, column.name) if column.dtype.ordered else together(each)
            for column, each in zip(columns, zip(*found, strict=True), strict=True)
        ]
        known = self._plan(categories, plan.source)
        if known.needs_rows and not plan.needs_rows:
            return plan.result(states)
        if plan.needs_rows:
            labels = dict(zip(known.key_labels, plan.key_labels, strict=True))
            rows = states.assign(**{new: states[old] for new, old in labels.items() if new != old})
            keys = zip(known.key_labels, known.keys, strict=True)
            like = {label: key.values.dtype for label, key in keys}
            of_source = _columns(known.source)
            like |= {f"c{place}": of_source[place].dtype for place in known.places}
            return result_of(known, recoded(rows, like))
        return known.result(known.folded([recoded(states, known.states_meta.dtypes.to_dict())]))

    def _plan(self, categories: Sequence[pd.Index], like: Any) -> GroupPlan:
        """Return the plan with the unknown columns' categories filled in, others as in `like`."""
        source, given = self.source, iter(categories)
        for place, (own, known) in enumerate(zip(_columns(source), _columns(like), strict=True)):
            if not isinstance(own.dtype, pd.CategoricalDtype):
                continue
            dtype = known.dtype
            if place in self.places:
                dtype = pd.CategoricalDtype(next(given), own.dtype.ordered)
            column = pd.Series(pd.Categorical([], dtype=dtype), source.index)
            if source.ndim == 1:
                source = column.rename(source.name)
            else:
                source = source.copy(deep=False)
                source.isetitem(place, column)
        return self.asked.plan(source, self.seeds)


def _columns(frame: Any) -> list[Any]:
    if frame.ndim == 1:
        return [frame]
    return [frame.iloc[:, place] for place in range(frame.shape[1])]


def _unknown(meta: Any) -> Any:
    """Return an empty result with unknown categories in place of the blank one."""
    made = meta.copy()
    if made.ndim == 1:
        made = _column(made)
    else:
        for place in range(made.shape[1]):
            made.isetitem(place, _column(made.iloc[:, place]))
    levels = [_column(pd.Series(level)) for level in levels_of(made.index)]
    made.index = index_of(levels, list(made.index.names))
    return made


def _column(column: pd.Series) -> pd.Series:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype) and list(dtype.categories) == [_BLANK]:
        return column.cat.set_categories([UNKNOWN_CATEGORIES])
    return column
