"""Functions of ``agg`` that only name an aggregate and its options, as cuDF takes them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.groupby.aggregates.options import CalledName

_ALIASES = {"collect": "list", "product": "prod"}
# Python's own, which name aggregates.
_BUILTINS = {sum: "sum", max: "max", min: "min"}


class _Methods:
    """What a function is called with: each method tells its name and arguments."""

    def __getattr__(self, name: str) -> Any:
        def method(*args: Any, **kwargs: Any) -> CalledName:
            made = CalledName(_ALIASES.get(name, name))
            made.given, made.positional = kwargs, args
            return made

        return method


def named(func: Any) -> Any:
    """Return what ``agg`` is given, with names of aggregates in place of functions that are so.

    Examples
    --------
    >>> named({"v": [lambda x: x.quantile(0.25), "max"]})
    {'v': [('<lambda>', 'quantile'), 'max']}
    """
    if isinstance(func, Mapping):
        return {label: named(each) for label, each in func.items()}
    if isinstance(func, list | tuple):
        return [(_title(each), _one(each)) if _is_function(each) else _one(each) for each in func]
    return _one(func)


def named_pair(pair: Any) -> Any:
    """Return a column and what is aggregated of it, with a name in place of a function."""
    if hasattr(pair, "aggfunc"):
        return (pair.column, _one(pair.aggfunc)) if _is_function(pair.aggfunc) else pair
    if isinstance(pair, tuple) and len(pair) == 2:
        return pair[0], _one(pair[1])
    return _one(pair)


def _is_function(each: Any) -> bool:
    return callable(each) and each is not list


def _title(function: Any) -> str:
    return str(getattr(function, "__name__", function))


def _one(how: Any) -> Any:
    """Return the aggregate that a function calls, or what else is given as it is."""
    if isinstance(how, str):
        return how if type(how) is not str else _ALIASES.get(how, how)
    if not _is_function(how):
        return how
    if how in _BUILTINS:
        return _BUILTINS[how]
    try:
        found = how(_Methods())
    except Exception:
        # A function of rows, which `name_of` refuses.
        return how
    return found if isinstance(found, CalledName) else how


def refuse(function: Any, names: Iterable[str]) -> None:
    """Raise UnsupportedError for a function that names no aggregate; tell the names of all."""
    raise UnsupportedError(
        f"the function {getattr(function, '__name__', function)!r} as an aggregate; give one of "
        f"the names {', '.join(names)}"
    )


def without_repeats(func: Any) -> Any:
    """Return what ``agg`` is given, each aggregate of a column once, as cuDF has it."""
    if not isinstance(func, Mapping):
        return func
    made = {}
    for label, hows in func.items():
        if isinstance(hows, list | tuple) and len(dict.fromkeys(hows)) < len(hows):
            import cudf

            if cudf.get_option("mode.pandas_compatible"):
                raise NotOfferedError("Duplicate aggregations per column are not supported.")
            warnings.warn(
                "Duplicate aggregations per column found. The resulting duplicate columns will be "
                "dropped.",
                UserWarning,
                stacklevel=3,
            )
            hows = list(dict.fromkeys(hows))
        made[label] = hows
    return made


class NotOfferedError(UnsupportedError, NotImplementedError):
    """What cuDF does not have either, of its class."""
