"""Model of many GPUs, on made-up figures with known predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgpuhash import bench
from dgpuhash.bench import report
from dgpuhash.bench.model.forecast import Network, VerbCosts
from dgpuhash.bench.model.run import WORKERS
from dgpuhash.errors import FormatError, SpecError

GIVEN: dict[str, Any] = {
    "partition_rate": 10.0, "insert_rate": 20.0, "find_rate": 10.0, "link": 200.0,
    "infiniband": 50.0, "gpus_per_host": 4, "latency": 2.0, "message": 0.5,
}  # fmt: skip
ROWS = 100_000_000


def model(**options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = bench.run("model", device="cpu", quiet=True, **options)
    return rows


def verbs(rows: list[dict[str, Any]], verb: str) -> dict[int, dict[str, Any]]:
    return {row["workers"]: row for row in rows if row.get("verb") == verb}


def test_given_figures() -> None:
    rows = model(**GIVEN, chunk_size=ROWS, workers=[1, 4, 8])
    assert all(row["model"] and "correct" not in row for row in rows)
    left_out = [row["figure"] for row in rows if row.get("source") == "left out"]
    names = ("build", "insert", "bulk insert", "bulk find")
    further = (f"other of {name}, for each further worker" for name in ("build", "bulk insert"))
    assert left_out == [*(f"other of {name}" for name in names), *further]
    build = verbs(rows, "build")
    assert build[1]["phases"] == {"partition": 10, "insert": 5, "exchange": 0, "other": 0}
    # 1.2 GB to three others at 200 GB/s, two messages of 256 MiB to each.
    assert build[4]["phases"]["exchange"] == pytest.approx(6 + 2 * (3 * 0.5 + 2), rel=1e-3)
    # 0.8 GB to the four of another host at 50 GB/s, a message to each.
    assert build[8]["phases"]["exchange"] == pytest.approx(16 + 1 * (7 * 0.5 + 2), rel=1e-3)
    assert build[8]["hosts"] == 2
    assert build[1]["efficiency"] == 1
    assert build[8]["efficiency"] == pytest.approx(0.015 / build[8]["seconds"], rel=1e-3)
    find = verbs(rows, "find")
    assert find[4]["phases"]["exchange"] == pytest.approx(9 + 3 * (3 * 0.5 + 2), rel=1e-3)
    bulk = verbs(rows, "bulk insert")
    assert bulk[1]["phases"] == {"insert": 5, "exchange": 0, "other": 0}
    # 1.275 GB to three others at 200 GB/s, two messages to each; what overlaps is the insert.
    assert bulk[4]["phases"]["exchange"] == pytest.approx(6.375 + 2 * (3 * 0.5 + 2), rel=1e-3)
    assert bulk[4]["overlap"] == 5
    assert bulk[4]["seconds"] == pytest.approx(0.010 + 0.013375, rel=1e-3)
    assert (build[4]["overlap"], bulk[1]["overlap"]) == (0, 0)
    assert set(WORKERS) <= set(verbs(model(**GIVEN, chunk_size=ROWS), "build"))


def test_strong_scaling_has_as_many_rows_in_all() -> None:
    rows = model(**GIVEN, chunk_size=ROWS, workers=[1, 4], modes=["strong"])
    build = verbs(rows, "build")
    assert build[4]["n"] == ROWS // 4
    assert build[4]["rows"] == ROWS
    assert build[4]["efficiency"] == pytest.approx(0.015 / 4 / build[4]["seconds"], rel=1e-3)


def test_it_says_where_the_limit_lies() -> None:
    verb = VerbCosts({"insert": 1e9}, 16, 0.001, 0.0)
    slow = Network(1e9, 1e12, 8, 0, 0)
    assert verb.phases(1e6, 8, slow).bound == "exchange in a host"
    assert verb.phases(1e6, 64, Network(1e12, 1e9, 8, 0, 0)).bound == "exchange between hosts"
    assert verb.phases(1e6, 64, Network(1e12, 1e12, 8, 0, 0.001)).bound == "messages"
    assert verb.phases(1e7, 8, Network(1e12, 1e12, 8, 0, 0)).bound == "insert"
    assert VerbCosts({}, 16, 0, 0.001).phases(1e6, 64, slow).bound == "other"


def test_a_worker_alone_on_its_host_sends_all_to_other_hosts() -> None:
    network = Network(1e12, 1e9, 8, 0, 0)
    assert network.seconds(9e9, 8) == (9e9 * 7 / 8 / 1e12, "exchange in a host")
    assert network.seconds(9e9, 9) == (8.0, "exchange between hosts")
    assert network.seconds(9e9, 12) == (6.0, "exchange between hosts")
    assert network.seconds(9e9, 16) == (4.5, "exchange between hosts")


def measured(path: Path) -> Path:
    """Write a file like `bench scaling`'s, whose points obey the model."""
    rows: list[dict[str, Any]] = [
        {"limit": "latency", "workers": 4, "n": ROWS, "time": 2.0, "unit": "ms"},
        {"limit": "message", "workers": 4, "n": ROWS, "time": 0.5, "unit": "ms"},
    ]
    network = Network(200e9, 50e9, 8, 0.002, 0.0005)
    for count in (1, 2, 4):
        sent = ROWS * 16 * (count - 1)
        for verb, each in {
            "build": VerbCosts({"partition": 10e9, "insert": 20e9}, 16, 0.02, 0.001),
            "insert": VerbCosts({"partition": 10e9, "insert": 15e9}, 16, 0.03, 0.001),
            "find": VerbCosts({"lookup": 10e9}, 24, 0.0, 0.001),
            "merge": VerbCosts({"lookup": 12e9}, 13, 0.0, 0.001),
        }.items():
            phases = each.phases(ROWS, count, network)
            row = {"verb": verb, "workers": count, "n": ROWS, "rows": ROWS * count}
            row |= {"seconds": phases.whole, "rate": ROWS * count / phases.whole / 1e9}
            row["exchanged_bytes"] = round(sent * each.nbytes / 16)
            if verb in ("build", "insert"):
                row["steps"] = {name: 1e3 * took for name, took in phases.seconds.items()}
            rows.append(row)
    always = {"bench": "scaling", "mode": "weak", "library": "dgpuhash"}
    path.write_text("".join(json.dumps({**always, **row}) + "\n" for row in rows))
    return path


def test_measured_points_are_met(tmp_path: Path) -> None:
    rows = model(measured=measured(tmp_path / "scaling.jsonl"), workers=[16])
    for verb in ("build", "insert", "find", "merge"):
        theirs = verbs(rows, verb)
        assert list(theirs) == [1, 2, 4, 16]
        for count in (1, 2, 4):
            assert abs(theirs[count]["error"]) < 0.01
            assert theirs[count]["calibrates"] == (count == 1 or (verb, count) == ("build", 2))
        assert "error" not in theirs[16]
    figures = {row["figure"]: row for row in rows if "figure" in row}
    assert figures["link"]["rate"] == pytest.approx(200, rel=1e-3)
    assert figures["link"]["source"] == "measured"
    assert figures["infiniband"]["source"] == "given, not measured"


def bulk_figures(path: Path) -> Path:
    """Write a file like `make gpu MODE=scaling`'s, of a distributed map only."""
    machine = {"bench": "scaling", "mode": "weak", "n": ROWS}
    rows: list[dict[str, Any]] = [
        {**machine, "limit": "partition", "workers": 1, "rate": 10.0},
        {**machine, "limit": "partition", "workers": 4, "n": 10, "rate": 1.0},
        {**machine, "limit": "latency", "workers": 4, "time": 2.0},
        {**machine, "limit": "message", "workers": 4, "time": 0.5},
    ]
    for way, leaving, reached in (
        ("nccl", 2**31, 300.0),
        ("peer", 2**24, 9.0),
        ("peer", 2**31, 200.0),
    ):
        rows.append({"bench": "exchange", "exchange": way, "leaving": leaving, "rate": reached})
    network = Network(200e9, 50e9, 8, 0.002, 0.0005)
    for count in (1, 4):
        for verb, (phase, speed) in {
            "bulk insert": ("insert", 20e9), "bulk find": ("lookup", 10e9),
        }.items():  # fmt: skip
            each = VerbCosts({"partition": 10e9, phase: speed}, 17, 0.004, 0.001, pipelined=True)
            seconds = each.phases(ROWS, count, network).whole
            row = {**machine, "library": "dgpuhash", "verb": verb, "workers": count}
            row |= {"rows": ROWS * count, "seconds": seconds, "rate": 1.0}
            rows.append(row | {"worker_seconds": seconds - 0.004 - 0.001 * (count - 1)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_bulk_verbs_alone(tmp_path: Path) -> None:
    rows = model(measured=bulk_figures(tmp_path / "scaling.jsonl"), workers=[16])
    assert {row["verb"] for row in rows if "verb" in row} == {"bulk insert", "bulk find"}
    for verb in ("bulk insert", "bulk find"):
        theirs = verbs(rows, verb)
        assert list(theirs) == [1, 4, 16]
        assert all(abs(theirs[count]["error"]) < 0.01 for count in (1, 4))
        assert theirs[4]["calibrates"] == (verb == "bulk insert")
        assert theirs[16]["phases"]["exchange"] > theirs[4]["phases"]["exchange"]
    figures = {row["figure"]: row for row in rows if "figure" in row}
    assert (figures["link"]["rate"], figures["link"]["source"]) == (200, "measured")
    assert figures["partition of bulk find"]["rate"] == 10


def test_a_link_from_the_steps_of_a_bulk_insert(tmp_path: Path) -> None:
    path = bulk_figures(tmp_path / "scaling.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if row["bench"] == "scaling"]
    steps = {"partition": 10.0, "exchange": 6 + 2 * (3 * 0.5 + 2), "insert": 5.0, "answers": 1.0}
    for row in rows:
        if row.get("verb") == "bulk insert" and row["workers"] == 4:
            row |= {"steps": steps, "exchanged_bytes": ROWS * 17 * 3}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    figures = {row["figure"]: row for row in model(measured=path) if "figure" in row}
    assert figures["link"]["rate"] == pytest.approx(200, rel=1e-3)


def test_strong_points_alone(tmp_path: Path) -> None:
    path = measured(tmp_path / "scaling.jsonl")
    path.write_text(path.read_text().replace('"weak"', '"strong"'))
    with pytest.raises(SpecError, match=r"give --link, or .* several workers and --mode weak"):
        model(measured=path)
    rows = model(measured=path, link=200.0, modes=["strong"], workers=[2])
    sources = {row["figure"]: row["source"] for row in rows if "figure" in row}
    assert sources["other of build"] == "measured"
    assert sources["other of build, for each further worker"] == "left out"
    assert {row["workers"] for row in rows if row.get("calibrates")} == {1}


def test_only_points_that_a_figure_is_taken_from_calibrate(tmp_path: Path) -> None:
    path = bulk_figures(tmp_path / "scaling.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    strong = [{**row, "mode": "strong"} for row in rows if row.get("workers") == 4]
    kept = [row for row in rows if row.get("verb") != "bulk insert"]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*kept, *strong]))
    made = model(measured=path, modes=["weak", "strong"], workers=[4])
    found = [(row["mode"], row["verb"], row["workers"]) for row in made if row.get("calibrates")]
    assert ("weak", "bulk find", 4) in found
    assert ("strong", "bulk find", 4) not in found


def test_points_of_lazy_changes_are_their_steps(tmp_path: Path) -> None:
    path = measured(tmp_path / "scaling.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    # In one phase, persisted frames are faster.
    faster = [
        {**row, "seconds": row["seconds"] / 9} if "steps" in row else row
        for row in rows
        if "verb" in row
    ]
    limits = [row for row in rows if "limit" in row]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*limits, *faster]))
    build = verbs(model(measured=path, workers=[16]), "build")
    assert all(abs(build[count]["error"]) < 0.01 for count in (1, 2, 4))


def test_what_is_given_goes_before_what_was_measured(tmp_path: Path) -> None:
    path = measured(tmp_path / "scaling.jsonl")
    rows = model(measured=path, workers=[2], insert_rate=5.0)
    assert verbs(rows, "build")[2]["phases"]["insert"] == 20
    assert verbs(rows, "build")[2]["error"] > 0.1


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.jsonl"
    bench.run("model", device="cpu", measured=measured(tmp_path / "scaling.jsonl"), json_path=path)
    said = capsys.readouterr()
    assert "a model: milliseconds" in said.out
    assert "model: mode=weak" in said.err
    document, plot = report.write([path], tmp_path / "report")
    assert plot.name == "model-efficiency.png"
    text = document.read_text()
    assert "## Many workers: a model, not a measurement" in text
    assert "| weak | find | 1,024 | 128 |" in text
    assert "%, taken from it |" in text


def test_the_machine_is_that_of_the_measured_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, kept = measured(tmp_path / "scaling.jsonl"), tmp_path / "model.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row | {"machine": {"gpu": "4 x G"}}) + "\n" for row in rows))
    bench.run("model", device="cpu", measured=path, workers=[8], json_path=kept)
    assert capsys.readouterr().out.startswith("gpu 4 x G\n")
    found = [json.loads(line) for line in kept.read_text().splitlines()]
    assert all(row["machine"] == {"gpu": "4 x G"} for row in found)
    link = {"bench": "exchange", "exchange": "peer", "leaving": 1, "rate": 1.0}
    with path.open("a") as stream:
        stream.write(json.dumps(link | {"machine": {"device": "Other"}}) + "\n")
    with pytest.raises(FormatError, match="figures of several machines: 4 x G, Other; give those"):
        model(measured=path)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("partition_rate", "--partition-rate"),
        ("insert_rate", "--insert-rate"),
        ("find_rate", "--find-rate"),
        ("link", "--link"),
        ("latency", "--latency"),
        ("message", "--message"),
        ("chunk_size", "--chunk-size"),
    ],
)
def test_what_is_neither_given_nor_measured(missing: str, said: str) -> None:
    options = {**GIVEN, "chunk_size": ROWS}
    del options[missing]
    with pytest.raises(SpecError, match=said):
        model(**options)


def test_other_figures_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "join.jsonl"
    path.write_text('{"bench": "join", "verb": "inner", "n": 1, "time": 1}\n')
    with pytest.raises(FormatError, match="bench scaling"):
        model(**GIVEN, measured=path)


@pytest.mark.parametrize(
    ("verb", "workers", "change", "said"),
    [
        ("latency", 4, {"time": ..., "rate": 1.0}, "latency with --workers 4 has no 'time'"),
        ("build", 1, {"steps": {"partition": 1.0}}, "--workers 1 has no step 'exchange'"),
        ("build", 2, {"steps": {"exchange": 0.0, "partition": 1.0}}, "'exchange' of 0 ms"),
        ("merge", 4, {"exchanged_bytes": ...}, "merge with --workers 4 has no 'exchanged_bytes'"),
        ("find", 1, {"rate": "fast"}, "rate is 'fast', and should be a number above 0"),
        ("find", 1, {"rate": 0}, "rate is 0, and should be a number above 0"),
        ("find", 2, {"rate": None}, "rate is None, and should be a number above 0"),
        ("find", 2, {"seconds": ...}, "it has no 'seconds'"),
        ("bulk find", 4, {"worker_seconds": ...}, "has no 'worker_seconds'"),
        ("bulk find", 1, {"worker_seconds": 9.0}, "was longer at work than it took"),
        ("bulk insert", 1, {"n": 7}, "no limit 'partition' of 7 rows beside it"),
    ],
)
def test_measured_figures_that_lack_something_are_refused(
    verb: str, workers: int, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = (bulk_figures if verb.startswith("bulk") else measured)(tmp_path / "scaling.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if verb in (row.get("verb"), row.get("limit")) and row["workers"] == workers:
            row |= change
    rows = [{name: value for name, value in row.items() if value is not ...} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(FormatError) as refused:
        model(measured=path)
    assert str(path) in str(refused.value)
    assert said in str(refused.value)


def test_fewer_rows_than_workers() -> None:
    with pytest.raises(SpecError, match="--chunk-size 8; give at least 16 rows"):
        model(**GIVEN, chunk_size=8, workers=[1, 16], modes=["strong"])
