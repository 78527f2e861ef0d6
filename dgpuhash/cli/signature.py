"""Commands by the signatures of functions, whose docstrings have the help of each option."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import click

# A parameter's entry in a docstring of NumPy's form: names, their type, and what they are.
_ENTRY = re.compile(r"^([a-z]\w*(?:, \w+)*) : .*\n((?:    .*(?:\n|$))+)", re.MULTILINE)
_SECTION = re.compile(r"\n\nParameters\n-+\n")
_Decorator = Callable[[Any], Any]


def option(*names: str, **settings: Any) -> dict[str, Any]:
    """Return what an annotation says of a parameter's option beside its type and its default."""
    return {"names": names, **settings}


class OptionTable(dict[str, _Decorator]):
    """Options by name for a parameter that gets a dictionary of their values."""


def command(function: Callable[..., Any]) -> click.Command:
    """Return the command of a function.

    Positional parameters are arguments, keywords are options, those without a default required. A
    `Literal` lists the choices, a tuple takes several values, and an option has the help that the
    docstring gives for it. A parameter that is a dataclass, or has an `OptionTable`, stands for
    several options.

    Examples
    --------
    >>> from click.testing import CliRunner
    >>> def add(numbers: tuple[int, ...], *, start: int = 1) -> None:
    ...     '''Add NUMBERS.
    ...
    ...     Parameters
    ...     ----------
    ...     start : int
    ...         The first summand.
    ...     '''
    ...     click.echo(sum(numbers, start))
    >>> CliRunner().invoke(command(add), ["2", "3", "--start", "4"]).output
    '9\\n'
    """
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    made: list[_Decorator] = []
    for name, hint, parameter, text in _parameters(function):
        kind, *told = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if dataclasses.is_dataclass(kind):
            parts = {each: list(_options(each, *rest)) for each, *rest in _parameters(kind)}
            groups[name] = kind, list(parts)  # type: ignore[assignment]
            made += [each for options in parts.values() for each in options]
        elif told and isinstance(told[0], OptionTable):
            groups[name] = dict, list(told[0])
            made += told[0].values()
        elif parameter.kind is parameter.KEYWORD_ONLY:
            made += _options(name, hint, parameter, text)
        else:
            made.append(_argument(name, kind, parameter, *told))

    def run(**given: Any) -> Any:
        for name, (kind, names) in groups.items():
            given[name] = kind(**{each: given.pop(each) for each in names})
        return function(**given)

    for decorate in reversed(made):
        run = decorate(run)
    text = _SECTION.split(inspect.cleandoc(function.__doc__ or ""))[0]
    return click.command(function.__name__.replace("_", "-"), help=text)(run)


def _parameters(source: Any) -> Iterator[tuple[str, Any, inspect.Parameter, str | None]]:
    """Yield the name, the annotation, the signature and the help of each parameter."""
    hints = typing.get_type_hints(source, include_extras=True)
    texts = {
        name: " ".join(text.split())
        for names, text in _ENTRY.findall(inspect.cleandoc(source.__doc__ or ""))
        for name in names.split(", ")
    }
    for name, parameter in inspect.signature(source).parameters.items():
        yield name, hints[name], parameter, texts.get(name)


def _argument(
    name: str, kind: Any, parameter: inspect.Parameter, more: Any = None
) -> Callable[[Any], Any]:
    """Return the argument of a positional parameter."""
    settings: dict[str, Any] = {"required": parameter.default is parameter.empty}
    if typing.get_origin(kind) is tuple:
        kind, settings["nargs"] = typing.get_args(kind)[0], -1
    settings |= {"type": None if type(None) in typing.get_args(kind) else kind, **(more or {})}
    settings.pop("names", None)
    return click.argument(name, **settings)


def _options(
    name: str, hint: Any, parameter: inspect.Parameter, text: str | None
) -> Iterator[_Decorator]:
    """Yield the options of a parameter, one for each `option` of its annotation."""
    kind, *more = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    (kind,) = [each for each in _alternatives(kind) if each is not type(None)][:1]
    settings: dict[str, Any] = {}
    if kind is bool:
        settings["is_flag"] = True
    elif typing.get_origin(kind) is tuple:
        settings |= {"type": typing.get_args(kind)[0], "multiple": True}
    else:
        choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
        settings["type"] = click.Choice(choices) if choices else kind
    if parameter.default is parameter.empty:
        settings["required"] = True
    elif parameter.default not in (None, ()) and parameter.default is not False:
        settings |= {"default": parameter.default, "show_default": True}
    flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
    for number, each in enumerate(more or [{}]):
        own = {"help": text, **({} if number else settings), **each}
        yield click.option(*(own.pop("names", ()) or (flag,)), name, **own)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the only one."""
    return (kind,) if typing.get_origin(kind) in (None, tuple, Literal) else typing.get_args(kind)
