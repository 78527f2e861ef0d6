"""Probe-key pruning on clusters: keys that are not sent to their owners."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.pruning.policy import AbsentKeyStats, PruningOptions
from dgpuhash.errors import SpecError
from dgpuhash.tables import MultiMap

pytestmark = pytest.mark.cluster

STORED, ASKED = 50_000, 400_000


def left_out(table):
    """Return the pruned absent and repeated rows, and the filters' bytes.

    The rows are those of the last lookup.
    """
    figures = table.stats()
    return [int(figures[name].sum()) for name in ("absent_rows", "repeated_rows", "filter_nbytes")]


def test_absent_keys_do_not_travel(client):
    keys, asked = np.arange(STORED), da.arange(ASKED, chunks=70_000)
    with DistributedMap.from_arrays(keys, keys * 3, client=client) as table:
        for _ in range(2):
            values, found = table.find(asked, default=-1, bloom_filter=True)
            assert found.compute().tolist() == (np.arange(ASKED) < STORED).tolist()
            wanted = np.where(np.arange(ASKED) < STORED, np.arange(ASKED) * 3, -1)
            assert (values.compute() == wanted).all()
        absent, repeated, nbytes = left_out(table)
        assert 0.98 * (ASKED - STORED) < absent <= ASKED - STORED
        assert repeated == 0
        assert 0 < nbytes < len(table.workers) * (1.5 * STORED + 1000)
        table.erase(np.arange(100))
        assert table.count(asked, bloom_filter=True).compute().sum() == STORED - 100
        assert left_out(table)[2] == nbytes
        table.insert(np.arange(100), np.arange(100))
        assert left_out(table)[2] == 0
        assert table.contains(asked, bloom_filter=True).compute().sum() == STORED


def test_filters_come_by_themselves_where_many_keys_are_absent(client):
    keys, asked = np.arange(STORED), da.arange(ASKED, chunks=70_000)
    with DistributedSet.from_keys(keys, client=client) as table:
        assert table.contains(asked).compute().sum() == STORED
        assert left_out(table)[2] == 0
        assert table.contains(asked).compute().sum() == STORED
        assert left_out(table)[0] > 0.98 * (ASKED - STORED)
        stored = asked % STORED
        assert table.contains(stored).compute().all()
        assert left_out(table)[0] == 0
        assert table.contains(stored).compute().all()
        assert table.contains(asked, bloom_filter=False).compute().sum() == STORED
        assert left_out(table)[0] == 0
        table.insert(np.arange(STORED, STORED + 9))
        assert table.contains(asked).compute().sum() == STORED + 9
        assert left_out(table)[2] == 0


def test_repeated_keys_travel_once(client):
    keys = np.arange(1000)
    asked = da.from_array(np.random.default_rng(1).integers(0, 2000, ASKED), 90_000)
    there = asked.compute() < 1000
    with DistributedMap.from_arrays(keys, keys * 3, client=client) as table:
        values, found = table.find(asked, default=7)
        assert (found.compute() == there).all()
        assert (values.compute() == np.where(there, asked.compute() * 3, 7)).all()
        assert left_out(table)[1] >= ASKED - 2000 * len(table.workers)
        assert (table.contains(asked, deduplicate=False).compute() == there).all()
        assert left_out(table)[1] == 0
        assert table.contains(np.arange(ASKED)).sum() == 1000
        assert left_out(table)[1] == 0


@pytest.mark.parametrize("bloom_filter", [False, True])
def test_lists(client, bloom_filter):
    random = np.random.default_rng(2)
    keys, values = random.integers(0, 400, 5000), np.arange(5000)
    asked = random.integers(0, 600, 3000)
    wanted, offsets = MultiMap.from_arrays(keys, values).find(asked)
    with DistributedMultiMap.from_arrays(keys, values, client=client, piece_rows=333) as table:
        got = table.find(asked, bloom_filter=bloom_filter, deduplicate=True)
        assert got[0].tolist() == wanted.tolist()
        assert got[1].tolist() == offsets.tolist()
        nobody = table.find(np.arange(600, 700), bloom_filter=bloom_filter, deduplicate=True)
        assert [len(nobody[0]), nobody[1].tolist()] == [0, [0] * 101]


def test_few_and_no_keys(client):
    with DistributedMap("int64", "S3", client=client) as table:
        for keys in ([], [5]):
            values, found = table.find(
                np.array(keys, np.int64), b"no", bloom_filter=True, deduplicate=True
            )
            assert values.tolist() == [b"no"] * len(keys)
            assert not found.any()


def test_copies_and_saves_have_filters_of_their_own(client, tmp_path):
    asked = np.arange(1200)
    with DistributedSet.from_keys(np.arange(1000), client=client) as table:
        assert table.contains(asked, bloom_filter=True).sum() == 1000
        with table.copy() as twin:
            twin.insert(np.arange(1000, 1100))
            assert twin.contains(asked, bloom_filter=True).sum() == 1100
        assert table.contains(asked, bloom_filter=True).sum() == 1000
        table.save(str(tmp_path / "saved"))
        with DistributedSet.load(str(tmp_path / "saved"), client=client) as again:
            again.insert(np.arange(1100, 1150))
            assert again.contains(asked, bloom_filter=True).sum() == 1050
        table.clear()
        assert not table.contains(asked, bloom_filter=True).any()
        table.insert(asked)
        assert table.contains(asked, bloom_filter=True).all()


def test_unknown_positions_are_refused(client):
    with DistributedSet("int64", client=client) as table:
        for switch in ("bloom_filter", "deduplicate"):
            with pytest.raises(SpecError, match=f"{switch}='yes'; use True, False or 'auto'"):
                table.contains([1], **{switch: "yes"})


def test_absences_must_be_many():
    seen, wanted = AbsentKeyStats(), PruningOptions("auto", "auto")
    seen.note(rows=2**20, absent_rows=2**19)
    assert seen.with_stats(wanted, "cpu", rows=1000).bloom_filter is False
    assert seen.with_stats(wanted, "cpu", rows=2**20).absent_rows == 2**19
    assert seen.with_stats(wanted, "cuda", rows=2**30).bloom_filter is False
    seen.note(rows=2**20, absent_rows=2**10)
    assert seen.with_stats(wanted, "cpu", rows=2**20).bloom_filter is False
    seen.note(rows=2**30, absent_rows=2**30)
    assert seen.with_stats(wanted, "cuda", rows=2**30).bloom_filter == "auto"
    assert seen.with_stats(PruningOptions(True), "cuda", rows=9) == PruningOptions(True)
