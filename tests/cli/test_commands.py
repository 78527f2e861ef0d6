"""`build`, `join` and `lookup` on files against pandas."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from distributed import LocalCluster

from dgpuhash.cli import main

PLANES = pd.DataFrame(
    {"tailnum": [f"N{number}" for number in range(50)], "seats": np.arange(50), "year": 2000.5}
)
FLIGHTS = pd.DataFrame(
    {
        "flight": np.arange(200),
        "tailnum": [f"N{number % 70}" for number in range(199)] + [None],
        "year": 2013,
    }
)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of flights and planes.

    It has the flights as three Parquet files, planes.csv and its index planes.dgph.
    """
    made = tmp_path_factory.mktemp("files")
    PLANES.to_csv(made / "planes.csv", index=False)
    for part in range(3):
        FLIGHTS.iloc[part * 70 : part * 70 + 70].to_parquet(made / f"flights-{part}.parquet")
    said = run("build", made / "planes.csv", "--on", "tailnum", "-o", made / "planes.dgph")
    assert "50 rows on tailnum" in said
    return made


@pytest.mark.parametrize("target", ["out.parquet", "out.parquet/", "out.csv"])
def test_left_join_makes_no_number_another_one(tmp_path, target):
    large = [2**53 + 1, 2**53 + 3, 2**63 - 1]
    rows = pd.DataFrame(
        {"k": [1, 2, 2], "x": ["p", "q", "r"], "id": large, "yes": [True, False, True]}
    )
    rows = rows.assign(u=pd.Series([0, 2**64 - 1, 5], dtype="uint64"), share=[0.5, 1.5, 2.5])
    rows.to_parquet(tmp_path / "r.parquet")
    left = pd.DataFrame({"k": [1, 2, 9, 2], "x": list("abcd")})
    left[:2].to_csv(tmp_path / "l0.csv", index=False)
    left[2:].to_csv(tmp_path / "l1.csv", index=False)
    run("build", tmp_path / "r.parquet", "--on", "k", "--duplicates", "-o", tmp_path / "r.dgph")
    written = f"{tmp_path}/{target}"
    run("join", tmp_path / "l?.csv", tmp_path / "r.dgph", "--how", "left", "-o", written)
    kinds = {"id": "Int64", "u": "UInt64", "yes": "boolean"}
    expected = left.merge(rows.astype(kinds), on="k", how="left")
    found = pd.read_parquet(written) if "parquet" in target else pd.read_csv(written, dtype=kinds)
    pd.testing.assert_frame_equal(found, expected, check_dtype="csv" not in target)


def test_build_and_lookup_show_their_steps_on_a_terminal_alone(folder, tmp_path):
    saved = str(tmp_path / "planes.dgph")
    building = ["build", str(folder / "planes.csv"), "--on", "tailnum", "-o", saved, "--force"]
    looking = ["lookup", saved, *["N7"] * 20]
    for asked, step in ((building, "50 rows indexed, saving"), (looking, f"loading {saved}")):
        quiet = CliRunner().invoke(main, asked)
        assert (quiet.exit_code, quiet.stderr) == (0, "")
        shown = CliRunner().invoke(main, asked, env={"FORCE_COLOR": "1", "COLUMNS": "300"})
        assert step in re.sub(r"\x1b\[[\d;?]*\w", "", shown.stderr)
        assert shown.stdout.count("N7") == quiet.stdout.count("N7")


def test_join_on_a_column_of_another_name_into_a_directory(folder, tmp_path):
    FLIGHTS.rename(columns={"tailnum": "plane"}).to_parquet(tmp_path / "flights.parquet")
    target = f"{tmp_path}/out.parquet/"
    source = [tmp_path / "flights.parquet", folder / "planes.dgph"]
    run("join", *source, "--on", "plane", "--how", "inner", "-o", target)
    expected = FLIGHTS.rename(columns={"tailnum": "plane"}).merge(
        PLANES, left_on="plane", right_on="tailnum"
    )
    pd.testing.assert_frame_equal(pd.read_parquet(target), expected)


def test_join_and_build_replace_nothing_without_a_word(folder, tmp_path, monkeypatch):
    target = tmp_path / "out.csv"
    target.write_text("mine")
    shutil.copytree(folder / "planes.dgph", tmp_path / "planes.dgph")
    joining = ["join", folder / "flights-0.parquet", folder / "planes.dgph", "-o", target]
    building = ["build", folder / "planes.csv", "--on", "seats", "-o", tmp_path / "planes.dgph"]
    with monkeypatch.context() as patch:
        # Before the work.
        patch.setattr("dgpuhash.cli.join.client_for", None)
        patch.setattr("dgpuhash.cli.build.client_for", None)
        for command, said in (
            (joining, f"{target} exists already; choose another name, or"),
            (building, "planes.dgph holds another saved index; choose another place, or"),
        ):
            result = CliRunner().invoke(main, [str(each) for each in command])
            assert result.exit_code == 2
            assert f"{said} replace it with --force" in " ".join(result.output.split())
            assert "overwrite" not in result.output
    assert target.read_text() == "mine"
    assert "seats" in run("lookup", tmp_path / "planes.dgph", "N7")
    run(*joining, "--force")
    assert len(pd.read_csv(target)) == 50
    run(*building, "--force")
    assert "N7" in run("lookup", tmp_path / "planes.dgph", "7")
    (tmp_path / "planes.dgph" / "manifest.json").unlink()
    said = CliRunner().invoke(main, [str(each) for each in [*building, "--force"]]).output
    assert "exists and holds no saved index; choose another place" in " ".join(said.split())


def test_lookup(folder):
    said = run("lookup", folder / "planes.dgph", "N7", "N14228", "N3", "--format", "json")
    rows = [json.loads(line) for line in said.splitlines()]
    assert [(row["tailnum"], row["seats"]) for row in rows] == [("N7", 7), ("N3", 3)]


def test_lookup_prints_a_table(folder):
    said = run("lookup", folder / "planes.dgph", "N7")
    assert "tailnum" in said
    assert "N7" in said


def test_lookup_prints_values_as_they_are(tmp_path):
    columns = {
        "k": pa.array([1234567, 2]),
        "f": pa.array([0.125, None]),
        "single": pa.array([0.1, 1e9], pa.float32()),
        "b": pa.array([True, None]),
        "s": pa.array(["[x]", None]),
        "when": pa.array([0, None], pa.timestamp("ms", "UTC")),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    run("build", tmp_path / "a.parquet", "--on", "k", "-o", tmp_path / "a.dgph")
    said = run("lookup", tmp_path / "a.dgph", "1234567", "2")
    rows = [[text.strip() for text in line.split("│")[1:-1]] for line in said.splitlines()]
    assert [row for row in rows if row] == [
        ["1234567", "0.125", "0.1", "True", "[x]", "1970-01-01 00:00:00+00:00"],
        ["2", "-", "1e+09", "-", "-", "-"],
    ]


def test_lookup_of_nothing_that_is_there_ends_with_1(folder):
    assert run("lookup", folder / "planes.dgph", "N99", "--format", "csv", code=1).count("\n") == 1


def test_lookup_of_nothing_prints_no_json(folder):
    assert run("lookup", folder / "planes.dgph", "N99", "--format", "json", code=1) == ""


def test_build_keeps_the_columns_asked_for(folder, tmp_path):
    saved = tmp_path / "seats.dgph"
    run("build", folder / "planes.csv", "--on", "tailnum", "--columns", "seats", "-o", saved)
    assert run("lookup", saved, "N7", "--format", "csv") == "tailnum,seats\nN7,7\n"


def test_keys_of_two_columns_and_duplicates(tmp_path):
    frame = pd.DataFrame({"a": ["x", "x", "y,z"], "b": [1, 1, 2], "c": [1.5, 2.5, 3.5]})
    frame.to_parquet(tmp_path / "pairs.parquet")
    saved = tmp_path / "pairs.dgph"
    run("build", tmp_path / "pairs.parquet", "--on", "a,b", "--duplicates", "-o", saved)
    said = run("lookup", saved, "x,1", "--format", "csv")
    assert said == "a,b,c\nx,1,1.5\nx,1,2.5\n"
    assert run("lookup", saved, '"y,z",2', "--format", "csv") == 'a,b,c\n"y,z",2,3.5\n'
    run("lookup", saved, "y,z,2", code=2)


@pytest.mark.parametrize("flag", ["bool", "boolean"])
def test_keys_of_categories_and_truths(tmp_path, flag):
    frame = pd.DataFrame(
        {
            "class": pd.Categorical(["low", "high", "low"]),
            "open": pd.array([True, False, False], dtype=flag),
            "n": [1, 2, 3],
        }
    )
    frame.to_parquet(tmp_path / "rooms.parquet")
    saved = tmp_path / "rooms.dgph"
    run("build", tmp_path / "rooms.parquet", "--on", "class,open", "-o", saved)
    said = run("lookup", saved, "low,False", "high,false", "--format", "csv")
    assert said == "class,open,n\nlow,False,3\nhigh,False,2\n"
    run("lookup", saved, "low,maybe", code=2)


def test_a_relative_path_on_a_cluster_whose_workers_run_elsewhere(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    with LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "planes.csv").write_bytes((folder / "planes.csv").read_bytes())
        at = ["--scheduler", cluster.scheduler_address]
        run("build", "planes.csv", "--on", "tailnum", "-o", "again.dgph", *at)
        assert "N7" in run("lookup", "again.dgph", "N7", *at)


def test_keys_of_several_columns_are_named_together_or_one_by_one(tmp_path):
    rows = pd.DataFrame(
        {"a": [1, 1, 2], "b": ["x", "y", "x"], "v": [0.5, 1.5, 2.5], "w": [1, 2, 3]}
    )
    rows.to_parquet(tmp_path / "rows.parquet")
    for on in (["--on", "a,b"], ["--on", "a", "--on", "b"]):
        options = [*on, "--columns", "v", "--columns", "w", "-o", tmp_path / "rows.dgph"]
        assert "3 rows on a, b" in run("build", tmp_path / "rows.parquet", *options)
        sides = [tmp_path / "rows.parquet", tmp_path / "rows.dgph"]
        run("join", *sides, *on, "-o", tmp_path / "o.csv", "--force")
        expected = rows.merge(rows, on=["a", "b"])
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "o.csv"), expected)
        shutil.rmtree(tmp_path / "rows.dgph")


@pytest.mark.parametrize("labels", [pd.RangeIndex(3), pd.Index([7, 8, 9]), pd.Index(list("abc"))])
def test_what_pandas_wrote_as_an_index_is_a_column(tmp_path, labels):
    rows = pd.DataFrame({"k": ["N1", "N2", "N9"]}, index=labels.rename("label"))
    rows.to_parquet(tmp_path / "rows.parquet")
    PLANES.set_index("tailnum").to_parquet(tmp_path / "planes.parquet")
    run("build", tmp_path / "planes.parquet", "--on", "tailnum", "-o", tmp_path / "planes.dgph")
    target = tmp_path / "out.csv"
    run("join", tmp_path / "rows.parquet", tmp_path / "planes.dgph", "--on", "k", "-o", target)
    assert pd.read_csv(target)["seats"].tolist() == [1, 2, 9]


def test_a_port_in_use_is_no_matter_for_a_warning(folder):
    with socket.socket() as other:
        # When it cannot be taken here, somebody else has it already.
        with contextlib.suppress(OSError):
            other.bind(("", 8787))
            other.listen()
        with warnings.catch_warnings(record=True) as caught:
            run("lookup", folder / "planes.dgph", "N1")
    assert not [each for each in caught if "8787" in str(each.message)]
