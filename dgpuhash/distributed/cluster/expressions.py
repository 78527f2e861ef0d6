"""Dask expressions with cached metas (empty frames) and tokens for equal inputs."""

from __future__ import annotations

import functools
import threading
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any
from weakref import WeakValueDictionary

from dask.tokenize import normalize_object, normalize_token

from dgpuhash.distributed.cluster.dask_internals import (
    Assign,
    Binop,
    Blockwise,
    Expr,
    Filter,
    Isin,
    Projection,
    ReadParquet,
    ResetIndex,
    Unaryop,
    pickle,
    tokenize_deterministic,
)
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.cluster.serialization import Cache, is_bare, note_bare, schema_key


class SharedExpr(Expr):
    """Expression that the optimizer replaces once, even if several others depend on it.

    The optimizer makes new expressions of a query some dozen times. A build is an operand of its
    probe and of what that probe reads: it would be made anew for each way that leads to it, which
    are twice as many with each merge.
    """

    @functools.cached_property
    def _name(self) -> str:
        kind = type(self).__name__.removesuffix("Expr").lower()
        return f"{NAME}_{kind}-{self.deterministic_token}"

    def __dask_tokenize__(self) -> str:
        if not self._determ_token:
            # Plans, arguments and seeds take long to tokenize, and stay as they are.
            operands = (
                token_of(each)
                if type(each).__module__.startswith("dgpuhash.") and not isinstance(each, Expr)
                else each
                for each in self.operands
            )
            kind = f"{type(self).__module__}.{type(self).__qualname__}"
            self._determ_token = tokenize_deterministic(kind, *operands)
        return str(self._determ_token)

    def _substitute(self, old: Any, new: Any, _seen: set[str]) -> Expr:
        made = _replaced.of(_seen)
        found = made.get(self._name)
        if found is None:
            found = made[self._name] = super()._substitute(old, new, _seen)
        return found


class PartitionExpr(SharedExpr, Blockwise):
    """Expression with a task for each partition of its frame.

    Dask fuses the tasks with those that make the partitions.
    """

    @property
    def _meta(self) -> Any:
        return self.frame._meta

    def _divisions(self) -> tuple[Any, ...]:
        return (None,) * (self.frame.npartitions + 1)

    def _broadcast_dep(self, dep: Expr) -> bool:
        return False


_tokens = Cache[int, str](most=2**9)


def token_of(thing: Any, source: Any = None) -> str:
    """Return the token of an immutable object, computed once while the object is in use.

    It is that of `source`, where nothing else decides about the object.
    """
    return _tokens.get_of(
        thing, lambda each: str(tokenize_deterministic(each if source is None else source))
    )


@normalize_token.register(type)
def _token_of_class(kind: type) -> Any:
    """Return Dask's token of an expression class, computed once per class.

    Dask pickles the class of an expression twice for each new one, to tokenize it.
    """
    by_name = issubclass(kind, Expr) and kind.__module__.startswith(("dask.", "dgpuhash."))
    return _token_of_known_class(kind) if by_name else normalize_object(kind)


_token_of_known_class = functools.cache(normalize_object)


# Metas of Dask's expressions by class, operands, and the schemas of those that are expressions.
_metas = Cache[tuple[Any, ...], Any](most=2**12)


class _NoKey(Exception):
    """Raised for an operand without a quick and exact cache key."""


def _share_metas(
    kind: Any, *, among: Any = Expr, inputs: Any = lambda expr: expr.operands, bare: bool = False
) -> None:
    """Make expressions of a class reuse the metas of earlier ones with equal inputs.

    Dask's optimizer makes an expression anew a dozen times, and computes an empty frame for each.
    Those that are `bare` are never views of rows.
    """
    compute = vars(kind)["_meta"].func

    def meta(expr: Any) -> Any:
        if not isinstance(expr, among):
            return compute(expr)
        parts, frames = inputs(expr), list[Any]()
        try:
            key = kind, type(expr), *(_key_of(part, frames) for part in parts)
        except _NoKey:
            return compute(expr)
        return _metas.get(key, lambda: own(compute(expr), frames))

    def own(meta: Any, frames: list[Any]) -> Any:
        if not bare and not all(map(is_bare, frames)):
            # It may be a view of rows of a user.
            meta = pickle.loads(pickle.dumps(meta))
        if hasattr(meta, "iloc"):
            note_bare(meta)
        return meta

    shared = functools.cached_property(meta)
    shared.__set_name__(kind, "_meta")
    kind._meta = shared


def _key_of(part: Any, frames: list[Any]) -> Any:
    """Return the cache key of a meta's input; collect the empty frames in it."""
    kind: type = type(part)
    if kind in (str, int, bool, float, type(None)) or isinstance(part, Enum):
        return kind, part
    if kind in (list, tuple):
        return kind, *(_key_of(each, frames) for each in part)
    if kind in (date, Decimal):
        # The scale of a decimal is part of its dtype.
        return kind, str(part)
    meta = part._meta if isinstance(part, Expr) else part
    schema = schema_key(meta)
    if schema is None:
        raise _NoKey
    frames.append(meta)
    return schema


_share_metas(Blockwise, among=Binop | Filter | ResetIndex | Unaryop)
_share_metas(Projection)
_share_metas(Isin, inputs=lambda expr: [expr.frame])
# The dtype of a text is an option of pandas.
_share_metas(
    Assign,
    inputs=lambda expr: [
        expr.frame,
        expr.keys,
        *(str if isinstance(each, str) else each for each in expr.vals),
    ],
)
_share_metas(
    ReadParquet,
    inputs=lambda expr: [expr._dataset_info["base_meta"], expr.operand("columns"), expr._series],
    bare=True,
)


class _Replaced(threading.local):
    """Replacements of expressions in a thread's last substitution, by name.

    None is kept alive here: it may hold persisted rows.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._made: WeakValueDictionary[str, Expr] = WeakValueDictionary()

    def of(self, seen: set[str]) -> WeakValueDictionary[str, Expr]:
        """Return the replacements of the substitution with Dask's set of names."""
        if seen is not self._seen:
            self._seen, self._made = seen, WeakValueDictionary()
        return self._made


_replaced = _Replaced()
