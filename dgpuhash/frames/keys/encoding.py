"""KeyEncoder: encode any number of key columns as one 32- or 64-bit code per row."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.errors import ColumnError, FormatError, KeyTypeError, SpecError
from dgpuhash.frames.dataframes import Frames, frames_of
from dgpuhash.frames.key_columns import (
    NUMERIC,
    KeyColumn,
    LogicalType,
    NormalColumn,
    check_comparable,
    normalise,
)
from dgpuhash.frames.keys.ranges import LETTERS, MOST_COLUMNS, KeyRanges
from dgpuhash.frames.keys.seeds import LEGACY, KeySeeds
from dgpuhash.frames.labels import key_names, refuse_nulls
from dgpuhash.tables.columns.distinct import Factorization, distinct_keys

_STRING = LogicalType("string", nullable=True)
_FEW_KEYS = 2**12
NULL_COLUMN_HASH = 0xD1B54A32D192ED03
# Reserved code of a null in a column without a spare bit; hits on it are verified.
NULL_CODE = {4: np.uint32(0x9E3779B9), 8: np.uint64(0x9E3779B97F4A7C15)}
# Code of a null in a column in which NaN is a value: that of NaN.
NAN_CODE = {4: np.float32("nan").view(np.uint32), 8: np.float64("nan").view(np.uint64)}


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Key columns by position, to encode, compare and gather rows.

    Attributes
    ----------
    names : sequence of labels
        What errors call the columns.
    columns : sequence of KeyColumn
    frames : Frames
        The library that holds them.

    Examples
    --------
    >>> import pandas as pd
    >>> keys = KeyColumns.of(pd.DataFrame({"k": [5.0, None, 7.0]}))
    >>> len(keys), keys.complete
    (3, array([ True, False,  True]))
    """

    names: Sequence[Hashable]
    columns: Sequence[KeyColumn]
    frames: Frames

    @classmethod
    def of(cls, frame: Any, names: Sequence[Hashable] | None = None) -> KeyColumns:
        """Return the key columns of a frame; default: all of its columns.

        Raises
        ------
        KeyTypeError
            When a column cannot be a key.
        """
        frames = frames_of(frame)
        names = list(frame.columns) if names is None else names
        return cls.of_series([frames.column(frame, name) for name in names], names, frames)

    @classmethod
    def of_series(
        cls, columns: Sequence[Any], names: Sequence[Hashable], frames: Frames
    ) -> KeyColumns:
        """Return Series as key columns; raises as `of`."""
        read = [frames.key_column(*each) for each in zip(columns, names, strict=True)]
        return cls(names, read, frames)

    def __len__(self) -> int:
        first = self.columns[0]
        return len(first.values if first.strings is None else first.strings)

    @property
    def stored_types(self) -> tuple[LogicalType, ...]:
        """Types in which the keys are stored; all-null columns are strings."""
        return tuple([_STRING if each.type.kind == "null" else each.type for each in self.columns])

    @property
    def complete(self) -> Any:
        """Mask of the rows without a null key."""
        there = self.frames.xp.ones(len(self), bool)
        for column in self.columns:
            if column.nulls is not None:
                there &= ~column.nulls
        return there

    def take(self, rows: Any) -> KeyColumns:
        """Return the keys at positions `rows`."""
        return replace(self, columns=[column.take(rows) for column in self.columns])


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """Codes of the keys of some rows.

    Attributes
    ----------
    codes : array of uint32 or uint64
        Equal keys have equal codes; NumPy for pandas, CuPy for cuDF.
    valid : bool array or None
        False where a row holds a value that no indexed row can have: the row matches nothing, and
        its code is arbitrary (it may be sent to any owner). None: all rows are valid.
    ambiguous : bool, or a number
        Whether equal codes do not prove equal keys, so that hits must be verified; or the only
        code for which they do not.
    columns : tuple of NormalColumn
        The key columns, for `same_keys`.
    """

    codes: Any
    valid: Any
    ambiguous: Any
    columns: tuple[NormalColumn, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def proves(self) -> bool:
        """Whether equal codes with another such side imply equal keys."""
        if self.ambiguous is False:
            return True
        # A reserved code stands for nulls, and there are none.
        return self.ambiguous is not True and self.columns[0].nulls is None

    def numbers(self, *, of_rows: bool = True) -> tuple[Any, Any]:
        """Return the number of each row's key, and the first row of each key.

        Keys are numbered in order of first appearance. Rows of one code are compared with the first
        of them; those that differ have another round. Without `of_rows` the numbers may be None.
        """
        device = backend.get(None, self.codes)
        xp, codes = device.xp, device.asarray(self.codes)
        if self.proves and not of_rows:
            return None, distinct_keys(device, codes, numbered=False).first_rows()
        groups = Factorization(device, codes)
        first, numbers = groups.first_rows, groups.codes
        if self.proves or len(first) == len(numbers):
            return numbers, first
        heads, rows = [first], None
        while True:
            # The first rows apart lie closer together.
            among = [column.take(heads[-1]) for column in self.columns]
            same = same_keys(self.columns, rows, among, groups.codes)
            if bool(same.all()):
                break
            rows = xp.flatnonzero(~same) if rows is None else rows[~same]
            groups = Factorization(device, codes[rows])
            numbers[rows] = groups.codes + sum(map(len, heads))
            heads.append(rows[groups.first_rows])
        if len(heads) == 1:
            return numbers, first
        first = xp.concatenate(heads)
        order = xp.argsort(first)
        rank = xp.empty(len(order), np.int64)
        rank[order] = xp.arange(len(order))
        return rank[numbers], first[order]

    def first_repeat(self) -> int:
        """Return the first row with the key of an earlier row, or -1."""
        first = self.numbers(of_rows=False)[1]
        repeats = backend.get(None, self.codes).xp.ones(len(self), bool)
        repeats[first] = False
        return -1 if len(first) == len(self) else int(repeats.argmax())


@dataclass(frozen=True, slots=True)
class KeyEncoder:
    """Encoder of an index's key columns, the same on any process and device.

    Fixed-width columns that fit 8 bytes together, with a flag bit for each that can hold nulls, are
    packed: equal codes are equal keys. Wider keys are hashed to 64 bits, and every hit is then
    verified against the stored columns. A single nullable column of numbers keeps its own width: a
    reserved code represents the null, and only hits on that code are verified. Nullable floats have
    one code for NaN and null, so both have the same owner, and hits are verified.

    Parameters
    ----------
    names : tuple
        The key columns of the indexed frame.
    types : tuple of LogicalType
    hash_bits : int
        Bits kept of a hash; fewer than 64 only to provoke collisions in tests.
    seeds : KeySeeds
        Seeds of the hashes; default: newly drawn.
    ranges : KeyRanges, optional
        Of stored keys, by which all keys of one call are packed (`for_call`).

    Attributes
    ----------
    packing : {"packed", "reserved", "hashed"}
        How keys are encoded; ``"reserved"`` is that of one nullable column of numbers.
    code_dtype : dtype
        Of the codes: uint32 or uint64.
    exact : bool
        Whether equal codes always mean equal keys.

    Examples
    --------
    >>> import pandas as pd
    >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "year": [1999, 2004]})
    >>> KeyEncoder.for_frame(planes, on="year").packing
    'packed'
    >>> KeyEncoder.for_frame(planes, on=["tailnum", "year"]).packing
    'hashed'
    """

    names: tuple[Hashable, ...]
    types: tuple[LogicalType, ...]
    hash_bits: int = 64
    seeds: KeySeeds = field(default_factory=KeySeeds.drawn)
    ranges: KeyRanges | None = field(default=None, repr=False, compare=False)
    packing: str = field(init=False, repr=False, compare=False)
    code_dtype: np.dtype[Any] = field(init=False, repr=False, compare=False)
    exact: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.hash_bits <= 64:
            raise SpecError(f"hash_bits={self.hash_bits}; give 1 to 64")
        types = self.types
        bits, packing = sum([each.bits + each.flag_bits for each in types]), "packed"
        if len(types) == 1 and types[0].nullable and types[0].bits >= 32:
            bits, packing = types[0].bits, "reserved"
        elif bits > 64 or any(each.kind in {"string", "null"} for each in types):
            bits, packing = 64, "hashed"
        exact = packing == "packed" and not any(each.nan_is_value for each in types)
        object.__setattr__(self, "packing", packing)
        object.__setattr__(self, "exact", exact)
        object.__setattr__(self, "code_dtype", np.dtype(np.uint32 if bits <= 32 else np.uint64))

    @classmethod
    def for_frame(
        cls, frame: Any, on: Hashable | Sequence[Hashable], *, hash_bits: int = 64
    ) -> KeyEncoder:
        """Return the encoder for an index of `frame`, or of frames like it.

        An empty frame is enough.

        Raises
        ------
        ColumnError
            When a column of `on` is missing or duplicated.
        KeyTypeError
            When a column cannot be a key.
        """
        names = key_names(frame, on)
        refuse_nulls(names)
        return cls.for_columns(KeyColumns.of(frame, names), hash_bits=hash_bits)

    @classmethod
    def for_columns(cls, keys: KeyColumns, *, hash_bits: int = 64) -> KeyEncoder:
        """Return the encoder for an index of these keys, as `for_frame`."""
        return cls(tuple(keys.names), keys.stored_types, hash_bits)

    @classmethod
    def for_types(cls, types: tuple[LogicalType, ...]) -> KeyEncoder:
        """Return an encoder of keys of these types for one call in this process.

        Seeds are drawn for hashes alone, and encoders without any are made once.
        """
        return _seedless_encoder(types) or cls(tuple(range(len(types))), types)

    def reseeded(self) -> KeyEncoder:
        """Return this encoder with newly drawn seeds, for another index."""
        return replace(self, seeds=KeySeeds.drawn())

    @property
    def codes_are_keys(self) -> bool:
        """Whether codes are the values of the only, null-free key column."""
        only, bits = self.types[0], 8 * self.code_dtype.itemsize
        plain = len(self.types) == 1 and only.kind in {"int", "uint"} and only.bits == bits
        return plain and self.packing != "hashed"

    def encode(
        self, frame: Any, columns: Hashable | Sequence[Hashable] | None = None
    ) -> EncodedKeys:
        """Return the codes of the rows of `frame`, a query or rows to insert.

        Parameters
        ----------
        frame : pandas or cuDF DataFrame
        columns : label or list of labels, optional
            Columns of `frame` to compare with `names`, in that order; default: `names`.

        Raises
        ------
        ColumnError
            When a column is missing, or their number is not that of the index's key columns.
        KeyTypeError
            When a column can never equal the index column, such as strings and integers.

        Examples
        --------
        >>> import pandas as pd
        >>> small = pd.DataFrame({"k": pd.Series([5], dtype="int8")})
        >>> encoder = KeyEncoder.for_frame(small, on="k")
        >>> asked = encoder.encode(pd.DataFrame({"k": [5.0, 5.5, 300.0]}))
        >>> asked.valid
        array([ True, False, False])
        """
        return self.encode_columns(self._columns_of(frame, columns))

    def encode_columns(self, keys: KeyColumns, *, nulls_equal: bool = True) -> EncodedKeys:
        """Return the codes of keys that queries compare by position, as `encode`.

        Unless `nulls_equal`, keys with a null match nothing.
        """
        valid, normal = None if nulls_equal else keys.complete, self.normalise_columns(keys)
        for column in normal:
            if column.valid is not None:
                valid = column.valid if valid is None else valid & column.valid
        codes, doubts = self._codes(normal, keys.frames)
        return EncodedKeys(codes, valid, doubts, normal)

    def for_call(self, stored: KeyColumns) -> tuple[KeyEncoder, EncodedKeys]:
        """Return the encoder of one lookup in these stored keys, and their codes.

        Several columns of integers are packed by their ranges, where they fit 64 bits: equal codes
        are equal keys. Other rows have other ranges, so no such code is saved or sent.

        Raises as `encode_rows`.

        Examples
        --------
        >>> import pandas as pd
        >>> keys = KeyColumns.of(pd.DataFrame({"a": [5, 6, 2**60], "b": [2**40, 2**40 + 1, 2**40]}))
        >>> KeyEncoder.for_columns(keys).for_call(keys)[1].codes
        array([                  0,                   3, 2305843009213693942],
              dtype=uint64)
        """
        here, several = self, 1 < len(self.types) <= MOST_COLUMNS
        if several and {each.kind for each in self.types} <= LETTERS.keys():
            device = backend.get(stored.frames.device)
            # A CPU packs few keys by their types in less time than it takes to find their ranges.
            few = self.packing == "packed" and device.name == "cpu" and len(stored) < _FEW_KEYS
            ranges = None if few else KeyRanges.of(self.normalise_columns(stored), device)
            here = self if ranges is None else replace(self, ranges=ranges)
        return here, here.encode_stored(stored)

    def encode_arrays(self, arrays: Sequence[Any], frames: Frames) -> EncodedKeys:
        """Return the codes of key columns given as `Frames.arrays` returns them.

        The arrays have the dtypes of the index's key columns.
        """
        columns = [KeyColumn(*each) for each in zip(self.types, arrays, strict=True)]
        return self.encode_columns(KeyColumns(self.names, columns, frames))

    def normalise(
        self, frame: Any, columns: Hashable | Sequence[Hashable] | None = None
    ) -> tuple[NormalColumn, ...]:
        """Return the key columns of `frame` in the index's types, for comparison."""
        return self.normalise_columns(self._columns_of(frame, columns))

    def normalise_columns(self, keys: KeyColumns) -> tuple[NormalColumn, ...]:
        """Return keys in the index's types, for comparison."""
        xp = keys.frames.xp
        for name, column, type_ in zip(keys.names, keys.columns, self.types, strict=True):
            if column.type is not type_:
                check_comparable(name, type_, column.type)
        return tuple(map(normalise, keys.columns, self.types, [xp] * len(self.types)))

    def _columns_of(
        self, frame: Any, columns: Hashable | Sequence[Hashable] | None = None
    ) -> KeyColumns:
        asked = key_names(frame, list(self.names) if columns is None else columns)
        if len(asked) != len(self.names):
            raise ColumnError(
                f"{len(asked)} key columns {list(asked)!r} were given for an index on "
                f"{len(self.names)}, {list(self.names)!r}; give one column for each, in that order"
            )
        return KeyColumns.of(frame, asked)

    def encode_rows(self, frame: Any) -> EncodedKeys:
        """Return the codes of rows to store; each value must fit its index column.

        Raises
        ------
        KeyTypeError
            When a value does not fit; the message gives the column and the remedy.
        """
        return self.encode_stored(self._columns_of(frame))

    def encode_stored(self, keys: KeyColumns) -> EncodedKeys:
        """Return the codes of the keys of rows to store, as `encode_rows`."""
        encoded = self.encode_columns(keys)
        if encoded.valid is None or bool(encoded.valid.all()):
            return encoded
        for name, column in zip(self.names, encoded.columns, strict=True):
            if column.valid is not None and not bool(column.valid.all()):
                raise KeyTypeError(
                    f"key column {name!r} has values (or nulls) that do not fit the index's "
                    f"{column.type}; build the index from a column of a wider or nullable type "
                    "(for example 'Int64'), or leave those rows out"
                )
        return encoded

    def _codes(self, columns: Sequence[NormalColumn], frames: Any) -> tuple[Any, Any]:
        if self.ranges is not None:
            return self.ranges.codes(columns, backend.get(frames.device)), False
        if self.packing == "hashed":
            return self._hash(columns, frames), True
        xp, dtype = frames.xp, self.code_dtype
        if self.packing == "reserved":
            only = columns[0]
            nan = only.type.nan_is_value
            reserved = (NAN_CODE if nan else NULL_CODE)[dtype.itemsize]
            codes = only.bits.astype(dtype, copy=False)
            if only.nulls is not None and not nan:
                codes = xp.where(only.nulls, reserved, codes)
            return codes, reserved
        codes = None
        for column in columns:
            bits = column.bits.astype(dtype, copy=False)
            shift = dtype.type(column.type.bits)
            codes = bits if codes is None else (codes << shift) | bits
            if column.type.flag_bits:
                codes = codes << dtype.type(1)
                if column.nulls is not None:
                    codes = codes | column.nulls.astype(dtype)
        return codes, not self.exact

    def _hash(self, columns: Sequence[NormalColumn], frames: Any) -> Any:
        device = backend.get(frames.device)
        total: Any = None
        for position, column in enumerate(columns):
            seed = self.seeds.of_column(position)
            if column.strings is not None:
                hashes = column.strings.hash(seed)
            else:
                hashes = device.hash_keys(column.bits.astype(np.uint64), seed)
                if column.nulls is not None and not column.type.nan_is_value:
                    hashes = frames.xp.where(column.nulls, np.uint64(NULL_COLUMN_HASH), hashes)
            total = hashes if total is None else device.hash_combine(total, hashes)
        if self.hash_bits < 64:
            total = total >> np.uint64(64 - self.hash_bits)
        return total

    def owners(self, codes: Any, parts: int) -> Any:
        """Return the shard in ``[0, parts)`` that owns each code, as uint32.

        The owner depends only on the code, the seed and the number of shards, `parts`.
        """
        device = backend.get(None, codes)
        return device.owner_of(device.hash_keys(codes, self.seeds.owners), parts)

    def untyped(self) -> KeyEncoder:
        """Return an encoder for queries of any type, with no equal keys."""
        return replace(self, types=(LogicalType("null"),) * len(self.types))

    @property
    def is_untyped(self) -> bool:
        """Whether this encoder comes from `untyped`."""
        return all(type_.kind == "null" for type_ in self.types)

    def without_rows(self, meta: Any) -> KeyEncoder:
        """Return the encoder for queries of an empty index with columns `meta`.

        The dtype of an object column does not tell the type of its values, so such a key column is
        comparable with any type, and nothing is equal.
        """
        frames, null = frames_of(meta), LogicalType("null")
        typed = [frames.is_typed(meta[name]) for name in self.names]
        types = (type_ if one else null for type_, one in zip(self.types, typed, strict=True))
        return replace(self, types=tuple(types))

    def read_as(self, meta: Any) -> KeyEncoder:
        """Return this encoder for its saved rows, read into frames like `meta`.

        The library that reads them may mark nulls of numbers differently from the one that wrote
        them, and old files do not record it.
        """
        frames = frames_of(meta)
        types = []
        for name, type_ in zip(self.names, self.types, strict=True):
            own = frames.key_column(meta[name], name).type if type_.kind in NUMERIC else type_
            nullable = own.nullable if own.kind == type_.kind == "float" else type_.nullable
            types.append(replace(type_, nullable=nullable, missing=own.missing))
        return replace(self, types=tuple(types))

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain values for `from_json`."""
        assert self.ranges is None, "codes by ranges are those of one call"
        return {
            "names": list(self.names),
            "types": [type_.to_json() for type_ in self.types],
            "hash_bits": self.hash_bits,
            "seeds": self.seeds.to_json(),
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> KeyEncoder:
        """Return the encoder that `to_json` described.

        Raises
        ------
        FormatError
            When the dictionary does not describe an encoder.
        """
        try:
            names, hash_bits = saved["names"], saved["hash_bits"]
            seeds = KeySeeds.from_json(saved["seeds"]) if "seeds" in saved else LEGACY
            types = tuple(LogicalType.from_json(type_) for type_ in saved["types"])
            labels = type(names) is list and all(type(name) in {str, int} for name in names)
            if not labels or not types or len(names) != len(types) or type(hash_bits) is not int:
                raise ValueError(f"key columns {names!r} of {len(types)} types")
            return cls(tuple(names), types, hash_bits, seeds)
        except (KeyError, TypeError, ValueError, SpecError) as error:
            raise FormatError(
                f"not the description of a key encoder ({error!r}); the file is damaged or foreign"
            ) from error


@functools.lru_cache(maxsize=2**8)
def _seedless_encoder(types: tuple[LogicalType, ...]) -> KeyEncoder | None:
    """Return the encoder of keys of these types; None if it needs hashes with seeds."""
    encoder = KeyEncoder(tuple(range(len(types))), types, seeds=LEGACY)
    return None if encoder.packing == "hashed" else encoder


def same_keys(
    columns: Sequence[NormalColumn], rows: Any, others: Sequence[NormalColumn], other_rows: Any
) -> Any:
    """Return a mask of the positions where two lists of keys are equal.

    Compares the key of `columns` at `rows` with that of `others` at `other_rows`. None in place of
    rows means all rows, in order.
    """
    same = columns[0].equal_at(rows, others[0], other_rows)
    for ours, theirs in zip(columns[1:], others[1:], strict=True):
        same &= ours.equal_at(rows, theirs, other_rows)
    return same
