"""Decode the rows of a change for one shard, and index them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dgpuhash.distributed.cluster.serialization import (
    Payload,
    concat_payloads,
    frame_of_payload,
    is_plain,
)
from dgpuhash.distributed.partition.change import Change
from dgpuhash.errors import ColumnError
from dgpuhash.frames import FrameIndex, check_lossless_concat, frames_of
from dgpuhash.frames.grouped.index import GroupIndex


def without_rows(change: Change) -> FrameIndex:
    """Return an empty index with the settings of `change`."""
    unique, device, method = change.unique, change.device, change.method
    if change.groups is not None:
        groups, encoder = change.groups, change.encoder
        return GroupIndex(groups, encoder, epoch=change.epoch, device=device, method=method)
    return FrameIndex(change.meta, change.encoder, unique=unique, device=device, method=method)


def rows_of(payloads: Sequence[Payload], change: Change) -> Any:
    """Return the rows of all payloads as one frame; for an erase, the keys.

    Raises
    ------
    ColumnError
        When integers of one payload would be rounded beside floats of another.
    """
    names = change.encoder.names if change.verb == "erase" else change.meta.columns
    like = change.meta[list(names)]
    if not all(map(is_plain, payloads)):
        check_lossless_concat([frame_of_payload(each, like) for each in payloads], like)
    return concat_payloads(payloads, like)


def keys_of(payloads: Sequence[Payload], change: Change) -> Any:
    """Return an upsert's keys whose rows are in other shards; None without any."""
    return rows_of(payloads, replace(change, verb="erase")) if payloads else None


def all_keys_of(rows: Any, gone: Any, change: Change) -> Any:
    """Return all of an upsert's keys in a shard, of its own rows and of others'."""
    names = list(change.encoder.names)
    return rows[names] if gone is None else frames_of(rows).concat([rows[names], gone[names]])


def index_of_new_keys(index: FrameIndex, rows: Any, change: Change) -> FrameIndex:
    """Return an index of `rows`, whose keys must all be new.

    Raises
    ------
    ColumnError
        When a key occurs twice in `rows`, or is stored already.
    """
    names = list(change.encoder.names)
    known = index.match(rows, how="semi").query_rows
    if len(known):
        key = rows[names].iloc[[int(known[0])]].to_dict("records")[0]
        raise ColumnError(
            f"the index on {names!r} is unique and already has {len(known):,} of these keys, such "
            f"as {key!r}; leave them out, erase them first, or build with unique=False"
        )
    return FrameIndex.build(
        rows[names], names, None, True, encoder=change.encoder, device=change.device
    )
