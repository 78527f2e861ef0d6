"""Write-ahead logs with two writers: no acknowledged change is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.index import rebuild
from dgpuhash.distributed.ingest.commit import drop_shards, shard_addresses
from dgpuhash.distributed.partition.registry import Registry
from dgpuhash.distributed.storage import change_log, checkpoint
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.errors import FormatError, IndexLost, SpecError

pytestmark = pytest.mark.cluster


def rows(start: int, stop: int) -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(start, stop), "v": np.arange(start, stop) * 10})


@pytest.fixture
def url(tmp_path) -> str:
    return f"file://{tmp_path}/log"


@pytest.fixture
def old(threads, url):
    """Yield an index that has written a log: 110 rows."""
    with DistributedIndex.build(rows(0, 100), on="k", durable=url, name="old") as index:
        index.insert(rows(100, 110))
        yield index


def once(patch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]) -> None:
    """Call `act` before the first call of ``owner.name``."""
    whole = getattr(owner, name)

    def meanwhile(*args: Any, **options: Any) -> Any:
        patch.setattr(owner, name, whole)
        act()
        return whole(*args, **options)

    patch.setattr(owner, name, meanwhile)


def fails(*args: Any, **options: Any) -> None:
    raise KeyboardInterrupt


def check(url: str, client: Client, count: int) -> None:
    """Assert that the log holds the rows 0 to `count`."""
    with DistributedIndex.load(url, client) as loaded:
        assert len(loaded) == count
        assert loaded.contains(np.arange(count)).all()


def inserted_unseen(index: DistributedIndex, frame: pd.DataFrame, monkeypatch: Any) -> None:
    """Insert rows by a client that is interrupted after it has written the record."""
    with monkeypatch.context() as dying:
        dying.setattr(Registry, "publish", fails)
        with pytest.raises(KeyboardInterrupt):
            index.insert(frame)


def test_a_save_whose_log_another_index_takes_over(threads, old, url, monkeypatch):
    made: list[DistributedIndex] = []

    def take() -> None:
        made.append(DistributedIndex.load(url, threads, durable=url))
        assert made[0].insert(rows(110, 150)) == 40

    once(monkeypatch, checkpoint, "check_shared", take)
    with pytest.raises(IndexLost, match="another index continues"):
        old.save(url)
    check(url, threads, 150)
    with made[0] as new:
        assert new.insert(rows(150, 160)) == 10
        new.rebuild(whole=True)
        new.save(url)
        assert len(new) == 160
    check(url, threads, 160)


def test_a_log_that_is_taken_over_when_a_save_has_looked_last(threads, old, url, monkeypatch):
    """Both indexes are refused from then on, and all that was acknowledged is there."""
    made: list[DistributedIndex] = []

    def take() -> None:
        made.append(DistributedIndex.load(url, threads, durable=url))
        assert made[0].insert(rows(110, 150)) == 40

    once(monkeypatch, Folder, "replace", take)
    for change in (lambda: old.save(url), lambda: old.insert(rows(150, 160))):
        with pytest.raises(IndexLost, match="another index continues"):
            change()
    with made[0] as new, pytest.raises(IndexLost, match="another index continues"):
        new.insert(rows(150, 160))
    check(url, threads, 150)


@pytest.mark.parametrize("inserts", [0, 1, 2])
def test_a_load_whose_log_is_made_short_begins_anew(threads, old, url, monkeypatch, inserts):
    def save() -> None:
        old.save(url)
        for number in range(110, 110 + inserts):
            old.insert(rows(number, number + 1))

    once(monkeypatch, checkpoint, "take_over", save)
    with DistributedIndex.load(url, threads, durable=url) as new:
        assert len(new) == 110 + inserts
        assert new.insert(rows(110 + inserts, 120)) == 10 - inserts
        new.rebuild(whole=True)
        assert len(new) == 120
        with pytest.raises(IndexLost, match="another index"):
            old.insert(rows(120, 130))
    check(url, threads, 120)


def test_a_load_that_has_read_what_nobody_saw(threads, old, url, monkeypatch):
    """A change that is in the log is made, whoever publishes it."""
    inserted_unseen(old, rows(110, 120), monkeypatch)
    once(monkeypatch, checkpoint, "take_over", lambda: old.insert(rows(120, 130)))
    with pytest.raises(IndexLost, match="was changed while it was loaded"):
        DistributedIndex.load(url, threads, durable=url)
    assert old.insert(rows(130, 140)) == 10
    check(url, threads, 140)


def test_a_change_that_another_index_has_read_is_not_replaced(threads, old, url, monkeypatch):
    inserted_unseen(old, rows(110, 120), monkeypatch)
    made: list[DistributedIndex] = []

    def take() -> None:
        made.append(DistributedIndex.load(url, threads, durable=url))

    once(monkeypatch, change_log, "_create", take)
    with pytest.raises(IndexLost, match="another index continues"):
        old.insert(rows(1000, 1010))
    with made[0] as new:
        assert new.insert(rows(120, 130)) == 10
    check(url, threads, 130)


@pytest.mark.parametrize("verb", ["insert", "save"])
def test_an_index_of_a_change_that_nobody_saw_is_rebuilt(threads, old, url, monkeypatch, verb):
    """The change stays in the log; a save that makes the log short is another state."""
    inserted_unseen(old, rows(110, 120), monkeypatch)
    with DistributedIndex.load(url, threads) as other:
        assert len(other) == 120
        old.insert(rows(120, 130)) if verb == "insert" else old.save(url)
        drop_shards(threads, other._descriptor.uid, other.workers[:1])
        if verb == "insert":
            other.rebuild()
            assert len(other) == 120
        else:
            with pytest.raises(FormatError, match="holds another state"):
                other.rebuild()
    check(url, threads, 130 if verb == "insert" else 120)


@pytest.mark.parametrize("meanwhile", ["insert", "insert, save", "rebalance", "close"])
@pytest.mark.parametrize("moment", ["before the record", "before it is published"])
def test_a_client_that_stood_still(threads, old, url, monkeypatch, moment, meanwhile):
    """Its lease of the lock has ended, and another client has changed the index."""
    other = DistributedIndex.open("old", threads)
    monkeypatch.setattr(Registry, "changing", lambda *_: nullcontext())
    acts = {
        "insert": lambda: other.insert(rows(110, 130)),
        "insert, save": lambda: (other.insert(rows(110, 130)), other.save(url)),
        "rebalance": lambda: (other.rebalance(other.workers[:2]), other.insert(rows(110, 130))),
        "close": lambda: other.close(),
    }
    made = moment == "before it is published"
    place = (Registry, "publish") if made else (change_log, "_commit")
    once(monkeypatch, *place, acts[meanwhile])
    said = "changed by another client"
    if made or meanwhile == "close":
        said = "was made, as it is in the log .* do not repeat it"
    with pytest.raises(IndexLost, match=said):
        old.insert(rows(130, 140))
    if meanwhile == "close":
        with DistributedIndex.load(url, threads) as loaded:
            assert len(loaded) == 120
        return
    old.refresh()
    assert len(old) == 130 + 10 * made
    old.rebuild(whole=True)
    assert len(old) == 130 + 10 * made
    if not made:
        assert old.insert(rows(130, 140)) == 10
    check(url, threads, 140)


def test_a_client_that_goes_on_in_the_middle_of_anothers_change(threads, monkeypatch):
    """The one that has begun last makes its change, and the other one is refused."""
    monkeypatch.setattr(Registry, "changing", lambda *_: nullcontext())
    publish, seen = Registry.publish, []
    with DistributedIndex.build(rows(0, 100), on="k", name="old") as old:
        other = DistributedIndex.open("old", threads)

        def stand_still(self: Registry, newest: Any, *, after: Any) -> bool:
            def go_on(self: Registry, *args: Any, **options: Any) -> bool:
                monkeypatch.setattr(Registry, "publish", publish)
                seen.append(publish(self, newest, after=after))
                seen.append(len(DistributedIndex.open("old", threads)))
                return publish(self, *args, **options)

            monkeypatch.setattr(Registry, "publish", go_on)
            assert other.insert(rows(100, 130)) == 30
            return seen[0]

        monkeypatch.setattr(Registry, "publish", stand_still)
        with pytest.raises(IndexLost, match="changed by another client"):
            old.insert(rows(1000, 1010))
        assert seen == [False, 100]
        old.refresh()
        assert len(old) == 130


def has_shard(uid: str, dask_worker: Any) -> bool:
    return plugin_of(dask_worker).shards.standing(uid) is not None


@pytest.mark.parametrize("verb", ["rebalance", "rebuild"])
def test_a_client_that_frees_what_was_left_when_another_has_come_back(threads, monkeypatch, verb):
    monkeypatch.setattr(Registry, "changing", lambda *_: nullcontext())
    with DistributedIndex.build(rows(0, 100), on="k", name="old") as old:
        workers, other = old.workers, DistributedIndex.open("old", threads)
        once(monkeypatch, rebuild, "drop_shards", lambda: other.rebalance(workers))
        if verb == "rebuild":
            monkeypatch.setattr(
                rebuild,
                "shard_addresses",
                lambda client, given=None: shard_addresses(client, given or workers[:1]),
            )
            old.rebuild(whole=True)
        else:
            old.rebalance(workers[:1])
        old.refresh()
        assert old.workers == workers
        assert old.contains(np.arange(100)).all()
        old.rebalance(workers[:2])
        held = threads.run(has_shard, old._descriptor.uid)
        assert [held[worker] for worker in workers] == [True, True, False]


def test_a_new_index_whose_name_was_taken_meanwhile(threads, monkeypatch):
    monkeypatch.setattr(Registry, "changing", lambda *_: nullcontext())
    made: list[DistributedIndex] = []

    def take() -> None:
        made.append(DistributedIndex.build(rows(0, 10), on="k", name="one"))

    once(monkeypatch, Registry, "publish", take)
    with pytest.raises(SpecError, match="already has an index 'one'"):
        DistributedIndex.build(rows(0, 20), on="k", name="one")
    with DistributedIndex.open("one", threads) as one:
        assert len(one) == 10


@pytest.mark.parametrize("moment", ["publish", "save"])
def test_a_save_that_fails_after_an_insert_that_did(threads, old, url, monkeypatch, moment):
    with monkeypatch.context() as dying:
        dying.setattr(Registry, "publish", fails)
        with pytest.raises(KeyboardInterrupt):
            old.insert(rows(110, 120))
        if moment == "save":
            dying.undo()
            dying.setattr(Folder, "sweep", fails)
        with pytest.raises(KeyboardInterrupt):
            old.save(url)
    assert old.insert(rows(120, 130)) == 10
    old.rebuild(whole=True)
    assert len(old) == 130
    check(url, threads, 130)


def test_a_name_that_goes_to_another_index_while_one_is_closed(threads, monkeypatch):
    index = DistributedIndex.build(rows(0, 10), on="k", name="taken")

    def replace() -> None:
        DistributedIndex.open("taken").close()
        DistributedIndex.build(rows(0, 20), on="k", name="taken")

    once(monkeypatch, Registry, "remove", replace)
    index.close()
    with DistributedIndex.open("taken") as found:
        assert len(found) == 20
