"""One worker's part of a distributed table: a local table of the keys that it owns."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import Ranges
from dgpuhash.distributed.collective.streams import SideStream
from dgpuhash.distributed.pruning.bloom_replica import Replica
from dgpuhash.distributed.pruning.policy import Sparing
from dgpuhash.spec import TableSpec
from dgpuhash.tables import HashMap, HashSet, MultiMap
from dgpuhash.tables.arguments.encoding import (
    carrier,
    key_bits,
    keys_of,
    value_bits,
    values_of,
    word,
)
from dgpuhash.tables.arguments.interop import Taken, take
from dgpuhash.tables.arguments.lookup_keys import Asked, ask
from dgpuhash.tables.arguments.validate import adopt, adopt_host, default_row
from dgpuhash.tables.cached import cached
from dgpuhash.tables.open_addressing.bulk_stream import RegionIntake
from dgpuhash.tables.open_addressing.growth import Storage

__all__ = ["CHANGING", "Answer", "Layout", "Part", "Verb"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns of one length, and how many of their rows go to, or came from, each rank."""

    columns: list[Any]
    counts: np.ndarray
    by_row: bool = True
    """Whether a row of these answers a row that came."""
    pads: np.ndarray | None = None
    """Of each owner how much further on its rows begin than if nothing stood between them."""

    @property
    def ends(self) -> np.ndarray:
        """Where the rows of each rank end."""
        return np.cumsum(self.counts)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table's columns are on the way.

    Keys travel as their canonical words, so that the same key has one owner whatever it looked
    like; values of 1, 2, 4 or 8 bytes as words, and others as rows of bytes.
    """

    key: np.dtype[Any]
    value: np.dtype[Any] | None

    @classmethod
    def of(cls, spec: TableSpec) -> Layout:
        """The layout of the tables that `spec` describes."""
        return cls(spec.key, spec.value)

    @property
    def stored_key(self) -> np.dtype[Any]:
        """The dtype of the keys of the owners' tables."""
        return word(self.key)

    @property
    def stored_value(self) -> np.dtype[Any]:
        """The dtype of the values of the owners' tables."""
        assert self.value is not None
        return np.dtype(f"V{self.value.itemsize}") if self._wide else word(self.value)

    def keys(self, backend: Backend, chunk: Any) -> Any:
        """The words of a chunk of keys, which may be on the host."""
        return key_bits(backend, _taken(backend, chunk, self.key, "keys"))

    def asked(self, backend: Backend, chunk: Any) -> Asked:
        """As `keys`, of a question: the words of those that are keys, and which these are."""
        taken = take(chunk, "keys")
        home = backends.get(taken.location)
        asked = ask(home, taken, self.key, "keys")
        keys, rows = asked.keys, asked.rows
        if home is not backend:
            keys = adopt_host(backend, keys, self.key)
            rows = None if rows is None else backend.from_host(rows)
        return Asked(key_bits(backend, keys), asked.count, rows)

    def values(self, backend: Backend, chunk: Any) -> Any:
        """The column of a chunk of values, which may be on the host."""
        assert self.value is not None
        rows = _taken(backend, chunk, self.value, "values")
        if not self._wide:
            return value_bits(rows, self.value)
        return rows if rows.ndim == 2 else _bytes_of(rows)

    def to_store(self, column: Any) -> Any:
        """A column of values as the owner's table takes it."""
        if self._wide and isinstance(column, np.ndarray):
            return column.view(self.stored_value).reshape(len(column))
        return column

    def from_store(self, values: Any) -> Any:
        """What the owner's table gives, as a column."""
        return _bytes_of(values) if self._wide and values.ndim == 1 else values

    def answer(self, backend: Backend, column: Any) -> Any:
        """A column of values as arrays of this backend carry them."""
        assert self.value is not None
        if not self._wide:
            return values_of(backend, column, self.value)
        carried = carrier(backend, self.value)
        if carried.itemsize != self.value.itemsize:
            return column
        return column.view(carried).reshape(len(column))

    def column(self, backend: Backend, rows: int) -> Any:
        """Room for a column of values."""
        if self._wide:
            assert self.value is not None
            return backend.empty((rows, self.value.itemsize), np.uint8)
        return backend.empty(rows, self.stored_value)

    def filled(self, backend: Backend, rows: int, default: Any) -> Any:
        """A column of values that are all `default`."""
        made, value = self.column(backend, rows), self.default(default)
        if self._wide:
            made[...] = backend.from_host(np.frombuffer(value.tobytes(), np.uint8))
        else:
            made.fill(made.dtype.type(value))
        return made

    def default(self, default: Any) -> Any:
        """`default` as the owners' tables take it.

        Raises
        ------
        KeyTypeError
            When it is no value of the table's.
        """
        assert self.value is not None
        row = default_row(default, self.value)
        return row.view(self.stored_value)[0] if self._wide else _word_of(row)

    @property
    def _wide(self) -> bool:
        return self.value is not None and self.value.itemsize not in (1, 2, 4, 8)


def _taken(backend: Backend, chunk: Any, dtype: np.dtype[Any], what: str) -> Any:
    """The chunk as what carries `dtype` on this backend; host arrays are brought there."""
    taken = take(chunk, what)
    if taken.location != backend.name:
        taken = Taken(taken.data, None)
    return adopt(backend, taken, dtype, what)


def _bytes_of(rows: Any) -> Any:
    return rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)


def _word_of(row: np.ndarray) -> int:
    words = row.view(f"u{row.dtype.itemsize}")
    return int(words[0])


#: Verbs that change the table.
CHANGING = frozenset({"insert", "add", "upsert", "erase"})


@dataclass(frozen=True, slots=True)
class Verb:
    """What is asked of a table.

    Attributes
    ----------
    name : str
        A verb of the local table; ``"add"`` is an insert that tells nothing.
    keep : str
        Of a map's insert.
    default : Any
        Of a map's find.
    sparing : Sparing
        Of the verbs that change nothing.
    matching : bool
        Of a find: the answer has the rows that were found, and their values.
    mixed : bool
        Keys may be no values of the table's dtype; these are absent.
    """

    name: str
    keep: str = "any"
    default: Any = None
    sparing: Sparing = field(default_factory=Sparing)
    matching: bool = False
    mixed: bool = False

    @property
    def changes(self) -> bool:
        """Whether the table is another one afterwards."""
        return self.name in CHANGING

    @property
    def stores(self) -> bool:
        """Whether it brings keys."""
        return self.changes and self.name != "erase"


class Part:
    """The keys of one rank, and their values.

    Parameters
    ----------
    spec : TableSpec
        Of the whole table, with the dtypes that its users see.
    capacity : int
        Keys of this part to make room for.
    device : {"cpu", "cuda"}
    owner_seed : int
        Of the hash that chooses keys' owners: the same on all ranks, and other than the table's.
    """

    def __init__(self, spec: TableSpec, capacity: int, device: str, owner_seed: int) -> None:
        self.layout = Layout.of(spec)
        self._spec = spec
        self.owner_seed = owner_seed
        self.table: Any = self._table(capacity, device)
        self.side = SideStream(self.backend)
        self.peak_nbytes = 0
        """What the last verb has held at most besides table, arguments and answers."""
        self.seconds = 0.0
        """What the last verb took on this worker, waits for the others included."""
        self.replica: Replica | None = None
        """A filter of the keys of all parts; erased ones may pass."""
        self.written = False
        """Whether the last change may have changed it."""
        self.absent_rows = self.repeated_rows = 0
        """Rows that this worker did not ask for: the filter had no such key; another row had it."""

    def copy(self) -> Part:
        """An independent part with the same content."""
        made = copy.copy(self)
        made.table = self.table.copy()
        made.side = SideStream(self.backend)
        made.replica = None
        return made

    def _table(self, capacity: int, device: str) -> HashSet | HashMap | MultiMap:
        spec, key = self._spec, self.layout.stored_key
        settings: dict[str, Any] = {
            "max_load": spec.max_load,
            "seed": spec.seed,
            "device": device,
        }
        if spec.kind == "set":
            return HashSet(key, capacity, **settings)
        value = self.layout.stored_value
        if spec.kind == "map":
            return HashMap(key, value, capacity, **settings)
        settings |= {"initial_bucket": spec.initial_bucket, "growth": spec.growth}
        return MultiMap(key, value, capacity, **settings)

    def gives_lists(self, verb: Verb) -> bool:
        """Whether a row has any number of answers."""
        return verb.name == "find" and self._spec.kind == "multimap"

    def answers(self, verb: Verb) -> bool:
        """Whether anything comes back."""
        silent = {"add", "upsert"} | ({"insert"} if self._spec.kind == "multimap" else set())
        return verb.name not in silent

    def in_order(self, verb: Verb) -> bool:
        """Whether it counts which row is first; otherwise rows may come in several batches."""
        if verb.name == "upsert" or (verb.name == "insert" and self._spec.kind == "multimap"):
            return True
        return verb.name == "insert" and verb.keep != "any"

    def ranges(self, verb: Verb, like: list[Any], rows: int, owners: int) -> Ranges | None:
        """How `rows` of columns `like` these are placed range by range of the owners' tables.

        None: not at all.
        """
        stores = verb.name == "add" or (verb.name == "insert" and verb.keep == "any")
        if self._spec.kind == "multimap" or not stores or any(each.ndim > 1 for each in like):
            return None
        return self.store.ranges(rows, owners)

    def intake(self, ranges: Ranges, rows: int) -> RegionIntake:
        """Begin to place at most `rows`."""
        self.replica = None
        return self.store.intake(ranges, rows)

    def serve(
        self, verb: Verb, columns: list[Any], counts: np.ndarray, to: list[list[Any]]
    ) -> list[Answer]:
        """Carry out `verb` on rows that came, of which each rank has sent `counts`.

        `to` are columns for the first answers, which may be written there.
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
        given = [keys, *(self.layout.to_store(column) for column in columns[1:])]
        if verb.name == "add":
            table._add(*given)
            return []
        if verb.name == "upsert":
            table.upsert(*given)
            return []
        options = {"keep": verb.keep} if self._spec.kind == "map" else {}
        fresh = table.insert(*given, **options)
        return [] if fresh is None else [Answer([fresh.view(np.uint8)], counts)]

    def _find(self, verb: Verb, keys: Any, counts: np.ndarray, to: list[list[Any]]) -> list[Answer]:
        layout, backend = self.layout, self.backend
        if self._spec.kind == "map":
            default = None if verb.default is None else layout.default(verb.default)
            if to and self.table._find_to(keys, default, *to[0]):
                return [Answer(to[0], counts)]
            values, found = self.table.find(keys, default)
            return [Answer([layout.from_store(values), found.view(np.uint8)], counts)]
        values, offsets = self.table.find(keys)
        ends = backend.xp.asarray(np.concatenate([[0], np.cumsum(counts)]))
        of_rank = np.diff(backend.to_host(offsets[ends]))
        return [
            Answer([offsets[1:] - offsets[:-1]], counts),
            Answer([layout.from_store(values)], of_rank, by_row=False),
        ]

    def absent(self, verb: Verb, rows: int) -> list[Any]:
        """The columns of an answer to so many keys that are not stored."""
        if verb.name == "count":
            return [self.backend.zeros(rows, np.int64)]
        flags = self.backend.zeros(rows, np.uint8)
        if verb.name != "find":
            return [flags]
        return [self.layout.filled(self.backend, rows, verb.default), flags]

    def items(self) -> list[Any]:
        """All keys, and values, as users see them."""
        found = self.table.items()
        words, *values = found if isinstance(found, tuple) else (found,)
        return [
            keys_of(self.backend, words, self._spec.key),
            *(self.layout.answer(self.backend, self.layout.from_store(each)) for each in values),
        ]

    @cached
    def no_rows(self) -> list[Any]:
        """Columns of no rows, as those that travel: of keys, and values."""
        keys = self.backend.empty(0, self.layout.stored_key)
        return [keys] if self._spec.value is None else [keys, self.layout.column(self.backend, 0)]

    @property
    def row_nbytes(self) -> int:
        """Of a key, and its value, as they travel."""
        return sum(each.dtype.itemsize * math.prod(each.shape[1:]) for each in self.no_rows)

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Of keys, and values, as users see them."""
        return [self._spec.key] if self._spec.value is None else [self._spec.key, self._spec.value]

    def on_host(self, column: Any) -> np.ndarray:
        """One of these columns as a host array of the bytes that it has here."""
        return self.backend.to_host(column)

    def distinct(self) -> Any:
        """The distinct keys, as users see them, in the order of `items`."""
        keys = self.items()[0]
        if self._spec.kind != "multimap":
            return keys
        xp = self.backend.xp
        first = xp.ones(len(keys), bool)
        # Equal keys stand together; a key may not be equal to itself, its words are.
        words = self.layout.keys(self.backend, keys)
        first[1:] = words[1:] != words[:-1]
        return keys[first]

    @property
    def backend(self) -> Backend:
        """Where the part is."""
        found: Backend = self.table._home()
        return found

    @property
    def store(self) -> Storage:
        """The words of the distinct keys."""
        found: Storage = self.table._opened()
        return found

    def stats(self) -> dict[str, Any]:
        """The figures of `TableStats`, the device, and what the last verb took."""
        return {
            "device": self.table.device,
            **asdict(self.table.stats()),
            "exchange_nbytes": self.peak_nbytes,
            "seconds": self.seconds,
            "filter_nbytes": 0 if self.replica is None else self.replica.filter.nbytes,
            "absent_rows": self.absent_rows,
            "repeated_rows": self.repeated_rows,
        }
