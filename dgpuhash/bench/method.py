"""Method of the tables that a benchmark measures, with its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dgpuhash.errors import SpecError
from dgpuhash.tables.stores.method import Method, methods


@dataclass(frozen=True, slots=True)
class MeasuredMethod:
    """Method to measure, and the settings that were given.

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
        """What `dgpuhash.methods` says of it."""
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
        """Return arguments of a table whose slots are in use to the share `load`.

        Methods that are sized otherwise keep their own setting.
        """
        if self.name == "auto":
            return {"max_load": load}
        sized = {"load": load, "space": 1 / load}
        known = self.row.settings.keys() - dict(self.settings).keys()
        return self.chosen | {name: it for name, it in sized.items() if name in known}

    def loads(self, loads: Sequence[float]) -> Sequence[float]:
        """Return the loads to measure: one where no setting follows from a load."""
        return loads if len(self.options(0.5)) > len(self.chosen) else loads[:1]

    def serves(self, kind: str) -> bool:
        """Return whether there are tables of a kind."""
        return kind in self.row.nouns


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


AUTO = MeasuredMethod()
