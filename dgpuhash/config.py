"""Settings of dgpuhash, as a part of Dask's configuration.

``dgpuhash.yaml`` beside this module has the defaults, and ``dgpuhash-schema.yaml`` says what each
one does. Files, the environment (``DASK_DGPUHASH__LIVENESS__TIMEOUT=60s``) and ``dask.config.set``
replace them by Dask's rules. Each is read where it is used, so that a change takes effect at once.
"""

from __future__ import annotations

import functools
import os
import site
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from dgpuhash.errors import SpecError

Made = TypeVar("Made")

NAME = "dgpuhash"
_DEFAULTS = Path(__file__).with_name("dgpuhash.yaml")
_SUFFIXES = (".json", ".yaml", ".yml")


@functools.cache
def register() -> None:
    """Add the defaults to Dask's configuration, below what is set there."""
    import dask.config

    for defaults in dask.config.collect_yaml([str(_DEFAULTS)]):
        dask.config.update_defaults(defaults)


def seconds(name: str) -> float:
    """Return the seconds of a setting: a number, or a time such as ``"20 s"``.

    Raises
    ------
    SpecError
        When the setting has another value.

    Examples
    --------
    >>> seconds("liveness.timeout")
    20.0
    """
    from dask.utils import parse_timedelta

    return _parse(name, lambda value: float(parse_timedelta(value)), "a time such as '20 s'")


def nbytes(name: str) -> int:
    """Return the bytes of a setting: a number, or a size such as ``"64 MiB"``.

    Raises
    ------
    SpecError
        When the setting has another value.

    Examples
    --------
    >>> nbytes("exchange.message")
    67108864
    """
    from dask.utils import parse_bytes

    return _parse(name, parse_bytes, "a size such as '64 MiB'")


def count(name: str) -> int:
    """Return the number of a setting, 1 or more.

    Raises
    ------
    SpecError
        When the setting has another value.

    Examples
    --------
    >>> count("retries.read")
    16
    """
    return _parse(name, _whole, "a number from 1 on")


def share(name: str) -> float:
    """Return the share of a setting, between 0 and 1.

    Raises
    ------
    SpecError
        When the setting has another value.

    Examples
    --------
    >>> share("pruning.memory")
    0.125
    """
    return _parse(name, _part, "a share above 0, at most 1")


def threads() -> int | None:
    """Return the threads of this process for kernels on CPUs; None if not set.

    Raises
    ------
    SpecError
        When the setting is not a number from 1 on.

    Examples
    --------
    >>> threads() is None
    True
    """
    return count("threads") if _is_set("threads") else None


def cache_folder() -> str | None:
    """Return the folder of compiled kernels; None if not set.

    Examples
    --------
    >>> cache_folder() is None
    True
    """
    return str(_value("cache-folder")) if _is_set("cache-folder") else None


def _is_set(name: str) -> bool:
    """Return whether a setting without a default has a value.

    Dask is imported only where that may be, as tables do without it.
    """
    return ("dask.config" in sys.modules or _may_be_set()) and _value(name) is not None


def _value(name: str) -> Any:
    import dask.config

    register()
    try:
        return dask.config.get(f"{NAME}.{name}")
    except KeyError:
        # `dask.config.set` around the first read takes the defaults along when it is reset.
        register.cache_clear()
        register()
        return dask.config.get(f"{NAME}.{name}")


def _parse(name: str, make: Callable[[Any], Made], wanted: str) -> Made:
    value = _value(name)
    try:
        made = make(value)
        if not isinstance(value, bool) and made > 0:  # type: ignore[operator]
            return made
    except (TypeError, ValueError, KeyError):
        pass
    raise SpecError(
        f"the setting {NAME}.{name} is {value!r}; give {wanted} in Dask's configuration, by "
        f"dask.config.set or by the variable {_variable(name)}"
    )


def _variable(name: str) -> str:
    return f"DASK_{NAME}__{name}".replace(".", "__").replace("-", "_").upper()


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError
    return value


def _part(value: Any) -> float:
    if not 0 < value <= 1:
        raise ValueError
    return float(value)


def _may_be_set() -> bool:
    """Return whether the environment or a file of Dask's configuration names this library."""
    if any(name.upper().startswith(f"DASK_{NAME.upper()}__") for name in os.environ):
        return True
    return "DASK_INTERNAL_INHERIT_CONFIG" in os.environ or any(map(_names_us, _files()))


def _files() -> Iterator[Path]:
    # Those of dask.config.
    folders = [os.environ.get("DASK_ROOT_CONFIG", "/etc/dask"), f"{sys.prefix}/etc/dask"]
    folders += [f"{prefix}/etc/dask" for prefix in site.PREFIXES]
    folders += [str(Path("~/.config/dask").expanduser()), os.environ.get("DASK_CONFIG", "")]
    for folder in map(Path, filter(None, folders)):
        if folder.is_dir():
            yield from (path for path in folder.iterdir() if path.suffix in _SUFFIXES)
        elif folder.is_file():
            yield folder


def _names_us(path: Path) -> bool:
    try:
        return NAME.encode() in path.read_bytes()
    except OSError:
        return False
