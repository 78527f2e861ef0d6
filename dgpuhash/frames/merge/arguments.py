"""Arguments of a merge: checks, defaults and the columns they select."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import pandas as pd

from dgpuhash.errors import ColumnError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.key_columns import check_comparable
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.labels import key_names, refuse_nulls, stored_labels
from dgpuhash.frames.merge.keys import JoinKeys, MergeError, join_keys
from dgpuhash.frames.merge.rows import RowPairs, cross, pairs_of, sorted_by_key
from dgpuhash.typing import Build, Promote, Validate

if TYPE_CHECKING:
    from distributed import Client

Suffixes = Sequence[str | None]
OnRounding = Callable[[list[Hashable | None]], None]
# Joins that return rows of the left side as they are, or whether each one has a match.
FILTERS = ("semi", "anti", "isin")
# Joins that return the rows of the right side that nothing matches, too.
ALL_ROWS = ("right", "outer")
# Joins with an index; it adds `ALL_ROWS` where it has all rows.
_HOWS_OF_INDEX = ("inner", "left", "semi", "anti")
DEFAULT_SUFFIXES: tuple[str | None, str | None] = ("_x", "_y")
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
    """Options of `dgpuhash.merge` other than sides and keys, for type checkers."""

    left_index: bool
    right_index: bool
    sort: bool
    suffixes: Suffixes
    indicator: bool | str
    validate: Validate | None
    nulls_equal: bool
    columns: Sequence[Hashable] | None
    promote: Promote | None
    build: Build
    npartitions: int | None
    client: Client | None


def join_kind(how: Any) -> str:
    """Return the kind of join for a name of pandas, Dask or cuDF.

    Raises SpecError for other names.
    """
    kind = _HOWS.get(how) if isinstance(how, str) else None
    if kind is None:
        raise SpecError(
            f"'{how}' is not a valid Merge type: left, right, inner, outer, left_anti, "
            "right_anti, cross, asof; or semi, anti"
        )
    return kind


def check_promote(promote: Any) -> None:
    """Raise SpecError unless `promote` is a name or None."""
    if promote is not None and promote not in ("nullable", "pandas"):
        raise SpecError(f"promote={promote!r}; use 'nullable', 'pandas' or None")


def uniques_of(validate: str | None) -> tuple[bool, bool]:
    """Return which sides must have unique keys.

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
    """Arguments of a merge that determine its rows and columns.

    Attributes
    ----------
    how : {"inner", "left", "right", "outer", "cross", "semi", "anti", "left_anti", "right_anti"}
    on, left_on, right_on : label, list of labels or None
    left_index, right_index : bool
    suffixes, indicator, nulls_equal, columns
        As in `dgpuhash.merge`.
    promote : {"nullable", "pandas", "each", None}
        As in `MergePlan`; None: nullable of partitions, pandas of whole frames.
    on_rounding : callable or None
        With "each", is called in the task of a partition with the labels of columns of which
        integers were rounded.
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
    promote: str | None = None
    on_rounding: OnRounding | None = None

    @property
    def joined(self) -> str:
        """The join that gives the rows: inner, left, right or outer."""
        if self.how in ("cross", *FILTERS):
            return "inner"
        return self.how.removesuffix("_anti")

    def keys(self, left: pd.DataFrame, right: pd.DataFrame) -> JoinKeys:
        """Return the keys of two frames, as `join_keys`."""
        if self.how == "cross":
            named = self.on, self.left_on, self.right_on
            if self.left_index or self.right_index or any(each is not None for each in named):
                raise MergeError(
                    "Can not pass on, right_on, left_on or set right_index=True or left_index=True"
                )
            return JoinKeys([])
        return join_keys(
            left, right, self.on, self.left_on, self.right_on, left_index=self.left_index,
            right_index=self.right_index,
        )  # fmt: skip

    def narrowed(self, right: pd.DataFrame) -> pd.DataFrame:
        """Return the right side with only its keys and needed columns."""
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
        """Return the row pairs of a merge, sorted by key for outer joins.

        Parameters
        ----------
        keys : JoinKeys
            Those of the frames.
        left, right : DataFrame
        check : callable, optional
            Is told the number of rows before those of a product are made, or any are sorted.
        """
        joined = self.joined
        if self.how == "cross":
            if check is not None:
                check(len(left) * len(right))
            return cross(len(left), len(right), frames_of(left).xp)
        found = pairs_of(*keys.sides, joined, nulls_equal=self.nulls_equal)
        if check is not None:
            check(found.size(len(left)))
        return sorted_by_key(found, keys) if joined == "outer" else found


def check_how(how: str, *, all_rows: bool = False) -> str:
    """Return the join type with this name, if an index supports it.

    `all_rows` tells whether it also answers right and outer joins.

    Raises
    ------
    UnsupportedError
        For other join types; the message tells how to get them.
    """
    how = _HOWS.get(how, how) if isinstance(how, str) else how
    if how in _HOWS_OF_INDEX:
        return how
    if how in ALL_ROWS:
        if all_rows:
            return how
        raise UnsupportedError(
            f"how={how!r} also returns unmatched rows of the index; compute it in two steps: "
            f"merge with how='left' (or 'inner'), then build an index of the left keys, "
            "merge the indexed frame against that with how='anti', and concatenate the two"
        )
    known = ", ".join(map(repr, (*_HOWS_OF_INDEX, *ALL_ROWS)))
    raise UnsupportedError(
        f"how={how!r}; use one of {known}; for others, dgpuhash.merge(left, right, how=…)"
    )


def check_suffixes(suffixes: Suffixes) -> None:
    """Raise SpecError unless suffixes are a pair."""
    if not isinstance(suffixes, tuple | list) or len(suffixes) != 2:
        raise SpecError(f"suffixes={suffixes!r}; give a pair of strings, such as ('_left', None)")


def join_columns(
    left: Any,
    encoder: KeyEncoder,
    on: Hashable | Sequence[Hashable] | None = None,
    left_on: Hashable | Sequence[Hashable] | None = None,
    *,
    typed: bool = True,
) -> tuple[Hashable, ...]:
    """Return the columns of `left` to compare with the index's key columns.

    They are in the order of the index's key columns.

    Parameters
    ----------
    left : DataFrame
        Or an empty frame like it.
    encoder : KeyEncoder
    on : label or list of labels, optional
        Columns of the same names on both sides: exactly the index's key columns, in any order.
    left_on : label or list of labels, optional
        Columns of `left`, one for each key column of the index. Default: the index's key columns.
    typed : bool
        Whether to check their types, which encoding them does, too.

    Raises
    ------
    ColumnError
        When columns are missing, their number is wrong, both `on` and `left_on` are given, or
        pandas cannot gather rows of a column.
    KeyTypeError
        When a column can never equal its index column.

    Examples
    --------
    >>> import pandas as pd
    >>> encoder = KeyEncoder.for_frame(pd.DataFrame({"tailnum": ["N1"]}), on="tailnum")
    >>> join_columns(pd.DataFrame({"plane": ["N1"]}), encoder, left_on="plane")
    ('plane',)
    """
    if on is not None and left_on is not None:
        raise ColumnError("on= and left_on= exclude each other; give one of them")
    if left_on is None:
        names = key_names(left, list(encoder.names) if on is None else on)
        if on is not None and set(names) != set(encoder.names):
            raise ColumnError(
                f"on={list(names)!r}, but the index is on {list(encoder.names)!r}; name the "
                "columns of the left frame with left_on=, or build an index on those columns"
            )
        names = encoder.names
    else:
        names = key_names(left, left_on)
    if len(names) != len(encoder.names):
        raise ColumnError(
            f"left_on has {len(names)} columns {list(names)!r}, the index {len(encoder.names)}, "
            f"{list(encoder.names)!r}; give one column for each, in that order"
        )
    refuse_nulls(names)
    frames = frames_of(left)
    frames.check_takeable(left)
    if typed:
        for name, type_ in zip(names, encoder.types, strict=True):
            check_comparable(name, type_, frames.key_type(frames.column(left, name), name))
    return names


def needed_columns(
    index_meta: Any,
    encoder: KeyEncoder,
    left_on: Sequence[Hashable],
    columns: Sequence[Hashable] | None = None,
) -> list[Hashable]:
    """Return the columns of the index that a merge result needs, in order.

    Leaves out a key column with the same name on both sides, since the left one stands for both.

    Raises
    ------
    ColumnError
        When `columns` names one that the index does not hold.

    Examples
    --------
    >>> import pandas as pd
    >>> planes = pd.DataFrame({"tailnum": ["N1"], "seats": [55], "year": [1999]})
    >>> encoder = KeyEncoder.for_frame(planes, on="tailnum")
    >>> needed_columns(planes, encoder, ["tailnum"], columns=["year"])
    ['year']
    >>> needed_columns(planes, encoder, ["plane"], columns=["year"])
    ['tailnum', 'year']
    """
    there = list(index_meta)
    asked = there if columns is None else stored_labels(columns, index_meta)
    shared = {name for name, other in zip(encoder.names, left_on, strict=True) if name == other}
    wanted = {*asked, *encoder.names}
    return [label for label in there if label in wanted - shared]
