"""Derive command-line options from the signatures and docstrings of benchmarks."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from dgpuhash.errors import SpecError

# A parameter's entry in a docstring of NumPy's form: names, their type, and what they are.
_ENTRY = re.compile(r"^([a-z]\w*(?:, \w+)*) : .*\n((?:    .*(?:\n|$))+)", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")
# Names that do not lose their last letter where an option is given several times.
_PLURAL = {"dtypes", "groups", "keys", "workers", "partitions"}


@dataclass(frozen=True, slots=True)
class Option:
    """Facts about a parameter, besides its type, that a command line needs.

    Attributes
    ----------
    names : tuple of str
        Spellings; empty: the parameter's own name.
    help : str
        Empty: the first sentence of its documentation.
    choices : tuple of str
        All that it may be; empty: anything.
    metavar : str
        What stands for its value; with `choices` these are then not listed.
    least, most : float
        Bounds of a number, `least` itself only where `from_least`.
    from_least : bool
    below_most : bool
        Whether `most` itself is too much.
    file : bool
        Whether it is a file that exists.
    """

    names: tuple[str, ...] = ()
    help: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    least: float = 0
    most: float | None = None
    from_least: bool = False
    below_most: bool = False
    file: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a benchmark.

    Attributes
    ----------
    name : str
    kind : type
        Of a value: ``int``, ``float``, ``str``, ``bool``.
    several : bool
        Whether it is a sequence of them.
    option : Option
    help : str
    """

    name: str
    kind: type
    several: bool = False
    option: Option = field(default_factory=Option)
    help: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Spelling of the parameter on a command line."""
        plural = self.several and self.name not in _PLURAL
        name = self.name.removesuffix("s") if plural else self.name
        return self.option.names or ("--" + name.replace("_", "-"),)

    def check(self, value: Any) -> None:
        """Raise SpecError if a value, or one of several, is not allowed."""
        for each in value if self.several else [value]:
            if self.option.choices and each not in self.option.choices:
                raise SpecError(f"{self.names[-1]} {each!r}; use {', '.join(self.option.choices)}")


def parameters_of(run: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a benchmark after the first, which is its backend.

    Examples
    --------
    >>> def run(backend, *, n: Sequence[int] = (), quick: bool = False):
    ...     '''Yield rows.
    ...
    ...     Parameters
    ...     ----------
    ...     n : sequence of int
    ...         Rows. Default: a few.
    ...     '''
    >>> n, quick = parameters_of(run)
    >>> n.names, n.kind, n.several, n.help
    (('--n',), <class 'int'>, True, 'Rows; several times.')
    """
    hints = typing.get_type_hints(run, include_extras=True)
    texts: dict[str, str] = {}
    for names, text in _ENTRY.findall(inspect.cleandoc(run.__doc__ or "")):
        words = _NAME.sub(
            lambda found: f"--{found[1].replace('_', '-')}" if found[1] in hints else found[1],
            " ".join(text.split()).replace("``", ""),
        )
        texts |= dict.fromkeys(names.split(", "), re.split(r"\. ", words)[0].removesuffix("."))
    made = []
    for name in list(inspect.signature(run).parameters)[1:]:
        kind, several, option = _kind_of(hints.get(name, str))
        text = option.help or texts.get(name, "")
        made.append(Parameter(name, kind, several, option, f"{text}{'; several times' * several}."))
    return made


def _kind_of(hint: Any) -> tuple[type, bool, Option]:
    """Return a parameter's type, whether it takes several values, and its option."""
    option = Option()
    if typing.get_origin(hint) is Annotated:
        hint, option = typing.get_args(hint)
    kinds = [each for each in typing.get_args(hint) if each is not type(None)]
    if typing.get_origin(hint) is Sequence:
        return kinds[0], True, option
    if not kinds:
        return hint, False, option
    # An optional value; a path may be a text.
    kind, several, _ = _kind_of(str if str in kinds else kinds[0])
    return kind, several, option


_SPREAD = Option(metavar="unique|uniform:MULTIPLICITY|zipf:EXPONENT", help="Rows per key")
_SHARE = Option(least=0.01, most=1, from_least=True, below_most=True)
Spread = Annotated[str, _SPREAD]
Spreads = Annotated[Sequence[str], _SPREAD]
Share = Annotated[float, _SHARE]
Shares = Annotated[Sequence[float] | None, _SHARE]
HitRates = Annotated[Sequence[float], Option(most=1, from_least=True)]
Method = Annotated[str, Option(help="How tables store keys, as dgpuhash.methods() lists")]
Settings = Annotated[Sequence[str], Option(metavar="NAME=VALUE")]
Folder = Annotated[str | None, Option(metavar="FOLDER")]
ChunkSize = Annotated[int | None, Option(("-c", "--chunk-size"))]
Protocol = Annotated[
    str | None,
    Option(("-p", "--protocol"), "Protocol of the cluster", choices=("tcp", "ucx", "ucxx")),
]
Devices = Annotated[str | None, Option(("-d", "--devs"), "GPUs to use", metavar="0,1,…")]
PoolSize = Annotated[str | None, Option(help="RMM pool of each GPU, e.g. 40GB", metavar="BYTES")]
Runs = Annotated[int | None, Option(("--runs",))]
Turns = Annotated[int | None, Option(("--repeat",))]
Modes = Annotated[Sequence[str], Option(choices=("weak", "strong"))]
