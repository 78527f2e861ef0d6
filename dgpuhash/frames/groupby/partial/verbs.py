"""Verbs of a groupby with their arguments, and what is known of each before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dgpuhash.frames.groupby.aggregates.table import AGGREGATES

__all__ = ["AGGREGATING", "OF_ANY_ORDER", "OF_COLUMNS", "OF_DISTINCT", "Verb"]

# Verbs that aggregate: they need nothing but states.
AGGREGATING = frozenset({"agg", "aggregate", "cov", "corr", *AGGREGATES})
# Aggregates that are the same of rows of which equal ones were left out.
OF_DISTINCT = frozenset({"nunique", "unique", "any", "all"})
OF_ANY_ORDER = frozenset({"nunique", "median", "quantile", "count", "size", "any", "all"})
# Verbs that read no other columns than keys and what is chosen.
OF_COLUMNS = AGGREGATING | {"nlargest", "nsmallest", "value_counts"}


@dataclass(frozen=True, slots=True)
class Verb:
    """A method of a GroupBy with its arguments.

    Examples
    --------
    >>> Verb("sum", options={"min_count": 1})
    Verb(name='sum', arguments=(), options={'min_count': 1})
    >>> Verb("agg", options={"total": ("price", "sum")}).name
    'agg'
    """

    name: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def of(self, groups: Any) -> Any:
        """Return what the method of these groups returns, whatever library they are of."""
        return getattr(groups, self.name)(*self.arguments, **self.options)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return what Dask names expressions by: the order of columns is that of dictionaries."""
        return type(self).__name__, self.name, _ordered(self.arguments), _ordered(self.options)


def _ordered(given: Any) -> Any:
    """Return arguments with lists of pairs for dictionaries, which Dask takes in any order."""
    if isinstance(given, dict):
        return dict.__name__, [(label, _ordered(each)) for label, each in given.items()]
    if isinstance(given, list | tuple):
        return type(given).__name__, list(map(_ordered, given))
    return given
