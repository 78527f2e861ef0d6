"""Options that name columns."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["ColumnNames", "ColumnTypes"]


class ColumnNames(click.ParamType):
    """Names with commas between them.

    Examples
    --------
    >>> ColumnNames().convert("origin,time_hour", None, None)
    ['origin', 'time_hour']
    """

    name = "NAME[,NAME…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """The names in order."""
        if isinstance(value, list):
            return value
        names = [name.strip() for name in value.split(",")]
        if not all(names):
            self.fail(f"{value!r} has an empty name; write names with commas between them")
        return names


class ColumnTypes(click.ParamType):
    """One column and its type.

    Examples
    --------
    >>> ColumnTypes().convert("zip=str", None, None)
    ('zip', 'str')
    """

    name = "NAME=TYPE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The column and the type."""
        if isinstance(value, tuple):
            return value
        name, equals, dtype = value.rpartition("=")
        if not (name and equals and dtype):
            self.fail(f"{value!r} is not of the form NAME=TYPE, e.g. zip=str")
        return name, dtype
