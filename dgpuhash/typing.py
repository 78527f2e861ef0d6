"""Types of arguments and results, for the annotations of programs that use this library.

Array libraries are told by what their arrays have, so that none is imported here. A result is of
the kind of the keys: `ArrayKind` stands for both. Keys of other kinds, such as lists, give an
`Array`: of NumPy for a table on the CPU, of CuPy for one on a GPU.

Examples
--------
>>> from dgpuhash import HashSet
>>> def seen_before(seen: HashSet, keys: KeysLike) -> Array:
...     return ~seen.insert(keys)
>>> seen_before(HashSet("int64"), [7, 8, 7]).tolist().count(True)
1
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    TypeVar,
)

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

__all__ = [
    "AggregateLike",
    "AnyFrame",
    "Array",
    "ArrayKind",
    "Build",
    "Combine",
    "ConflictName",
    "Device",
    "DistributedFilterSettings",
    "DistributedMapSettings",
    "DistributedMultiMapSettings",
    "DistributedTableSettings",
    "DtypeDescription",
    "FilterSettings",
    "Frame",
    "GroupingLike",
    "HasArray",
    "HasArrow",
    "HasArrowStream",
    "HasCudaArray",
    "HasDlpack",
    "HasNulls",
    "IdSettings",
    "IndexHow",
    "IndexMode",
    "JoinKeysLike",
    "KeepEqual",
    "KeepRow",
    "KeyTableSettings",
    "KeysLike",
    "MergeHow",
    "MergeOptions",
    "MethodSettings",
    "MultiMapSettings",
    "NamedColumn",
    "Number",
    "OnWorkers",
    "Promote",
    "PruningSettings",
    "QueryLike",
    "Reduction",
    "RowIndex",
    "RowsHow",
    "RowsLike",
    "Scalar",
    "SettingsLike",
    "TableKind",
    "TableModeName",
    "TableSettings",
    "Validate",
    "ValuesLike",
]


class HasArray(Protocol):
    """A column of one dtype that NumPy can read, as a Series of pandas or polars."""

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""

    def __len__(self) -> int: ...

    def __array__(self) -> Any: ...


class HasNulls(Protocol):
    """An array of pandas, which may be of any dtype."""

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""

    def __len__(self) -> int: ...

    def isna(self) -> Any:
        """Return which elements are null."""


class HasCudaArray(Protocol):
    """An array in GPU memory, as CuPy's."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class HasDlpack(Protocol):
    """A tensor that DLPack can pass on, as PyTorch's."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class HasArrow(Protocol):
    """An array of Arrow, of whatever library."""

    def __arrow_c_array__(self) -> Any: ...


class HasArrowStream(Protocol):
    """A chunked array of Arrow, of whatever library."""

    @property
    def null_count(self) -> int:
        """The number of nulls."""

    def __arrow_c_stream__(self) -> Any: ...


class Frame(Protocol):
    """A dataframe of pandas, cuDF, polars, PyArrow, narwhals or Dask."""

    @property
    def columns(self) -> Any:
        """The columns, or their labels."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any, /) -> Any: ...


class NamedColumn(Protocol):
    """A Series, which stands for a frame of one column."""

    @property
    def name(self) -> Any:
        """The label."""

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""


class RowIndex(Protocol):
    """An index of rows: `FrameIndex` or `DistributedIndex`."""

    @property
    def on(self) -> Any:
        """The labels of the key columns."""

    def find(self, keys: Any) -> Any:
        """Return the rows of keys."""


Array: TypeAlias = Any
"""An array of NumPy or CuPy; the device of the table says which."""

AnyFrame: TypeAlias = Any
"""A frame or Series of the library of the argument."""

ArrayKind = TypeVar("ArrayKind", np.ndarray, "pd.Series", "pd.Index")
"""NumPy array, pandas Series or pandas Index: results are of the kind of the keys."""

Number: TypeAlias = SupportsIndex | SupportsFloat | np.generic | datetime.date | datetime.timedelta
"""A number, date or time."""

Scalar: TypeAlias = Number | complex | str | bytes | tuple["Scalar", ...]
"""One value of any dtype; a tuple for a record."""

_Column: TypeAlias = (
    np.ndarray | HasArray | HasNulls | HasCudaArray | HasDlpack | HasArrow | HasArrowStream
)

KeysLike: TypeAlias = _Column | Sequence[Number]
"""Keys of a table: a column of numbers, dates or records of any array library, or a list."""

ValuesLike: TypeAlias = _Column | Sequence[Number] | list[str] | list[bytes] | list[complex]
"""Values of a table: as `KeysLike`, and text or complex numbers too."""

RowsLike: TypeAlias = Frame | NamedColumn | Mapping[Any, ValuesLike | Sequence[Hashable]] | _Column
"""Rows of an index: a frame, or arrays by the labels of columns."""

QueryLike: TypeAlias = RowsLike | Sequence[Scalar | None] | Scalar | None
"""Keys of rows: a frame, Series or array, a list of values or of tuples, or one value."""

JoinKeysLike: TypeAlias = Hashable | Sequence[Hashable] | _Column | Sequence[_Column]
"""Key columns of a side: labels, or arrays in their place."""

AggregateLike: TypeAlias = Hashable | Callable[..., Any] | Sequence[Any] | Mapping[Any, Any]
"""Aggregates of a groupby: names, functions, lists of them, or either by column."""

GroupingLike: TypeAlias = (
    Hashable | Sequence[Any] | Mapping[Any, Any] | Callable[[Any], Any] | _Column
)
"""What rows are grouped by: labels, arrays, a mapping or a function of the index's labels."""

DtypeDescription: TypeAlias = str | list[tuple[Any, ...]]
"""A dtype as a string, or its fields, as `numpy.lib.format.dtype_to_descr` gives them."""

SettingsLike: TypeAlias = (
    Mapping[str, int | float | str] | tuple[tuple[str, int | float | str], ...]
)
"""Settings by name, or pairs of both."""

Device = Literal["cpu", "cuda"]
"""Where a table is."""

TableKind = Literal["set", "map", "multimap", "count", "ids", "bloom_filter"]
"""What a `TableSpec` describes."""

KeepRow = Literal["any", "first", "last"]
"""Which of several rows of a new key counts."""

Combine = Literal["sum", "min", "max", "or"]
"""How values of equal keys become one."""

Reduction = Literal["sum", "count", "min", "max", "mean", "first", "last", "any", "all"]
"""What `group_reduce` makes of the values of a key."""

RowsHow = Literal["inner", "left", "semi", "anti", "outer"]
"""Which pairs of rows `join_indices` returns."""

MergeHow = Literal[
    "inner", "left", "right", "outer", "cross", "semi", "leftsemi", "anti", "leftanti", "left_anti",
    "right_anti",
]  # fmt: skip
"""Which rows without a match a merge of two frames keeps, by the names of pandas, Dask and cuDF."""

IndexHow = Literal["inner", "left", "right", "outer", "semi", "leftsemi", "anti", "leftanti"]
"""Which rows without a match a merge with an index keeps; `FrameIndex` has no right and outer."""

Validate = Literal[
    "1:1", "1:m", "m:1", "m:m", "one_to_one", "one_to_many", "many_to_one", "many_to_many"
]
"""Which sides of a merge are to have unique keys."""

Build = Literal["auto", "left", "right", "replicate"]
Promote = Literal["nullable", "pandas"]
"""Which side of a merge of Dask frames the workers index."""

TableModeName = Literal["distributed", "independent"]
"""Where the rows of a distributed table are stored."""

IndexMode = Literal["distributed", "independent", "replicated", "auto"]
"""Where the rows of a distributed index are stored."""

ConflictName = Literal["error", "first", "last", "min", "max", "sum"]
"""Which value counts where several workers have one."""

KeepEqual = Literal["first", "last", False]
"""Which of equal rows stays; False: none."""


class MethodSettings(TypedDict, total=False):
    """Settings of the methods of tables, as `dgpuhash.methods` shows them."""

    allocator: Literal["slab", "light"]
    bucket: int
    bucket_keys: int
    buckets: float
    chain: float
    combined: int
    family: Literal["multiply", "xor"]
    functions: int
    layout: Literal["auto", "packed", "aos", "soa"]
    length: float
    load: float
    node_nbytes: int
    space: float
    stash: int
    tau: float
    width: int


class KeyTableSettings(MethodSettings, total=False):
    """Settings of the key tables of an index, whose lists may have any method of multimaps."""

    initial_bucket: int
    growth: float


class IdSettings(MethodSettings, total=False):
    """What `KeyIds.from_keys` passes on to the class."""

    device: Device | None
    seed: int | None


class FilterSettings(TypedDict, total=False):
    """What `BloomFilter.from_keys` passes on to the class."""

    capacity: int | None
    nbytes: int | None
    device: Device | None
    seed: int | None


class TableSettings(IdSettings, total=False):
    """What the constructors from arrays pass on to the classes of sets, maps and counts."""

    capacity: int
    max_load: float | None
    method: str


class MultiMapSettings(TableSettings, total=False):
    """What `MultiMap.from_arrays` passes on to the class."""

    initial_bucket: int | None
    growth: float | None
    cap: int | None


class PruningSettings(TypedDict, total=False):
    """How lookups on a cluster reduce what they send."""

    bloom_filter: Literal["auto"] | bool
    deduplicate: Literal["auto"] | bool


class MergeOptions(PruningSettings, total=False):
    """What ``ddf.dgpuhash.merge`` passes on to the merge with an index or with a frame."""

    persist: bool
    right_on: JoinKeysLike | None
    left_index: bool
    right_index: bool
    sort: bool
    indicator: bool | str
    validate: Validate | None
    nulls_equal: bool
    promote: Promote | None
    build: Build
    npartitions: int | None
    client: Client | None


class OnWorkers(TypedDict, total=False):
    """Where a distributed table is, and how its rows travel."""

    client: Client | None
    workers: Sequence[str] | None
    exchange: Literal["auto", "comm", "nccl", "peer", "two-level"]
    piece_rows: int | None


class DistributedFilterSettings(OnWorkers, total=False):
    """What `DistributedBloomFilter.from_keys` passes on to the class."""

    rate: float
    nbytes: int | None
    device: Device | None
    seed: int | None


class DistributedTableSettings(OnWorkers, TableSettings, total=False):
    """What the constructors of distributed tables from arrays pass on to the classes."""

    mode: TableModeName


class DistributedMapSettings(DistributedTableSettings, total=False):
    """What `DistributedMap.from_arrays` passes on to the class."""

    conflict: ConflictName


class DistributedMultiMapSettings(DistributedTableSettings, total=False):
    """What `DistributedMultiMap.from_arrays` passes on to the class."""

    initial_bucket: int | None
    growth: float | None
