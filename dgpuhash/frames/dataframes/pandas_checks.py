"""Checks for columns of which pandas cannot take (gather) rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dgpuhash.errors import ColumnError
from dgpuhash.frames.dataframes import frames_of

__all__ = ["check_arrow_types", "check_byte_order", "check_takeable"]


def check_takeable(frame: Any) -> None:
    """Raise ColumnError for columns of which pandas cannot take rows.

    The message names the remedy.

    Examples
    --------
    >>> import pandas as pd
    >>> check_takeable(pd.DataFrame({"k": [1], "v": ["a"]}))
    """
    dtypes = frames_of(frame).dtypes(frame)
    check_byte_order(frame, dtypes)
    check_arrow_types(frame, dtypes)


def check_arrow_types(frame: Any, dtypes: Sequence[Any] | None = None) -> None:
    """Raise ColumnError for Arrow types without `take`, such as string views.

    `dtypes` are those of the frame, if they are known.
    """
    labelled = _dtypes(frame, dtypes)
    stuck = {label: str(dtype) for label, dtype in labelled if not _arrow_takes(dtype)}
    if stuck:
        raise ColumnError(
            f"pandas takes no rows of columns of these types: {stuck!r}; make each anew with "
            "pandas.Series(column.tolist(), column.index, 'str'), or object where they are no text"
        )


def check_byte_order(frame: Any, dtypes: Sequence[Any] | None = None) -> None:
    """Raise ColumnError for columns in a non-native byte order.

    pandas cannot take rows of them. `dtypes` are those of the frame, if they are known.
    """
    turned = [
        label
        for label, dtype in _dtypes(frame, dtypes)
        if isinstance(dtype, np.dtype) and not dtype.isnative
    ]
    if turned:
        raise ColumnError(
            f"columns {turned!r} are in another byte order than this machine's; convert each with "
            ".astype(column.dtype.newbyteorder('='))"
        )


def _dtypes(frame: Any, dtypes: Sequence[Any] | None) -> Iterator[tuple[Hashable, Any]]:
    # list(frame) is cheap for cuDF, where `columns` builds a new Index.
    return zip(list(frame), dtypes or frames_of(frame).dtypes(frame), strict=True)


def _arrow_takes(dtype: Any) -> bool:
    kind = getattr(dtype, "pyarrow_dtype", None)
    if kind is None:
        return True
    try:
        pa.nulls(1, kind).take(pa.array([0]))
    except pa.ArrowNotImplementedError:
        return False
    return True
