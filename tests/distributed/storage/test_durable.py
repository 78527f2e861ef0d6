"""Durable indexes: acknowledged changes survive, damage is reported."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from clusters import assert_same, cluster_of, kill, killer, lazy
from distributed import Client
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.memory import MemoryFileSystem
from gate import Gate
from pyarrow.fs import LocalFileSystem

from dgpuhash.distributed import DistributedGroupBy, DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.index import handle
from dgpuhash.distributed.partition.registry import Registry
from dgpuhash.distributed.storage.change_log import Record
from dgpuhash.errors import (
    ColumnError,
    ExistsError,
    FormatError,
    IndexLost,
    SpecError,
    UnsupportedError,
)

pytestmark = pytest.mark.cluster


class ArrowFiles(ArrowFSWrapper):
    """Local files by pyarrow's file system, without exclusive creation."""

    protocol = "arrowfiles"

    def __init__(self, **options):
        super().__init__(LocalFileSystem(), **options)


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    n = 600
    return pd.DataFrame(
        {
            "city": pd.Series(rng.choice(["Oslo", "Rome", None, "Bonn"], n), dtype="str"),
            "hour": np.arange(n) % 40,
            "kind": pd.Categorical(rng.choice(["a", "b"], n)),
            "v": np.arange(n),
        }
    )


def durable(frame: pd.DataFrame, url: str | Path, client: Client, **options) -> DistributedIndex:
    return DistributedIndex.build(frame, on=["city", "hour"], client=client, durable=url, **options)


def rows_of(index: DistributedIndex) -> pd.DataFrame:
    """Return all rows, sorted by their number."""
    cities = pd.DataFrame({"city": pd.Series(["Oslo", "Rome", None, "Bonn"], dtype="str")})
    probes = cities.merge(pd.DataFrame({"hour": np.arange(40)}), how="cross")
    found = index.merge(probes).compute()
    return found.sort_values("v", ignore_index=True)


def records_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("log-*.record"))


def changed_rows(frame: pd.DataFrame) -> pd.DataFrame:
    early = frame[:400]
    return early[(early["city"] != "Oslo") | (early["hour"] != 3)]


def changed(index: DistributedIndex, frame: pd.DataFrame) -> pd.DataFrame:
    """Change an index of the first 300 rows of `frame`; return its rows."""
    assert index.insert(lazy(frame[300:400], 3)) == 100
    erased = index.erase({"city": ["Oslo", "Nowhere"], "hour": [3, 4]})
    assert index.insert(frame[400:]) == 200
    early = changed_rows(frame)
    assert erased == 400 - len(early)
    return pd.concat([early, frame[400:]], ignore_index=True)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_loaded_onto_any_number_of_workers(threads, frame, tmp_path, workers):
    with durable(frame[:300], tmp_path / "log", threads) as index:
        wanted = changed(index, frame)
        assert index.durable == f"file://{tmp_path}/log"
        assert "durable at" in repr(index)
        assert_same(rows_of(index), wanted)
    with (
        cluster_of(workers, processes=False) as client,
        DistributedIndex.load(tmp_path / "log", client) as loaded,
    ):
        assert_same(rows_of(loaded), wanted)
        assert loaded.durable is None
        assert loaded.insert(frame[:1]) == 1
    assert len(records_in(tmp_path / "log")) == 3


@pytest.mark.parametrize("mode", ["independent", "replicated"])
def test_other_placements(frame, tmp_path, mode):
    log = tmp_path / "log"
    with cluster_of(3, processes=False) as client:
        with durable(frame[:300], log, client, mode=mode) as index:
            wanted = changed(index, frame)
            assert_same(rows_of(index), wanted)
            client.retire_workers(index.workers[:1])
            index.rebuild()
            assert len(index.workers) == 2
            assert_same(rows_of(index), wanted)
            assert index.insert(frame[:2]) == 2
            index.rebalance(index.workers[1:])
            wanted = rows_of(index)
        assert len(wanted) == len(frame) - 400 + len(changed_rows(frame)) + 2
        with DistributedIndex.load(log, client, durable=log) as loaded:
            assert loaded.placement.value == mode
            assert_same(rows_of(loaded), wanted)
            assert loaded.erase({"city": ["Rome"], "hour": [5]}) > 0
            loaded.save(log)
            wanted = rows_of(loaded)
    rows = [pa.ipc.open_file(path).read_all().num_rows for path in log.glob("*.arrow")]
    assert sum(rows) == len(wanted)


def test_heavy_keys(threads, tmp_path):
    """Their rows lie on all shards; all come back, from the log and when a shard is lost."""
    few = pd.DataFrame({"k": np.arange(2000), "v": np.arange(2000)})
    heavy = pd.DataFrame({"k": 7, "v": np.arange(2000, 22_000)})
    rows = pd.concat([few, heavy], ignore_index=True)
    with DistributedIndex.build(lazy(rows, 3), on="k", client=threads, durable=tmp_path) as index:
        assert index.stats()["rows"].max() < 9000
        assert index.insert(heavy[:5000]) == 5000
        assert index.erase([8, 9]) == 2
        threads.run(drop, index._descriptor.uid, workers=index.workers[1:2])
        index.rebuild()
        assert len(index) == 26_998
    with DistributedIndex.load(tmp_path, threads) as loaded:
        found = loaded.find([7, 10]).frame
        assert sorted(found["v"]) == sorted([7, *heavy["v"], *heavy["v"][:5000], 10])
        assert not loaded.contains([8, 9]).any()
        assert loaded.erase([7]) == 25_001
        assert len(loaded) == 1997


def test_a_key_that_is_heavy_no_more(threads, tmp_path):
    """Its saved rows are in all files, and its owner, which has them all now, is lost."""
    rows = pd.DataFrame({"k": np.r_[np.arange(1000), np.full(6000, 7)], "v": np.arange(7000)})
    more = pd.DataFrame({"k": np.arange(400_000) % 150_000 + 8, "v": np.arange(400_000)})
    with DistributedIndex.build(rows, on="k", client=threads, durable=tmp_path) as index:
        assert index._descriptor.heavy
        assert index.insert(more) == 400_000
        index.rebuild(whole=True)
        assert not index._descriptor.heavy
        before = list(index.stats()["rows"])
        for part in range(3):
            threads.run(drop, index._descriptor.uid, workers=index.workers[part : part + 1])
            assert index.rebuild().parts == (part,)
            assert list(index.stats()["rows"]) == before
        assert len(index.find([7]).frame) == 6001


def drop(uid: str, dask_worker) -> None:
    """Drop the shard of an index on this worker."""
    plugin_of(dask_worker).shards.drop(uid)


def test_every_file_is_read_by_arrow(processes, frame, tmp_path):
    with durable(frame[:300], tmp_path, processes) as index:
        changed(index, frame)
        assert len(index.stats()) == 2
    rows = [pa.ipc.open_file(path).read_all().num_rows for path in sorted(tmp_path.glob("*.arrow"))]
    assert sum(rows) == 600 + 2
    for path in records_in(tmp_path):
        record = Record.from_bytes(path.read_bytes(), str(path))
        assert record is not None
        assert {each.file for each in record.files if each} <= {p.name for p in tmp_path.iterdir()}


@pytest.mark.parametrize("url", ["memory://logs/log", "arrowfiles://{}/log", "file://{}/log"])
def test_any_filesystem(threads, frame, tmp_path, url):
    fsspec.register_implementation("arrowfiles", ArrowFiles, clobber=True)
    url = url.format(tmp_path)
    alone = {"single_writer": url.startswith("arrowfiles")}
    with durable(frame[:300], url, threads, **alone) as index:
        wanted = changed(index, frame)
    with DistributedIndex.load(url, threads, durable=url, **alone) as loaded:
        assert_same(rows_of(loaded), wanted)
        assert loaded.erase({"city": ["Rome"], "hour": [5]}) > 0
        wanted = rows_of(loaded)
        loaded.save(url)
        loaded.insert(frame[:1])
    with DistributedIndex.load(url, threads) as loaded:
        assert len(loaded) == len(wanted) + 1
    folder = fsspec.core.url_to_fs(url)
    assert len(folder[0].ls(folder[1])) == 3 + 1 + 2
    folder[0].rm(folder[1], recursive=True)


class Overwriting(MemoryFileSystem):
    """File system that treats exclusive creation like any other."""

    protocol = "overwriting"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]

    def _open(self, path, mode="rb", **options):
        return super()._open(path, mode.replace("x", "w"), **options)


@pytest.mark.parametrize("url", ["arrowfiles://{}/new/log", "overwriting://new/log"])
def test_writers_that_cannot_be_told_apart_are_refused(threads, frame, tmp_path, url):
    fsspec.register_implementation("arrowfiles", ArrowFiles, clobber=True)
    fsspec.register_implementation("overwriting", Overwriting, clobber=True)
    system, path = fsspec.core.url_to_fs(url.format(tmp_path))
    above, url = path.removesuffix("/new/log"), url.format(tmp_path)
    refused = pytest.raises(UnsupportedError, match=r"log is on .*; .* single_writer=True if")
    with refused:
        durable(frame, url, threads)
    assert not system.exists(f"{above}/new")
    with durable(frame[:300], url, threads, single_writer=True) as index:
        assert index.insert(frame[300:]) == 300
        files = system.find(above)
        with refused:
            DistributedIndex.load(url, threads, durable=url)
        assert system.find(above) == files
        assert index.insert(frame[:1]) == 1
    with DistributedIndex.load(url, threads, durable=url, single_writer=True) as loaded:
        assert len(loaded) == 601
    system.rm(f"{above}/new", recursive=True)


def test_a_single_writer_of_no_log(threads, frame):
    for given in ({"single_writer": True}, {"durable": "memory://log", "single_writer": "yes"}):
        with pytest.raises(SpecError, match="single_writer"):
            DistributedIndex.build(frame, on="v", client=threads, **given)


def test_a_save_to_its_folder_makes_the_log_short(threads, frame, tmp_path):
    with durable(frame[:300], tmp_path, threads) as index:
        wanted = changed(index, frame)
        index.save(tmp_path / "copy")
        assert len(records_in(tmp_path)) == 3
        index.save(tmp_path)
        assert records_in(tmp_path) == []
        assert len(list(tmp_path.glob("*.arrow"))) == 3
        assert index.insert(frame[:2]) == 2
        assert index.erase({"city": ["Rome"], "hour": [7]}) > 0
        after = rows_of(index)
        index.rebuild(whole=True)
        assert_same(rows_of(index), after)
    for folder, rows in ((tmp_path, after), (tmp_path / "copy", wanted)):
        with DistributedIndex.load(folder, threads) as loaded:
            assert_same(rows_of(loaded), rows)


def test_one_index_writes_a_log(threads, frame, tmp_path):
    log, other = tmp_path / "log", tmp_path / "other"
    with durable(frame[:300], log, threads) as index:
        with DistributedIndex.build(frame, on="v", client=threads) as stranger:
            stranger.save(other)
            for refused in (
                lambda: durable(frame, log, threads),
                lambda: durable(frame, other, threads),
                lambda: DistributedIndex.load(other, threads, durable=log),
                lambda: stranger.save(log),
            ):
                with pytest.raises(ExistsError, match="another place"):
                    refused()
        assert len(index) == 300
        assert index.insert(frame[300:310]) == 10
        with DistributedIndex.load(log, threads, durable=log) as heir:
            assert index.contains({"city": frame["city"][:9], "hour": frame["hour"][:9]}).all()
            for change in (lambda: index.insert(frame[310:]), lambda: index.save(log)):
                with pytest.raises(IndexLost, match="another index"):
                    change()
            assert heir.insert(frame[310:320]) == 10
            heir.save(log)
            for change in (lambda: index.insert(frame[310:]), lambda: index.save(log)):
                with pytest.raises(IndexLost, match="another index"):
                    change()
            assert heir.insert(frame[320:330]) == 10
            assert len(index) == 310
    with DistributedIndex.load(log, threads) as loaded:
        assert_same(rows_of(loaded), frame[:330])


def test_refused_rows_leave_no_trace(threads, frame, tmp_path):
    unique = frame.assign(hour=frame["v"])
    with durable(unique[:300], tmp_path, threads, unique=True) as index:
        before = sorted(tmp_path.iterdir())
        with pytest.raises(ColumnError, match="unique"):
            index.insert(unique[299:302])
        assert sorted(tmp_path.iterdir()) == before
        assert index.insert(unique[300:302]) == 2


def cut(patch: pytest.MonkeyPatch, change: Callable[[], object], published: bool = False) -> None:
    """Make a change that an interrupt cuts after its record, before or after it is published."""
    publish = Registry.publish

    def interrupted(self, *args, **options):
        if published:
            publish(self, *args, **options)
        raise KeyboardInterrupt

    with patch.context() as cutting:
        cutting.setattr(Registry, "publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            change()


READS = {
    "len": len,
    "lookup": lambda index: len(index.lookup({"city": ["Rome"], "hour": [5]})),
    "merge": lambda index: index.merge(pd.DataFrame({"city": ["Rome"], "hour": [5]})).compute(),
    "stats": lambda index: index.stats(),
    "refresh": lambda index: index.refresh(),
    "insert": lambda index: index.insert(index.meta),
    "save": lambda index: index.save(index.durable),
    "rebuild": lambda index: index.rebuild(whole=True),
    "rebalance": lambda index: index.rebalance(index.workers[:2]),
}


@pytest.mark.parametrize(
    ("read", "published"),
    [*((read, False) for read in READS), ("len", True), ("insert", True), ("rebuild", True)],
)
def test_the_next_call_settles_a_change_that_was_cut(
    threads, frame, tmp_path, monkeypatch, read, published
):
    """What a load finds is what the index answers from, whichever is asked first."""
    with durable(frame[:300], tmp_path, threads) as index:
        cut(monkeypatch, lambda: index.insert(frame[300:400]), published)
        if read == "len":
            with DistributedIndex.load(tmp_path, threads) as loaded:
                assert len(loaded) == 400
        READS[read](index)
        assert_same(rows_of(index), frame[:400])
        with DistributedIndex.load(tmp_path, threads) as loaded:
            assert_same(rows_of(loaded), frame[:400])
        assert index.insert(frame[400:450]) == 50
        index.rebuild(whole=True)
        assert_same(rows_of(index), frame[:450])
    with DistributedIndex.load(tmp_path, threads) as loaded:
        assert_same(rows_of(loaded), frame[:450])


@pytest.mark.parametrize("mode", ["distributed", "independent", "replicated"])
@pytest.mark.parametrize("verb", ["insert", "upsert", "erase", "no rows"])
def test_every_verb_and_mode_is_settled(threads, frame, tmp_path, monkeypatch, verb, mode):
    unique = frame.assign(hour=frame["v"])
    changes = {
        "insert": lambda index: index.insert(lazy(unique[300:400], 3)),
        "upsert": lambda index: index.upsert(unique[250:400].assign(kind="b")),
        "erase": lambda index: index.erase(unique[["city", "hour"]][100:200]),
        "no rows": lambda index: index.insert(unique[:0]),
    }
    with durable(unique[:300], tmp_path, threads, mode=mode) as index:
        cut(monkeypatch, lambda: changes[verb](index))
        answer = index.merge(unique[["city", "hour"]]).compute()
        wanted = {"insert": 400, "upsert": 400, "erase": 200, "no rows": 300}[verb]
        assert len(index) == len(answer) == wanted
        assert index.epoch == 2
        with DistributedIndex.load(tmp_path, threads) as loaded:
            found = loaded.merge(unique[["city", "hour"]]).compute()
            assert_same(found.sort_values("v"), answer.sort_values("v"))


def test_another_handle_settles_what_a_client_has_left(threads, frame, tmp_path, monkeypatch):
    with durable(frame[:300], tmp_path, threads, name="shared") as index:
        early = DistributedIndex.open("shared", threads)
        cut(monkeypatch, lambda: index.insert(frame[300:400]))
        assert len(early) == 400
        cut(monkeypatch, lambda: index.insert(frame[400:450]))
        # As if the client had been another process.
        monkeypatch.setattr(handle, "_unsettled", {})
        assert len(DistributedIndex.open("shared", threads)) == 450
        cut(monkeypatch, lambda: index.erase(frame[["city", "hour"]]))
        monkeypatch.setattr(handle, "_unsettled", {})
        assert early.insert(frame[:2]) == 2
        assert len(early) == len(index) == 2


@pytest.mark.parametrize("verb", ["update", "retract"])
def test_groups_are_settled(threads, frame, tmp_path, monkeypatch, verb):
    state = DistributedGroupBy.build(
        frame[:300], "hour", total=("v", "sum"), client=threads, durable=tmp_path
    )
    with state:
        rows = frame[300:400] if verb == "update" else frame[200:300]
        cut(monkeypatch, lambda: getattr(state, verb)(rows))
        now = frame[: 400 if verb == "update" else 200]
        wanted = now.groupby("hour")["v"].sum().to_dict()
        assert state.result().compute()["total"].to_dict() == wanted
        with DistributedGroupBy.load(tmp_path, threads) as loaded:
            assert loaded.result().compute()["total"].to_dict() == wanted


@pytest.mark.parametrize("published", [False, True])
def test_an_index_without_a_log_is_settled(threads, frame, monkeypatch, published):
    with DistributedIndex.build(frame[:300], on="v", client=threads) as index:
        cut(monkeypatch, lambda: index.insert(frame[300:400]), published)
        assert len(index) == (400 if published else 300)
        assert index.insert(frame[400:450]) == 50
        assert len(index) == (450 if published else 350)


def test_a_change_is_not_repeated_when_the_scheduler_is_lost_after_its_record(
    threads, frame, tmp_path, monkeypatch
):
    def lost(self, *args, **options):
        raise IndexLost("the scheduler of the cluster is gone")

    with durable(frame[:300], tmp_path, threads) as index:
        with monkeypatch.context() as losing:
            losing.setattr(Registry, "publish", lost)
            with pytest.raises(IndexLost, match=r"was made, as it is in the log .* do not repeat"):
                index.insert(frame[300:400])
        assert len(index) == 400


def flip(path: Path, place: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 0x10
    path.write_bytes(data)


def shorten(path: Path, place: float) -> None:
    path.write_bytes(path.read_bytes()[: int(place * (path.stat().st_size - 1))])


def files_of(folder: Path, number: int) -> list[Path]:
    return [path for path in sorted(folder.glob("log-*.arrow")) if f"{number:012}" in path.name]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit of a file of rows": lambda log: flip(files_of(log, 3)[0], 0.5),
    "a short file of rows": lambda log: shorten(files_of(log, 2)[0], 0.9),
    "a missing file of rows": lambda log: files_of(log, 4)[1].unlink(),
    "a flipped bit of a record": lambda log: flip(records_in(log)[1], 0.5),
    "a flipped bit of the last record": lambda log: flip(records_in(log)[2], 0.5),
    "a flipped bit of the last record's size": lambda log: flip(records_in(log)[2], 0.04),
    "a missing record": lambda log: records_in(log)[0].unlink(),
    "a short record before another": lambda log: shorten(records_in(log)[1], 0.5),
    "a record under another number": lambda log: records_in(log)[2].write_bytes(
        records_in(log)[1].read_bytes()
    ),
}


@pytest.fixture
def log(threads, frame, tmp_path) -> Path:
    with durable(frame[:300], tmp_path / "log", threads) as index:
        changed(index, frame)
    return tmp_path / "log"


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_told(threads, log, damage):
    damage(log)
    with pytest.raises(FormatError, match=r"log-|manifest"):
        DistributedIndex.load(log, threads, name="damaged")
    with pytest.raises(IndexLost, match="no index 'damaged'"):
        DistributedIndex.open("damaged", threads)


@pytest.mark.parametrize("place", [0.0, 0.03, 0.1, 0.5, 0.97])
def test_a_record_that_breaks_off_is_ignored(threads, frame, log, place):
    """It was not acknowledged; the next change takes its number."""
    shorten(records_in(log)[2], place)
    with DistributedIndex.load(log, threads, durable=log) as loaded:
        assert len(loaded) == len(changed_rows(frame))
        before = rows_of(loaded)
        assert loaded.insert(frame[400:401]) == 1
    with DistributedIndex.load(log, threads) as loaded:
        assert_same(rows_of(loaded)[:-1], before)


def test_hostile_records_are_refused(threads, log):
    path = records_in(log)[0]
    record = Record.from_bytes(path.read_bytes(), "")
    text = json.loads(record.to_bytes().splitlines()[1])
    for field, value in (("verb", "run"), ("revision", "2"), ("files", [{"file": "../x"}])):
        path.write_bytes(signed(text | {field: value}))
        with pytest.raises(FormatError, match="damaged"):
            DistributedIndex.load(log, threads)


def signed(entry: dict) -> bytes:
    from dgpuhash.distributed.storage.arrow_files import digest_of
    from dgpuhash.distributed.storage.change_log import END, MAGIC

    body = json.dumps(entry).encode()
    return b"%s %d %s\n" % (MAGIC, len(body), digest_of(body).hexdigest().encode()) + body + END


def test_lost_shards_come_back_from_the_log_for_any_handle(frame, tmp_path):
    with (
        cluster_of(2, processes=True) as client,
        durable(frame[:300], tmp_path, client) as index,
    ):
        wanted = changed(index, frame)
        other = DistributedIndex.open(index.name, client)
        kill(client, other.workers[1])
        client.wait_for_workers(2, timeout=120)
        done = other.rebuild()
        assert (done.parts, done.kept) == ((1,), (0,))
        assert_same(rows_of(other), wanted)
        assert other.insert(frame[:3]) == 3
        assert len(records_in(tmp_path)) == 4


PROGRAM = """
import sys
import numpy as np, pandas as pd
from distributed import Client, LocalCluster
from dgpuhash.distributed import DistributedIndex

def batch(number):
    return pd.DataFrame({"k": np.arange(50) + 50 * number, "batch": number})

def main():
    address = sys.argv[2]
    cluster = None if address != "own" else LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with Client(cluster if cluster else address) as client:
        index = DistributedIndex.build(
            batch(0), on="k", client=client, durable=sys.argv[1], name="killed")
        for number in range(1, 10_000):
            print(number - 1, flush=True)
            index.insert(batch(number))

if __name__ == "__main__":
    main()
"""


def kill_at(moment: int, url: Path, address: str, folder: Path) -> int:
    """Kill PROGRAM after some acknowledged batches; return their number."""
    (folder / "program.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, folder / "program.py", url, address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    acknowledged = 0
    try:
        for line in program.stdout:
            acknowledged = int(line) + 1
            if acknowledged >= moment:
                # Anywhere within the next insert.
                time.sleep(random.Random(moment).random() * 0.12)
                break
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    acknowledged = max([acknowledged, *(int(line) + 1 for line in program.stdout)])
    program.stdout.close()
    return acknowledged


def check_batches(index: DistributedIndex, acknowledged: int) -> None:
    """Assert that acknowledged batches are whole, and at most one more."""
    assert len(index) in {50 * acknowledged, 50 * (acknowledged + 1)}
    found = index.find(np.arange(50 * (acknowledged + 2))).frame["batch"].value_counts()
    assert set(found.index) == set(range(len(index) // 50))
    assert set(found) == {50}


@pytest.mark.parametrize("moment", [pytest.param(3, marks=pytest.mark.exhaustive), 8])
def test_workers_and_client_are_killed_while_they_insert(threads, tmp_path, moment):
    acknowledged = kill_at(moment, tmp_path / "log", "own", tmp_path)
    with DistributedIndex.load(tmp_path / "log", threads, durable=tmp_path / "log") as loaded:
        check_batches(loaded, acknowledged)
        rows = len(loaded)
        assert loaded.insert(pd.DataFrame({"k": [-1], "batch": [-1]})) == 1
    with DistributedIndex.load(tmp_path / "log", threads) as loaded:
        assert len(loaded) == rows + 1


@pytest.mark.parametrize(
    "moment", [2, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (5, 9))]
)
def test_a_client_is_killed_while_it_inserts(tmp_path, moment):
    with cluster_of(2, processes=True) as client:
        acknowledged = kill_at(moment, tmp_path / "log", client.scheduler.address, tmp_path)
        with DistributedIndex.open("killed", client) as index:
            check_batches(index, acknowledged)
            rows = len(index)
            start = time.monotonic()
            assert index.insert(pd.DataFrame({"k": [-1], "batch": [-1]})) == 1
            assert time.monotonic() - start < 30
        with DistributedIndex.load(tmp_path / "log", client) as loaded:
            assert len(loaded) == rows + 1


@pytest.mark.parametrize("verb", ["insert", "save", "rebuild"])
def test_a_worker_is_killed(frame, tmp_path, verb):
    """While a durable index is changed, saved or rebuilt: an error soon, and nothing is lost."""
    gate, log = Gate(tmp_path), tmp_path / "log"
    with (
        cluster_of(3, processes=True) as client,
        durable(frame[:300], log, client) as index,
    ):
        wanted = changed(index, frame)
        if verb == "rebuild":
            kill(client, index.workers[0])
            client.wait_for_workers(3, timeout=120)
        client.run(hold_up, gate.wait)
        start = time.monotonic()
        with gate.opened_after(killer(client, index.workers[1])), pytest.raises(IndexLost):
            {
                "insert": lambda: index.insert(frame[:5]),
                "save": lambda: index.save(log),
                "rebuild": lambda: index.rebuild(),
            }[verb]()
        assert time.monotonic() - start < 30
        client.wait_for_workers(3, timeout=120)
        assert 0 not in index.rebuild().kept or verb != "rebuild"
        assert_same(rows_of(index), wanted)
        assert index.insert(frame[:2]) == 2
        index.save(log)
    with cluster_of(1, processes=False) as client, DistributedIndex.load(log, client) as again:
        assert len(again) == len(wanted) + 2


def hold_up(wait: Callable[[], None]) -> None:
    """Let this worker write files and prepare shards after the gate opens."""
    from dgpuhash.distributed.shards.shard_store import ShardStore
    from dgpuhash.distributed.storage import change_log as log
    from dgpuhash.distributed.storage import checkpoint

    write, prepare = log.write_rows, ShardStore.prepare

    def late(*args):
        wait()
        return write(*args)

    def late_prepare(*args):
        wait()
        return prepare(*args)

    log.write_rows = checkpoint.write_rows = late
    ShardStore.prepare = late_prepare


class LateFiles(MemoryFileSystem):
    """File system whose listings lack new files."""

    protocol = "latefiles"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def ls(self, path, detail=True, **options):
        found = super().ls(path, detail=True, **options)
        return [each if detail else each["name"] for each in found if "log-" not in each["name"]]


def test_records_that_are_not_listed_yet_are_read(threads, frame):
    fsspec.register_implementation("latefiles", LateFiles, clobber=True)
    url = "latefiles://late/log"
    with durable(frame[:300], url, threads) as index:
        wanted = changed(index, frame)
    with DistributedIndex.load(url, threads) as loaded:
        assert_same(rows_of(loaded), wanted)
