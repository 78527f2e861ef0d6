"""One worker's shard of a distributed table, and the encoding of its columns."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import RegionRanges
from dgpuhash.distributed.collective.streams import SideStream
from dgpuhash.distributed.partition.table_mode import DISTRIBUTED, TableMode
from dgpuhash.distributed.pruning.bloom_replica import BloomReplica
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.spec import TableSpec
from dgpuhash.tables import AnyTable, table_of
from dgpuhash.tables.arguments.combine import change_of
from dgpuhash.tables.arguments.encoding import (
    carrier_dtype,
    key_words,
    keys_of,
    value_words,
    values_of,
    word_dtype,
)
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    default_row,
    host_as_device_array,
)
from dgpuhash.tables.arguments.lookup_keys import LookupKeys, as_lookup_keys
from dgpuhash.tables.cached import cached
from dgpuhash.tables.count_map import terms_of
from dgpuhash.tables.open_addressing.bulk_stream import StreamedBuild
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.tables.stores.method import methods
from dgpuhash.tables.stores.mixed import OP_DTYPE
from dgpuhash.typing import Device


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """Encoding of a table's columns in messages.

    Keys travel as their canonical words, so that equal keys have one owner whatever their form;
    values of 1, 2, 4 or 8 bytes travel as words, and others as rows of bytes.
    """

    key: np.dtype[Any]
    value: np.dtype[Any] | None

    @classmethod
    def of(cls, spec: TableSpec) -> EntryLayout:
        """Return the layout of the tables that `spec` describes."""
        return cls(spec.key, spec.value)

    @property
    def stored_key(self) -> np.dtype[Any]:
        """Dtype of the keys in the owners' tables."""
        return word_dtype(self.key)

    @property
    def stored_value(self) -> np.dtype[Any]:
        """Dtype of the values in the owners' tables."""
        assert self.value is not None
        return np.dtype(f"V{self.value.itemsize}") if self._wide else word_dtype(self.value)

    def keys(self, backend: Backend, chunk: Any) -> Any:
        """Return the words of a chunk of keys, from host or device."""
        return key_words(backend, _as_array(backend, chunk, self.key, "keys"))

    def asked(self, backend: Backend, chunk: Any) -> LookupKeys:
        """Return the words and rows of those lookup keys that fit the dtype."""
        taken = as_argument(chunk, "keys")
        home = backends.get(taken.location)
        asked = as_lookup_keys(home, taken, self.key, "keys")
        keys, rows = asked.keys, asked.rows
        if home is not backend:
            keys = host_as_device_array(backend, keys, self.key)
            rows = None if rows is None else backend.from_host(rows)
        return LookupKeys(key_words(backend, keys), asked.count, rows)

    def values(self, backend: Backend, chunk: Any) -> Any:
        """Return a chunk of values as a column, from host or device."""
        assert self.value is not None
        rows = _as_array(backend, chunk, self.value, "values")
        if not self._wide:
            return value_words(rows, self.value)
        return rows if rows.ndim == 2 else _bytes_of(rows)

    def ops(self, backend: Backend, chunk: Any) -> Any:
        """Return the column of a chunk of operations, from any device."""
        return _as_array(backend, chunk, OP_DTYPE, "ops")

    def counts(self, backend: Backend, chunk: Any) -> Any:
        """Return a chunk of integers to add to counts, as a column.

        Raises
        ------
        KeyTypeError, SpecError
            When they are no integers, or some are negative.
        """
        taken = as_argument(chunk, "counts")
        home = backends.get(taken.location)
        terms = terms_of(home, taken)
        return terms if home is backend else backend.from_host(home.to_host(terms))

    def to_store(self, column: Any) -> Any:
        """Return a column of values in the owner table's form."""
        if self._wide and isinstance(column, np.ndarray):
            return column.view(self.stored_value).reshape(len(column))
        return column

    def from_store(self, values: Any) -> Any:
        """Return values of the owner's table as a column."""
        return _bytes_of(values) if self._wide and values.ndim == 1 else values

    def answer(self, backend: Backend, column: Any) -> Any:
        """Return a column of values in its message dtype on `backend`."""
        assert self.value is not None
        if not self._wide:
            return values_of(backend, column, self.value)
        carried = carrier_dtype(backend, self.value)
        if carried.itemsize != self.value.itemsize:
            return column
        return column.view(carried).reshape(len(column))

    def column(self, backend: Backend, rows: int) -> Any:
        """Allocate a column of values."""
        if self._wide:
            assert self.value is not None
            return backend.empty((rows, self.value.itemsize), np.uint8)
        return backend.empty(rows, self.stored_value)

    def filled(self, backend: Backend, rows: int, default: Any) -> Any:
        """Return a column of values that are all `default`."""
        made, value = self.column(backend, rows), self.default(default)
        if self._wide:
            made[...] = backend.from_host(np.frombuffer(value.tobytes(), np.uint8))
        else:
            made.fill(made.dtype.type(value))
        return made

    def default(self, default: Any) -> Any:
        """Return `default` in the owner tables' form.

        Raises
        ------
        KeyTypeError
            When `default` is no value of the table's dtype.
        """
        assert self.value is not None
        row = default_row(default, self.value)
        return row.view(self.stored_value)[0] if self._wide else _word_of(row)

    @property
    def _wide(self) -> bool:
        return self.value is not None and self.value.itemsize not in (1, 2, 4, 8)


def _as_array(backend: Backend, chunk: Any, dtype: np.dtype[Any], what: str) -> Any:
    """Return the chunk as an array of `dtype` on `backend`, copied if needed."""
    taken = as_argument(chunk, what)
    if taken.location != backend.name:
        taken = ArrayArgument(taken.data, None)
    return as_device_array(backend, taken, dtype, what)


def _bytes_of(rows: Any) -> Any:
    return rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)


def _word_of(row: np.ndarray) -> int:
    words = row.view(f"u{row.dtype.itemsize}")
    return int(words[0])


@dataclass(frozen=True, slots=True)
class Answer:
    """Result columns of one length, and the rows to or from each rank."""

    columns: list[Any]
    counts: np.ndarray
    by_row: bool = True
    """Whether there is one row for each row that came."""
    pads: np.ndarray | None = None
    """For each owner, how many rows of padding precede its rows; None: no padding."""

    @property
    def ends(self) -> np.ndarray:
        """Ends of the rows of each rank."""
        return np.cumsum(self.counts)


#: Verbs that change the table.
CHANGING = frozenset({"insert", "add", "upsert", "settle", "erase", "execute"})


@dataclass(frozen=True, slots=True)
class Verb:
    """Operation on a table, with its options.

    Attributes
    ----------
    name : str
        A method of the local table; ``"add"`` is an insert without an answer, ``"settle"`` merges
        with stored values by `TableMode.conflict`, and ``"distinct"`` chooses a row of each key.
    keep : str
        Which pair of a new key a map's insert keeps.
    combine : str, optional
        How a map's insert combines the values of equal keys.
    term : int, optional
        What each row counts, if its counts are all the same.
    default : Any
        Value of rows that find nothing in a map.
    sparing : Sparing
        How verbs that change nothing prune their keys.
    matching : bool
        Whether a find answers with the rows that were found, and their values.
    valued : bool
        Whether rows of a mixed batch have values.
    call : callable, optional
        What ``"for_each"`` calls with the entries of keys, where these are stored.
    mixed : bool
        Whether keys may lie outside the table's dtype; such keys are absent.
    """

    name: str
    keep: str = "any"
    combine: str | None = None
    term: int | None = None
    default: Any = None
    sparing: PruningOptions = field(default_factory=PruningOptions)
    matching: bool = False
    valued: bool = False
    call: Callable[..., object] | None = None
    mixed: bool = False

    @property
    def changes(self) -> bool:
        """Whether the verb changes the table."""
        return self.name in CHANGING

    @property
    def method_verb(self) -> str:
        """Name of the verb among those of `dgpuhash.methods`."""
        same = {"add": "insert", "settle": "upsert", "distinct": "items", "for_each": "items"}
        return "combine" if self.combine else same.get(self.name, self.name)

    @property
    def stores(self) -> bool:
        """Whether the verb stores keys."""
        return self.changes and self.name != "erase"


class TableShard:
    """One rank's shard of a table: its keys, and their values.

    Parameters
    ----------
    spec : TableSpec
        Settings of the whole table, with the dtypes that its users see.
    capacity : int
        Keys of this shard to make room for.
    device : {"cpu", "cuda"}
    owner_seed : int
        Seed of the hash partition: the same on all ranks, and other than the table's.
    mode : TableMode
    """

    def __init__(
        self,
        spec: TableSpec,
        capacity: int,
        device: Device,
        owner_seed: int,
        mode: TableMode = DISTRIBUTED,
    ) -> None:
        self.layout: EntryLayout = EntryLayout.of(spec)
        self._spec = spec
        self.owner_seed: int = owner_seed
        self.mode: TableMode = mode
        # A table that each insert builds anew takes all rows at once.
        self._static = methods()[spec.method].static
        self.table: Any = self._table(capacity, device)
        self.side: SideStream = SideStream(self.backend)
        self.peak_nbytes = 0
        """Peak bytes of the last verb, besides table, arguments and answers."""
        self.seconds: float = 0.0
        """Time of the last verb on this worker, waits for the others included."""
        self.replica: BloomReplica | None = None
        """Bloom filter of the keys of all shards; erased keys may pass."""
        self.written = False
        """Whether the last change may have written to the table."""
        self.absent_rows = self.repeated_rows = 0
        """Rows that this worker pruned: keys absent by the filter; keys of other rows."""

    def copy(self) -> TableShard:
        """Return an independent shard with the same content."""
        made = copy.copy(self)
        made.table = self.table.copy()
        made.side = SideStream(self.backend)
        made.replica = None
        return made

    def _table(self, capacity: int, device: Device) -> AnyTable:
        layout = self.layout
        value = (
            None if self._spec.value is None else np.lib.format.dtype_to_descr(layout.stored_value)
        )
        spec = replace(self._spec, key_dtype=layout.stored_key.str, value_dtype=value)
        return table_of(spec, capacity, device)

    @property
    def size(self) -> int:
        """Entries of the table."""
        return len(self.table)

    @property
    def n_keys(self) -> int:
        """Distinct keys of the table."""
        return len(self.store)

    def has_room(self, rows: int) -> bool:
        """Return whether `rows` new keys fit without growth."""
        return bool(self.table.capacity - self.size >= rows)

    def ready(self) -> None:
        """Allocate the table's memory."""
        self.table._opened().ready()

    def has_list_answers(self, verb: Verb) -> bool:
        """Return whether a row may have any number of results."""
        return verb.name in {"find", "execute"} and self._spec.kind == "multimap"

    def answers(self, verb: Verb) -> bool:
        """Return whether `verb` returns anything."""
        silent = {"add", "upsert", "settle", "for_each"}
        if self._spec.kind in {"multimap", "count"}:
            silent.add("insert")
        return verb.name not in silent

    def shows_values(self, verb: Verb) -> bool:
        """Return whether `verb` returns a value per row."""
        return verb.name == "find" or (verb.name == "execute" and self.layout.value is not None)

    def counts(self, verb: Verb) -> bool:
        """Return whether `verb` adds to counts, in any order."""
        return verb.stores and self._spec.kind == "count"

    def in_order(self, verb: Verb) -> bool:
        """Return whether the verb needs all rows in one batch, in order."""
        if verb.stores and self._static:
            return True
        if verb.name == "insert":
            return verb.keep != "any" or self._spec.kind == "multimap"
        return verb.name in {"upsert", "distinct"}

    def ranges(self, verb: Verb, like: list[Any], rows: int, owners: int) -> RegionRanges | None:
        """Return how to insert rows by ranges of the owners' tables, or None.

        `rows` rows of columns like `like` are stored by `owners`; None: not range by range.
        """
        stores = verb.name == "add" or (verb.name == "insert" and verb.keep == "any")
        stores = stores and self._spec.kind in {"set", "map"} and verb.combine is None
        if not stores or any(each.ndim > 1 for each in like):
            return None
        return self.table._opened().ranges(rows, owners)

    def intake(self, ranges: RegionRanges, rows: int) -> StreamedBuild:
        """Start a bulk insert of at most `rows`."""
        self.replica = None
        return self.store.intake(ranges, rows)

    def serve(
        self, verb: Verb, columns: list[Any], counts: np.ndarray, to: list[list[Any]]
    ) -> list[Answer]:
        """Run `verb` on received rows; `counts` has the rows from each rank.

        `to` are columns that the first answers may be written to.
        """
        table, keys = self.table, columns[0]
        if verb.stores:
            self.replica = None
        if verb.name in {"contains", "erase"}:
            return [Answer([getattr(table, verb.name)(keys).view(np.uint8)], counts)]
        if verb.name == "count":
            return [Answer([table.count(keys)], counts)]
        if verb.name == "find":
            return self._find(verb, keys, counts, to)
        if verb.name == "execute":
            return self._execute(verb, counts, *columns)
        given = [keys, *(self.layout.to_store(column) for column in columns[1:])]
        if verb.name == "add":
            table._add(*given)
            return []
        if verb.name == "upsert":
            table.upsert(*given)
            return []
        if verb.combine is not None:
            assert self.layout.value is not None
            fresh = table._insert_combined(*given, change_of(verb.combine, self.layout.value))
        else:
            options = {"keep": verb.keep} if self._spec.kind == "map" else {}
            fresh = table.insert(*given, **options)
        return [] if fresh is None else [Answer([fresh.view(np.uint8)], counts)]

    def _find(self, verb: Verb, keys: Any, counts: np.ndarray, to: list[list[Any]]) -> list[Answer]:
        layout = self.layout
        if self._spec.kind == "count":
            found_counts, found = self.table.find(keys)
            return [Answer([found_counts, found.view(np.uint8)], counts)]
        if self._spec.kind == "map":
            default = None if verb.default is None else layout.default(verb.default)
            if to and self.table._find_to(keys, default, *to[0]):
                return [Answer(to[0], counts)]
            values, found = self.table.find(keys, default)
            return [Answer([layout.from_store(values), found.view(np.uint8)], counts)]
        return self._of_lists(counts, *self.table.find(keys))

    def empty_answers(self, verb: Verb, counts: np.ndarray) -> list[Answer]:
        """Return empty results for rows that `verb` could not serve."""
        if not self.answers(verb):
            return []
        xp, rows = self.backend.xp, int(counts.sum())
        ends, flags = xp.zeros(rows + 1, np.int64), xp.zeros(rows, np.uint8)
        return self._of_lists(counts, self.layout.column(self.backend, 0), ends, flags)

    def _of_lists(self, counts: np.ndarray, values: Any, offsets: Any, *flags: Any) -> list[Answer]:
        layout, backend = self.layout, self.backend
        ends = backend.xp.asarray(np.concatenate([[0], np.cumsum(counts)]))
        of_rank = np.diff(backend.to_host(offsets[ends]))
        return [
            Answer([offsets[1:] - offsets[:-1], *flags], counts),
            Answer([layout.from_store(values)], of_rank, by_row=False),
        ]

    def _execute(self, verb: Verb, counts: np.ndarray, keys: Any, *columns: Any) -> list[Answer]:
        """Execute a mixed batch; return values and flags."""
        layout, (*values, ops) = self.layout, columns
        if layout.value is None:
            return [Answer([self.table.execute(ops, keys).view(np.uint8)], counts)]
        given = [layout.to_store(column) for column in values]
        if self._spec.kind == "multimap":
            found, offsets, flags = self.table.execute(ops, keys, *given)
            return self._of_lists(counts, found, offsets, flags.view(np.uint8))
        default = None if verb.default is None else layout.default(verb.default)
        found, flags = self.table.execute(ops, keys, *given, default=default)
        return [Answer([layout.from_store(found), flags.view(np.uint8)], counts)]

    def visit(self, call: Callable[..., object], *asked: Any) -> list[object]:
        """Return a user function's results for the entries of keys with their rows, or for all."""
        results: list[object] = []

        def each(keys: Any, values: Any, *at: Any) -> None:
            shown = [self.shown_keys(keys), None]
            if values is not None:
                shown[1] = self.layout.answer(self.backend, self.layout.from_store(values))
            results.append(call(*shown, *(asked[1].view(np.int64)[rows] for rows in at)))

        if asked:
            self.table.for_each(asked[0], each)
        else:
            self.table.for_all(each)
        return results

    def absent(self, verb: Verb, rows: int) -> list[Any]:
        """Return the result columns for `rows` absent keys."""
        if verb.name == "count":
            return [self.backend.zeros(rows, np.int64)]
        flags = self.backend.zeros(rows, np.uint8)
        if not self.shows_values(verb):
            return [flags]
        return [self.layout.filled(self.backend, rows, verb.default), flags]

    def items(self) -> list[Any]:
        """Return all keys, and values, in user form."""
        found = self.table.items()
        words, *values = found if isinstance(found, tuple) else (found,)
        return [
            self.shown_keys(words),
            *(self.layout.answer(self.backend, self.layout.from_store(each)) for each in values),
        ]

    def shown_keys(self, words: Any) -> Any:
        """Return keys in user form."""
        return keys_of(self.backend, words, self._spec.key)

    @cached
    def no_rows(self) -> list[Any]:
        """Empty columns of keys, and values, in message form."""
        keys = self.backend.empty(0, self.layout.stored_key)
        return [keys] if self._spec.value is None else [keys, self.layout.column(self.backend, 0)]

    @property
    def row_nbytes(self) -> int:
        """Bytes of a key, and its value, in a message."""
        return sum(each.dtype.itemsize * math.prod(each.shape[1:]) for each in self.no_rows)

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Dtypes of keys, and values, in user form."""
        return [self._spec.key] if self._spec.value is None else [self._spec.key, self._spec.value]

    def on_host(self, column: Any) -> np.ndarray:
        """Return a column of `items` as a host array with the same bytes."""
        return self.backend.to_host(column)

    def distinct(self) -> Any:
        """Return the distinct keys in user form, in the order of `items`."""
        keys = self.items()[0]
        if self._spec.kind != "multimap":
            return keys
        xp = self.backend.xp
        first = xp.ones(len(keys), bool)
        # Equal keys are adjacent. Words are compared, as NaN is not equal to itself.
        words = self.layout.keys(self.backend, keys)
        first[1:] = words[1:] != words[:-1]
        return keys[first]

    @property
    def backend(self) -> Backend:
        """Backend of the shard's arrays."""
        found: Backend = self.table._home()
        return found

    @property
    def store(self) -> Storage:
        """Slots of the distinct keys' words, for inserts range by range."""
        found: Storage = self.table._opened()
        return found

    def stats(self) -> dict[str, Any]:
        """Return the fields of `TableStats`, the device, and the last verb's cost."""
        return {
            "device": self.table.device,
            **asdict(self.table.stats()),
            "exchange_nbytes": self.peak_nbytes,
            "seconds": self.seconds,
            "filter_nbytes": 0 if self.replica is None else self.replica.filter.nbytes,
            "absent_rows": self.absent_rows,
            "repeated_rows": self.repeated_rows,
        }
