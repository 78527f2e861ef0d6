"""Convert arrays of other libraries to arrays readable by pandas or cuDF.

They read these without making Python objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash import backend
from dgpuhash.errors import ShapeError

_NATIVE = {"cudf", "cupy", "numpy", "pandas"}


def is_arrow(thing: Any) -> bool:
    """Return whether `thing` exports Arrow data and is not a pandas object."""
    return not hasattr(thing, "iloc") and (
        hasattr(thing, "__arrow_c_array__") or hasattr(thing, "__arrow_c_stream__")
    )


def to_native(thing: Any) -> Any:
    """Return an array as a NumPy, CuPy, pandas or cuDF one.

    Anything else is returned as it is.

    Raises
    ------
    ShapeError
        When `thing` is an Arrow table.

    Examples
    --------
    >>> import pyarrow as pa
    >>> to_native(pa.array([2**60 + 1, None]))
    <ArrowExtensionArray>
    [1152921504606846977, <NA>]
    Length: 2, dtype: int64[pyarrow]
    """
    place = backend.device_of(thing)
    library = type(thing).__module__.partition(".")[0]
    if place is None or library in _NATIVE or hasattr(thing, "iloc"):
        return thing
    if is_arrow(thing):
        return _from_arrow(thing)
    return thing if isinstance(thing, np.ndarray) else backend.get(place).asarray(thing)


def _from_arrow(thing: Any) -> Any:
    flat = hasattr(thing, "__arrow_c_array__")
    array = pa.array(thing) if flat else pa.chunked_array(thing)
    if pa.types.is_struct(array.type):
        raise ShapeError(
            f"a {type(thing).__name__} is a table, not an array; give table.to_pandas(), or one "
            "column of it"
        )
    # Converted to NumPy floats, integers beside nulls would be rounded and NaN would be a null.
    whole = pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)
    kept = whole and array.null_count
    if pa.types.is_floating(array.type):
        kept = pc.any(pc.is_nan(array)).as_py()
    mapper = pd.ArrowDtype if kept else None
    return array.to_pandas(types_mapper=mapper, date_as_object=False).array
