"""Table variants to benchmark: key bits, value bits and method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.keys import values_of
from dgpuhash.errors import SpecError
from dgpuhash.tables import HashMap, HashSet
from dgpuhash.tables.stores.method import Method, methods


@dataclass(frozen=True, slots=True)
class MeasuredMethod:
    """Method to measure, with the given settings.

    Examples
    --------
    >>> MeasuredMethod.of("auto", ()).options(0.8)
    {'max_load': 0.8}
    """

    name: str = "auto"
    settings: tuple[tuple[str, int | float | str], ...] = ()

    @classmethod
    def of(cls, name: str, settings: Sequence[str]) -> MeasuredMethod:
        """Return the method of a name and of settings such as ``"load=0.9"``.

        Raises
        ------
        SpecError
            When there is no such method, or a setting is not written so, or not the method's.
        """
        if name not in methods():
            raise SpecError(f"--method {name!r}; use one of {', '.join(methods())}")
        made = []
        for text in settings:
            key, sign, value = text.partition("=")
            if not (key and sign and value):
                raise SpecError(f"--setting {text!r}; write NAME=VALUE, as load=0.9")
            made.append((key, _number(value)))
        methods()[name].checked(dict(made))
        return cls(name, tuple(made))

    @property
    def row(self) -> Method:
        """The method's entry in `dgpuhash.methods`."""
        return methods()[self.name]

    @property
    def chosen(self) -> dict[str, Any]:
        """The method and its settings as arguments of a table; empty for ``auto``."""
        return {} if self.name == "auto" else {"method": self.name, **dict(self.settings)}

    @property
    def label(self) -> dict[str, str]:
        """The method as a field of a figure's row; empty for ``auto``."""
        if self.name == "auto":
            return {}
        return {"method": " ".join([self.name, *(f"{name}={it}" for name, it in self.settings)])}

    def options(self, load: float) -> dict[str, Any]:
        """Return arguments of a table whose slots are used to the share `load`.

        Methods that are sized otherwise keep their own setting.
        """
        if self.name == "auto":
            return {"max_load": load}
        sized = {"load": load, "space": 1 / load}
        known = self.row.settings.keys() - dict(self.settings).keys()
        return self.chosen | {name: it for name, it in sized.items() if name in known}

    def loads(self, loads: Sequence[float]) -> Sequence[float]:
        """Return the loads to measure: one if no setting follows from a load."""
        return loads if len(self.options(0.5)) > len(self.chosen) else loads[:1]

    def serves(self, kind: str) -> bool:
        """Return whether the method has tables of a kind."""
        return kind in self.row.nouns


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


AUTO = MeasuredMethod()


MAPS = ("32/32", "64/64", "32/64", "64/32")
NAMES = (*MAPS, "set32", "set64")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Kind of table to measure: a set or a map of unsigned integers.

    The methods have the same signature for both.

    Attributes
    ----------
    name : str
        Such as ``"32/64"``: 32 bits of key, 64 of value; or ``"set32"``.
    key, value : dtype
        `value` is None for sets.
    method : MeasuredMethod

    Examples
    --------
    >>> Pairs.of("32/64").row_bytes
    12
    """

    name: str
    key: np.dtype[Any]
    value: np.dtype[Any] | None
    method: MeasuredMethod = AUTO

    @classmethod
    def of(cls, name: str, method: MeasuredMethod = AUTO) -> Pairs:
        """Return the kind of table with a name of `NAMES`.

        Raises
        ------
        SpecError
            When `name` is none of `NAMES`.
        """
        if name not in NAMES:
            raise SpecError(f"dtypes {name!r}; use {', '.join(NAMES)} (bits of key/value)")
        if name.startswith("set"):
            return cls(name, np.dtype(f"u{int(name[3:]) // 8}"), None, method)
        key, value = (np.dtype(f"u{int(bits) // 8}") for bits in name.split("/"))
        return cls(name, key, value, method)

    @property
    def row_bytes(self) -> int:
        """Bytes of a key and its value."""
        return self.key.itemsize + (0 if self.value is None else self.value.itemsize)

    @property
    def floor_bits(self) -> int:
        """Bits of the wider of key and value, the width of the floor's keys."""
        return 8 * max(self.key.itemsize, 0 if self.value is None else self.value.itemsize)

    def values(self, keys: Any) -> Any:
        """Derive the value of each key; return None for sets."""
        return None if self.value is None else values_of(keys, self.value)

    def table(self, backend: Backend, capacity: int, load: float) -> HashMap | HashSet:
        """Return an empty table with room for `capacity` keys at `load`."""
        if self.value is None:
            return HashSet(self.key, capacity, device=backend.name, **self.method.options(load))
        options = self.method.options(load)
        return HashMap(self.key, self.value, capacity, device=backend.name, **options)

    def build(self, keys: Any, values: Any, load: float) -> HashMap | HashSet:
        """Build a table from a batch, which alone determines its capacity."""
        if self.value is None:
            return HashSet.from_keys(keys, **self.method.options(load))
        return HashMap.from_arrays(keys, values, **self.method.options(load))

    def insert(self, table: Any, keys: Any, values: Any) -> Any:
        """Insert keys, with their values into a map; return which rows were new."""
        return table.insert(keys) if self.value is None else table.insert(keys, values)

    def find(self, table: Any, keys: Any) -> tuple[Any, Any]:
        """Return the values of keys, None for sets, and a mask of the keys found."""
        return (None, table.contains(keys)) if self.value is None else table.find(keys)
