"""Choose the implementation of `Frames` for a frame's library."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from dgpuhash.backend import device_of
from dgpuhash.errors import DeviceError, KeyTypeError, ShapeError, UnsupportedError
from dgpuhash.frames.dataframes import cudf_columns, pandas_take
from dgpuhash.frames.dataframes.base import Frames
from dgpuhash.frames.dataframes.interop import to_native


@functools.cache
def frames_named(name: str) -> Frames:
    """Return the functions for the library `name`, ``"pandas"`` or ``"cudf"``.

    Raises
    ------
    UnsupportedError
        When `name` is neither, or cuDF is not installed.
    """
    if name == "pandas":
        from dgpuhash.frames.dataframes.pandas import PandasFrames

        return PandasFrames()
    if name != "cudf":
        raise UnsupportedError(f"frames of {name!r} are not supported; use pandas or cuDF frames")
    from dgpuhash.frames.dataframes.cudf import CudfFrames

    try:
        return CudfFrames()
    except ImportError as error:
        raise UnsupportedError(
            "GPU frames need cuDF, which is not installed; pip install '.[cudf-cu13]' in a "
            "checkout, or pass pandas frames with device='cuda' (keys on the GPU, rows on the host)"
        ) from error


def frames_of(frame: Any) -> Frames:
    """Return the functions for the library of `frame`, a DataFrame or Series.

    Raises
    ------
    KeyTypeError
        When `frame` is neither a DataFrame nor a Series.
    """
    kind: Any = type(frame)
    found = frames_of_type(kind)
    if found is not None:
        return found
    raise KeyTypeError(
        f"a pandas or cuDF DataFrame is needed, not {type(frame).__name__}; make one with "
        "pandas.DataFrame(…) (or compute() a Dask one first)"
    )


@functools.cache
def frames_of_type(kind: type) -> Frames | None:
    """Return the functions for a type of frames or Series, None for other types."""
    library = kind.__module__.partition(".")[0]
    if library in {"pandas", "cudf"} and hasattr(kind, "iloc"):
        return frames_named(library)
    return frames_named("pandas") if issubclass(kind, pd.DataFrame | pd.Series) else None


def frames_of_values(values: Any) -> Frames:
    """Return the functions for the library of a key, a Series or a cuDF column."""
    kind: Any = type(values)
    return frames_of_type(kind) or frames_named("cudf")


def series_of_key(values: Any, name: Hashable | None = None) -> Any:
    """Return the values of a key as a Series; cuDF columns are numbered from 0 and named."""
    on_host = frames_of_values(values) is frames_named("pandas")
    return values if on_host else cudf_columns.series_of_key(values, name)


def as_series(values: Any) -> Any:
    """Return values as a Series numbered from 0; values on a GPU as a cuDF Series."""
    return (cudf_columns if device_of(values) == "cuda" else pandas_take).numbered_series(values)


def make_frame(columns: Mapping[Hashable, Any], like: Any = None) -> Any:
    """Return a frame of arrays, Series or lists, one for each column.

    The frame is a pandas one, or a cuDF one when the arrays are on a GPU.

    Lists alone make a frame of the library of `like`.

    Raises
    ------
    ShapeError
        When the columns differ in length or are not one-dimensional.
    DeviceError
        When host and GPU columns are mixed.

    Examples
    --------
    >>> make_frame({"k": [1, 2], "v": ["a", "b"]}).shape
    (2, 2)
    """
    places = {device_of(column) for column in columns.values()} - {None}
    if places:
        name = "cudf" if places == {"cuda"} else "pandas"
    else:
        name = "pandas" if like is None else frames_of(like).name
    if len(places) > 1:
        raise DeviceError(
            "host columns and GPU columns were mixed in one frame; bring them together with "
            "cupy.asarray(x) (to the GPU) or cupy.asnumpy(x) (to the host)"
        )
    columns = {label: to_native(column) for label, column in columns.items()}
    for label, column in columns.items():
        flat = isinstance(column, Sequence) and not isinstance(column, str | bytes)
        if not flat and not hasattr(column, "dtype"):
            raise ShapeError(
                f"column {label!r} is a {type(column).__name__}; give an array or a list of values"
            )
        if getattr(column, "ndim", 1) != 1:
            raise ShapeError(f"column {label!r} has {column.ndim} dimensions; give a flat array")
    lengths = {label: len(column) for label, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"columns of different lengths: {lengths}; give each a value per row")
    return frames_named(name).make(columns)


def check_same_library(frame: Any, frames: Frames) -> None:
    """Raise DeviceError if `frame` is from another library than `frames`.

    `frames` is the library of an index.
    """
    given = frames_of(frame)
    if given.name != frames.name:
        remedy = "frame.to_pandas(), or of an array cupy.asnumpy(array)"
        if given.name == "pandas":
            remedy = "cudf.from_pandas(frame), or of an array cupy.asarray(array)"
        raise DeviceError(f"a {given.name} frame for an index of {frames.name} rows; pass {remedy}")
