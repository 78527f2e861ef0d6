"""Types for annotations: array protocols, frames, and the settings of constructors.

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
    "DistributedKeySettings",
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
    """A one-dimensional column that NumPy can read, such as a pandas or polars Series."""

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""

    def __len__(self) -> int: ...

    def __array__(self) -> Any: ...


class HasNulls(Protocol):
    """An array of pandas of any dtype, nullable ones included."""

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
    """A tensor with DLPack's interface, such as PyTorch's."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class HasArrow(Protocol):
    """An array with Arrow's C data interface, of any library."""

    def __arrow_c_array__(self) -> Any: ...


class HasArrowStream(Protocol):
    """A chunked array with Arrow's C stream interface, of any library."""

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
    """A Series, accepted as a frame of one column."""

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
    """Settings of table methods, as `dgpuhash.methods` lists them."""

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
    """Settings of an index's key tables, whose lists may use any multimap method."""

    initial_bucket: int
    growth: float


class IdSettings(MethodSettings, total=False):
    """Keyword arguments that `KeyIds.from_keys` passes to the class."""

    device: Device | None
    seed: int | None


class FilterSettings(TypedDict, total=False):
    """Keyword arguments that `BloomFilter.from_keys` passes to the class."""

    capacity: int | None
    nbytes: int | None
    device: Device | None
    seed: int | None


class TableSettings(IdSettings, total=False):
    """Keyword arguments that `from_arrays` of sets, maps and counts passes to the class."""

    capacity: int
    max_load: float | None
    method: str


class MultiMapSettings(TableSettings, total=False):
    """Keyword arguments that `MultiMap.from_arrays` passes to the class."""

    initial_bucket: int | None
    growth: float | None
    cap: int | None


class PruningSettings(TypedDict, total=False):
    """Keyword arguments by which lookups on a cluster send less."""

    bloom_filter: Literal["auto"] | bool
    deduplicate: Literal["auto"] | bool


class MergeOptions(PruningSettings, total=False):
    """Keyword arguments that ``ddf.dgpuhash.merge`` passes to a merge with an index or frame."""

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
    """Keyword arguments for the workers and transport of a distributed table."""

    client: Client | None
    workers: Sequence[str] | None
    exchange: Literal["auto", "comm", "nccl", "peer", "two-level"]
    piece_rows: int | None


class DistributedFilterSettings(OnWorkers, total=False):
    """Keyword arguments that `DistributedBloomFilter.from_keys` passes to the class."""

    rate: float
    nbytes: int | None
    device: Device | None
    seed: int | None


class DistributedKeySettings(OnWorkers, IdSettings, total=False):
    """Settings that distributed sets, maps, multimaps and counts share."""

    max_load: float | None
    method: str
    mode: TableModeName


class DistributedTableSettings(DistributedKeySettings, total=False):
    """Keyword arguments that distributed `from_arrays` passes to the classes."""

    capacity: int


class DistributedMapSettings(DistributedTableSettings, total=False):
    """Keyword arguments that `DistributedMap.from_arrays` passes to the class."""

    conflict: ConflictName


class DistributedMultiMapSettings(DistributedTableSettings, total=False):
    """Keyword arguments that `DistributedMultiMap.from_arrays` passes to the class."""

    initial_bucket: int | None
    growth: float | None
