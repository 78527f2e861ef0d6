"""Switch interception of Dask's verbs on and off: `enable`, `enabled`, `disable`, `report`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import dask.dataframe as dd
from dask.utils import parse_bytes

from dgpuhash.dask.answering import answering
from dgpuhash.dask.groups import groupby_in_place
from dgpuhash.dask.report import Report, Rounding
from dgpuhash.dask.verbs import (
    distinct_in_place,
    join_in_place,
    merge_in_place,
    nunique_in_place,
    value_counts_in_place,
)
from dgpuhash.distributed.cluster.dask_internals import expression_collections
from dgpuhash.distributed.runs.run import drop_builds, keep_builds, kept_builds
from dgpuhash.errors import IndexLost, SpecError

_LIBRARIES = ("dask", "dask_cudf")
_METHODS: list[tuple[type, str, Callable[..., Any]]] = [
    (dd.DataFrame, "join", join_in_place),
    (dd.DataFrame, "drop_duplicates", distinct_in_place),
    (dd.Series, "drop_duplicates", distinct_in_place),
    (dd.DataFrame, "nunique", nunique_in_place),
    (dd.Series, "nunique", nunique_in_place),
    (dd.Series, "value_counts", value_counts_in_place),
    (dd.DataFrame, "groupby", groupby_in_place),
    (dd.Series, "groupby", groupby_in_place),
]


@dataclass(frozen=True, slots=True)
class Place:
    """An attribute of a module or class, with its original and its replacement."""

    owner: Any
    name: str
    before: Any
    stand_in: Any

    def put(self) -> None:
        """Set the replacement."""
        setattr(self.owner, self.name, self.stand_in)

    def undo(self) -> None:
        """Restore the original, unless other code has set the attribute since."""
        if vars(self.owner).get(self.name) is self.stand_in:
            setattr(self.owner, self.name, self.before)


_lock = threading.RLock()
_places: list[Place] = []
# Whether `enable` was called last, and the blocks of `enabled` that have not ended.
_stays = False
_blocks: set[object] = set()


def enable(*, fallback: bool = True, kept: int | str | None = None) -> None:
    """Run Dask's own verbs in this library where it can, until `disable` is called.

    These are `merge`, ``join``, `groupby` with its aggregates, `drop_duplicates`, `nunique` and
    `value_counts` of Dask frames and Series, and `dask.dataframe.merge`. Dask answers what ours
    refuses when it is called, and everything without a cluster; `report` tells why. Where ours has
    indexed a side of a merge that the client has persisted, it stays so on the workers for the next
    merges until the frame is released. A second call changes the arguments alone.

    Parameters
    ----------
    fallback : bool
        Whether Dask answers what ours refuses. Otherwise the error is raised.
    kept : int or str, optional
        The most bytes of indexed rows that stay in all, as ``"2 GiB"``; 0 for none. Default: a
        tenth of the workers' memory limits, and at most 1 GiB for each.

    Raises
    ------
    SpecError
        When `kept` is no number of bytes.

    Examples
    --------
    >>> import dask.dataframe as dd, dgpuhash, pandas as pd
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> dgpuhash.dask.enable()
    >>> planes = dd.from_pandas(pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]}))
    >>> flights = dd.from_pandas(pd.DataFrame({"flight": [7, 8], "tailnum": ["N2", "N9"]}))
    >>> flights.merge(planes, on="tailnum").compute()
       flight tailnum  seats
    0       7      N2    182
    >>> dgpuhash.dask.report()  # doctest: +ELLIPSIS
    Dask's verbs are answered by dgpuhash where it can: enabled
    verb   answered by  times  why not
    merge  dgpuhash         1
    builds that stay: 0, 0 B of at most ...; asked again 0 times, 0 without room
    >>> dgpuhash.dask.disable()
    >>> client.close()
    """
    global _stays
    nbytes = _nbytes(kept)
    with _lock:
        _stays = True
        _set(fallback, nbytes)


@contextmanager
def enabled(*, fallback: bool = True, kept: int | str | None = None) -> Iterator[None]:
    """Run Dask's own verbs in this library within a block; see `enable`.

    Threads share it, and blocks may lie in each other. After the block it is as before.

    Examples
    --------
    >>> import dgpuhash
    >>> with dgpuhash.dask.enabled():
    ...     dgpuhash.dask.report().enabled
    True
    >>> dgpuhash.dask.report().enabled
    False
    """
    nbytes, block = _nbytes(kept), object()
    with _lock:
        before = answering.falls_back, answering.kept_nbytes
        _blocks.add(block)
        _set(fallback, nbytes)
    try:
        yield
    finally:
        with _lock:
            _blocks.discard(block)
            if not (_stays or _blocks):
                _end()
            elif answering.on:
                _set(*before)


def disable() -> None:
    """Give Dask its verbs back, also in blocks of `enabled`, and free cached builds.

    Does nothing where verbs are not answered by ours. Frames that were made before are computed as
    they are.

    Examples
    --------
    >>> import dgpuhash
    >>> dgpuhash.dask.enable()
    >>> dgpuhash.dask.disable()
    >>> dgpuhash.dask.report().enabled
    False
    """
    global _stays
    with _lock:
        _stays = False
        _blocks.clear()
        _end()


def report() -> Report:
    """Return which library ran each call since `enable`, with the reasons for Dask's.

    Examples
    --------
    >>> import dgpuhash
    >>> with dgpuhash.dask.enabled():
    ...     dgpuhash.dask.report()
    Dask's verbs are answered by dgpuhash where it can: enabled
    no verb was called
    """
    kept = []
    for client in answering.clients():
        with suppress(IndexLost):
            kept.append(kept_builds(client))
    return Report(
        answering.on, answering.answers(), tuple(each for each in kept if each is not None),
        tuple(starmap(Rounding, answering.rounded().most_common())),
    )  # fmt: skip


def _nbytes(kept: int | str | None) -> int | None:
    if kept is None:
        return None
    try:
        nbytes = int(parse_bytes(kept))
    except (AttributeError, TypeError, ValueError):
        nbytes = -1
    if nbytes < 0:
        raise SpecError(f"kept={kept!r}; give a number of bytes, such as '2 GiB', or 0 for none")
    return nbytes


def _set(falls_back: bool, kept_nbytes: int | None) -> None:
    """Replace Dask's verbs where they are not replaced yet."""
    answering.falls_back = falls_back
    if answering.kept_nbytes != kept_nbytes:
        answering.kept_nbytes = kept_nbytes
        for client in answering.clients():
            with suppress(IndexLost):
                keep_builds(client, kept_nbytes)
    if answering.on:
        return
    answering.clear()
    _places.extend(_verbs_to_replace())
    for place in _places:
        place.put()
    answering.on = True


def _end() -> None:
    answering.on = False
    while _places:
        _places.pop().undo()
    for client in answering.clients():
        with suppress(IndexLost):
            drop_builds(client)
    answering.forget_clients()


def _verbs_to_replace() -> Iterator[Place]:
    """Yield the attributes with Dask's verbs, and with the overrides of its cuDF frames.

    `merge` is in each module that binds it: `DataFrame.merge` looks it up there.
    """
    original = expression_collections.merge
    stand_in = merge_in_place(original)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _LIBRARIES and vars(module).get("merge") is original:
            yield Place(module, "merge", original, stand_in)
    for base, name, in_place in _METHODS:
        for owner in (base, *base.__subclasses__()):
            known = owner.__module__.partition(".")[0] in _LIBRARIES and name in vars(owner)
            if known and not issubclass(owner, dd.Index):
                before = vars(owner)[name]
                yield Place(owner, name, before, in_place(before))
