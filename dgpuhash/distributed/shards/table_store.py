"""Table shards of one worker, and the functions that run on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.shards.filter_shard import FilterShard
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.table_shard import TableShard, Verb
from dgpuhash.distributed.shards.table_stats import TableShardSize
from dgpuhash.errors import IndexLost
from dgpuhash.spec import TableSpec
from dgpuhash.typing import Device

# Transports that may carry columns to landing memory.
LANDING = {"peer"}
# Rows of a rank that are partitioned by owner at once, which bounds the memory that they take, and
# rows that travel together in one slice.
PIECE_ROWS = 1 << 27
SLICE_ROWS = 1 << 24

REMEDY = (
    "call rebuild() if it was saved after its last change, else make the table again from its "
    "source, or load an older save"
)


@dataclass(frozen=True, slots=True)
class VerbRequest:
    """Request to carry out a verb on a table, the same for all ranks.

    Attributes
    ----------
    uid : str
        Id of the table.
    epoch : int
        Number of changes that the table has had.
    verb : Verb
    hosted : bool
        Whether the arguments are host arrays, and the answers are to be.
    piece_rows : int or None
        Rows of a rank that are partitioned at once; None: `PIECE_ROWS`.
    """

    uid: str
    epoch: int
    verb: Verb
    hosted: bool
    piece_rows: int | None


@dataclass(frozen=True, slots=True)
class StoredArray:
    """Name and shape of an answer array among a worker's data.

    Attributes
    ----------
    key : tuple
        Name of the answer's column, and number of the chunk.
    shape : tuple of int
    """

    key: tuple[str, int]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VerbResult:
    """Result of a rank: its answers, or why it refused to change anything.

    `answer`: prefix of the labels of the answers that the rank keeps.
    `results`: what the function of a ``for_each`` gave.
    `absent_rows`: about how many of its rows have keys that are not stored.
    `held`: size of its shard after a change.
    """

    stored: list[StoredArray]
    answer: str = ""
    refused: Exception | None = None
    absent_rows: int = 0
    results: Sequence[object] = ()
    held: TableShardSize | None = None


@dataclass
class HostedShard:
    """Shard of a table, at one epoch."""

    part: TableShard
    epoch: int
    broken: str | None = None


def answer_of(verb: str, token: str) -> str:
    """Return the prefix of the names of an answer's columns."""
    return f"dgpuhash-{verb}-{token}"


def answer_name(answer: str, column: int) -> str:
    """Return the name of a column of an answer."""
    return f"{answer}-{column}"


def open_table_shard(
    host: ShardHost,
    uid: str,
    epoch: int,
    spec: TableSpec,
    owner_seed: int,
    mode: TableMode,
    capacity: int,
    device: Device,
    workers: Sequence[str],
) -> TableShardSize:
    """Open a shard without keys; `workers` have all shards, in order."""
    part: TableShard
    if spec.kind == FilterShard.kind:
        number = workers.index(host.worker.address)
        part = FilterShard(spec, device, owner_seed, number, len(workers))
    else:
        part = TableShard(spec, capacity, device, owner_seed, mode)
    host.tables[uid] = HostedShard(part, epoch)
    return TableShardSize.by(part)


def prepare_for_batch(
    host: ShardHost, collective: Collective, uid: str, epoch: int, rows: int
) -> None:
    """Allocate what a rank's `rows` rows need before they can travel."""
    part = at(host, uid, epoch).part
    if collective.lands(part.table.device):
        part.ready()
        if collective.size > 1:
            nbytes = min(rows, PIECE_ROWS) * (part.row_nbytes + 1)
            collective.landing([nbytes] * collective.size)


def drop_table_shard(host: ShardHost, uid: str) -> None:
    host.tables.pop(uid, None)


def clear_table_shard(host: ShardHost, uid: str, epoch: int) -> TableShardSize:
    hosted = at(host, uid, epoch)
    hosted.part.table.clear()
    hosted.epoch += 1
    return TableShardSize.by(hosted.part)


def stats_on_worker(host: ShardHost, uid: str, epoch: int) -> dict[str, Any]:
    return {"worker": host.worker.address, **at(host, uid, epoch).part.stats()}


def size_of(host: ShardHost, uid: str, epoch: int) -> int:
    return at(host, uid, epoch).part.size


def at(host: ShardHost, uid: str, epoch: int) -> HostedShard:
    """Return the shard of table `uid`, for a handle at `epoch`.

    Raises
    ------
    IndexLost
        When the shard is gone, broken, or was changed by another handle.
    """
    hosted = host.tables.get(uid)
    if hosted is None:
        raise IndexLost(
            f"worker {host.worker.address} holds no shard of the table: it was restarted, or the "
            f"table was closed; {REMEDY}"
        )
    if hosted.broken is not None:
        raise IndexLost(f"a change of the table failed halfway ({hosted.broken}); {REMEDY}")
    if hosted.epoch != epoch:
        raise IndexLost(
            f"the table was changed by another handle ({hosted.epoch} changes, this handle knows "
            f"of {epoch}); {REMEDY}"
        )
    return hosted


def stored(data: Mapping[tuple[str, int], Any]) -> list[StoredArray]:
    """Return names and shapes of arrays among the worker's data."""
    return [StoredArray(key, array.shape) for key, array in data.items()]
