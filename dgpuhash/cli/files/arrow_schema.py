"""Find the common Arrow schema of a frame's partitions."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
from distributed import Client

from dgpuhash.errors import UnsupportedError


def to_pandas(part: Any) -> pd.DataFrame:
    """Return a partition as a pandas DataFrame."""
    return part if isinstance(part, pd.DataFrame) else part.to_pandas()


def schema_of(meta: pd.DataFrame, parts: list[Any], client: Client) -> pa.Schema:
    """Return the Arrow schema of partitions like `meta`.

    Workers inspect the columns for which `meta` gives no Arrow type: objects and unknown
    categories. A column with only nulls becomes text.

    Raises
    ------
    UnsupportedError
        When the objects of a column have no common type.
    """
    schema = pa.Schema.from_pandas(meta, preserve_index=False)
    unsaid = untyped_columns(meta)
    if not unsaid:
        return schema
    try:
        told = client.gather(client.map(_types_of, parts, columns=unsaid, pure=False))
        found = pa.unify_schemas(told, promote_options="permissive")
    except pa.ArrowException as error:
        raise UnsupportedError(
            f"one of the columns {unsaid} has values of several types ({error}), which a Parquet "
            "file cannot; write a .csv file"
        ) from error
    for name in unsaid:
        position = found.get_field_index(name)
        dtype = pa.string() if position < 0 else found.field(position).type
        schema = schema.set(schema.get_field_index(name), pa.field(name, dtype))
    return schema


def untyped_columns(meta: pd.DataFrame) -> list[str]:
    """Return the columns whose Arrow type an empty frame does not determine."""

    def says_nothing(dtype: pa.DataType) -> bool:
        return bool(pa.types.is_null(dtype.value_type if pa.types.is_dictionary(dtype) else dtype))

    schema = pa.Schema.from_pandas(meta, preserve_index=False)
    return [field.name for field in schema if says_nothing(field.type)]


def _types_of(part: Any, columns: list[str]) -> pa.Schema:
    """Return the schema of those `columns` of a partition that have values."""
    held = to_pandas(part)[columns].dropna(axis=1, how="all")
    schema = pa.Schema.from_pandas(held, preserve_index=False).remove_metadata()
    for position, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            # pandas' codes are as narrow as a partition's categories allow; int32 fits all.
            dtype = pa.dictionary(pa.int32(), field.type.value_type, field.type.ordered)
            schema = schema.set(position, field.with_type(dtype))
    return schema
