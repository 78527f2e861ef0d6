"""Worker functions on one shard's contents, without an exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from dgpuhash.distributed.cluster.locality import TaskOutput
from dgpuhash.distributed.shards.filter_shard import FilterShard
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.table_store import (
    HostedShard,
    TableShardSize,
    VerbResult,
    answer_name,
    at,
    stored_shapes,
)
from dgpuhash.distributed.storage.arrow_files import RowsFile, to_arrow, write_table
from dgpuhash.distributed.storage.folder import Folder


def keep_contents(
    host: ShardHost, uid: str, epoch: int, ranks: Mapping[str, int], what: str, answer: str
) -> TaskOutput[VerbResult]:
    """Store columns of the shard's contents among the worker's data.

    `what`: ``"items"`` for all columns, ``"keys"`` or ``"values"`` for one.
    """
    part = at(host, uid, epoch).part
    columns = [part.distinct()] if what == "keys" else part.items()
    if what == "values":
        columns = columns[1:]
    rank = ranks[host.worker.address]
    data = {(answer_name(answer, n), rank): column for n, column in enumerate(columns)}
    return TaskOutput(VerbResult(stored_shapes(data), answer), data)


def visit_table_shard(
    host: ShardHost, uid: str, epoch: int, call: Callable[..., object]
) -> list[object]:
    return at(host, uid, epoch).part.visit(call)


def key_count(host: ShardHost, uid: str, epoch: int) -> int:
    return int(at(host, uid, epoch).part.table.n_keys)


def count_total(host: ShardHost, uid: str, epoch: int) -> int:
    return int(at(host, uid, epoch).part.table.total)


def reserve_table_shard(host: ShardHost, uid: str, epoch: int, keys: int) -> TableShardSize:
    part = at(host, uid, epoch).part
    part.table.reserve(keys)
    return TableShardSize.by(part)


def compact_table_shard(host: ShardHost, uid: str, epoch: int) -> TableShardSize:
    part = at(host, uid, epoch).part
    part.table.compact()
    return TableShardSize.by(part)


def copy_table_shard(host: ShardHost, uid: str, epoch: int, copied: str) -> TableShardSize:
    part = at(host, uid, epoch).part.copy()
    host.tables[copied] = HostedShard(part, 0)
    return TableShardSize.by(part)


def holds_table_shard(host: ShardHost, uid: str, epoch: int) -> bool:
    hosted = host.tables.get(uid)
    return hosted is not None and hosted.broken is None and hosted.epoch == epoch


def read_filter_shard(
    host: ShardHost, uid: str, epoch: int, url: str, files: Sequence[RowsFile]
) -> TableShardSize:
    """Set the bits of a saved filter."""
    part = at(host, uid, epoch).part
    assert isinstance(part, FilterShard)
    part.read(url, files)
    return TableShardSize.by(part)


def unite_filter_shard(
    host: ShardHost, uid: str, epoch: int, other: str, other_epoch: int
) -> TableShardSize:
    """Set the bits of another filter's shard in this one's."""
    hosted, given = at(host, uid, epoch), at(host, other, other_epoch).part
    assert isinstance(hosted.part, FilterShard) and isinstance(given, FilterShard)
    hosted.part.unite(given)
    hosted.epoch += 1
    return TableShardSize.by(hosted.part)


def write_table_shard(
    host: ShardHost, uid: str, epoch: int, names: Mapping[str, str], url: str
) -> RowsFile:
    """Write the shard's items to this worker's file of a save."""
    part = at(host, uid, epoch).part
    table: pa.Table = to_arrow([part.on_host(column) for column in part.items()], part.dtypes)
    return write_table(table, Folder(url), names[host.worker.address])
