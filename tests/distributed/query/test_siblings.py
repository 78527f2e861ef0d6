"""Batching of queued merge tasks into one request, with own answers."""

from __future__ import annotations

import asyncio
import gc
import threading
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, joined, until
from dask._task_spec import DataNode, Task, TaskRef
from distributed import wait
from distributed.collections import HeapSet
from distributed.worker_state_machine import TaskState

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.query import task_batching
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.distributed.query.task_batching import WaitingTasks
from dgpuhash.errors import IndexLost, OutOfMemoryError

PARTITIONS = 30
LEFT = pd.DataFrame({"k": np.arange(3000) % 150, "n": np.arange(3000)})
RIGHT = pd.DataFrame({"k": np.arange(100), "v": np.arange(100) * 2})
MERGED = LEFT.merge(RIGHT, on="k")


def function(argument):
    return argument


def other(argument):
    return argument


class Worker:
    """Stand-in for a worker with ready tasks of ten-byte arguments."""

    loop = None

    def __init__(self, specs, nthreads=1):
        ready = HeapSet(key=lambda task: task.priority)
        self.data = {f"x{number}": object() for number in range(len(specs))}
        tasks = {}
        for key in self.data:
            tasks[key] = TaskState(key)
            tasks[key].nbytes, tasks[key].state = 10, "memory"
        for number, spec in enumerate(specs):
            task = tasks[f"y{number}"] = TaskState(f"y{number}")
            task.priority, task.run_spec, task.state = (number,), spec, "ready"
            ready.add(task)
        self.state = SimpleNamespace(ready=ready, tasks=tasks, nthreads=nthreads)
        self.current = ""

    def get_current_task(self):
        return self.current


def calls(number, function=function):
    return Task(f"y{number}", function, TaskRef(f"x{number}"))


@pytest.fixture(autouse=True)
def on_no_loop(monkeypatch, request):
    if "threads" not in request.fixturenames:
        monkeypatch.setattr(task_batching, "sync", lambda loop, go, *args: asyncio.run(go(*args)))


def test_those_whose_turn_is_next_are_told():
    worker, known = Worker([calls(number) for number in range(5)]), WaitingTasks()
    with known.ready(worker, function, 35) as found:
        assert [each.argument for each in found] == [worker.data[f"x{n}"] for n in range(3)]
        for number, each in enumerate(found[:2]):
            each.tell(number)
    answers = []
    for number in range(5):
        worker.current = f"y{number}"
        answers.append(known.answer(worker, worker.data[f"x{number}"]))
    assert answers == [0, 1, None, None, None]
    # An answer is for one run.
    worker.current = "y0"
    assert known.answer(worker, worker.data["x0"]) is None


def test_nobody_is_asked_for_twice_nor_left_out_later():
    worker, known = Worker([calls(number) for number in range(3)]), WaitingTasks()
    with known.ready(worker, function, 100) as found, known.ready(worker, function, 100) as none:
        assert (len(found), none) == (3, [])
        found[0].tell("it")
    with known.ready(worker, function, 100) as found:
        assert [each.argument for each in found] == [worker.data["x1"], worker.data["x2"]]


def test_threads_share_what_is_ready():
    worker, known = Worker([calls(number) for number in range(10)], nthreads=3), WaitingTasks()
    with known.ready(worker, function, 100) as found:
        assert [each.argument for each in found] == [worker.data[f"x{n}"] for n in range(4)]


@pytest.mark.parametrize(
    "spec",
    [
        calls(0, other),
        Task("y0", function, TaskRef("x0"), 1),
        Task("y0", function, 1),
        DataNode("y0", 1),
        Task.fuse(Task("read", other, 1), Task("y0", function, TaskRef("read"))),
    ],
    ids=["another function", "two arguments", "no task", "data", "made by itself"],
)
def test_others_are_left_alone(spec):
    with WaitingTasks().ready(Worker([spec]), function, 100) as found:
        assert not found


def test_steps_that_dask_has_made_one_task_of():
    spec = Task.fuse(calls(0), Task("z", other, TaskRef("y0")), key="y0")
    worker = Worker([spec])
    with WaitingTasks().ready(worker, function, 100) as found:
        assert [each.argument for each in found] == [worker.data["x0"]]


def test_an_argument_that_was_made_anew_is_asked_for_anew():
    worker, known = Worker([calls(0)]), WaitingTasks()
    with known.ready(worker, function, 100) as found:
        found[0].tell("it")
    worker.current = "y0"
    assert known.answer(worker, object()) is None


def test_what_is_no_task_has_no_answer():
    assert WaitingTasks().answer(Worker([]), object()) is None


def test_an_error_is_everybodys():
    worker, known = Worker([calls(0)]), WaitingTasks()
    with known.ready(worker, function, 100) as found:
        found[0].tell(error=IndexLost("gone"))
    worker.current = "y0"
    with pytest.raises(IndexLost, match="gone"):
        known.answer(worker, worker.data["x0"])


def test_a_task_waits_for_its_answer():
    worker, known, waits = Worker([calls(0)]), WaitingTasks(), threading.Event()
    answers = []
    worker.current = "y0"

    def wait_for_it():
        waits.set()
        answers.append(known.answer(worker, worker.data["x0"]))

    thread = threading.Thread(target=wait_for_it)
    with known.ready(worker, function, 100) as found:
        thread.start()
        assert waits.wait(30)
        found[0].tell("it")
    thread.join()
    assert answers == ["it"]


def test_a_task_does_not_wait_for_a_thread_that_ended_without_a_word(monkeypatch):
    monkeypatch.setattr(task_batching, "LOOK", 0.01)
    worker, known, blocks = Worker([calls(0)]), WaitingTasks(), []

    def end():
        blocks.append(known.ready(worker, function, 100))
        blocks[0].__enter__()

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    worker.current = "y0"
    assert known.answer(worker, worker.data["x0"]) is None


@pytest.mark.parametrize("state", ["forgotten", "memory"])
def test_answers_go_with_tasks_that_do_not_run_here(state):
    worker, known = Worker([calls(0)]), WaitingTasks()
    with known.ready(worker, function, 100) as found:
        found[0].tell("it")
        if state == "memory":
            worker.state.tasks["y0"].state = state
    if state == "forgotten":
        worker.state.tasks.clear()
        worker.state.ready.clear()
        gc.collect()
    assert not known._chosen


def persisted(client, frame=LEFT):
    left = client.persist(dd.from_pandas(frame, npartitions=PARTITIONS, sort=False))
    wait(left)
    return left


@pytest.fixture
def unstolen(threads):
    """Stop work stealing, so that tasks are not requested twice."""
    stealing = threads.cluster.scheduler.extensions["stealing"]
    threads.sync(stealing.stop)
    yield
    threads.sync(stealing.start)


@pytest.fixture
def groups(unstolen, monkeypatch):
    """Record the number of partitions of each request.

    The first request waits until all tasks are ready.
    """
    found, ask, asking = [], Probe._ask, Probe.asking

    def counted(probe, worker, several):
        found.append(len(several))
        return ask(probe, worker, several)

    def late(probe, left):
        if not found:
            workers = list(task_batching.Worker._instances)
            until(lambda: sum(len(each.state.ready) for each in workers) >= PARTITIONS - 3)
        return asking(probe, left)

    monkeypatch.setattr(Probe, "_ask", counted)
    monkeypatch.setattr(Probe, "asking", late)
    return found


def test_tasks_of_a_worker_are_asked_about_together(threads, groups):
    with DistributedIndex.build(RIGHT, on="k", client=threads) as index:
        assert_same(index.merge(persisted(threads)).compute(), MERGED)
    assert sum(groups) == PARTITIONS
    assert len(groups) == 3


def texts(numbers):
    return "key " + numbers.astype("str")


KEYS = {
    "texts": (texts, texts),
    "texts with nulls": (lambda keys: texts(keys).mask(keys < 60), texts),
    "nullable": (lambda keys: keys.astype("Int64").mask(keys % 7 == 0), lambda keys: keys),
    "narrower": (lambda keys: keys.astype("int16"), lambda keys: keys),
    "moments": (lambda keys: pd.to_datetime(keys, unit="D", utc=True),) * 2,
    "categories": (lambda keys: texts(keys).astype("category"), texts),
}


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize(("left", "right"), KEYS.values(), ids=KEYS)
def test_keys_that_are_no_plain_arrays_are_asked_about_together(threads, groups, left, right, how):
    asking, rows = LEFT.assign(k=left(LEFT["k"])), RIGHT.assign(k=right(RIGHT["k"]))
    with DistributedIndex.build(rows, on="k", client=threads) as index:
        found = index.merge(persisted(threads, asking), how=how).compute()
    assert_same(found, joined(asking, rows, ["k"], how))
    assert sum(groups) == PARTITIONS
    assert len(groups) == 3


@pytest.fixture
def alone(unstolen, monkeypatch):
    """Record the number of partitions looked up at once on one worker.

    Partitions that meet others do not count.
    """
    sizes, merged = [], Probe._merge

    def counted(probe, worker, groups):
        sizes.extend(len(group) for group in groups if not group[0].meets)
        return merged(probe, worker, groups)

    monkeypatch.setattr(Probe, "_merge", counted)
    return sizes


def test_objects_that_are_no_texts_are_asked_about_alone(threads, alone):
    """Here nulls; those of another partition may be of another kind."""
    left, right = (each.assign(k=texts(each["k"]).astype(object)) for each in (LEFT, RIGHT))
    left["k"] = left["k"].where(left.index // 100 % 2 == 0, None)
    with (
        dask.config.set({"dataframe.convert-string": False}),
        DistributedIndex.build(right, on="k", client=threads) as index,
    ):
        found = index.merge(persisted(threads, left)).compute()
    assert_same(found, left.merge(right, on="k"))
    assert alone == [1] * (PARTITIONS // 2)


def test_partitions_that_are_not_as_planned_are_asked_about_alone(threads, alone):
    """Beside their floats, the integers of others would be rounded."""
    left, right = (each.assign(k=each["k"] + 2**53) for each in (LEFT, RIGHT))
    parts = [left[start : start + 100] for start in range(0, len(left), 100)]
    parts[1::2] = [part.astype({"k": "float64"}) for part in parts[1::2]]
    lazy = dd.from_delayed(threads.scatter(parts), meta=left[:0], verify_meta=False)
    with DistributedIndex.build(right, on="k", client=threads) as index:
        merged = index.merge(lazy)
        counts = [len(merged.partitions[number].compute()) for number in range(len(parts))]
        stored = set(right["k"])
        assert counts == [sum(int(key) in stored for key in part["k"]) for part in parts]
        alone.clear()
        merged.compute()
    assert alone == [1] * (len(parts) // 2)


@pytest.mark.parametrize(
    ("step", "error"),
    [("_ask", OutOfMemoryError("too many")), ("_merge", MemoryError("too many"))],
)
def test_without_memory_for_all_each_asks_for_itself(threads, monkeypatch, step, error):
    """Where all are put together it is none of our errors, as a match's is."""
    real, refused = getattr(Probe, step), []

    def narrow(probe, worker, askings):
        rows = sum(map(len, askings)) if step == "_merge" else len(askings)
        if rows > 1:
            refused.append(rows)
            raise error
        return real(probe, worker, askings)

    monkeypatch.setattr(Probe, step, narrow)
    with DistributedIndex.build(RIGHT, on="k", client=threads) as index:
        assert_same(index.merge(persisted(threads)).compute(), MERGED)
    assert refused


def test_batches_are_bounded(threads, unstolen, monkeypatch):
    for module in ("shards.secession", "query.merge_tasks"):
        monkeypatch.setattr(f"dgpuhash.distributed.{module}.chunk_nbytes", lambda device: 8 * 100)
    sizes, ask = [], Probe._ask

    def counted(probe, worker, several):
        sizes.append(sum(len(asking.left) for asking in several))
        return ask(probe, worker, several)

    monkeypatch.setattr(Probe, "_ask", counted)
    with DistributedIndex.build(RIGHT, on="k", client=threads) as index:
        assert_same(index.merge(persisted(threads)).compute(), MERGED)
    # Keys of a parcel to each of three parts; rows have twice as many bytes, and four parcels.
    assert sum(sizes) == len(LEFT)
    assert max(sizes) <= 200


def test_a_partition_unlike_the_others_is_asked_about_alone(threads):
    pieces = [LEFT[start : start + 100] for start in range(0, 3000, 100)]
    pieces[7] = pieces[7].astype({"k": "float64"})
    pieces[9] = pieces[9].astype({"k": "Int64"})
    left = dd.from_delayed(threads.scatter(pieces), meta=LEFT[:0], verify_meta=False)
    with DistributedIndex.build(RIGHT, on="k", client=threads) as index:
        found = index.merge(left).to_delayed()
        found = [each.result() for each in threads.compute(found)]
    assert_same(pd.concat([each.astype({"k": "int64"}) for each in found]), MERGED)
