"""Register the accessor ``frame.dgpuhash`` with pandas and Dask, before or after their import.

Where the environment says ``DGPUHASH_DASK=1``, Dask's own verbs are answered by ours then, too.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

# By library: what registers accessors of its frames and Series, and the classes of ours.
_ACCESSORS = {
    "pandas": (
        (
            "pandas.api.extensions:register_dataframe_accessor",
            "dgpuhash.frames.merge.accessor:FrameAccessor",
        ),
    ),
    "dask.dataframe": (
        (
            "dask.dataframe.extensions:register_dataframe_accessor",
            "dgpuhash.distributed.accessor:IndexAccessor",
        ),
        (
            "dask.dataframe.extensions:register_series_accessor",
            "dgpuhash.distributed.accessor:SeriesAccessor",
        ),
    ),
}

# Of these libraries: the variable of the environment that enables what ours stands in for.
_STAND_INS = {"dask.dataframe": ("DGPUHASH_DASK", "dgpuhash.dask:enable")}


def register() -> None:
    """Register the accessors with imported libraries now, and with others after their import."""
    for library in _ACCESSORS:
        if library in sys.modules:
            _register_with(library)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register_with(library: str) -> None:
    for registering, wanted in _ACCESSORS[library]:
        resolve_name(registering)("dgpuhash")(_accessor(wanted))
    variable, enable = _STAND_INS.get(library, ("", ""))
    if os.environ.get(variable) == "1":
        resolve_name(enable)()


def _accessor(wanted: str) -> Callable[[Any], Any]:
    """Return a factory of a class's accessor; the class is imported at first use."""

    def accessor(frame: Any) -> Any:
        # These take long to import.
        return resolve_name(wanted)(frame)

    accessor.__doc__ = "Verbs of dgpuhash for this frame."
    return accessor


class _Finder(importlib.abc.MetaPathFinder):
    """Finder that finds nothing by itself: it registers accessors after other finders' imports."""

    def __init__(self) -> None:
        self._waiting = {name for name in _ACCESSORS if name not in sys.modules}
        self._asked = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return other finders' spec of a library whose import this finder awaits."""
        if name not in self._waiting or getattr(self._asked, "now", False):
            return None
        self._asked.now = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asked.now = False
        if spec is not None and spec.loader is not None:
            self._waiting.discard(name)
            spec.loader = _Loader(spec.loader, name)
        return spec


class _Loader(importlib.abc.Loader):
    """Loader that calls another finder's loader, then registers the accessor."""

    def __init__(self, loader: Any, name: str) -> None:
        self._loader, self._name = loader, name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        execute: Callable[[ModuleType], None] = self._loader.exec_module
        spec = module.__spec__
        if spec is not None:
            # As without us: it can be asked for its source and its files.
            spec.loader = module.__loader__ = self._loader
        execute(module)
        _register_with(self._name)
