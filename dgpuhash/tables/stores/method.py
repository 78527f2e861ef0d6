"""Registry of methods: description, supported verbs and settings."""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend import Backend
from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.seeds import draw_seed
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import value_width, word_dtype
from dgpuhash.tables.store import Store

PACKAGE = "dgpuhash.tables.methods"
NOUNS = {
    "set": "HashSet",
    "map": "HashMap",
    "multimap": "MultiMap",
    "count": "CountMap",
    "ids": "KeyIds",
}
# Tables of these kinds are stored as those of another.
_STORED_AS = {"count": "map"}
VERBS = ("insert", "combine", "upsert", "find", "contains", "count", "erase", "items")
"""What every table of the noun can do, unless its method's row says less."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a method: default and allowed values.

    Parameters
    ----------
    default : int, float or str
        The kind of the default is the kind of the setting.
    least, most : number, optional
        The range, ends included.
    choices : tuple, optional
        All that the setting may be, instead of a range.
    size : bool
        Whether the setting decides how large a table is for its keys, as ``max_load`` does
        elsewhere; both together are refused.

    Examples
    --------
    >>> Setting(0.6, 0.05, 4.0).checked("chain", 1)
    1.0
    """

    default: int | float | str
    least: float | None = None
    most: float | None = None
    choices: tuple[int | float | str, ...] = ()
    size: bool = False

    def checked(self, name: str, given: Any) -> int | float | str:
        """Return a given value in the setting's type, or raise.

        Raises
        ------
        SpecError
            When it is of another kind, or out of its range.
        """
        kind = type(self.default)
        of_kind = isinstance(given, str) if kind is str else isinstance(given, int | float)
        if of_kind and not isinstance(given, bool):
            finite = isinstance(given, str) or math.isfinite(given)
            if finite and kind(given) == given and self._holds(given):
                return kind(given)
        raise SpecError(f"{name}={given!r}; use {self}")

    def _holds(self, made: Any) -> bool:
        if self.choices:
            return made in self.choices
        low = -math.inf if self.least is None else self.least
        high = math.inf if self.most is None else self.most
        return bool(low <= made <= high)

    def __str__(self) -> str:
        if self.choices:
            return " or ".join(repr(each) for each in self.choices)
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        return f"{kind} from {self.least} to {self.most}"


class Opens(Protocol):
    """Opener of stores: a store class, or a recipe for a generic store.

    Its ``check(key, value, settings)``, if it has one, refuses settings that do not go together.
    """

    def open(
        self,
        backend: Backend,
        spec: TableSpec,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        capacity: int,
    ) -> Any:
        """Return an empty store of key words, and of value words, for `capacity` keys."""


@dataclass(frozen=True)
class Method:
    """One method of storing keys: its openers, verbs and settings.

    Attributes
    ----------
    name : str
        What ``method=`` takes.
    paper, section : str
        Where it is described.
    nouns : mapping
        Kinds of tables that it serves, ``"set"``, ``"map"``, ``"multimap"`` and ``"ids"``, and what
        opens one.
    settings : mapping
        Its settings by name, as `Setting`.
    when : str
        What it is good for.
    verbs : tuple of str
        What its tables can do.
    static : bool
        Whether an insert into a table with keys builds the whole table anew.
    ordered : bool
        Whether a multimap keeps the order in which a key's values came.
    records : bool
        Whether keys of sets and maps can be records of 16 bytes.
    uses : tuple of str
        Kernels of other methods that its tables launch, by the beginning of their names.

    Examples
    --------
    >>> from dgpuhash import methods
    >>> tuple(methods()["auto"].nouns)
    ('set', 'map', 'multimap', 'ids')
    """

    name: str
    paper: str
    section: str
    nouns: Mapping[str, Opens] = field(repr=False, compare=False)
    when: str
    settings: Mapping[str, Setting] = field(default_factory=dict, compare=False)
    verbs: tuple[str, ...] = VERBS
    static: bool = False
    ordered: bool = True
    records: bool = False
    uses: tuple[str, ...] = ()

    def require(self, verb: str, kind: str) -> None:
        """Raise UnsupportedError, naming methods that can, unless tables have `verb`."""
        if verb in self.verbs:
            return
        able = [other.name for other in methods().values() if other.serves(kind, verb)]
        raise UnsupportedError(
            f"a {NOUNS[kind]} of method {self.name!r} cannot {verb}; "
            f"methods that can: {', '.join(able) or 'none'}"
        )

    def serves(self, kind: str, verb: str) -> bool:
        """Return whether tables of a kind have a verb."""
        return self.stores(kind) and verb in self.verbs

    def stores(self, kind: str) -> bool:
        """Return whether the method has tables of a kind."""
        return _STORED_AS.get(kind, kind) in self.nouns

    def checked(self, settings: Mapping[str, Any]) -> dict[str, int | float | str]:
        """Return all settings of the method: given values and defaults.

        Raises
        ------
        SpecError
            For settings that the method does not have, or that are out of range.
        """
        strange = sorted(settings.keys() - self.settings.keys())
        if strange:
            raise SpecError(self._strange(strange[0]))
        return {
            name: setting.checked(name, settings.get(name, setting.default))
            for name, setting in self.settings.items()
        }

    def _strange(self, name: str) -> str:
        own = ", ".join(sorted(self.settings)) or "none of its own"
        others = [each.name for each in methods().values() if name in each.settings]
        hint = f"; {name!r} is a setting of {', '.join(others)}" if others else ""
        return f"method {self.name!r} has no setting {name!r}; its settings: {own}{hint}"


class Methods(dict[str, Method]):
    """Methods by name; prints as a table."""

    def __repr__(self) -> str:
        rows = [("method", "tables", "settings", "source", "when")]
        for each in self.values():
            settings = " ".join(f"{name}={it.default}" for name, it in each.settings.items())
            source = f"{each.paper} {each.section}".strip()
            rows.append((each.name, " ".join(each.nouns), settings, source, each.when))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)


def methods() -> Mapping[str, Method]:
    """Return the methods of tables by name; the mapping prints as a table.

    A method is what ``method=`` of `HashSet`, `HashMap` and `MultiMap` takes: how they store their
    keys, mostly as a paper describes it. They are found by looking through the modules of
    ``dgpuhash.tables.methods``, each of which has its rows in ``METHODS``.

    Examples
    --------
    >>> import dgpuhash
    >>> found = dgpuhash.methods()
    >>> next(iter(found)), found["auto"].when
    ('auto', 'always, unless another fits better')
    """
    return _found(tuple(_path()))


def _path() -> list[str]:
    package = sys.modules.get(PACKAGE) or importlib.import_module(PACKAGE)
    path: list[str] = list(package.__path__)
    return path


@functools.lru_cache(maxsize=8)
def _found(path: tuple[str, ...]) -> Methods:
    rows = {each.name: each for module in _modules(path) for each in getattr(module, "METHODS", ())}
    return Methods(sorted(rows.items(), key=lambda row: (row[0] != "auto", row[0])))


def _modules(path: tuple[str, ...]) -> Iterator[Any]:
    for module in pkgutil.iter_modules(path):
        yield importlib.import_module(f"{PACKAGE}.{module.name}")


def require_order(spec: TableSpec) -> None:
    """Raise UnsupportedError unless a spec's multimaps keep the order of values."""
    found, name = methods(), spec.method
    if spec.cap is not None:
        raise UnsupportedError(
            "a MultiMap with cap= keeps no order of values; leave stable or cap out"
        )
    if not found[name].ordered:
        able = [each.name for each in found.values() if each.ordered and "multimap" in each.nouns]
        raise UnsupportedError(
            f"method {name!r} keeps no order of a key's values, so find cannot be stable; "
            f"methods that keep it: {', '.join(able)}"
        )


def table_spec(
    kind: str,
    key_dtype: DTypeLike,
    value_dtype: DTypeLike | None = None,
    *,
    max_load: float | None,
    seed: int | None,
    method: str,
    settings: Mapping[str, Any],
    **fields: Any,
) -> TableSpec:
    """Return a table's spec for its constructor's arguments.

    Raises
    ------
    KeyTypeError, SpecError
        When a dtype cannot be stored, a setting is impossible or of another method, or `max_load`
        stands beside a setting that sizes the table.
    """
    dtypes: tuple[Any, Any] = (key_dtype, value_dtype)
    plain = all(isinstance(each, np.dtype | str | None) for each in dtypes)
    if (
        plain
        and method == "auto"
        and seed is None
        and max_load is None
        and not (settings or fields)
    ):
        return _auto_spec(kind, *dtypes).reseeded(draw_seed())
    if max_load is not None:
        fields["max_load"] = max_load
    spec = TableSpec.of(
        kind, key_dtype, value_dtype, seed=seed, method=method, settings=settings, **fields
    )
    made = resolve_spec(spec)
    sizes = [name for name, each in methods()[method].settings.items() if each.size]
    if max_load is not None and sizes:
        raise SpecError(
            f"max_load={max_load} has no effect with method={method!r}, whose size is set by "
            f"{sizes[0]}=; leave max_load out"
        )
    return made


@functools.lru_cache(maxsize=64)
def _auto_spec(kind: str, key_dtype: Any, value_dtype: Any) -> TableSpec:
    """Return the spec of a table with method ``"auto"`` and a given seed."""
    return resolve_spec(TableSpec.of(kind, key_dtype, value_dtype))


def multimap_spec(
    key_dtype: DTypeLike,
    value_dtype: DTypeLike,
    *,
    initial_bucket: int | None,
    growth: float | None,
    settings: Mapping[str, Any],
    method: str,
    cap: int | None = None,
    **fields: Any,
) -> TableSpec:
    """Return a multimap's spec as `table_spec` does.

    `initial_bucket` and `growth` are fields of the spec for ``"auto"``, and else settings of the
    method, which may have none of these names. Only ``"auto"`` has a `cap`.
    """
    if cap is not None:
        if method != "auto":
            raise UnsupportedError(
                f"a MultiMap of method {method!r} keeps all values; use method 'auto' with cap="
                f"{cap}, or leave cap out"
            )
        fields["cap"] = cap
    given = {"initial_bucket": initial_bucket, "growth": growth}
    chosen = {name: each for name, each in given.items() if each is not None}
    if method == "auto":
        fields |= chosen
    else:
        settings = {**settings, **chosen}
    return table_spec(
        "multimap", key_dtype, value_dtype, method=method, settings=settings, **fields
    )


def resolve_spec(spec: TableSpec) -> TableSpec:
    """Return a spec with all settings of its method.

    Raises
    ------
    SpecError
        When there is no such method, it does not serve the kind of table, or a setting is not its
        own, impossible, or does not go with the dtypes.
    """
    found = methods()
    method = found.get(spec.method)
    if method is None or not method.stores(spec.kind):
        able = ", ".join(name for name, each in found.items() if each.stores(spec.kind))
        what = "is no method" if method is None else f"serves no {NOUNS[spec.kind]}"
        raise SpecError(f"method {spec.method!r} {what}; methods of {NOUNS[spec.kind]}: {able}")
    if spec.key.names is not None and not method.records:
        able = ", ".join(name for name, each in found.items() if each.records)
        raise SpecError(
            f"method {spec.method!r} has no keys of dtype {spec.key}; methods of records: {able}"
        )
    settings = method.checked(dict(spec.settings))
    check = getattr(method.nouns[_STORED_AS.get(spec.kind, spec.kind)], "check", None)
    if check is not None:
        width = value_width(spec.value)
        check(word_dtype(spec.key), np.dtype(f"u{width}") if width else None, settings)
    return replace(spec, settings=settings) if settings != dict(spec.settings) else spec


def store_for(
    backend: Backend,
    spec: TableSpec,
    key: np.dtype[Any],
    value: np.dtype[Any] | None,
    capacity: int,
) -> Store:
    """Return an empty store of a spec's method.

    Parameters
    ----------
    backend : Backend
    spec : TableSpec
        With all settings of its method.
    key, value : dtype
        Of the words: uint32 or uint64; `value` is None for sets.
    capacity : int
        Keys that fit before the store grows.

    Examples
    --------
    >>> import numpy as np
    >>> from dgpuhash import backend
    >>> spec = TableSpec.of("set", "uint32", seed=3)
    >>> store = store_for(backend.get("cpu"), spec, np.dtype("u4"), None, 0)
    >>> store.insert(np.array([5, 5], "u4"), None).sum(), len(store)
    (np.int64(1), 1)
    """
    opener = methods()[spec.method].nouns[_STORED_AS.get(spec.kind, spec.kind)]
    store: Store = opener.open(backend, spec, key, value, capacity)
    return store
