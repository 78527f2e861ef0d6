"""Table shards of one worker: open them, run functions on them, detect their loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import pandas as pd
from distributed import Client

from dgpuhash.distributed.cluster import rpc
from dgpuhash.distributed.cluster.client import translate_scheduler_errors
from dgpuhash.distributed.cluster.dask_internals import CommClosedError
from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.shards.filter_shard import FilterShard
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.table_shard import TableShard, Verb
from dgpuhash.errors import ClosedError, DgpuhashError, IndexLost
from dgpuhash.spec import TableSpec
from dgpuhash.tables import MultiMap
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
    """Request to run a verb on a table, the same for all ranks.

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
    """Name and shape of a result array among a worker's data.

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
    """Result of a rank: its arrays, or its reason for refusing a change.

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
    """Return the prefix of the names of a result's columns."""
    return f"dgpuhash-{verb}-{token}"


def answer_name(answer: str, column: int) -> str:
    """Return the name of a result's column."""
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
    """Create an empty shard; `workers` lists the workers of all shards in order."""
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
    """Allocate the memory for a rank's `rows` rows before they travel."""
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
    """Return the shard of table `uid` for a handle at `epoch`.

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


def stored_shapes(data: Mapping[tuple[str, int], Any]) -> list[StoredArray]:
    """Return names and shapes of arrays among the worker's data."""
    return [StoredArray(key, array.shape) for key, array in data.items()]


@contextmanager
def translated_losses(client: Client, workers: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Turn errors of a block into IndexLost if a worker is lost.

    Dask raises errors of many kinds then.
    """
    generation = client.generation
    try:
        yield
    except DgpuhashError as error:
        if not isinstance(error, IndexLost):
            raise
        _check_client(client, error)
        raise IndexLost(str(error).replace(rpc.REMEDY, REMEDY)) from error
    except Exception as error:
        _check_client(client, error)
        with translate_scheduler_errors():
            there = client.nthreads()
        # A restart of the cluster cancels futures before the workers leave.
        staying = set(there) if client.generation == generation else set()
        gone = sorted(set(workers()) - staying)
        if gone or isinstance(error, CommClosedError):
            raise IndexLost(
                f"workers {gone} with shards of the table are gone; {REMEDY}"
            ) from error
        raise


def _check_client(client: Client, error: Exception) -> None:
    """Raise ClosedError if `error` comes from a closed client."""
    if client.status in {"closing", "closed"}:
        raise ClosedError(
            "the Dask client was closed meanwhile, and nobody else knows the shards of its tables; "
            "make them again with another client, or load a save"
        ) from error


@dataclass(frozen=True, slots=True)
class TableShardSize:
    """Size of a shard: its entries, their distinct keys, and their bytes."""

    size: int
    n_keys: int
    nbytes: int

    @classmethod
    def by(cls, part: TableShard) -> TableShardSize:
        """Return the current size of `part`."""
        table, size = part.table, part.size
        return cls(size, table.n_keys if isinstance(table, MultiMap) else size, table.nbytes)


def format_entries(kind: str, held: Sequence[TableShardSize]) -> str:
    """Return the size of a table of this kind as text.

    Examples
    --------
    >>> parts = [TableShardSize(1500, n_keys=7, nbytes=0), TableShardSize(0, n_keys=0, nbytes=0)]
    >>> format_entries("multimap", parts), format_entries("map", parts)
    ('1,500 pairs of 7 keys', '1,500 pairs')
    """
    size, n_keys = sum(each.size for each in held), sum(each.n_keys for each in held)
    if kind == "set":
        return f"{size:,} keys"
    return f"{size:,} pairs of {n_keys:,} keys" if kind == "multimap" else f"{size:,} pairs"


def _stats_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the statistics of shards as a frame, with the details of their method as columns.

    Its attribute ``details`` has them for the whole table: counts are added, means are weighted by
    the sizes of the shards, and words that all shards agree on are kept.

    Examples
    --------
    >>> one = {"size": 2, "details": {"slabs": 3, "probes_found": 1.0}}
    >>> frame = _stats_frame([one, {"size": 6, "details": {"slabs": 5, "probes_found": 2.0}}])
    >>> frame["slabs"].tolist(), frame.attrs["details"]
    ([3, 5], {'slabs': 8, 'probes_found': 1.75})
    """
    plain = [{name: row[name] for name in row if name != "details"} for row in rows]
    details = pd.DataFrame([row["details"] for row in rows])
    frame = pd.DataFrame(plain)
    frame.insert(0, "part", range(len(rows)))
    for name in details:
        # A method may count what a table has as well, as its slots.
        frame[f"method_{name}" if name in frame else name] = details[name]
    frame.attrs["details"] = {
        str(name): figure
        for name in details
        if (figure := _of_all(details[name].tolist(), [row["size"] for row in rows])) is not None
    }
    return frame


def _of_all(figures: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return one figure for all shards; None if there is none."""
    if all(isinstance(each, int) for each in figures):
        return sum(figures)
    if all(isinstance(each, int | float) for each in figures):
        known = [pair for pair in zip(figures, sizes, strict=True) if pair[0] == pair[0]]
        total = sum(size for _, size in known)
        return sum(each * size for each, size in known) / total if total else math.nan
    return figures[0] if len(set(figures)) == 1 else None


class StatsDisplay:
    """Statistics of the shards for a handle's display, without an RPC."""

    def __init__(self) -> None:
        self._told: tuple[Sequence[TableShardSize], pd.DataFrame] | None = None

    def learn(
        self, held: Sequence[TableShardSize], rows: Sequence[Mapping[str, Any]]
    ) -> pd.DataFrame:
        """Return the shards' statistics, and display them until the sizes `held` change."""
        frame = _stats_frame(rows)
        self._told = held, frame.copy()
        return frame

    def html(self, title: str, workers: Sequence[str], held: Sequence[TableShardSize]) -> str:
        """Return HTML: the title, and a table with one row per shard."""
        shown = f"<p>{escape(title)}</p>"
        if not held:
            return shown
        if self._told is not None and self._told[0] is held:
            frame = self._told[1]
        else:
            parts = enumerate(zip(workers, held, strict=False))
            frame = pd.DataFrame(
                [{"part": part, "worker": each, **asdict(has)} for part, (each, has) in parts]
            )
        return shown + str(frame.to_html(index=False))
