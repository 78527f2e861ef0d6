"""Method of an index's key tables, with all its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.errors import FormatError, SpecError, UnsupportedError
from dgpuhash.tables import HashMap, MultiMap
from dgpuhash.tables.stores.method import methods, table_spec


@dataclass(frozen=True, slots=True)
class KeyTableMethod:
    """Method of an index's key tables, and all its settings.

    Examples
    --------
    >>> KeyTableMethod.of("auto", {})
    KeyTableMethod(name='auto', settings=())
    """

    name: str = "auto"
    settings: tuple[tuple[str, int | float | str], ...] = ()

    @classmethod
    def of(cls, name: str, settings: Mapping[str, Any]) -> KeyTableMethod:
        """Return the method of this name, with defaults where settings are missing.

        Raises
        ------
        SpecError
            When there is no such method, or a setting is not its own or impossible.
        """
        row = methods().get(name)
        kind = "map" if row is None or "map" in row.nouns else "multimap"
        spec = table_spec(
            kind, np.uint64, np.uint64, max_load=None, seed=None, method=name, settings=settings
        )
        sorted_pairs: Any = spec.settings
        return cls(name, sorted_pairs)

    def to_json(self) -> dict[str, Any]:
        """Return what a save says of the method: nothing of ``"auto"``."""
        if self == AUTO:
            return {}
        return {"method": self.name, "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, header: Mapping[str, Any], where: str) -> KeyTableMethod:
        """Return the method of a save.

        Raises
        ------
        FormatError
            When there is no such method.
        """
        try:
            return cls.of(header.get("method", "auto"), header.get("settings", {}))
        except SpecError as error:
            raise FormatError(f"{where}: {error}") from error

    @property
    def maps(self) -> bool:
        """Whether there are maps of the method."""
        return "map" in methods()[self.name].nouns

    @property
    def lists(self) -> bool:
        """Whether there are multimaps of the method."""
        return "multimap" in methods()[self.name].nouns

    @property
    def ordered(self) -> bool:
        """Whether its multimaps keep the order of a key's values."""
        return methods()[self.name].ordered

    @property
    def options(self) -> dict[str, Any]:
        """The method as arguments of a table."""
        return {"method": self.name, **dict(self.settings)}

    def multimap(self) -> type[MultiMap]:
        """Return the class of multimaps.

        Raises
        ------
        UnsupportedError
            When the method has none.
        """
        if not self.lists:
            able = [each.name for each in methods().values() if "multimap" in each.nouns]
            raise UnsupportedError(
                f"several rows have one key, and method {self.name!r} serves no MultiMap; drop the "
                f"duplicates, or use one of the methods that do: {', '.join(able)}"
            )
        return MultiMap

    def require(self, verb: str, table: HashMap | MultiMap) -> None:
        """Raise UnsupportedError if a table of the method has no such verb."""
        methods()[self.name].require(verb, table.kind)


AUTO = KeyTableMethod()
