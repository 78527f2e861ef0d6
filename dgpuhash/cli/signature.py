"""Make commands of functions: options by signature, help by docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import click

# A parameter's entry in a docstring of NumPy's form: names, their type, and what they are.
_ENTRY = re.compile(r"^([a-z]\w*(?:, \w+)*) : .*$((?:\n    .*|\n$)+)", re.MULTILINE)
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
    groups: dict[str, tuple[Any, list[str]]] = {}
    decorators: list[_Decorator] = []
    for each in _parameters(function):
        if dataclasses.is_dataclass(each.kind):
            fields = list(_parameters(each.kind))
            groups[each.name] = each.kind, [field.name for field in fields]
            decorators += [one for field in fields for one in _options(field)]
        elif each.notes and isinstance(each.notes[0], OptionTable):
            groups[each.name] = dict, list(each.notes[0])
            decorators += each.notes[0].values()
        else:
            decorators += _options(each) if each.is_keyword else [_argument(each)]

    def run(**values: Any) -> Any:
        for name, (kind, names) in groups.items():
            values[name] = kind(**{part: values.pop(part) for part in names})
        return function(**values)

    made: Any = run
    for decorate in reversed(decorators):
        made = decorate(made)
    text = _SECTION.split(inspect.cleandoc(function.__doc__ or ""))[0]
    return click.command(function.__name__.replace("_", "-"), help=text)(made)


class _Parameter(NamedTuple):
    """Parameter of a function or field of a dataclass: its type, and what stands beside it."""

    name: str
    kind: Any
    notes: Sequence[Any]
    default: Any
    is_keyword: bool
    help: str | None

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty


def _parameters(source: Any) -> Iterator[_Parameter]:
    """Yield the parameters of a function, or the fields of a dataclass."""
    hints = typing.get_type_hints(source, include_extras=True)
    texts = {
        name: " ".join(text.split())
        for names, text in _ENTRY.findall(inspect.cleandoc(source.__doc__ or ""))
        for name in names.split(", ")
    }
    for name, parameter in inspect.signature(source).parameters.items():
        kind, notes = hints[name], list[Any](getattr(hints[name], "__metadata__", ()))
        kind = typing.get_args(kind)[0] if notes else kind
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        yield _Parameter(name, kind, notes, parameter.default, is_keyword, texts.get(name))


def _argument(parameter: _Parameter) -> _Decorator:
    """Return the argument of a positional parameter."""
    kind = _without_none(parameter.kind)
    settings: dict[str, Any] = {"required": parameter.is_required}
    if typing.get_origin(kind) is tuple:
        kind, settings["nargs"] = typing.get_args(kind)[0], -1
    for note in parameter.notes:
        settings |= {name: value for name, value in note.items() if name != "names"}
    return click.argument(parameter.name, type=kind, **settings)


def _options(parameter: _Parameter) -> Iterator[_Decorator]:
    """Yield the options of a parameter, one for each `option` of its annotation."""
    kind, name, default = _without_none(parameter.kind), parameter.name, parameter.default
    settings: dict[str, Any] = {"help": parameter.help}
    if kind is bool:
        settings["is_flag"] = True
    elif typing.get_origin(kind) is tuple:
        settings |= {"type": typing.get_args(kind)[0], "multiple": True}
    else:
        is_choice = typing.get_origin(kind) is Literal
        settings["type"] = click.Choice(typing.get_args(kind)) if is_choice else kind
    if parameter.is_required:
        settings["required"] = True
    elif default not in (None, ()) and default is not False:
        settings |= {"default": default, "show_default": True}
    flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
    for number, note in enumerate(parameter.notes or [{}]):
        own = {**({} if number else settings), **note}
        yield click.option(*(own.pop("names", ()) or (flag,)), name, **own)


def _without_none(kind: Any) -> Any:
    """Return the type of an optional parameter, without None."""
    kinds = [each for each in typing.get_args(kind) if each is not type(None)]
    return kinds[0] if len(kinds) < len(typing.get_args(kind)) else kind
