"""JSON lines and Arrow files, read and written; standard input and output."""

from __future__ import annotations

import gzip
import json

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

from dgpuhash.cli import main
from dgpuhash.cli.files import arrow_readers, read
from dgpuhash.errors import FormatError

ROWS = [
    {"key": f"N{number}", "number": number + 2**53, "share": number / 7, "yes": number % 2 == 0}
    for number in range(40)
]
ROWS[3] = {"key": 'a "quoted"\nkey', "number": None, "share": None, "yes": None}


def written(path, rows=ROWS):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def expected():
    frame = pd.DataFrame(ROWS)
    numbers = pd.array([row["number"] for row in ROWS], "Int64")
    return frame.assign(number=numbers, yes=frame["yes"].astype("boolean"))


@pytest.mark.parametrize("block", [1, 7, 64, 1000, 10**6])
def test_json_lines_in_blocks_of_any_size(tmp_path, monkeypatch, block):
    path = written(tmp_path / "a.jsonl")
    monkeypatch.setattr(arrow_readers, "BLOCK_NBYTES", max(block, 40))
    for size in (block, 1 << 20):
        monkeypatch.setattr(arrow_readers, "_PIECE", size)
        frame = read.read(path)
        assert (frame.npartitions > 1) == (block <= 1000)
        found = frame.compute(scheduler="sync").reset_index(drop=True)
        pd.testing.assert_frame_equal(found, expected())
        assert found.dtypes.equals(frame.dtypes)


def test_json_lines_compressed_and_without_an_end(tmp_path):
    path = written(tmp_path / "a.jsonl")
    with gzip.open(tmp_path / "a.ndjson.gz", "wt") as file:
        file.write((tmp_path / "a.jsonl").read_text().rstrip("\n"))
    found = read.read(str(tmp_path / "a.ndjson.gz")).compute(scheduler="sync")
    pd.testing.assert_frame_equal(found, read.read(path).compute(scheduler="sync"))


def test_files_of_json_have_the_columns_of_all(tmp_path):
    written(tmp_path / "a0.jsonl", [{"k": 1}])
    written(tmp_path / "a1.jsonl", [{"k": 2.5, "t": "x"}])
    (tmp_path / "a2.jsonl").touch()
    found = read.read(f"{tmp_path}/a*.jsonl").compute(scheduler="sync")
    assert found["k"].tolist() == [1.0, 2.5]
    assert found["t"].isna().tolist() == [True, False]


def test_json_further_down_is_of_the_types_of_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_readers, "SAMPLE_NBYTES", 40)
    rows = [{"k": number} for number in range(50)]
    path = written(tmp_path / "a.jsonl", [*rows, {"k": 0.5}])
    with pytest.raises(FormatError, match=r"a\.jsonl cannot be read as JSON lines.*--dtype"):
        read.read(path).compute(scheduler="sync")
    found = read.read(path, {"k": "float64"}).compute(scheduler="sync")
    assert found["k"].iloc[-1] == 0.5
    path = written(tmp_path / "b.jsonl", [*rows, {"new": 1}])
    with pytest.raises(FormatError, match=r"b\.jsonl has the columns \['new'\]"):
        read.read(path).compute(scheduler="sync")
    (tmp_path / "c.jsonl").write_text("no JSON\n")
    with pytest.raises(FormatError, match=r"c\.jsonl cannot be read as JSON lines"):
        read.read(str(tmp_path / "c.jsonl"))


def test_arrow_files_by_their_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_readers, "BLOCK_NBYTES", 1)
    table = pa.Table.from_pylist(ROWS)
    for name in ("a0.arrow", "a1.arrow"):
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table, max_chunksize=10)
    frame = read.read(f"{tmp_path}/a*.arrow")
    assert frame.npartitions == 8
    found = frame.compute(scheduler="sync").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, pd.concat([expected()] * 2, ignore_index=True))
    assert found.dtypes.equals(frame.dtypes)
    whole = pa.table({"number": [1, 2]})
    with pa.ipc.new_file(tmp_path / "b.arrow", whole.schema) as writer:
        writer.write_table(whole)
    assert read.read(str(tmp_path / "b.arrow"))["number"].dtype == "int64"
    with pytest.raises(FormatError, match="has other columns"):
        read.read(f"{tmp_path}/*.arrow")
    (tmp_path / "c.arrow").write_bytes(b"ARROW1 no more")
    with pytest.raises(FormatError, match=r"c\.arrow cannot be read as Arrow"):
        read.read(str(tmp_path / "c.arrow"))


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".arrow"])
def test_what_a_join_writes_is_read_again(tmp_path, ending):
    left, right = written(tmp_path / "l.jsonl"), written(tmp_path / "r.jsonl")
    target = str(tmp_path / f"out{ending}")
    joining = ["join", left, right, "--on", "key", "--how", "semi", "-o", target]
    result = CliRunner().invoke(main, joining)
    assert result.exit_code == 0, result.output
    found = read.read(target).compute(scheduler="sync")
    pd.testing.assert_frame_equal(found, expected(), check_dtype=False)


def test_standard_input_and_output(tmp_path):
    right = written(tmp_path / "r.jsonl")
    joining = ["join", "-", right, "--on", "key", "--how", "inner", "-o", "-.jsonl"]
    result = CliRunner().invoke(main, joining, input="key,seats\nN5,1\nN6,2\nN99,3\n")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["key"], row["seats"], row["number"]) for row in rows] == [
        ("N5", 1, 2**53 + 5),
        ("N6", 2, 2**53 + 6),
    ]
    assert "2 rows in" in result.stderr
    grouping = ["groupby", "-", "--by", "yes", "--agg", "n=count()", "-o", "-"]
    result = CliRunner().invoke(main, grouping, input=(tmp_path / "r.jsonl").read_text())
    assert result.stdout == "yes,n\nFalse,19\nTrue,20\n"


def test_standard_input_is_told_by_its_first_bytes(tmp_path):
    table = pa.table({"k": [1, 1, 2]})
    table.to_pandas().to_parquet(tmp_path / "a.parquet")
    table.to_pandas().to_csv(tmp_path / "a.csv.gz", index=False)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    grouping = ["groupby", "-", "--by", "k", "--agg", "n=count()", "-o", "-"]
    for path in tmp_path.iterdir():
        result = CliRunner().invoke(main, grouping, input=path.read_bytes())
        assert result.stdout == "k,n\n1,2\n2,1\n", path


def test_workers_elsewhere_do_not_see_standard_input():
    building = ["build", "-", "--on", "k", "-o", "unmade.dgph", "--scheduler", "tcp://127.0.0.1:1"]
    result = CliRunner().invoke(main, building, input="k\n1\n")
    assert result.exit_code == 2
    assert "which the workers of --scheduler cannot read" in " ".join(result.output.split())
