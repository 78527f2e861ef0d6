"""Merge the results of several shards for one key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.pipeline.slices import Chunk
from dgpuhash.distributed.pruning.policy import gather_lists
from dgpuhash.distributed.shards.table_shard import Answer, TableShard, Verb
from dgpuhash.errors import UnsupportedError
from dgpuhash.tables.bucket_list.pool import list_numbers
from dgpuhash.tables.columns.distinct import Factorization


def merge_answers(part: TableShard, verb: Verb, came: list[Answer], rows: int) -> list[Answer]:
    """Return the answers to `rows` keys from those of all ranks to each of them.

    Masks are or-ed and counts added; lists follow each other in the order of the ranks, and of
    several values the one that the table's rule for conflicts chooses is taken.
    """
    backend = part.backend
    merged = [_by_rank(came[0], column, rows) for column in came[0].columns]
    counts = np.array([rows], np.int64)
    if part.has_list_answers(verb):
        lengths = backend.xp.stack(merged[0])
        starts = (backend.xp.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        values = gather_lists(backend, lengths.T.ravel(), starts.T.ravel(), came[1].columns[0])
        by_key = Answer([lengths.sum(axis=0)], counts)
        return [by_key, Answer([values], np.array([len(values)]), by_row=False)]
    *values, told = merged
    if verb.name == "count":
        return [Answer([sum(told[1:], start=told[0])], counts)]
    flags = told[0]
    for more in told[1:]:
        flags = flags | more
    if not values:
        return [Answer([flags], counts)]
    value = part.layout.value
    assert value is not None
    found = [each.view(bool) for each in told]
    return [Answer([part.mode.conflict.merge(backend, values[0], found, value), flags], counts)]


def has_conflict(part: TableShard, verb: Verb, came: list[Answer], rows: int) -> Any:
    """Return a mask of rows with conflicting values; None if a rule decides."""
    if verb.name != "find" or part.has_list_answers(verb):
        return None
    if part.mode.conflict is not Conflict.ERROR:
        return None
    found, *others = _by_rank(came[0], came[0].columns[-1], rows)
    twice = part.backend.zeros(rows, np.uint8)
    for more in others:
        found, twice = found | more, twice | found & more
    return twice.view(bool)


def conflict_error(key: Any) -> UnsupportedError:
    """Return the error of a key with values on several workers."""
    return UnsupportedError(
        f"several workers of this independent map have a value for key {key}; say which one "
        "counts when the map is made or loaded, with conflict='first', 'last', 'min', 'max' or "
        "'sum'"
    )


def serve_once(part: TableShard, verb: Verb, keys: Any, counts: np.ndarray) -> Answer:
    """Return a mask of one row per distinct key; an erasing `verb` also erases the keys.

    All shards that are given the same keys choose the same rows. Of an erase, only rows of keys
    that were stored are true.
    """
    backend = part.backend
    flags = backend.zeros(len(keys), np.uint8)
    first_rows = Factorization(backend, keys).first_rows
    distinct = keys[first_rows]
    flags[first_rows] = part.table.erase(distinct) if verb.name == "erase" else 1
    return Answer([flags], counts)


def store_merged(part: TableShard, keys: Any, values: Any) -> None:
    """Store pairs of distinct keys, merged with stored values by the conflict rule."""
    layout, backend = part.layout, part.backend
    assert layout.value is not None
    stored, found = part.table.find(keys)
    if part.mode.conflict is Conflict.ERROR and bool(found.any()):
        raise conflict_error(part.on_host(part.shown_keys(keys[found][:1]))[0])
    both, new = [layout.from_store(stored), values], backend.xp.ones(len(keys), bool)
    merged = part.mode.conflict.merge(backend, both, [found, new], layout.value)
    part.table.upsert(keys, layout.to_store(merged))


def matched_rows(
    backend: Backend, chunks: Sequence[Chunk], answers: Sequence[list[Any]], *, lists: bool
) -> list[list[Any]]:
    """Return each chunk's matched rows, numbered among all rows, and values.

    `answers` are values, and a mask or the offsets of lists.
    """
    matched = []
    for chunk, (values, told) in zip(chunks, answers, strict=True):
        if lists:
            rows = _owners(backend, told, len(values))
        else:
            rows = backend.xp.flatnonzero(told)
            values = values[rows]
        matched.append([rows + chunk.first, values])
    return matched


def _owners(backend: Backend, offsets: Any, total: int) -> Any:
    """Return the row that each value belongs to."""
    xp = backend.xp
    filled = xp.flatnonzero(offsets[1:] > offsets[:-1])
    ends = xp.concatenate([xp.zeros(1, np.int64), offsets[1:][filled]])
    return filled[list_numbers(backend, ends, total)]


def _by_rank(answer: Answer, column: Any, rows: int) -> list[Any]:
    """Return a column of answers to the same rows, cut by the rank that gave them."""
    ranks = len(answer.counts)
    firsts = np.arange(ranks) * rows if answer.pads is None else answer.pads
    return [column[first : first + rows] for first in firsts.tolist()]
