"""Command-line options for columns, column types and kinds of join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dgpuhash.errors import SpecError

__all__ = ["ColumnNames", "ColumnTypes", "JoinKind", "columns_option", "types_option"]


def columns_option(*names: str, **settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return an option for column names.

    Names are separated by commas, or the option is given several times.
    """
    return click.option(*names, type=ColumnNames(), multiple=True, callback=_flattened, **settings)


def _flattened(
    ctx: click.Context, param: click.Parameter, given: tuple[list[str], ...]
) -> list[str] | None:
    return [name for names in given for name in names] or None


class ColumnNames(click.ParamType):
    """Option type: column names separated by commas.

    Examples
    --------
    >>> ColumnNames().convert("origin,time_hour", None, None)
    ['origin', 'time_hour']
    """

    name = "NAME[,NAME…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Return the names in order."""
        if isinstance(value, list):
            return value
        names = [name.strip() for name in value.split(",")]
        if not all(names):
            self.fail(f"{value!r} has an empty name; write names with commas between them")
        return names


class ColumnTypes(click.ParamType):
    """Option type: one column and its dtype.

    Examples
    --------
    >>> ColumnTypes().convert("zip=str", None, None)
    ('zip', 'str')
    """

    name = "NAME=TYPE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the column and the dtype."""
        if isinstance(value, tuple):
            return value
        name, equals, dtype = value.rpartition("=")
        if not (name and equals and dtype):
            self.fail(f"{value!r} is not of the form NAME=TYPE, e.g. zip=str")
        return name, dtype


types_option = click.option(
    "--dtype",
    "dtypes",
    type=ColumnTypes(),
    multiple=True,
    help="Type of a column, e.g. zip=str in CSV.",
)


class JoinKind(click.Choice[str]):
    """Option type: the kinds of join, by the names of pandas, Dask or cuDF.

    Examples
    --------
    >>> JoinKind().convert("leftsemi", None, None)
    'semi'
    """

    def __init__(self) -> None:
        super().__init__(["inner", "left", "right", "outer", "semi", "anti"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the kind of join."""
        from dgpuhash.frames.merge.arguments import join_kind

        try:
            return join_kind(value)
        except SpecError:
            return super().convert(value, param, ctx)
