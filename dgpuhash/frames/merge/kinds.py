"""Accept frames of other libraries in a merge: polars, PyArrow and narwhals."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.backend import device_of
from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes.arrow_columns import (
    arrow_column,
    is_bytes,
    is_text,
    key_array,
    plain,
    takes_rows,
    to_arrow,
    with_times,
)
from dgpuhash.frames.key_columns import IncomparableError
from dgpuhash.frames.merge.index import index_of
from dgpuhash.frames.merge.keys import JoinKeys, MergeError


@dataclass(frozen=True, slots=True)
class FrameKind:
    """Library of a given frame, and the Arrow types of its columns.

    Attributes
    ----------
    library : {"pandas", "polars", "pyarrow"}
    schema : pyarrow.Schema
        Types of the columns; empty for pandas, whose frames stay as they are.
    other : pyarrow.Schema
        Types of the right side of a merge; empty for a frame alone.
    suffixes : pair
        What a merge puts behind labels that both sides have.
    namespace : str
        The module of narwhals whose DataFrame wraps the frame, "" for a bare frame.
    """

    library: str
    schema: Any = field(default_factory=lambda: pa.schema([]))
    other: Any = field(default_factory=lambda: pa.schema([]))
    suffixes: Any = ("", "")
    namespace: str = ""


PANDAS = FrameKind("pandas")


def as_pandas(frame: Any) -> tuple[Any, FrameKind]:
    """Return a frame of any library as a pandas frame of Arrow dtypes, and its kind.

    `from_pandas` takes both. What narwhals does not know comes back as it is, as pandas frames and
    Series do.

    Raises
    ------
    UnsupportedError
        When a frame is lazy, or has a column that Arrow cannot hold or takes no rows of.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"k": pa.array([2**60 + 1, None]), "day": pa.array([0, 1], pa.date32())})
    >>> frame, kind = as_pandas(table)
    >>> frame.dtypes.astype(str).tolist(), kind.library
    (['int64[pyarrow]', 'date32[day][pyarrow]'], 'pyarrow')
    >>> from_pandas(frame, kind).equals(table)
    True
    """
    given, kind = _read(frame)
    return (_arrow_frame(given) if isinstance(given, pa.Table) else given), kind


def with_arrow_dtypes(frame: Any) -> Any:
    """Return a polars or PyArrow frame as a pandas frame of Arrow dtypes, others unchanged.

    Raises
    ------
    UnsupportedError
        As `as_pandas`.
    """
    given, _ = _read(frame)
    return _arrow_frame(given, with_times) if isinstance(given, pa.Table) else given


def sides_of_one_library(
    left: Any, right: Any, *, left_index: bool = False, right_index: bool = False,
    suffixes: Any = ("", ""),
) -> tuple[Any, Any, FrameKind]:  # fmt: skip
    """Return both sides as pandas or as cuDF frames, and the kind of the result.

    The kind is that of `left`; where one side is on a GPU, the other one is copied there.

    Beside a frame of another library, a pandas one gets Arrow dtypes; beside a pandas frame, the
    right side gets the dtypes that pandas uses itself, masked ones for numbers with nulls.

    Raises
    ------
    UnsupportedError
        When a side is lazy or has a column that Arrow cannot hold, or its index is asked for and
        there is none.
    """
    if "cuda" in (device_of(left), device_of(right)):
        return _on_gpu(left), _on_gpu(right), PANDAS
    (ours, kind), (theirs, other) = _read(left), _read(right)
    asked = (("left", kind, left_index), ("right", other, right_index))
    for side, of_side, by_index in asked:
        if by_index and of_side.library != "pandas":
            raise UnsupportedError(
                f"{side}_index=True, but the {side} side is a {of_side.library} frame, which has "
                f"no index; name its key columns with {side}_on="
            )
    if isinstance(ours, pa.Table):
        if not isinstance(theirs, pa.Table):
            theirs, schema = _with_arrow_dtypes(theirs, by_index=right_index)
            other = replace(other, schema=schema)
        else:
            theirs = _arrow_frame(theirs)
        return _arrow_frame(ours), theirs, replace(kind, other=other.schema, suffixes=suffixes)
    if isinstance(theirs, pa.Table):
        theirs = _frame_of([plain(column) for column in theirs.columns], theirs)
    return ours, theirs, kind


def from_pandas(frame: Any, kind: FrameKind) -> Any:
    """Return a pandas frame as a frame of the given kind, without its index.

    Columns get the types that they had in the frames which `kind` describes.

    Raises
    ------
    ColumnError
        When a label is no text, or polars would have two columns of one name.
    UnsupportedError
        When a column holds objects of several types, for which Arrow has no type.
    """
    made = frame
    if kind.library != "pandas":
        made = _table(frame, kind)
        if kind.library == "polars":
            made = _polars(made)
    if kind.namespace:
        made = importlib.import_module(kind.namespace).from_native(made)
    return made


def check_domains(keys: JoinKeys, kind: FrameKind) -> None:
    """Raise IncomparableError for keys whose Arrow types have no common value.

    pandas gives no rows, polars and PyArrow refuse such a join.
    """
    for pair in keys.pairs:
        labels = (kind.schema, pair.left_label), (kind.other, pair.right_label)
        types = [schema.field(label).type for schema, label in labels if label in schema.names]
        domains = {_domain(each) for each in types} - {""}
        if len(domains) > 1:
            raise IncomparableError(
                f"key {pair.name!r} is {types[0]} on the left and {types[1]} on the right, which "
                "are never equal; cast one side to the type of the other"
            )


@contextmanager
def remedies_of_library(kind: FrameKind) -> Iterator[None]:
    """Replace pandas' remedies in errors of the block by those for polars and PyArrow."""
    try:
        yield
    except ColumnError as error:
        what, _, remedy = str(error).rpartition("; ")
        if kind.library == "pandas" or ".astype(" not in remedy:
            raise
        raise ColumnError(
            f"{what.replace('pandas has no dtype', 'there is no type')}; cast the keys of both "
            "sides to one type that holds their values"
        ) from error


def _domain(kind: Any) -> str:
    """Return the domain in which values of an Arrow type are compared, "" for nulls."""
    if pa.types.is_dictionary(kind):
        return _domain(kind.value_type)
    numbers = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if numbers or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_timestamp(kind):
        return "datetime" if kind.tz is None else "datetime with a time zone"
    if is_text(kind) or is_bytes(kind):
        return "text" if is_text(kind) else "bytes"
    for name in ("null", "duration", "date", "time"):
        if getattr(pa.types, f"is_{name}")(kind):
            return "" if name == "null" else name
    return str(kind)


def _on_gpu(frame: Any) -> Any:
    """Return a frame of any library as a cuDF frame."""
    if device_of(frame) == "cuda":
        return frame
    import cudf

    return cudf.from_pandas(as_pandas(frame)[0])


def _read(frame: Any) -> tuple[Any, FrameKind]:
    """Return a frame as an Arrow table, and its kind; pandas and unknown frames unchanged."""
    if isinstance(frame, pd.DataFrame | pd.Series) or hasattr(frame, "__dask_graph__"):
        return frame, PANDAS
    if isinstance(frame, pa.Table):
        return frame, FrameKind("pyarrow", frame.schema)
    import narwhals
    import narwhals.stable.v2 as nw

    namespace = ""
    if isinstance(frame, narwhals.DataFrame | narwhals.LazyFrame | narwhals.Series):
        module = type(frame).__module__
        namespace = module if module.startswith("narwhals.stable.") else "narwhals"
        frame = narwhals.to_native(frame)
    wrapped: Any = nw.from_native(frame, pass_through=True, allow_series=True)
    if isinstance(wrapped, nw.LazyFrame):
        collected = "frame.collect()"
        if not wrapped.implementation.is_polars():
            collected = "narwhals.from_native(frame).collect().to_native()"
        raise UnsupportedError(f"a {_name_of(frame)} is lazy and has no rows yet; give {collected}")
    if isinstance(wrapped, nw.Series):
        if not wrapped.name:
            raise MergeError("Cannot merge a Series without a name")
        wrapped = wrapped.to_frame()
    library = wrapped.implementation.value if isinstance(wrapped, nw.DataFrame) else ""
    if library not in {"polars", "pyarrow"}:
        return frame, replace(PANDAS, namespace=namespace)
    objects = [name for name, dtype in wrapped.schema.items() if dtype == nw.Object]
    if objects:
        raise UnsupportedError(
            f"columns {objects!r} of the {_name_of(frame)} contain Python objects, which Arrow "
            f"cannot represent; leave them out"
        )
    try:
        table = wrapped.to_arrow()
    except (pa.ArrowException, nw.exceptions.NarwhalsError) as error:
        raise UnsupportedError(
            f"a column of the {_name_of(frame)} cannot be converted to Arrow ({error}); cast it to "
            "another type first, or leave it out"
        ) from error
    return table, FrameKind(library, table.schema, namespace=namespace)


def _name_of(frame: Any) -> str:
    return f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"


# To pandas.


def _arrow_frame(table: Any, array_of: Callable[[Any], Any] = key_array) -> pd.DataFrame:
    stuck = {each.name: str(each.type) for each in table.schema if not takes_rows(each.type)}
    if stuck:
        raise UnsupportedError(
            f"Arrow cannot gather rows of columns of these types: {stuck!r}; cast views within "
            f"others "
            "to large_string or large_binary, and decode runs with pyarrow.compute.run_end_decode"
        )
    return _frame_of([array_of(column) for column in table.columns], table)


def _frame_of(columns: Sequence[Any], table: Any) -> pd.DataFrame:
    made = pd.DataFrame(
        {place: pd.Series(column, copy=False) for place, column in enumerate(columns)},
        index=pd.RangeIndex(table.num_rows),
        copy=False,
    )
    made.columns = pd.Index(table.column_names, dtype="str")
    return made


def _with_arrow_dtypes(given: Any, *, by_index: bool) -> tuple[Any, Any]:
    """Return a pandas frame with Arrow dtypes, as a right side, and its schema.

    Its index gets them too, where keys may be levels of it.
    """
    if isinstance(given, pd.Series) and given.name is not None:
        given = given.to_frame()
    if not isinstance(given, pd.DataFrame):
        return given, pa.schema([])
    columns = [to_arrow(given.iloc[:, place], label) for place, label in enumerate(given.columns)]
    table = pa.Table.from_arrays(columns, names=[str(label) for label in given.columns])
    made = _arrow_frame(table)
    made.columns = given.columns
    index = given.index
    if by_index or any(name is not None for name in index.names):
        levels = [
            key_array(to_arrow(index.get_level_values(level).to_series(), name))
            for level, name in enumerate(index.names)
        ]
        made.index = index_of(levels, list(index.names), guess=False)
    return made, table.schema


# From pandas.


def _table(frame: Any, kind: FrameKind) -> Any:
    """Return a pandas frame as an Arrow table with the original types."""
    names = list(frame.columns)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ColumnError(
            f"column labels {odd!r} are not strings, which {kind.library} requires; rename the "
            f"columns"
        )
    if kind.library == "polars" and len(set(names)) < len(names):
        doubled = sorted({name for name in names if names.count(name) > 1})
        raise ColumnError(
            f"columns {doubled!r} occur more than once; rename them, or give suffixes"
        )
    fields = list(kind.schema) if names == kind.schema.names else _origins(names, kind)
    columns = [
        arrow_column(frame.iloc[:, place], None if origin is None else origin.type)
        for place, origin in enumerate(fields)
    ]
    described = [
        _field(name, column, origin)
        for name, column, origin in zip(names, columns, fields, strict=True)
    ]
    metadata = {
        key: value for key, value in (kind.schema.metadata or {}).items() if key != b"pandas"
    }
    return pa.Table.from_arrays(columns, schema=pa.schema(described, metadata or None))


def _origins(names: Sequence[str], kind: FrameKind) -> list[Any]:
    """Return for each result column the input field that it comes from, or None."""
    left, right = ({each.name: each for each in schema} for schema in (kind.schema, kind.other))
    ours, theirs = kind.suffixes
    there = set(names)
    return [_origin(name, there, left, right, ours, theirs) for name in names]


def _origin(
    name: str, there: set[str], left: Mapping[str, Any], right: Mapping[str, Any],
    ours: str | None, theirs: str | None,
) -> Any:  # fmt: skip
    if name in left and name in right:
        # A key of both sides; or one side's column, beside the other's with a suffix.
        moved = f"{name}{ours}"
        if ours and not theirs and moved in there and moved not in left and moved not in right:
            return right[name]
        return right[name] if pa.types.is_null(left[name].type) else left[name]
    for fields in (left, right):
        if name in fields:
            return fields[name]
    for fields, suffix in ((left, ours), (right, theirs)):
        if suffix and name.endswith(suffix) and name.removesuffix(suffix) in fields:
            return fields[name.removesuffix(suffix)]
    return None


def _field(name: str, column: Any, origin: Any) -> Any:
    if origin is None or column.type != origin.type:
        return pa.field(name, column.type)
    # The metadata of polars' Enum names its categories, and another side's may have come.
    ordered = pa.types.is_dictionary(column.type) and column.type.ordered
    made = origin.remove_metadata() if ordered else origin
    return made.with_name(name).with_nullable(origin.nullable or column.null_count > 0)


def _polars(table: Any) -> Any:
    """Return an Arrow table as a polars frame, with Enums for ordered dictionaries."""
    import narwhals.stable.v2 as nw

    enums = {}
    # One chunk a column: of arrays in slices polars misreads the nulls.
    table = table.combine_chunks()
    for place, each in enumerate(table.schema):
        kind, column = each.type, table.column(place)
        if pa.types.is_fixed_size_list(kind):
            table = table.set_column(place, each, column.take(pa.array(np.arange(len(column)))))
        elif pa.types.is_dictionary(kind) and not is_text(kind.value_type):
            table = table.set_column(place, each.name, column.cast(kind.value_type))
        elif pa.types.is_dictionary(kind) and kind.ordered:
            enums[each.name] = column.chunk(0).dictionary.to_pylist()
    made: Any = nw.from_arrow(table, backend="polars")
    casts = [nw.col(name).cast(nw.Enum(categories)) for name, categories in enums.items()]
    return made.with_columns(*casts).to_native() if casts else made.to_native()
