"""The Arrow schema that the partitions of a frame have in common."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
from distributed import Client

from dgpuhash.errors import UnsupportedError

__all__ = ["of_pandas", "schema_of", "unsaid_of"]


def of_pandas(part: Any) -> pd.DataFrame:
    """A partition as pandas."""
    return part if isinstance(part, pd.DataFrame) else part.to_pandas()


def schema_of(meta: pd.DataFrame, parts: list[Any], client: Client) -> pa.Schema:
    """The Arrow schema of partitions like `meta`; their workers look where it says nothing.

    That is so of objects and unknown categories; where all are null, they are text.

    Raises
    ------
    UnsupportedError
        When the objects of a column have no type in common.
    """
    schema = pa.Schema.from_pandas(meta, preserve_index=False)
    unsaid = unsaid_of(meta)
    if not unsaid:
        return schema
    try:
        told = client.gather(client.map(_types_of, parts, columns=unsaid, pure=False))
        found = pa.unify_schemas(told, promote_options="permissive")
    except pa.ArrowException as error:
        raise UnsupportedError(
            f"one of the columns {unsaid} holds values of several types ({error}), which a Parquet "
            "file cannot; write a .csv file"
        ) from error
    for name in unsaid:
        position = found.get_field_index(name)
        dtype = pa.string() if position < 0 else found.field(position).type
        schema = schema.set(schema.get_field_index(name), pa.field(name, dtype))
    return schema


def unsaid_of(meta: pd.DataFrame) -> list[str]:
    """The columns of whose Arrow type an empty frame says nothing."""

    def says_nothing(dtype: pa.DataType) -> bool:
        return bool(pa.types.is_null(dtype.value_type if pa.types.is_dictionary(dtype) else dtype))

    schema = pa.Schema.from_pandas(meta, preserve_index=False)
    return [field.name for field in schema if says_nothing(field.type)]


def _types_of(part: Any, columns: list[str]) -> pa.Schema:
    """Of those columns of a partition that hold something."""
    held = of_pandas(part)[columns].dropna(axis=1, how="all")
    schema = pa.Schema.from_pandas(held, preserve_index=False).remove_metadata()
    for position, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            # Codes are as narrow as a partition's categories allow.
            dtype = pa.dictionary(pa.int32(), field.type.value_type, field.type.ordered)
            schema = schema.set(position, field.with_type(dtype))
    return schema
