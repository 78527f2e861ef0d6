"""Parquet files as one Dask DataFrame."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from dask.dataframe.io.parquet.arrow import ArrowDatasetEngine

from dgpuhash.cli.reading import check_columns, of_each_file, reading
from dgpuhash.errors import FormatError

__all__ = ["read_parquet"]

_FOOTER_NBYTES = 1 << 16
# What pandas calls an index without a name, which is no column.
_UNNAMED = "__index_level_"


class _NamingEngine(ArrowDatasetEngine):
    """Says which file cannot be read."""

    @classmethod
    def _read_table(cls, path_or_frag: Any, *args: Any, **options: Any) -> pa.Table:
        with reading(getattr(path_or_frag, "path", path_or_frag), "parquet"):
            return super()._read_table(path_or_frag, *args, **options)


def read_parquet(filesystem: Any, paths: list[str]) -> Any:
    """A Dask DataFrame of the files, which have the same columns.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
    paths : list of str

    Raises
    ------
    FormatError
        When a file is no Parquet, or has other columns than the first, or one of a type that has
        none in common with that of the first.
    """
    schemas = of_each_file(_schema_of, filesystem, paths, "parquet")
    check_columns({path: schema.names for path, schema in schemas.items()})
    common = _common(schemas)
    alike = all(schema.equals(common) for schema in schemas.values())
    # What pandas wrote as an index is a column to those who write no Python.
    return dd.read_parquet(
        paths,
        filesystem=filesystem,
        index=False,
        engine=_NamingEngine,
        dataset={} if alike else _dataset_of(filesystem, paths, common),
    )


def _dataset_of(filesystem: Any, paths: list[str], common: pa.Schema) -> dict[str, Any]:
    """Options by which files of several types are read as of those in common."""
    found = ds.dataset(paths, filesystem=filesystem, format="parquet", partitioning="hive")
    types = {field.name: field.type for field in common}
    fields = [field.with_type(types.get(field.name, field.type)) for field in found.schema]
    return {
        "schema": pa.schema(fields, found.schema.metadata),
        # Columns of folders' names would be all that the schema has.
        "partitioning": {"schema": found.partitioning.schema, "flavor": "hive"},
    }


def _schema_of(filesystem: Any, path: str) -> pa.Schema:
    with filesystem.open(path, "rb", block_size=_FOOTER_NBYTES) as stream:
        schema = pq.read_schema(stream)
    return pa.schema([field for field in schema if not field.name.startswith(_UNNAMED)])


def _common(schemas: dict[str, pa.Schema]) -> pa.Schema:
    """The types that hold the values of all files.

    Raises
    ------
    FormatError
        When a column has none.
    """
    (first, common), *others = schemas.items()
    for path, other in others:
        if other.equals(common):
            continue
        try:
            common = pa.unify_schemas([common, other], promote_options="permissive")
        except pa.ArrowException as error:
            raise FormatError(
                f"{path} has columns of other types than {first}: {error}; write them as one type, "
                "or read the files one at a time"
            ) from error
    return common
