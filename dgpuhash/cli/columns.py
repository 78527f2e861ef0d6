"""Option types of the command line: column names, column dtypes, joins and aggregates."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import click

from dgpuhash.cli.signature import option
from dgpuhash.errors import SpecError


def _flatten(
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


Columns = Annotated[list[str] | None, option(type=ColumnNames(), multiple=True, callback=_flatten)]
"""Names that are separated by commas, or the option is given several times."""
KeyColumns = Annotated[
    list[str], option(type=ColumnNames(), multiple=True, callback=_flatten, help="Key columns.")
]
Types = Annotated[
    tuple[tuple[str, str], ...],
    option("--dtype", type=ColumnTypes(), help="Type of a column, e.g. zip=str in CSV."),
]


class JoinKind(click.Choice[str]):
    """Option type: the kinds of join, by the names of pandas, Dask, cuDF, polars or SQL.

    Examples
    --------
    >>> JoinKind().convert("leftsemi", None, None), JoinKind().convert("FULL_OUTER", None, None)
    ('semi', 'outer')
    """

    def __init__(self) -> None:
        super().__init__(["inner", "left", "right", "outer", "semi", "anti"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the kind of join."""
        from dgpuhash.frames.merge.arguments import join_kind

        for name in (value, _SQL.get(value.lower().replace("_", "").replace("-", ""))):
            with suppress(SpecError):
                return join_kind(name)
        return super().convert(value, param, ctx)


# Names of joins in SQL, Spark and polars, without what parts their words.
_SQL = {
    **dict.fromkeys(("full", "fullouter", "outer"), "outer"),
    **{f"{side}{outer}": side for side in ("left", "right") for outer in ("", "outer")},
    **{f"{left}{kind}": kind for left in ("", "left") for kind in ("semi", "anti")},
    "inner": "inner",
    "cross": "cross",
}


@dataclass(frozen=True, slots=True)
class AggregateOption:
    """Aggregate of a column, as an option names it.

    Attributes
    ----------
    label : str
        What its column is called.
    how : str
    column : str
        Empty for the number of rows.
    options : dict
    """

    label: str
    how: str
    column: str
    options: dict[str, float] = field(default_factory=dict)


# [LABEL=]NAME([COLUMN[, OPTION=NUMBER]…])
_OPTION = r",\s*[a-z_]+\s*=\s*[0-9.]+\s*"
_CALL = re.compile(
    rf"\s*(?:(?P<label>[^=()]+)=)?\s*(?P<call>(?P<how>[A-Za-z_]+)"
    rf"\(\s*(?P<column>.*?)\s*(?P<options>(?:{_OPTION})*)\))\s*",
    re.DOTALL,
)


class AggregateCall(click.ParamType):
    """Option type: a named aggregate of a column, such as ``total=sum(x)``.

    Examples
    --------
    >>> AggregateCall().convert("total=sum(price)", None, None)
    AggregateOption(label='total', how='sum', column='price', options={})
    >>> AggregateCall().convert("std(price, ddof=0)", None, None)
    AggregateOption(label='std(price, ddof=0)', how='std', column='price', options={'ddof': 0})
    """

    name = "[NAME=]AGGREGATE(COLUMN)"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> AggregateOption:
        """Return the aggregate's column, function and name."""
        if isinstance(value, AggregateOption):
            return value
        found = _CALL.fullmatch(value)
        if found is None:
            self.fail(
                f"{value!r} is not of the form NAME=AGGREGATE(COLUMN), e.g. 'total=sum(price)', "
                "'n=count()' or 'top=quantile(price, q=0.9)'"
            )
        options = {}
        for each in found["options"].split(",")[1:]:
            name, _, number = each.partition("=")
            try:
                options[name.strip()] = float(number) if "." in number else int(number)
            except ValueError:
                self.fail(f"{number.strip()!r} in {value!r} is no number")
        label = (found["label"] or found["call"]).strip()
        return AggregateOption(label, found["how"], found["column"], options)
