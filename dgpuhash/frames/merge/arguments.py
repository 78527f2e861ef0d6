"""The arguments of a merge."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import pandas as pd

from dgpuhash.errors import SpecError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.labels import stored_labels
from dgpuhash.frames.merge.keys import JoinKeys, MergeError, join_keys
from dgpuhash.frames.merge.rows import RowPairs, cross, pairs_of, sorted_by_key
from dgpuhash.typing import Build, Validate

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["FILTERS", "JoinArguments", "MergeOptions", "Suffixes", "join_kind", "uniques_of"]

Suffixes = Sequence[str | None]
# Joins that return rows of the left side as they are, or whether each one has a match.
FILTERS = ("semi", "anti", "isin")
# Names of pandas, Dask and cuDF, and what they stand for.
_HOWS = {
    "inner": "inner",
    "left": "left",
    "right": "right",
    "outer": "outer",
    "cross": "cross",
    "semi": "semi",
    "leftsemi": "semi",
    "anti": "anti",
    "leftanti": "anti",
    "left_anti": "left_anti",
    "right_anti": "right_anti",
}
_VALIDATED = {
    "1:1": (True, True),
    "1:m": (True, False),
    "m:1": (False, True),
    "m:m": (False, False),
    "one_to_one": (True, True),
    "one_to_many": (True, False),
    "many_to_one": (False, True),
    "many_to_many": (False, False),
}


class MergeOptions(TypedDict, total=False):
    """Options of `dgpuhash.merge` beside its sides and keys, for type checkers."""

    left_index: bool
    right_index: bool
    sort: bool
    suffixes: Suffixes
    indicator: bool | str
    validate: Validate | None
    nulls_equal: bool
    columns: Sequence[Hashable] | None
    build: Build
    npartitions: int | None
    client: Client | None


def join_kind(how: Any) -> str:
    """Return the join that a name of pandas, Dask or cuDF stands for.

    Raises SpecError for other names.
    """
    kind = _HOWS.get(how) if isinstance(how, str) else None
    if kind is None:
        raise SpecError(
            f"'{how}' is not a valid Merge type: left, right, inner, outer, left_anti, "
            "right_anti, cross, asof; or semi, anti"
        )
    return kind


def uniques_of(validate: str | None) -> tuple[bool, bool]:
    """Return which sides are to have unique keys.

    Raises SpecError for other texts than those of pandas.
    """
    if validate is None:
        return False, False
    if validate not in _VALIDATED:
        known = "\n".join(f'- "{name}"' for name in _VALIDATED)
        raise SpecError(f'"{validate}" is not a valid argument. Valid arguments are:\n{known}')
    return _VALIDATED[validate]


@dataclass(frozen=True, slots=True)
class JoinArguments:
    """The arguments of a merge that decide about its rows and columns.

    Attributes
    ----------
    how : {"inner", "left", "right", "outer", "cross", "semi", "anti", "left_anti", "right_anti"}
    on, left_on, right_on : label, list of labels or None
    left_index, right_index : bool
    suffixes, indicator, nulls_equal, columns
        As in `dgpuhash.merge`.
    """

    how: str = "inner"
    on: Any = None
    left_on: Any = None
    right_on: Any = None
    left_index: bool = False
    right_index: bool = False
    suffixes: Suffixes = ("_x", "_y")
    indicator: bool | str = False
    nulls_equal: bool = True
    columns: tuple[Hashable, ...] | None = None

    @property
    def joined(self) -> str:
        """The join that the rows are taken from: inner, left, right or outer."""
        if self.how in ("cross", *FILTERS):
            return "inner"
        return self.how.removesuffix("_anti")

    def keys(self, left: pd.DataFrame, right: pd.DataFrame) -> JoinKeys:
        """Return the keys of two frames, as `join_keys`."""
        if self.how == "cross":
            if self.left_index or self.right_index or (self.on, self.left_on, self.right_on) != (
                None, None, None,
            ):  # fmt: skip
                raise MergeError(
                    "Can not pass on, right_on, left_on or set right_index=True or left_index=True"
                )
            return JoinKeys([])
        return join_keys(
            left, right, self.on, self.left_on, self.right_on, left_index=self.left_index,
            right_index=self.right_index,
        )  # fmt: skip

    def narrowed(self, right: pd.DataFrame) -> pd.DataFrame:
        """Return the right side with its keys and the wanted columns."""
        if self.columns is None:
            return right
        given = self.right_on if self.on is None else self.on
        named: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
        wanted = set(stored_labels(self.columns, right))
        wanted |= {each for each in named if isinstance(each, Hashable) and each is not None}
        return right.loc[:, [label for label in right.columns if label in wanted]]

    def pairs(
        self, keys: JoinKeys, left: Any, right: Any, check: Callable[[int], None] | None = None
    ) -> RowPairs:
        """Return the rows of both frames that a merge puts side by side, of outer ones by keys.

        Parameters
        ----------
        keys : JoinKeys
            Those of the frames.
        left, right : DataFrame
        check : callable, optional
            Is told the number of rows before those of a product are made, or any are sorted.
        """
        check = check or (lambda _: None)
        if self.how == "cross":
            check(len(left) * len(right))
            return cross(len(left), len(right), frames_of(left).xp)
        found = pairs_of(*keys.frames, self.joined, nulls_equal=self.nulls_equal)
        check(found.size(len(left)))
        return sorted_by_key(found, keys) if self.joined == "outer" else found
