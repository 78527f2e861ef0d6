"""Engines of pandas and Dask for joins and groups, which raise while a verb of ours runs."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pandas.core.algorithms
import pandas.core.base
import pandas.core.groupby.groupby
import pandas.core.groupby.ops
import pandas.core.indexes.base
import pandas.core.reshape.merge
from pandas.api.extensions import ExtensionArray

import dgpuhash

__all__ = ["no_other_engine", "running", "verb_runs"]

_HOME = f"{Path(dgpuhash.__file__).parent}{os.sep}"
# These call pandas to compare us with it.
_COMPARING = tuple(f"{_HOME}{room}{os.sep}" for room in ("bench", "cli", "demo"))

_MODULES = pandas.core
_FUNCTIONS = [
    (_MODULES.reshape.merge, "_cross_merge"),
    (_MODULES.reshape.merge, "get_join_indexers"),
    (_MODULES.reshape.merge, "get_join_indexers_non_unique"),
    (_MODULES.algorithms, "factorize"),
    (_MODULES.algorithms, "factorize_array"),
    (_MODULES.algorithms, "duplicated"),
    (pd, "factorize"),
]
# Compiled modules, where pandas' own modules bind them.
_COMPILED = [
    (_MODULES.reshape.merge, "libjoin"),
    (_MODULES.indexes.base, "libjoin"),
    (_MODULES.groupby.ops, "libgroupby"),
    (_MODULES.groupby.groupby, "libgroupby"),
]
# Of a class and of those below it which have their own.
_METHODS = [
    (_MODULES.reshape.merge._MergeOperation, "__init__"),
    (_MODULES.base.IndexOpsMixin, "factorize"),
    (ExtensionArray, "factorize"),
    (ExtensionArray, "duplicated"),
    (pd.Index, "join"),
    (pd.Index, "duplicated"),
    (pd.Series, "duplicated"),
    (pd.Series, "groupby"),
    (pd.DataFrame, "duplicated"),
    (pd.DataFrame, "groupby"),
    (pd.DataFrame, "join"),
    (pd.DataFrame, "merge"),
]
_DASK = [
    ("dask.dataframe.dask_expr._merge", "Merge"),
    ("dask.dataframe.dask_expr._groupby", "GroupByBase"),
]

_ABSENT = object()
_lock = threading.Lock()
_blocks = 0
_verbs = 0
_put: list[_Patch] = []


@contextmanager
def no_other_engine(of: str = "pandas") -> Iterator[None]:
    """Let engines of pandas and Dask raise AssertionError where a verb of ours calls them.

    That is where code of this library is on the stack, and anywhere in a block of `verb_runs`. All
    else calls them as ever, so a test may compare with pandas within the block. Hash tables of
    pandas' Index, which align frames, are no such engine. `of` is ``"pandas"`` or ``"cudf"``: then
    libcudf's groups raise in place of pandas' engines, which make labels of cuDF frames.
    """
    global _blocks
    with _lock:
        _blocks += 1
        engines = _of_cudf() if of == "cudf" else _of_pandas()
        wanted = (*engines, *_of_dask()) if _blocks == 1 else ()
        for patch in wanted:
            patch.put()
        _put.extend(wanted)
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            while _blocks == 0 and _put:
                _put.pop().undo()


@contextmanager
def verb_runs() -> Iterator[None]:
    """Let everything in the block, in any thread, count as called by a verb of ours."""
    global _verbs
    with _lock:
        _verbs += 1
    try:
        yield
    finally:
        with _lock:
            _verbs -= 1


def running() -> bool:
    """Return whether a verb of ours runs, in this thread or in a block of `verb_runs`."""
    if _verbs:
        return True
    frame = sys._getframe(1)
    while frame is not None:
        if _is_ours(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _is_ours(filename: str) -> bool:
    return filename.startswith(_HOME) and not filename.startswith(_COMPARING)


@dataclass(frozen=True, slots=True)
class _Patch:
    """An attribute, what it is outside of blocks, and what raises in its place."""

    owner: Any
    name: str
    before: Any
    raising: Any

    def put(self) -> None:
        setattr(self.owner, self.name, self.raising)

    def undo(self) -> None:
        if self.before is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


class _Compiled:
    """A compiled module, none of whose functions a verb of ours may take."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        _refuse(f"pandas' {self._module.__name__.removeprefix('pandas.')}.{name}")
        return getattr(self._module, name)


@functools.cache
def _of_pandas() -> tuple[_Patch, ...]:
    patches = []
    for module, name in _FUNCTIONS:
        engine = getattr(module, name)
        patches.append(_Patch(module, name, engine, _function(engine, name)))
    for module, name in _COMPILED:
        compiled = getattr(module, name)
        patches.append(_Patch(module, name, compiled, _Compiled(compiled)))
    for base, name in _METHODS:
        for owner in _and_below(base):
            if name in vars(owner):
                engine = vars(owner)[name]
                patches.append(_Patch(owner, name, engine, _method(engine, name)))
    # Index.duplicated lies below two of these, and is put once.
    return tuple({(id(each.owner), each.name): each for each in patches}.values())


def _of_cudf() -> tuple[_Patch, ...]:
    from cudf.core.groupby import groupby

    return (_of_class(groupby._GroupByContextManager, "libcudf's"),)


def _of_dask() -> tuple[_Patch, ...]:
    """Return the patches of the modules of Dask that are imported by now."""
    return tuple(
        _of_class(getattr(sys.modules[module], name))
        for module, name in _DASK
        if hasattr(sys.modules.get(module), name)
    )


@functools.cache
def _of_class(owner: type, whose: str = "Dask's") -> _Patch:
    """Return the patch for the making of objects of a class, which may have no ``__init__``."""
    before = vars(owner).get("__init__", _ABSENT)
    engine = _no_init if before is _ABSENT else before
    return _Patch(owner, "__init__", before, _method(engine, "__init__", whose))


def _no_init(self: Any, *args: Any, **kwargs: Any) -> None:
    """Do nothing, as ``object.__init__`` does where ``__new__`` takes the arguments."""


def _and_below(owner: type) -> Iterator[type]:
    yield owner
    for below in owner.__subclasses__():
        if below.__module__.partition(".")[0] == "pandas":
            yield from _and_below(below)


def _function(engine: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(engine)
    def called(*args: Any, **kwargs: Any) -> Any:
        _refuse(f"pandas' {name}")
        return engine(*args, **kwargs)

    return called


def _method(engine: Callable[..., Any], name: str, whose: str = "pandas'") -> Callable[..., Any]:
    @functools.wraps(engine)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        kind = type(self).__name__
        _refuse(f"{whose} {kind}" if name == "__init__" else f"{whose} {kind}.{name}")
        return engine(self, *args, **kwargs)

    return called


def _refuse(name: str) -> None:
    if running():
        raise AssertionError(f"{name} was called")
