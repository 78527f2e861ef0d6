"""Mixed batches of distributed tables: some order of the operations explains every answer."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from itertools import count

import dask.array as da
import numpy as np
import pytest

from dgpuhash import MultiMap, Op
from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.pipeline import room
from dgpuhash.distributed.pipeline.verb import VerbExecution
from dgpuhash.errors import KeyTypeError, OutOfMemoryError, ShapeError, SpecError, UnsupportedError
from dgpuhash.tables.stores.method_store import MethodStore

pytestmark = pytest.mark.cluster
METHODS = ["slab", "supernode"]


def two_by_two(plain, other):
    """Return clusters with a method and laziness: each two of the three come together."""
    over_ucxx = pytest.param("over_ucxx", plain, True, marks=pytest.mark.ucxx)
    rows = [("threads", plain, False), ("threads", other, True), ("processes", other, False)]
    return [*rows, ("processes", plain, True), over_ucxx]


def ends_of(rows, stored, step, times=None):
    """Return what a key may have afterwards: the states that some order of `rows` leaves.

    `step` returns the state after a row, or None where its answer contradicts the state before.
    Of rows with `times`, one whose call ended comes before those whose calls began later.
    """
    ends, seen = set(), set()
    times = times or [(0, 0)] * len(rows)

    def follow(left, stored):
        if (left, stored) in seen:
            return
        seen.add((left, stored))
        if not left:
            ends.add(stored)
            return
        first_end = min(times[row][1] for row in left)
        for row in left:
            if times[row][0] <= first_end and (then := step(stored, *rows[row])) is not None:
                follow(left - {row}, then)

    follow(frozenset(range(len(rows))), stored)
    return ends


def after_row(stored, op, value, flag, found):
    """Return a key's values, none or one, after a row of a map; None if its answer is wrong."""
    creates = op in (Op.INSERT, Op.UPSERT)
    if flag != (bool(stored) != creates) or (op == Op.FIND and flag and (found,) != stored):
        return None
    if creates and (op == Op.UPSERT or not stored):
        return (value,)
    return () if op in (Op.ERASE, Op.ERASE_ALL) else stored


def after_list_row(stored, op, value, flag, found):
    """Return a key's values, sorted, after a row of a multimap; None if its answer is wrong."""
    if flag != (bool(stored) != (op == Op.INSERT)) or (op == Op.FIND and found != stored):
        return None
    if op == Op.INSERT:
        return tuple(sorted((*stored, value)))
    return stored if op == Op.FIND else ()


def batch(seed, rows, keys, kinds=5):
    """Return random operations, keys and values, which differ from each other."""
    rng = np.random.default_rng(seed)
    ops = rng.integers(0, kinds, rows).astype("u1")
    return ops, rng.integers(0, keys, rows).astype("i8"), rng.permutation(rows).astype("u4")


@pytest.mark.parametrize(("client", "method", "lazy"), two_by_two(*METHODS), indirect=["client"])
def test_some_order_explains_the_answers(client, method, lazy):
    model: dict[int, tuple[int, ...]] = {}
    settings = {"piece_rows": 700} if lazy else {}
    with DistributedMap("i8", "u4", method=method, client=client, **settings) as table:
        for seed in range(4):
            ops, keys, values = batch(seed, 3000, 1000)
            given = [ops, keys, values]
            if lazy:
                given = [da.from_array(each, chunks=(900, 0, 2100)) for each in given]
            found, flags = table.execute(*given, default=1 << 30)
            assert not lazy or found.chunks == flags.chunks == ((900, 0, 2100),)
            found, flags = np.asarray(found), np.asarray(flags)
            assert found.dtype == np.uint32 and flags.dtype == bool
            assert (found[~flags | (ops != Op.FIND)] == 1 << 30).all()
            after, there = (np.asarray(each) for each in table.find(np.arange(1000)))
            rows = defaultdict(list)
            for op, key, *row in zip(
                *(each.tolist() for each in (ops, keys, values, flags, found)), strict=True
            ):
                rows[key].append((op, *row))
            for key, its in rows.items():
                left = (int(after[key]),) if there[key] else ()
                assert left in ends_of(its, model.get(key, ()), after_row), (seed, key)
            model = {key: (int(after[key]),) for key in range(1000) if there[key]}
            assert len(table) == len(model)


@pytest.mark.parametrize("method", METHODS)
def test_kinds_of_operations_are_not_taken_one_after_the_other(client, method):
    """In one call some keys are erased after their insert, and others before it."""
    keys = np.repeat(np.arange(2000), 2)
    ops = np.where(
        np.arange(4000) % 4 < 2, [Op.INSERT, Op.ERASE] * 2000, [Op.ERASE, Op.INSERT] * 2000
    )
    with DistributedSet("i8", method=method, client=client) as table:
        flags = np.asarray(table.execute(ops.astype("u1"), keys)).reshape(-1, 2)
        erased = np.where(ops.reshape(-1, 2) == Op.ERASE, flags, False).any(axis=1)
        assert 0 < erased.sum() < 2000
        assert (np.asarray(table.contains(np.arange(2000))) == ~erased).all()


@pytest.mark.parametrize("value", ["u1", "M8[s]", "S5", "V24"])
def test_values_of_all_widths(client, value):
    keys = np.arange(500)
    bits = np.random.default_rng(1).integers(0, 256, (500, np.dtype(value).itemsize), np.uint8)
    values = bits.view(value).reshape(500)
    if value == "S5":
        values = np.char.mod(b"%d", keys).astype("S5")
    with DistributedMap("i8", value, method="slab", client=client) as table:
        found, flags = table.execute(np.full(500, Op.INSERT, "u1"), keys, values)
        assert flags.all()
        found, flags = table.execute(np.zeros(1000, "u1"), np.arange(1000))
        assert found[:500].tobytes() == values.tobytes() and flags.sum() == 500
        assert not found[500:].view(np.uint8).any()


def test_no_row_takes_effect_before_all_workers_have_room(threads, monkeypatch):
    grown, calls, real = [], count(), MethodStore.make_room

    def make_room(self, new_keys):
        grown.append(new_keys)
        if next(calls) == 1:
            raise MemoryError
        real(self, new_keys)

    ops, keys, values = batch(5, 20_000, 10_000)
    with DistributedMap("i8", "u4", method="slab", client=threads) as table:
        table.upsert(keys[:50], values[:50])
        before, epoch = (
            sorted(zip(*(np.asarray(each).tolist() for each in table.items()), strict=True)),
            table.epoch,
        )
        monkeypatch.setattr(MethodStore, "make_room", make_room)
        with pytest.raises(OutOfMemoryError):
            table.execute(ops, keys, values)
        assert table.epoch == epoch
        assert (
            sorted(zip(*(np.asarray(each).tolist() for each in table.items()), strict=True))
            == before
        )
        table.execute(ops, keys, values)
        assert table.epoch == epoch + 1
    # Owners count keys that are new to them, not rows.
    assert sum(grown[-len(threads.scheduler_info()["workers"]) :]) <= 10_000


def test_rows_of_stored_keys_need_no_room(threads, monkeypatch):
    counted = []
    real = room._new_keys
    monkeypatch.setattr(room, "_new_keys", lambda *args: counted.append(real(*args)) or counted[-1])
    keys = np.arange(6000)
    with DistributedMap("i8", "i8", 6000, method="slab", client=threads) as table:
        table.upsert(keys, keys)
        nbytes = table.nbytes
        for turn in range(4):
            table.execute(np.full(6000, Op.UPSERT, "u1"), keys, keys + turn)
        assert table.nbytes == nbytes and set(counted) <= {0}
        assert (np.asarray(table.find(keys)[0]) == keys + 3).all()


@pytest.mark.parametrize(
    ("client", "method", "lazy"), two_by_two("auto", "slab"), indirect=["client"]
)
def test_some_order_explains_the_lists(client, method, lazy):
    model: dict[int, tuple[int, ...]] = {}
    settings = {"piece_rows": 400} if lazy else {}
    kinds = np.array([Op.FIND, Op.INSERT, Op.INSERT, Op.ERASE, Op.ERASE_ALL], "u1")
    with DistributedMultiMap("i8", "u4", method=method, client=client, **settings) as table:
        for seed in range(2):
            ops, keys, values = batch(seed, 1500, 500)
            ops = kinds[ops]
            given = [ops, keys, values]
            if lazy:
                given = [da.from_array(each, chunks=(600, 0, 900)) for each in given]
            epoch = table.epoch
            found, offsets, flags = table.execute(*given)
            assert table.epoch == epoch + 1
            if not lazy:
                lengths = np.diff(offsets)
            else:
                assert flags.chunks == given[0].chunks
                parts = [np.asarray(offsets.blocks[part]) for part in range(3)]
                lengths = np.concatenate([np.diff(each) for each in parts])
            flags = np.asarray(flags)
            assert not lengths[ops != Op.FIND].any()
            its = np.split(np.asarray(found), np.cumsum(lengths)[:-1])
            after, ends = table.find(np.arange(500))
            left = [tuple(sorted(each.tolist())) for each in np.split(after, ends[1:-1])]
            rows = defaultdict(list)
            for row, key in enumerate(keys.tolist()):
                found_values = tuple(sorted(its[row].tolist()))
                rows[key].append((ops[row], int(values[row]), bool(flags[row]), found_values))
            for key, of_key in rows.items():
                before_key = model.get(key, ())
                assert left[key] in ends_of(of_key, before_key, after_list_row), (seed, key)
            model = dict(enumerate(left))
        before = table.epoch
        with pytest.raises(SpecError, match=r"ops\[1\] is UPSERT, .* does not support"):
            table.execute([Op.ERASE, Op.UPSERT], [1, 2], [1, 2])
        assert table.epoch == before and len(table) == sum(map(len, left))
        assert [len(each) for each in table.execute([], [])] == [0, 1, 0]
    with (
        DistributedMultiMap("u4", "u4", mode="independent", client=client) as table,
        pytest.raises(UnsupportedError, match="mode='distributed'"),
    ):
        table.execute([Op.FIND], [1])


def history(table, seed, keys):
    """Return rows of mixed batches of four threads, by key, with the times of their calls."""
    rows, lists = defaultdict(list), isinstance(table, DistributedMultiMap)
    last = Op.ERASE_ALL if lists else Op.UPSERT
    kinds = np.array([Op.FIND, Op.INSERT, Op.INSERT, Op.ERASE, last], "u1")
    noted = threading.Lock()

    def call(number):
        ops, its, values = batch(number, 60, keys)
        ops, values = kinds[ops], values + np.uint32(100 * number)
        begin = time.monotonic()
        found, *offsets, flags = table.execute(ops, its, values)
        end = time.monotonic()
        if lists:
            found = [tuple(sorted(each.tolist())) for each in np.split(found, offsets[0][1:-1])]
        with noted:
            for op, key, value, flag, there in zip(ops, its, values, flags, found, strict=True):
                row = int(op), int(value), bool(flag), there if lists else int(there)
                rows[int(key)].append(((begin, end), row))

    def work(client):
        for number in range(3):
            call(100 * seed + 10 * client + number)

    clients = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return rows


@pytest.mark.parametrize("kind", ["map", "multimap"])
def test_histories_of_clients_are_linear(client, kind):
    keys = 150
    step = after_list_row if kind == "multimap" else after_row
    made = DistributedMultiMap if kind == "multimap" else DistributedMap
    with made("i8", "u4", method="slab", client=client, piece_rows=25) as table:
        stored: dict[int, tuple[int, ...]] = {}
        for seed in range(2):
            rows = history(table, seed, keys)
            assert sum(map(len, rows.values())) == 4 * 3 * 60
            if kind == "map":
                after, there = table.find(np.arange(keys))
                left = [(int(one),) if ok else () for one, ok in zip(after, there, strict=True)]
            else:
                after, ends = table.find(np.arange(keys))
                left = [tuple(sorted(each.tolist())) for each in np.split(after, ends[1:-1])]
            for key, its in rows.items():
                times, of_key = zip(*its, strict=True)
                allowed = ends_of(of_key, stored.get(key, ()), step, times)
                assert left[key] in allowed, (seed, key)
            stored = dict(enumerate(left))


def test_a_history_that_is_not_linear_has_no_order():
    insert, erase = (Op.INSERT, 7, True, 0), (Op.ERASE, 0, True, 0)
    find = (Op.FIND, 0, False, 0)
    assert ends_of([insert, find], (), after_row, [(0, 2), (1, 3)]) == {(7,)}
    assert ends_of([insert, find], (), after_row, [(0, 1), (2, 3)]) == set()
    assert ends_of([insert, erase, find], (), after_row, [(0, 1), (0, 5), (2, 3)]) == {()}
    assert ends_of([(Op.FIND, 0, True, (1,))], (1, 2), after_list_row) == set()


@pytest.mark.parametrize("refused", ["copy", "rows", "answers"])
@pytest.mark.parametrize("method", ["auto", "slab"])
def test_memory_refused_on_one_worker_changes_no_list(threads, monkeypatch, method, refused):
    def refusing(real, at):
        calls = count()

        def call(*args, **kwargs):
            if next(calls) == at:
                raise MemoryError
            return real(*args, **kwargs)

        return call

    kinds = np.array([Op.FIND, Op.INSERT, Op.INSERT, Op.ERASE, Op.ERASE_ALL], "u1")
    ops, keys, values = batch(7, 3000, 500)
    settings = {"method": method, "piece_rows": 400, "client": threads}
    with DistributedMultiMap("i8", "u4", **settings) as table:
        table.insert(keys, values)
        before, epoch = [each.tolist() for each in table.find(np.arange(500))], table.epoch
        owner, name, at = {
            "copy": (MultiMap, "copy", 1),
            "rows": (MultiMap, "execute", 7),
            "answers": (VerbExecution, "_deliver", 3),
        }[refused]
        monkeypatch.setattr(owner, name, refusing(getattr(owner, name), at))
        with pytest.raises(OutOfMemoryError):
            table.execute(kinds[ops], keys, values)
        assert table.epoch == epoch
        assert [each.tolist() for each in table.find(np.arange(500))] == before
        monkeypatch.undo()
        assert table.execute(np.zeros(500, "u1"), np.arange(500))[2].any()
        *_, flags = table.execute(kinds[ops], keys, values)
        assert table.epoch == epoch + 2 and flags.any()


def test_finds_of_lists_copy_no_shard(threads, monkeypatch):
    def refuse(self):
        raise MemoryError

    with DistributedMultiMap.from_arrays([1, 1, 2], [10, 11, 20], client=threads) as table:
        monkeypatch.setattr(MultiMap, "copy", refuse)
        values, *_ = table.execute([Op.FIND, Op.FIND], [2, 1])
        assert values.tolist() == [20, 10, 11]
        with pytest.raises(OutOfMemoryError, match="the copy that a batch works on"):
            table.execute([Op.ERASE], [1])
        assert len(table) == 3


def test_arguments(client):
    with DistributedMap("u4", "u4", method="slab", client=client) as table:
        table.upsert([1], [10])
        with pytest.raises(
            SpecError, match=r"ops\[1\] is 5, which is not an operation; use dgpuhash.Op"
        ):
            table.execute([Op.INSERT, 5], [1, 2], [1, 2])
        strange = da.from_array(np.array([1, 1, 1, 7], "u1"), chunks=2)
        with pytest.raises(SpecError, match=r"ops\[3\] is 7"):
            rows = da.arange(4, chunks=2).astype("u4")
            table.execute(strange, rows, rows)
        with pytest.raises(SpecError, match="rows of ops store a pair, and there are no values"):
            table.execute([Op.FIND, Op.INSERT], [1, 2])
        with pytest.raises(ShapeError):
            table.execute([Op.FIND], [1, 2])
        with pytest.raises(KeyTypeError):
            table.execute([-1], [1])
        with pytest.raises(KeyTypeError):
            table.execute([Op.FIND], [1], default="x")
        assert table.epoch == 1 and len(table) == 1
        values, flags = table.execute([], [])
        assert len(values) == len(flags) == 0
    with pytest.raises(UnsupportedError, match=r"method 'auto' cannot execute.*slab"):
        DistributedMap("u4", "u4", client=client).execute([Op.FIND], [1])
    with (
        DistributedSet("u4", method="slab", mode="independent", client=client) as table,
        pytest.raises(UnsupportedError, match="mode='distributed'"),
    ):
        table.execute([Op.FIND], [1])
