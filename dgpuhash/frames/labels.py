"""Check column labels: each must name exactly one column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, KeyTypeError
from dgpuhash.frames.dataframes import frames_of


def key_names(frame: Any, on: Hashable | Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Return `on` as a tuple of labels that each name one column of `frame`.

    Raises
    ------
    ColumnError
        When a label is missing, repeated or ambiguous; the message lists the columns of `frame`.
    KeyTypeError
        When `frame` is not a DataFrame.
    """
    frames = frames_of(frame)
    # Of the type: cuDF makes an index of the labels.
    if not hasattr(type(frame), "columns"):
        raise KeyTypeError(f"a DataFrame is needed, not a {type(frame).__name__}; call to_frame()")
    names = tuple(on) if isinstance(on, list | tuple) else (on,)
    there = list(frames.labels(frame))
    try:
        different = len(set(names))
    except TypeError:
        raise ColumnError(
            f"a {type(on).__name__} contains something that is not a label; give one of "
            f"{there!r}, or a list of them"
        ) from None
    if not names:
        raise ColumnError(f"no key column was given; choose from {there!r}")
    if different < len(names):
        raise ColumnError(f"a key column is given twice in {list(names)!r}; give each once")
    # Take the frame's own labels: NumPy integers equal Python's, but no file can hold them.
    known = dict(zip(there, there, strict=True))
    if len(known) < len(there):
        doubled = sorted(str(label) for label, count in Counter(there).items() if count > 1)
        raise ColumnError(f"columns {doubled!r} occur more than once; rename or drop duplicates")
    if not known.keys() >= set(names):
        missing = _missing(names, there)
        refuse_nulls(missing)
        levels = [name for name in getattr(frame.index, "names", []) if name is not None]
        named = [name for name in levels if name in missing]
        remedy = "; it is an index level: call reset_index() first" if named else ""
        raise ColumnError(f"no column {missing!r}; the columns are {there!r}{remedy}")
    _check_labels(names)
    return tuple([known[name] for name in names])


def column_labels(columns: Sequence[Hashable]) -> list[Hashable]:
    """Return `columns` as a list of labels.

    Text or a number is one label; text is not split into its letters.

    Examples
    --------
    >>> column_labels("seats"), column_labels(("seats", "year"))
    (['seats'], ['seats', 'year'])
    """
    one = isinstance(columns, str) or not isinstance(columns, Iterable)
    return [columns] if one else list(columns)


def stored_labels(columns: Sequence[Hashable], meta: Any) -> list[Hashable]:
    """Return `columns` as a list of labels that the index stores.

    The stored columns are those of `meta`. Raises ColumnError when one of `columns` is not stored.
    """
    asked, there = column_labels(columns), list(meta)
    missing = _missing(asked, there)
    if missing:
        refuse_nulls(missing)
        raise ColumnError(f"no column {missing!r} in the index; its columns are {there!r}")
    return asked


def stored_columns(
    frame: Any, names: Sequence[Hashable], columns: Sequence[Hashable] | None
) -> list[Hashable]:
    """Return the labels of `frame` that an index on `names` stores, in order.

    Raises
    ------
    ColumnError
        When `columns` names a column that `frame` lacks, a label is a bool or None, or pandas
        cannot gather rows of a column.
    """
    there = list(frame.columns)
    asked = there if columns is None else column_labels(columns)
    missing = _missing(asked, there)
    if missing:
        refuse_nulls(missing)
        raise ColumnError(f"no column {missing!r}; the columns are {there!r}")
    wanted = {*asked, *names}
    kept = [label for label in there if label in wanted]
    _check_labels(kept)
    try:
        frames_of(frame).check_takeable(frame[kept])
    except KeyError:
        refuse_nulls(kept)
        raise
    return kept


def _missing(labels: Sequence[Hashable], there: Sequence[Hashable]) -> list[Hashable]:
    """Return the items of `labels` that are not in `there`.

    An unhashable item, such as a list, counts as missing.
    """
    known = set(there)
    return [one for one in labels if not isinstance(one, Hashable) or one not in known]


def _check_labels(labels: Sequence[Hashable]) -> None:
    """Raise ColumnError for labels that are bools or None.

    pandas takes a list of bools for a mask of rows.
    """
    odd = [label for label in labels if isinstance(label, bool | np.bool_) or label is None]
    if odd:
        raise ColumnError(f"columns {odd!r} have booleans or None as labels; rename them")


def refuse_nulls(labels: Sequence[Hashable]) -> None:
    """Raise ColumnError when any of `labels` is NaN or another null.

    Examples
    --------
    >>> refuse_nulls(["k", 7])
    """
    others: list[Any] = [label for label in labels if not isinstance(label, str)]
    nulls = [label for label in others if pd.api.types.is_scalar(label) and pd.isna(label)]
    if nulls:
        raise ColumnError(
            f"columns {nulls!r} have nulls as labels, which cannot be looked up because NaN is "
            f"not equal to itself; rename them, such as frame.columns = ['a', 'b']"
        )
