"""TableSpec: the validated, immutable settings of one table."""

from __future__ import annotations

import copy
import json
import math
import operator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.errors import KeyTypeError, SpecError
from dgpuhash.seeds import draw_seed
from dgpuhash.typing import DtypeDescription, SettingsLike

MAX_CAPACITY = 2**48
MAX_CAP = 2**24
KINDS = ("set", "map", "multimap", "count", "ids", "bloom_filter")
_WITHOUT_VALUES = ("set", "ids", "bloom_filter")
# Their keys may be records.
_OF_RECORDS = ("set", "map", "count")
_RECORD_NBYTES = 16
_KEY_KINDS = "biufmM"


def _as_dtype(dtype: DTypeLike, what: str) -> np.dtype[Any]:
    try:
        if dtype is None:
            raise TypeError("NumPy reads None as float64")
        made = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise KeyTypeError(
            f"{dtype!r} is not a NumPy dtype, so it cannot be a {what} dtype; "
            "pass one such as 'int64' (table.key_dtype shows the form)"
        ) from error
    if made.subdtype is not None:
        raise KeyTypeError(
            f"{what}s of dtype {made} are arrays themselves; "
            f"wrap them in a field: [('{what}', {made.subdtype[0].str!r}, {made.subdtype[1]})]"
        )
    if made.kind in "mM" and "[" not in made.str:
        raise KeyTypeError(f"{what}s of dtype {made} have no unit; name one, such as '{made}[ns]'")
    return native_dtype(made)


def native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return `dtype` in this machine's byte order.

    Variable-width text (StringDType) has no byte order.
    """
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def key_dtype_of(dtype: DTypeLike, *, records: bool = False) -> np.dtype[Any]:
    """Return the native form of a `dtype` that keys can have.

    Raises
    ------
    KeyTypeError
        For anything but a bool, integer, float, datetime64 or timedelta64 of 1, 2, 4 or 8 bytes,
        or with `records` a record of integers, of 16 bytes without gaps.

    Examples
    --------
    >>> key_dtype_of(">i4")
    dtype('int32')
    """
    made = _as_dtype(dtype, "key")
    if records and _is_record(made):
        return np.lib.format.drop_metadata(made)
    if made.kind not in _KEY_KINDS or made.itemsize not in (1, 2, 4, 8):
        wide = ", a record of integers that has 16 bytes," if records else ","
        raise KeyTypeError(
            f"keys of dtype {made} cannot be hashed exactly; use a bool, integer, float, "
            f"datetime64 or timedelta64 dtype of at most 8 bytes{wide} or index strings and "
            "several columns with dgpuhash.FrameIndex"
        )
    return made


def _is_record(dtype: np.dtype[Any]) -> bool:
    """Return whether keys of a dtype are plain integers side by side, comparable by their bytes."""
    if dtype.names is None or dtype.itemsize != _RECORD_NBYTES:
        return False
    at = 0
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]  # type: ignore[index]
        if offset != at or kind.kind not in "iu":
            return False
        at += kind.itemsize
    return at == dtype.itemsize


def value_dtype_of(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the native form of a `dtype` that values can have.

    Values can have any fixed size, but cannot be objects.

    Raises
    ------
    KeyTypeError
        For object dtypes, dtypes without a fixed size, and fields out of order or overlapping.

    Examples
    --------
    >>> value_dtype_of("f4,i8").itemsize
    12
    """
    made = _as_dtype(dtype, "value")
    if made.hasobject or made.itemsize == 0:
        raise KeyTypeError(
            f"values of dtype {made} have no fixed size; store the row number (an integer dtype) "
            "and keep the objects beside the table, or use a fixed-size dtype such as 'S16'"
        )
    try:
        made.descr  # noqa: B018
    except ValueError as error:
        from numpy.lib.recfunctions import repack_fields

        raise KeyTypeError(
            f"values of dtype {made} cannot be described ({error}); pass "
            f"values.astype({repack_fields(made, recurse=True)}), a dtype of NumPy's repack_fields"
        ) from error
    # A spec cannot store metadata, and NumPy would warn.
    return np.lib.format.drop_metadata(made)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Settings of a table: dtypes, method, load, seed and the like, without content.

    Parameters
    ----------
    kind : {"set", "map", "multimap", "count", "ids", "bloom_filter"}
    key_dtype : str or list
        dtype string such as ``"<i8"``; of records their fields, as for `value_dtype`.
    value_dtype : str or list, optional
        The values' dtype as `numpy.lib.format.dtype_to_descr` describes it; None for sets, ids and
        filters.
    max_load : float
        Load factor (share of slots in use) above which the table grows; in [0.01, 1).
    seed : int, optional
        Seed of the hash function, 64 bits; by default a new one (see `dgpuhash.seeds`).
    initial_bucket : int
        First bucket of a key's value list (multimaps; s0 of WarpCore §IV-C).
    growth : float
        Growth of a key's buckets (multimaps; lambda of WarpCore §IV-C).
    cap : int, optional
        Values of a key that a multimap keeps, the smallest ones; None: all.
    method : str
        How the table stores its keys: a name of `dgpuhash.methods`.
    settings : mapping or tuple of pairs
        The method's own settings, and those of a filter, kept as pairs sorted by name.

    Examples
    --------
    >>> spec = TableSpec.of("map", "int64", "float32")
    >>> spec.key, spec.value
    (dtype('int64'), dtype('float32'))
    >>> TableSpec.from_json(spec.to_json()) == spec
    True
    """

    kind: str
    key_dtype: DtypeDescription
    value_dtype: DtypeDescription | None = None
    max_load: float = 0.9
    seed: int = field(default_factory=draw_seed)
    initial_bucket: int = 1
    growth: float = 1.1
    cap: int | None = None
    method: str = "auto"
    settings: SettingsLike = ()

    @classmethod
    def of(
        cls,
        kind: str,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike | None = None,
        *,
        seed: int | None = None,
        **settings: Any,
    ) -> TableSpec:
        """Return a spec from dtypes in any form that NumPy accepts.

        See the class for ``settings``.
        """
        if seed is not None:
            settings["seed"] = seed
        value = None
        if value_dtype is not None:
            value = np.lib.format.dtype_to_descr(value_dtype_of(value_dtype))
        key = key_dtype_of(key_dtype, records=kind in _OF_RECORDS)
        return cls(kind, np.lib.format.dtype_to_descr(key), value, **settings)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SpecError(f"table kind {self.kind!r}; use one of {', '.join(map(repr, KINDS))}")
        if (self.value_dtype is None) != (self.kind in _WITHOUT_VALUES):
            raise SpecError(
                f"a {self.kind} cannot have value_dtype={self.value_dtype}; sets, ids and Bloom "
                "filters have no values, and all other tables have"
            )
        load = _number(self.max_load, "max_load")
        if not 0.01 <= load < 1:
            raise SpecError(f"max_load={self.max_load}; use a share in [0.01, 1), such as 0.9")
        object.__setattr__(self, "max_load", load)
        seed = _integer(self.seed, "seed")
        if not 0 <= seed < 2**64:
            raise SpecError(f"seed={seed}; use an integer from 0 to 2**64 - 1")
        object.__setattr__(self, "seed", seed)
        bucket = _integer(self.initial_bucket, "initial_bucket")
        if not 1 <= bucket <= 1024:
            raise SpecError(f"initial_bucket={bucket}; use 1 to 1024 values")
        object.__setattr__(self, "initial_bucket", bucket)
        growth = _number(self.growth, "growth")
        if not 1.0 <= growth <= 16.0:
            raise SpecError(f"growth={growth}; use a factor from 1.0 to 16.0")
        object.__setattr__(self, "growth", growth)
        self._check_cap()
        if not isinstance(self.method, str):
            raise SpecError(f"method={self.method!r}; use a name such as 'auto'")
        object.__setattr__(self, "settings", _pairs(self.settings))
        key_dtype_of(_dtype_of(self.key_dtype), records=self.kind in _OF_RECORDS)
        if self.value_dtype is not None:
            value_dtype_of(_dtype_of(self.value_dtype))

    def _check_cap(self) -> None:
        if self.cap is None:
            return
        cap = _integer(self.cap, "cap")
        if not 1 <= cap <= MAX_CAP:
            raise SpecError(f"cap={cap}; use 1 to {MAX_CAP:,} values, or None for all")
        object.__setattr__(self, "cap", cap)
        if self.kind != "multimap":
            raise SpecError(f"cap={cap} of a {self.kind}; only a MultiMap has several values a key")
        value = self.value
        if value is None or value.kind not in "iu":
            raise SpecError(
                f"cap={cap} keeps the smallest values, and those of dtype {value} have no order; "
                "use an integer dtype, or leave cap out"
            )

    @property
    def key(self) -> np.dtype[Any]:
        """The keys' dtype."""
        return _dtype_of(self.key_dtype)

    @property
    def value(self) -> np.dtype[Any] | None:
        """The values' dtype; None for sets."""
        return None if self.value_dtype is None else _dtype_of(self.value_dtype)

    def reseeded(self, seed: int) -> TableSpec:
        """Return the spec with another seed, without checking the settings again."""
        made = copy.copy(self)
        object.__setattr__(made, "seed", seed)
        return made

    def to_json(self) -> str:
        """Return the spec as JSON text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TableSpec:
        """Return the spec that `to_json` wrote.

        Every field is validated again.

        Raises
        ------
        SpecError
            When the text is no spec.
        """
        try:
            fields = json.loads(text)
            for name in ("key_dtype", "value_dtype"):
                if isinstance(fields.get(name), list):
                    fields[name] = _descr(fields[name])
            return cls(**fields)
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, SpecError):
                raise
            raise SpecError(f"no description of a table ({error}); save the table again") from error


def check_capacity(capacity: int, what: str = "capacity") -> int:
    """Return `capacity` as an int, or raise if no table can have that many keys.

    Raises
    ------
    SpecError
        When `capacity` is negative, absurdly large or no integer.
    """
    made = _integer(capacity, what)
    if not 0 <= made <= MAX_CAPACITY:
        raise SpecError(
            f"{what}={made:,}; use a number of keys from 0 to {MAX_CAPACITY:,} "
            "(0 is fine: tables grow by themselves)"
        )
    return made


def _dtype_of(descr: Any) -> np.dtype[Any]:
    """Return the dtype that `numpy.lib.format.dtype_to_descr` described."""
    try:
        return np.lib.format.descr_to_dtype(descr)
    except (TypeError, ValueError, IndexError, SyntaxError) as error:
        raise KeyTypeError(
            f"{descr!r} describes no NumPy dtype; TableSpec.of takes dtypes in any form"
        ) from error


def _descr(fields: list[Any]) -> list[tuple[Any, ...]]:
    """Return `dtype.descr` with the tuples that JSON turned into lists."""
    made = []
    for name, kind, *shape in fields:
        kind = _descr(kind) if isinstance(kind, list) else kind
        name = tuple(name) if isinstance(name, list) else name
        made.append((name, kind, *(tuple(part) for part in shape)))
    return made


def _pairs(settings: Any) -> tuple[tuple[str, int | float | str], ...]:
    """Return settings as pairs sorted by name, unchecked."""
    try:
        pairs = tuple(sorted(dict(settings).items()))
    except (TypeError, ValueError) as error:
        raise SpecError(f"settings={settings!r}; pass a mapping of names to settings") from error
    made = []
    for name, given in pairs:
        if isinstance(given, np.generic):
            given = given.item()
        if not isinstance(name, str) or not isinstance(given, int | float | str):
            raise SpecError(f"setting {name}={given!r}; a setting is a number or a word")
        made.append((name, given))
    return tuple(made)


def _integer(number: Any, what: str) -> int:
    try:
        return operator.index(number)
    except TypeError as error:
        raise SpecError(f"{what}={number!r} is not an integer; pass a whole number") from error


def _number(number: Any, what: str) -> float:
    try:
        made = float(number)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{what}={number!r} is not a number; pass a float") from error
    if not math.isfinite(made):
        raise SpecError(f"{what}={made}; pass a finite number")
    return made
