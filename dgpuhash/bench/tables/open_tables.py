"""Benchmark the verbs of HashMap and HashSet, beside bare accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.bench.figure import duration, memory, rate, require
from dgpuhash.bench.keys import Distribution, KeyDraw, keys_of, uniform_floats
from dgpuhash.bench.limits import Floors
from dgpuhash.bench.memory import peak_bytes, rows_that_fit
from dgpuhash.bench.method import NAMES, MeasuredMethod, Pairs
from dgpuhash.bench.options import HitRates, Method, Option, Settings, Shares, Spread
from dgpuhash.bench.timing import REPEATS, empty_launch, latency, median_time
from dgpuhash.errors import SpecError

BATCHES = (10**3, 10**4, 10**5)
_LOAD = 0.8
_CALLS = 50


def call_rows(
    backend: Backend, pairs: Pairs, n: int, batches: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yield rows of the time of each verb's calls on a table of `n` keys.

    Verbs are ``find``, ``contains``, ``insert`` and ``erase``. The time is the wall-clock time of
    one call until the device has finished; ``launch`` is the part until the call returns, in the
    same unit. On a GPU ``overhead`` is what the host adds to ``empty_launch``, the launch of a
    kernel that does nothing. The floor is one launch that only touches as many slots of a table of
    the same size. Batches look up stored keys, insert new keys, and erase the new keys; checked is
    that all stored keys are found with their values, that all new keys are inserted, and that all
    of these are erased.
    """
    xp = backend.xp
    most = max(batches)
    calls = _CALLS + 1
    capacity = n + calls * sum(batches)
    table = pairs.table(backend, capacity, _LOAD)
    keys = keys_of(xp.arange(1, n + 1), pairs.key)
    pairs.insert(table, keys, pairs.values(keys))
    slots = backend.zeros(8 * table.nbytes // pairs.floor_bits, f"u{pairs.floor_bits // 8}")
    made = n
    for batch in batches:
        what: dict[str, Any] = {"pairs": pairs.name, "n": n, "load": _LOAD, "batch": batch}
        what |= pairs.method.label
        asked = keys_of(xp.arange(1, batch + 1) * max(1, n // most) % n + 1, pairs.key)
        touched = asked.view(f"u{pairs.key.itemsize}").astype(slots.dtype)
        floor, _ = latency(
            backend,
            partial(
                backend.run, kernel_named("limit_lookup", f"u{pairs.floor_bits // 8}"), batch,
                keys=touched, values=xp.empty_like(touched), slots=slots,
                slot_count=len(slots) // 2,
            ),
            calls=_CALLS,
        )  # fmt: skip
        yield _row(backend, partial(pairs.find, table, asked), floor, **what, verb="find")
        yield _row(backend, partial(table.contains, asked), floor, **what, verb="contains")
        values, found = pairs.find(table, asked)
        require(found.all(), "a stored key was not found", **what)
        if values is not None:
            require((values == pairs.values(asked)).all(), "a value was wrong", **what)
        require(table.contains(asked).all(), "a stored key was not there", **what)
        later = [
            keys_of(xp.arange(first, first + batch), pairs.key)
            for first in range(made + 1, made + 1 + calls * batch, batch)
        ]
        made += calls * batch
        before = len(table)
        inserts = [partial(pairs.insert, table, each, pairs.values(each)) for each in later]
        yield _row(backend, partial(_next, iter(inserts)), floor, **what, verb="insert")
        require(len(table) == before + calls * batch, "an inserted key was not new", **what)
        if "erase" not in pairs.method.row.verbs:
            continue
        erases = [partial(table.erase, each) for each in later]
        yield _row(backend, partial(_next, iter(erases)), floor, **what, verb="erase")
        require(len(table) == before, "a key was not erased", **what)


def _next(pending: Iterator[Callable[[], Any]]) -> Any:
    return next(pending)()


def _row(backend: Backend, work: Callable[[], object], floor: float, **what: Any) -> dict[str, Any]:
    whole, launched = latency(backend, work, calls=_CALLS)
    parts = {"launch": launched}
    if backend.name == "cuda":
        empty = empty_launch(backend, calls=_CALLS)
        parts |= {"empty_launch": empty, "overhead": launched - empty}
    made = duration(whole, floor, unit="us", **what)
    return made | {name: float(f"{seconds * 1e6:.4g}") for name, seconds in parts.items()}


# Pairs, rows and loads of batches, of which some fit the caches and some do not.
_CASES = {
    "cuda": (
        ("32/32", 2**28, (0.5, 0.8, 0.9, 0.95)),
        ("64/64", 2**27, (0.5, 0.8, 0.9, 0.95)),
        ("32/32", 2**22, (0.5, 0.8)),
    ),
    "cpu": (
        ("32/32", 2**21, (0.5, 0.8, 0.9, 0.95)),
        ("64/64", 2**21, (0.5, 0.8, 0.9, 0.95)),
        ("64/64", 2**16, (0.5, 0.8)),
    ),
}
# The table of an insert already holds one key for this many rows of the batch.
_RESIDENT = 64
_MOST = {4: 2**31 - 2**26, 8: 2**40}


def run(
    backend: Backend,
    *,
    n: Sequence[int] | None = None,
    loads: Shares = None,
    dtypes: Annotated[Sequence[str] | None, Option(choices=NAMES)] = None,
    distribution: Spread = "unique",
    hit_rates: HitRates = (1.0, 0.0),
    repeats: int | None = None,
    batches: Annotated[Sequence[int], Option(("--batch",))] = BATCHES,
    method: Method = "auto",
    settings: Settings = (),
) -> Iterator[dict[str, Any]]:
    """Yield rows of verbs, of memory, and of the latency of small batches.

    The verbs are insert, find, absent, erase and build. ``insert`` adds a batch of n rows to a
    table that holds n / 64 other keys and has room for all at the requested load. ``build`` makes a
    table from the batch without a given capacity. ``find`` looks up the keys of the batch,
    ``absent`` as many other keys, ``mixed 0.3`` keys of which that share is stored; ``erase``
    removes the batch again.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    n : sequence of int, optional
        Rows of a batch. By default sizes of which some fit the caches, halved until they fit the
        memory.
    loads : sequence of float, optional
        Shares of the slots in use after the insert of a batch.
    dtypes : sequence of str, optional
        Bits of key/value, or of a set's keys.
    distribution : str
        ``unique``, ``uniform:8`` or ``zipf:1.5``: how often the keys of a batch repeat.
    hit_rates : sequence of float
        Shares of the looked-up keys that are stored.
    repeats : int, optional
        Runs whose median counts.
    batches : sequence of int
        Numbers of keys in the small batches; empty: no latencies.
    method : str
        Of `dgpuhash.methods`. Where no setting of its says how full a table is, one load is
        measured; verbs that it lacks are left out.
    settings : sequence of str
        Settings of the method, as ``"width=8"``.

    Raises
    ------
    SpecError
        When an option is impossible.
    DgpuhashError
        When an answer on the timed data is wrong. The expected answer follows from the numbers that
        the keys are made of: as many new and erased rows as distinct numbers, each value from its
        key, each key found or not as it was drawn.

    Notes
    -----
    Floors: of ``insert`` and ``erase``, bare inserts into as many bytes as the table has; of
    lookups, bare lookups there; of ``build``, a copy that reads the batch and writes the table.
    """
    repeats = repeats or REPEATS[backend.name]
    spread = Distribution.of(distribution)
    for hit_rate in hit_rates:
        if not 0 <= hit_rate <= 1:
            raise SpecError(f"a hit rate of {hit_rate}; use shares from 0 to 1")
    floors, measured = Floors(backend, repeats), MeasuredMethod.of(method, settings)
    if not (measured.serves("set") or measured.serves("map")):
        raise SpecError(f"--method {method} has no sets and no maps; measure it with bench multi")
    largest: dict[str, int] = {}
    for name, rows, shares_in_use in _cases(backend, n, loads, dtypes):
        pairs = Pairs.of(name, measured)
        if not measured.serves("set" if pairs.value is None else "map"):
            continue
        if rows > _MOST[pairs.key.itemsize]:
            raise SpecError(f"{rows:,} rows of {name}; use {_MOST[pairs.key.itemsize]:,} at most")
        largest[name] = max(rows, largest.get(name, 0))
        for load in measured.loads(shares_in_use):
            yield from _Case(backend, pairs, rows, load, spread, floors, repeats).rows(hit_rates)
    for name, rows in largest.items() if batches else ():
        yield from call_rows(backend, Pairs.of(name, measured), rows, batches)


def _cases(
    backend: Backend,
    n: Sequence[int] | None,
    loads: Sequence[float] | None,
    dtypes: Sequence[str] | None,
) -> list[tuple[str, int, Sequence[float]]]:
    """Return the default cases, or the cases that the options select."""
    usual = _CASES[backend.name]
    if n is None and dtypes is None:
        return [
            (name, rows_that_fit(backend, rows, Pairs.of(name).row_bytes), loads or theirs)
            for name, rows, theirs in usual
        ]
    sizes = {name: rows for name, rows, _ in reversed(usual)}
    made = []
    for name in dtypes or ("32/32", "64/64"):
        pairs = Pairs.of(name)
        rows = sizes["64/64" if pairs.floor_bits == 64 else "32/32"]
        for each in n or (rows_that_fit(backend, rows, pairs.row_bytes),):
            made.append((name, each, loads or usual[0][2]))
    return made


class _Case:
    """One batch, and the tables that it is inserted into."""

    def __init__(
        self,
        backend: Backend,
        pairs: Pairs,
        n: int,
        load: float,
        spread: Distribution,
        floors: Floors,
        repeats: int,
    ) -> None:
        self._backend, self._pairs, self._n, self._load = backend, pairs, n, load
        self._floors, self._repeats = floors, repeats
        self._what: dict[str, Any] = {
            "pairs": pairs.name,
            "n": n,
            "load": load,
            "distribution": str(spread),
            **pairs.method.label,
        }
        self._sample: KeyDraw = spread.sample(backend, n)
        self._distinct = self._sample.distinct()
        self._keys = keys_of(self._sample.numbers, pairs.key)
        self._values = pairs.values(self._keys)
        self._residents = keys_of(
            backend.xp.arange(2 * n + 1, 2 * n + 1 + max(1, n // _RESIDENT)), pairs.key
        )
        self._resident_values = pairs.values(self._residents)

    def rows(self, hit_rates: Sequence[float]) -> Iterator[dict[str, Any]]:
        """Yield the rows of this case."""
        capacity = self._distinct + len(self._residents)
        table = self._pairs.table(self._backend, capacity, self._load)
        yield self._insert(table)
        for hit_rate in hit_rates:
            yield self._find(table, hit_rate)
        if "erase" in self._pairs.method.row.verbs:
            yield self._erase(table)
        del table
        yield from self._build()

    def _insert(self, table: Any) -> dict[str, Any]:
        seconds, fresh = self._time(
            partial(self._pairs.insert, table, self._keys, self._values),
            before=partial(self._refill, table),
        )
        self._require(int(fresh.sum()) == self._distinct, "an inserted key was not new")
        self._require(
            len(table) == self._distinct + len(self._residents), "the table's size was wrong"
        )
        return rate(self._n / seconds, self._change_floor(table), **self._what, verb="insert")

    def _find(self, table: Any, hit_rate: float) -> dict[str, Any]:
        asked, hits = self._asked(hit_rate)
        seconds, (values, found) = self._time(partial(self._pairs.find, table, asked), again=True)
        wrong = "an absent key was found" if hit_rate == 0 else "a stored key was not found"
        self._require((found == hits).all(), wrong)
        if values is not None:
            self._require(
                ((values == self._pairs.values(asked)) | ~found).all(), "a value was wrong"
            )
        verb = {1.0: "find", 0.0: "absent"}.get(hit_rate, f"mixed {hit_rate:g}")
        floor = self._floors.lookup(self._pairs.floor_bits, self._n, _lines(table))
        return rate(self._n / seconds, floor, **self._what, verb=verb, hit_rate=hit_rate)

    def _asked(self, hit_rate: float) -> tuple[Any, Any]:
        """Return keys to look up, and which of them are stored."""
        if hit_rate == 1:
            return self._keys, self._backend.full(self._n, True, bool)
        xp = self._backend.xp
        others = xp.arange(self._n + 1, 2 * self._n + 1)
        hits = uniform_floats(self._backend, self._n, 1) < hit_rate
        return keys_of(xp.where(hits, self._sample.numbers, others), self._pairs.key), hits

    def _erase(self, table: Any) -> dict[str, Any]:
        def fill() -> None:
            self._refill(table)
            self._pairs.insert(table, self._keys, self._values)

        seconds, erased = self._time(partial(table.erase, self._keys), before=fill)
        self._require(int(erased.sum()) == self._distinct, "a stored key was not erased")
        self._require(len(table) == len(self._residents), "the table's size was wrong")
        self._require(not table.contains(self._keys).any(), "an erased key was found")
        self._require(table.contains(self._residents).all(), "erasing took another key")
        return rate(self._n / seconds, self._change_floor(table), **self._what, verb="erase")

    def _build(self) -> Iterator[dict[str, Any]]:
        work = partial(self._pairs.build, self._keys, self._values, self._load)
        seconds, table = self._time(work)
        nbytes = table.nbytes
        self._require(len(table) == self._distinct, "the built table's size was wrong")
        values, found = self._pairs.find(table, self._keys)
        self._require(found.all(), "a key of the built table was not found")
        if values is not None:
            self._require((values == self._values).all(), "a value of the built table was wrong")
        moved = self._n * self._pairs.row_bytes + nbytes
        floor = self._n / (moved / self._floors.copy(moved))
        yield rate(self._n / seconds, floor, **self._what, verb="build")
        del table, values, found
        peak, table = peak_bytes(self._backend, work)
        stored, batch = (rows * self._pairs.row_bytes for rows in (self._distinct, self._n))
        yield memory(table.nbytes, stored, batch, peak, **self._what)

    def _refill(self, table: Any) -> None:
        """Clear the table and insert the resident keys."""
        table.clear()
        self._pairs.insert(table, self._residents, self._resident_values)

    def _change_floor(self, table: Any) -> float:
        return self._floors.insert(self._pairs.floor_bits, self._n, _lines(table))

    def _time(self, work: Any, **settings: Any) -> tuple[float, Any]:
        return median_time(self._backend, work, repeats=self._repeats, **settings)

    def _require(self, holds: Any, problem: str) -> None:
        require(holds, problem, **self._what)


def _lines(table: Any) -> int:
    """Return the table's bytes, rounded down to whole lines of 64 bytes."""
    return int(table.nbytes) // 64 * 64
