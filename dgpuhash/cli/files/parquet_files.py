"""Read Parquet files as one Dask DataFrame."""

from __future__ import annotations

from typing import Any, NamedTuple

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dgpuhash.cli.files.read_errors import check_columns, map_files, name_read_errors
from dgpuhash.distributed.cluster.dask_internals import ArrowDatasetEngine
from dgpuhash.errors import FormatError

_FOOTER_NBYTES = 1 << 16
# Prefix that pandas gives to an unnamed index, which is not a column.
_UNNAMED = "__index_level_"
# Nullable dtypes for columns that pandas would otherwise turn into floats or objects.
_DTYPES: tuple[Any, ...] = (
    *(pd.BooleanDtype(), pd.Int8Dtype(), pd.Int16Dtype(), pd.Int32Dtype(), pd.Int64Dtype()),
    *(pd.UInt8Dtype(), pd.UInt16Dtype(), pd.UInt32Dtype(), pd.UInt64Dtype()),
)
NULLABLE = {pa.from_numpy_dtype(dtype.numpy_dtype): dtype for dtype in _DTYPES}


class _Footer(NamedTuple):
    """Schema of a file, and its columns that may hold nulls.

    A column may hold nulls unless the statistics of all row groups say that it holds none.
    """

    schema: pa.Schema
    with_nulls: set[str]


class _NamingEngine(ArrowDatasetEngine):
    """Parquet engine whose read errors name the file."""

    @classmethod
    def _read_table(cls, path_or_frag: Any, *args: Any, **options: Any) -> pa.Table:
        with name_read_errors(getattr(path_or_frag, "path", path_or_frag), "parquet"):
            return super()._read_table(path_or_frag, *args, **options)


def read_parquet(filesystem: Any, paths: list[str], *, decimals: bool = False) -> Any:
    """Return a Dask DataFrame of Parquet files with the same columns.

    Integer and boolean columns that may hold nulls get pandas' nullable dtypes, such as ``Int64``.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
    paths : list of str
    decimals : bool
        Whether decimals stay Arrow's; otherwise they are objects of Python.

    Raises
    ------
    FormatError
        When a file is not Parquet, has other columns than the first file, or has a column whose
        type has no common type with the first file's.
    """
    footers = map_files(_footer_of, filesystem, paths, "parquet")
    schemas = {path: footer.schema for path, footer in footers.items()}
    check_columns({path: schema.names for path, schema in schemas.items()})
    common = common_schema(schemas)
    alike = all(schema.equals(common) for schema in schemas.values())
    with_nulls = set().union(*(footer.with_nulls for footer in footers.values()))
    types = {field.type for field in common if field.name in with_nulls}
    nullable = {each: dtype for each, dtype in NULLABLE.items() if each in types}
    if decimals:
        found = {field.type for field in common if pa.types.is_decimal(field.type)}
        nullable.update({each: pd.ArrowDtype(each) for each in found})
    # An index written by pandas becomes an ordinary column.
    return dd.read_parquet(
        paths,
        filesystem=filesystem,
        index=False,
        engine=_NamingEngine,
        arrow_to_pandas={"types_mapper": nullable.get},
        dataset={} if alike else _dataset_of(filesystem, paths, common),
    )


def _dataset_of(filesystem: Any, paths: list[str], common: pa.Schema) -> dict[str, Any]:
    """Return options that read files of several schemas as the common one."""
    found = ds.dataset(paths, filesystem=filesystem, format="parquet", partitioning="hive")
    types = {field.name: field.type for field in common}
    fields = [field.with_type(types.get(field.name, field.type)) for field in found.schema]
    return {
        "schema": pa.schema(fields, found.schema.metadata),
        # Without this, every column of the schema would count as a hive partition column.
        "partitioning": {"schema": found.partitioning.schema, "flavor": "hive"},
    }


def _footer_of(filesystem: Any, path: str) -> _Footer:
    with filesystem.open(path, "rb", block_size=_FOOTER_NBYTES) as stream:
        metadata = pq.read_metadata(stream)
    schema = metadata.schema.to_arrow_schema()
    fields = [field for field in schema if not field.name.startswith(_UNNAMED)]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    leaves = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    with_nulls = {
        name
        for number, name in enumerate(leaves)
        if not all(_has_no_null(group.column(number).statistics) for group in groups)
    }
    return _Footer(pa.schema(fields), with_nulls)


def _has_no_null(statistics: pq.Statistics | None) -> bool:
    return statistics is not None and statistics.has_null_count and not statistics.null_count


def common_schema(schemas: dict[str, pa.Schema]) -> pa.Schema:
    """Return the schema whose types hold the values of all files.

    Raises
    ------
    FormatError
        When a column has no such type.
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
