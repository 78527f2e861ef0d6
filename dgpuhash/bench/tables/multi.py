"""Benchmark building a MultiMap and reading its values, by rows per key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import memory, rate, require
from dgpuhash.bench.keys import Distribution, keys_of
from dgpuhash.bench.limits import Floors
from dgpuhash.bench.memory import peak_bytes, rows_that_fit
from dgpuhash.bench.method import MAPS, MeasuredMethod, Pairs
from dgpuhash.bench.options import Method, Option, Settings, Share, Spreads
from dgpuhash.bench.timing import REPEATS, median_time
from dgpuhash.tables import MultiMap

DISTRIBUTIONS = ("unique", "uniform:8", "uniform:64", "uniform:512", "zipf:1.5")
_ROWS = {"cuda": 2**27, "cpu": 2**20}


def run(
    backend: Backend,
    *,
    n: Sequence[int] | None = None,
    dtypes: Annotated[Sequence[str], Option(choices=MAPS)] = ("32/32",),
    distributions: Spreads = DISTRIBUTIONS,
    load: Share = 0.8,
    repeats: int | None = None,
    method: Method = "auto",
    settings: Settings = (),
) -> Iterator[dict[str, Any]]:
    """Yield rows for build, retrieval and memory of each distribution.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    n : sequence of int, optional
        Numbers of pairs.
    dtypes : sequence of str
        Bits of key/value.
    distributions : sequence of str
        Distributions of keys, as for `dgpuhash.bench.keys.Distribution.of`.
    load : float
        Share of the key slots in use.
    repeats : int, optional
        Runs whose median counts.
    method : str
        Of `dgpuhash.methods`.
    settings : sequence of str
        Settings of the method, as ``"growth=1.5"``.

    Raises
    ------
    SpecError
        When an option is impossible.
    DgpuhashError
        When an answer on the timed data is wrong. A pair's value is its row number: the values read
        must be every row number once, each list as long as its key is frequent, and the rows of a
        list those of its key.

    Notes
    -----
    Rates are of pairs. ``retrieve`` asks for the stored keys, ``retrieve 1…n`` for as many keys as
    there are pairs, most of which are absent where keys have many values (WarpCore, figure 7b).
    Floors: of the build, a copy that reads the pairs and writes the table; of the retrievals, one
    gathered slot for each key and a copy of the values.
    """
    repeats = repeats or REPEATS[backend.name]
    floors, measured = Floors(backend, repeats), MeasuredMethod.of(method, settings)
    for name in dtypes:
        for rows in n or (rows_that_fit(backend, _ROWS[backend.name], Pairs.of(name).row_bytes),):
            for text in distributions:
                spread = Distribution.of(text)
                pairs = Pairs.of(name, measured)
                yield from _measure(backend, pairs, rows, spread, load, floors, repeats)


def _measure(
    backend: Backend,
    pairs: Pairs,
    n: int,
    spread: Distribution,
    load: float,
    floors: Floors,
    repeats: int,
) -> Iterator[dict[str, Any]]:
    sample = spread.sample(backend, n)
    present = sample.present()
    what: dict[str, Any] = {
        "pairs": pairs.name,
        "n": n,
        "load": load,
        "distribution": str(spread),
        "multiplicity": float(f"{n / len(present):.4g}"),
        **pairs.method.label,
    }
    keys = keys_of(sample.numbers, pairs.key)
    values = backend.xp.arange(n, dtype=pairs.value)
    work = partial(MultiMap.from_arrays, keys, values, **pairs.method.options(load))
    seconds, table = median_time(backend, work, repeats=repeats)
    require(len(table) == n, "the number of pairs was wrong", **what)
    require(table.n_keys == len(present), "the number of keys was wrong", **what)
    nbytes = table.nbytes
    moved = n * pairs.row_bytes + nbytes
    yield rate(n / seconds, n / (moved / floors.copy(moved)), **what, verb="build")
    asked = keys_of(present, pairs.key)
    seconds, (read, offsets) = median_time(
        backend, partial(table.find, asked), repeats=repeats, again=True
    )
    sample.check_lists(present, read, offsets, what)
    del read, offsets
    moved = 2 * n * values.itemsize
    copied = moved / floors.copy(moved)
    floor = len(present) / floors.lookup(pairs.floor_bits, len(present), nbytes)
    yield rate(n / seconds, n / (floor + copied), **what, verb="retrieve")
    # The queries of WarpCore's figure 7b: the keys of all numbers up to n, most of them absent.
    every = backend.xp.arange(1, n + 1)
    asked = keys_of(every, pairs.key)
    seconds, (read, offsets) = median_time(
        backend, partial(table.find, asked), repeats=repeats, again=True
    )
    ends = offsets[present]
    require(len(read) == n and (offsets[-1] == n), "a value was lost", **what)
    sample.check_lists(present, read, backend.xp.concatenate([offsets[:1], ends]), what)
    del read, offsets, table
    floor = n / floors.lookup(pairs.floor_bits, n, nbytes)
    yield rate(n / seconds, n / (floor + copied), **what, verb="retrieve 1…n")
    peak, table = peak_bytes(backend, work)
    stored = len(present) * pairs.key.itemsize + n * values.itemsize
    yield memory(table.nbytes, stored, n * pairs.row_bytes, peak, **what)
