"""Refuse columns without a gather (`take`) in pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dgpuhash.errors import ColumnError


def check_takeable(frame: Any) -> None:
    """Raise ColumnError for columns from which pandas cannot gather rows.

    The message names the remedy.

    Examples
    --------
    >>> import pandas as pd
    >>> check_takeable(pd.DataFrame({"k": [1], "v": ["a"]}))
    """
    dtypes = list(frame.dtypes)
    check_byte_order(frame, dtypes)
    check_arrow_types(frame, dtypes)


def check_arrow_types(frame: Any, dtypes: Sequence[Any] | None = None) -> None:
    """Raise ColumnError for Arrow types without `take`, such as string views.

    `dtypes` are those of the frame, if they are known.
    """
    dtypes = dtypes or list(frame.dtypes)
    places = [
        place
        for place, dtype in enumerate(dtypes)
        if hasattr(dtype, "pyarrow_dtype") and not _arrow_takes(dtype.pyarrow_dtype)
    ]
    if places:
        labels = list(frame)
        stuck = {labels[place]: str(dtypes[place]) for place in places}
        raise ColumnError(
            f"pandas cannot gather rows of columns of these types: {stuck!r}; recreate each with "
            "pandas.Series(column.tolist(), column.index, 'str'), or object for values that are "
            "not text"
        )


def check_byte_order(frame: Any, dtypes: Sequence[Any] | None = None) -> None:
    """Raise ColumnError for columns in a non-native byte order.

    pandas cannot take rows of them. `dtypes` are those of the frame, if they are known.
    """
    dtypes = dtypes or list(frame.dtypes)
    places = [
        place
        for place, dtype in enumerate(dtypes)
        if isinstance(dtype, np.dtype) and not dtype.isnative
    ]
    if places:
        labels = list(frame)
        turned = [labels[place] for place in places]
        raise ColumnError(
            f"columns {turned!r} are in another byte order than this machine's; convert each with "
            ".astype(column.dtype.newbyteorder('='))"
        )


def _arrow_takes(kind: Any) -> bool:
    try:
        pa.nulls(1, kind).take(pa.array([0]))
    except pa.ArrowNotImplementedError:
        return False
    return True
