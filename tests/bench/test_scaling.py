"""Benchmark of scaling at tiny sizes, on threads and on processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from clusters import cluster_of
from crews import crew_of_threads
from distributed.utils import sync

import dgpuhash
from dgpuhash import backend, bench
from dgpuhash.bench import report
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.workers import cluster, scaling, workload
from dgpuhash.bench.workers.bulk import bulk_steps
from dgpuhash.bench.workers.cluster import BenchWorkers
from dgpuhash.bench.workers.steps import build_and_insert
from dgpuhash.bench.workers.workload import Workload
from dgpuhash.errors import DgpuhashError, SpecError, UnsupportedError

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[dict[str, Any]], Path]]:
    """Yield the figures of one and two workers that are threads."""
    path = tmp_path_factory.mktemp("scaling") / "scaling.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "start", crew_of_threads)
        rows = bench.run(
            "scaling", device="cpu", workers=[1, 2], chunk_size=3000, compare=True, repeats=1,
            quiet=True, json_path=path,
        )  # fmt: skip
    yield rows, path


def test_every_verb_with_every_number_of_workers(
    files: tuple[list[dict[str, Any]], Path],
) -> None:
    verbs = [row for row in files[0] if "verb" in row]
    ours = [row for row in verbs if row["library"] == "dgpuhash"]
    for mode in ("weak", "strong"):
        for count in (1, 2):
            theirs = [row for row in ours if (row["mode"], row["workers"]) == (mode, count)]
            assert [row["verb"] for row in theirs] == list(scaling.VERBS)
            (rows,) = {row["rows"] for row in theirs if not row["verb"].startswith("multi")}
            assert rows == (3000 * count if mode == "weak" else 3000)
    for row in verbs:
        assert row["correct"]
        assert row["floor"] > 0
        assert row["seconds"] == pytest.approx(row["rows"] / row["rate"] / 1e9, rel=1e-2)
        assert row["rate_per_worker"] * row["workers"] == pytest.approx(row["rate"], rel=1e-2)
        assert row["efficiency"] == 1 or row["workers"] == 2
    assert len(verbs) - len(ours) == 4


def test_steps_of_changes(files: tuple[list[dict[str, Any]], Path]) -> None:
    told = [row for row in files[0] if "steps" in row]
    assert {row["verb"] for row in told} == {"build", "insert", "bulk insert", "bulk find"}
    for row in told:
        if row["verb"].startswith("bulk"):
            continue
        assert set(row["steps"]) == {"partition", "exchange", "insert", "other"}
        expected = row["rows"] * 16 * (row["workers"] - 1) / row["workers"]
        assert row["exchanged_bytes"] == pytest.approx(expected, rel=0.15)
        assert bool(row["exchanged_bytes"]) == (row["workers"] == 2)


def test_steps_of_bulk_verbs_and_what_overlaps(
    files: tuple[list[dict[str, Any]], Path],
) -> None:
    told = [row for row in files[0] if str(row.get("verb")) in ("bulk insert", "bulk find")]
    assert len(told) == 2 * 2 * 2
    for row in told:
        work = "insert" if row["verb"] == "bulk insert" else "lookup"
        assert list(row["steps"]) == ["partition", "exchange", work, "answers"]
        assert row["steps"][work] > 0
        others = [row["steps"][step] for step in ("partition", "exchange", "answers")]
        assert [each > 0 for each in others] == [row["workers"] == 2] * 3
        spared = sum(row["steps"].values()) - 1e3 * row["worker_seconds"]
        assert ("overlap" in row) == (row["workers"] == 2)
        assert row.get("overlap", spared) == pytest.approx(spared, rel=1e-2, abs=1e-2)
    (grid,) = [grid for grid in grids("scaling", files[0]) if "overlap" in grid.header]
    assert grid.header[-3:] == ("overlap", "efficiency", "exchanged")


def test_limits_stand_beside_them(files: tuple[list[dict[str, Any]], Path]) -> None:
    limits = [row for row in files[0] if "limit" in row]
    rates = [row for row in limits if "rate" in row]
    assert len(rates) == 4 * 4
    assert all(row["rate"] > 0 for row in rates)
    times = [row for row in limits if "time" in row]
    assert [row["limit"] for row in times] == ["latency", "message"] * 2
    assert all(row["time"] > 0 and row["workers"] == 2 for row in times)


def test_report(files: tuple[list[dict[str, Any]], Path], tmp_path: Path) -> None:
    rows, path = files
    document, *plots = report.write([path], tmp_path)
    names = {plot.name for plot in plots}
    assert names == {"scaling-rate.png", "scaling-efficiency.png", "scaling-steps.png"}
    text = document.read_text()
    assert "## More workers" in text
    assert all(f"({name})" in text for name in names)
    assert "| weak | 2 | 3,000 | dgpuhash |" in text
    assert "other lookups do not tell" in text
    for grid in grids("scaling", rows):
        assert all(len(line) == len(grid.header) for line in grid.lines)
        assert ("rows" in grid.header) == ("exchanged" in grid.header)
        assert ("rows a worker" in grid.header) != ("rows" in grid.header)
    assert json.loads(path.read_text().splitlines()[0])["machine"]["dask"]


def test_chosen_verbs_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "start", crew_of_threads)
    options: dict[str, Any] = {"workers": [2], "modes": ["weak"], "chunk_size": 1000}
    rows = bench.run(
        "scaling", device="cpu", verbs=["merge"], partitions=[6], repeats=1, quiet=True, **options
    )
    verbs = [row for row in rows if "verb" in row]
    assert [row["verb"] for row in verbs] == ["merge", "merge, 6 partitions"]
    assert all(row["rows"] == 2000 and row["correct"] for row in verbs)
    assert "6 tasks" in [row["limit"] for row in rows if "limit" in row]
    rows = bench.run(
        "scaling", device="cpu", verbs=["build", "merge"], repeats=1, quiet=True, **options
    )
    built, merged = (row for row in rows if "verb" in row)
    assert (built["verb"], set(built["steps"])) == (
        "build", {"partition", "exchange", "insert", "other"},
    )  # fmt: skip
    assert (merged["verb"], "steps" in merged) == ("merge", False)
    with pytest.raises(SpecError, match="verb 'erase'; use build"):
        bench.run("scaling", device="cpu", verbs=["erase"], quiet=True)
    with pytest.raises(SpecError, match="--partitions 5000; there are 1000 rows"):
        bench.run("scaling", device="cpu", partitions=[5000], quiet=True, **options)


def test_verbs_on_arrays_need_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a GPU without cuDF can be asked for them."""

    def refuse(columns: Any) -> Any:
        raise UnsupportedError("GPU frames need cuDF")

    monkeypatch.setattr(scaling, "start", crew_of_threads)
    monkeypatch.setattr(workload, "make_frame", refuse)
    options: dict[str, Any] = {"workers": [1, 2], "modes": ["weak"], "chunk_size": 1000}
    verbs = ["bulk insert", "bulk find"]
    rows = bench.run("scaling", device="cpu", verbs=verbs, repeats=1, quiet=True, **options)
    assert [row["verb"] for row in rows if "verb" in row] == 2 * verbs
    with pytest.raises(UnsupportedError, match="GPU frames need cuDF"):
        bench.run("scaling", device="cpu", verbs=["merge"], repeats=1, quiet=True, **options)


def test_processes() -> None:
    used = backend.get("cpu")
    with cluster.start(used, 2) as crew:
        assert len(crew) == 2
        assert crew.gather_each(threads_of) == [1, 1]
        load = Workload(2, 1000, 0.3, 8)
        frames = crew.made(load.stored)
        first, second = build_and_insert(crew, frames, crew.made(load.stored, 1), pd.DataFrame(
            {"key": pd.Series(dtype="int64"), "value": pd.Series(dtype="int64")}
        ))  # fmt: skip
        assert first.exchanged_bytes > 0
        assert sum(second.seconds.values()) > 0


def test_an_interrupted_start_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    async def blocked() -> set[int]:
        return signal.pthread_sigmask(signal.SIG_BLOCK, ())

    class Cluster:
        def __init__(self, loop: Any, **options: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            done.append("started")
            # What it starts inherits this.
            assert signal.SIGINT in sync(loop, blocked)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            done.append("ended")

    monkeypatch.setattr(cluster, "LocalCluster", Cluster)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), cluster.start(backend.get("cpu"), 1):
        pytest.fail("went on")
    assert done == ["started", "ended"]
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_clusters_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    used = backend.get("cpu")
    for options in ({"devs": ["0"]}, {"rmm_pool_size": "1GB"}):
        with pytest.raises(SpecError, match="is for GPUs"), cluster.start(used, 1, **options):  # type: ignore[arg-type]
            pass
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for protocol in ("ucx", "ucxx"):
        refused = pytest.raises(UnsupportedError, match=rf"{protocol} takes .*'\.\[ucx\]'")
        with refused, cluster.start(used, 1, protocol=protocol):
            pass


@pytest.mark.parametrize(
    ("there", "devs", "most", "counts"),
    [(6, None, 6, [1, 2, 4]), (8, ["0", "1", "2"], 3, [1, 2]), (1, None, 1, [1])],
)
def test_as_many_workers_as_gpus(
    there: int, devs: list[str] | None, most: int, counts: list[int]
) -> None:
    runtime = SimpleNamespace(getDeviceCount=lambda: there)
    used: Any = SimpleNamespace(
        name="cuda", xp=SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    )
    assert cluster.most_workers(used, devs) == most
    assert cluster.counts_for(used, devs) == counts
    cluster.check_counts([1, most], devs, used)
    with pytest.raises(SpecError, match=f"GPUs for {most}, give --workers {most}"):
        cluster.check_counts([most + 1], devs, used)


def threads_of(device: str, rank: int) -> int:
    from dgpuhash.backend.native import native

    return int(native().threads())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda frame: frame.iloc[:-1], "lost"),
        (lambda frame: frame.assign(value=0), "wrong"),
        (lambda frame: frame.assign(payload=frame["payload"] + 1), "wrong"),
        (lambda frame: frame.iloc[[0] * len(frame)], "lost"),
    ],
)
def test_wrong_merges_are_noticed(spoil: Any, said: str) -> None:
    load = Workload(1, 500, 0.5, 4)
    right, left = load.stored("cpu", 0), load.left("cpu", 0)
    wanted = load.partners("cpu", 0)
    answer = left.merge(right, on="key")
    assert 0 < wanted.rows < 500
    assert load.merged("cpu", 0, answer) == wanted
    seen = load.merged("cpu", 0, spoil(answer))
    assert not seen.right if said == "wrong" else seen.right
    assert seen != wanted


def test_wrong_answers_are_noticed() -> None:
    load = Workload(2, 400, 0.5, 4)
    pairs = pd.concat([load.stored("cpu", 0, 1), load.stored("cpu", 1, 1)])
    answer = load.asked("cpu", 1, 1).merge(pairs, on="key", how="left")
    assert load.found("cpu", 1, answer, 1).right
    assert not load.found("cpu", 1, answer[::-1], 1).right
    assert not load.found("cpu", 1, answer.iloc[1:], 1).right
    assert not load.found("cpu", 0, answer, 1).right
    several = pd.concat([load.several("cpu", 0), load.several("cpu", 1)])
    assert set(several["key"].value_counts()) == {4}
    wanted = load.all_values("cpu", 0) + load.all_values("cpu", 1)
    lists = [load.multi_keys("cpu", rank).merge(several, on="key") for rank in (0, 1)]
    assert load.check_multi("cpu", 0, lists[0]) + load.check_multi("cpu", 1, lists[1]) == wanted
    assert not load.check_multi("cpu", 0, lists[0].assign(key=lists[0]["key"][0])).right
    assert load.check_multi("cpu", 0, lists[0]) + load.check_multi("cpu", 0, lists[0]) != wanted


def test_a_wrong_answer_of_a_step_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked_keys(load: Workload, device: str, rank: int) -> Any:
        return load.keys(device, 7)

    with cluster_of(2, processes=False) as client:
        crew, load = BenchWorkers(client, "cpu"), Workload(2, 300, 0.5, 4)
        assert set(bulk_steps(crew, load, 1)) == {"bulk insert", "bulk find"}
        monkeypatch.setattr(Workload, "asked_keys", asked_keys)
        with pytest.raises(
            DgpuhashError, match="wrong while measuring verb bulk find, step lookup"
        ):
            bulk_steps(crew, load, 1)


def test_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "start", crew_of_threads)
    rows = bench.run(
        "scaling", device="cpu", workers=[2], chunk_size=600, repeats=1, modes=["weak"],
        quiet=True, method="cops", settings=["width=8"],
    )  # fmt: skip
    verbs = [row for row in rows if "verb" in row]
    served = "multimap" in dgpuhash.methods()["cops"].nouns
    wanted = [verb for verb in scaling.VERBS if served or not verb.startswith("multi")]
    assert [row["verb"] for row in verbs] == wanted
    assert {row["library"] for row in verbs} == {"dgpuhash cops width=8"}
    grids("scaling", rows)


def test_a_wrong_answer_voids_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = Workload.merged

    def merged(load: Workload, device: str, rank: int, answer: Any) -> Any:
        return complete(load, device, rank, answer.iloc[1:])

    monkeypatch.setattr(Workload, "merged", merged)
    monkeypatch.setattr(scaling, "start", crew_of_threads)
    with pytest.raises(DgpuhashError, match="answers were lost while measuring verb merge"):
        bench.run(
            "scaling", device="cpu", workers=[1], chunk_size=500, repeats=1, verbs=["merge"],
            quiet=True,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"frac_match": 0.0}, "frac-match 0"),
        ({"modes": ["flat"]}, "--mode 'flat'; use weak, strong"),
        ({"workers": [4], "chunk_size": 16}, "at least 32 rows"),
        ({"workers": [3], "chunk_size": 100, "partitions": [100]}, "there are 99 rows"),
    ],
)
def test_impossible_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        bench.run("scaling", device="cpu", quiet=True, **options)
