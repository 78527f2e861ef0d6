"""`lookup` by a pass over the files: the rows of an index, without pandas and Dask."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import Client

from dgpuhash.cli import main
from dgpuhash.cli.files import scan
from dgpuhash.cli.lookup import _parts
from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import FormatError

ROWS = pd.DataFrame(
    {
        "name": pd.Series([f"N{number}" for number in range(30)]).replace("N7", "N,7"),
        "group": pd.Categorical(np.where(np.arange(30) % 2, "odd", "even")),
        "number": np.arange(30, dtype="int16"),
        "yes": np.arange(30) % 3 == 0,
        "when": pd.date_range("2013-01-01T06:00Z", periods=30, freq="h"),
        "share": np.arange(30) / 7,
        "narrow": (np.arange(30) / 10).astype("float32"),
    }
)
# Keys of each type, as they are written; the last is not there.
ASKED = {
    "name": ["N5", "N,7", "N5", "5"],
    "group": ["odd", "none"],
    "number": ["12", "+3", "007", "-1"],
    "yes": ["TRUE", "false"],
    "when": ["2013-01-01T07:00:00Z", "2013-01-01 08:00:00Z", "2012-01-01T06:00:00Z"],
    "name,number": ["N5,5", '"N,7",7', "N5,6"],
}


@pytest.fixture(scope="module")
def client():
    with Client(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None,
        scheduler_kwargs={"dashboard_address": ":0"},
    ) as made:  # fmt: skip
        yield made


@pytest.fixture(scope="module")
def saved(client, tmp_path_factory):
    """Return the paths of saved indexes by their key columns."""
    folder = tmp_path_factory.mktemp("saved")
    paths = {}
    for on in ASKED:
        paths[on] = str(folder / on)
        with DistributedIndex.build(ROWS, on=on.split(","), client=client) as index:
            index.save(paths[on])
    return paths


@pytest.mark.parametrize("on", ASKED)
def test_a_pass_finds_what_the_index_finds(saved, on, client, monkeypatch):
    found = scan.find_rows(saved[on], ASKED[on], _parts)
    assert found is not None
    assert found[1] == [True] * (len(ASKED[on]) - 1) + [on == "yes"]
    monkeypatch.setattr("dgpuhash.cli.lookup.client_for", lambda _: contextlib.nullcontext(client))
    for form in ("json", "csv", "table"):
        said = []
        for given in (None, found):
            monkeypatch.setattr(scan, "find_rows", lambda *_, given=given: given)
            asking = ["lookup", saved[on], "--format", form, "--", *ASKED[on]]
            said.append(CliRunner().invoke(main, asking))
        assert said[0].stdout == said[1].stdout
        assert said[0].stderr == said[1].stderr


@pytest.mark.parametrize(
    ("on", "key"),
    [("number", "12.0"), ("number", "70000"), ("yes", "maybe"), ("when", "2013-01-01"),
     ("name,number", "N5"), ("name", "\udc80")],
)  # fmt: skip
def test_the_index_says_what_is_wrong_with_a_key(saved, on, key):
    assert scan.find_rows(saved[on], [key], _parts) is None


def test_changes_groups_and_many_keys_take_an_index(saved, client, tmp_path):
    assert scan.find_rows(saved["number"], ["1"] * (scan.MOST_KEYS + 1), _parts) is None
    assert scan.find_rows(str(tmp_path), ["1"], _parts) is None
    log = str(tmp_path / "log")
    with DistributedIndex.build(ROWS, on="number", client=client, durable=log) as index:
        index.erase(pd.DataFrame({"number": np.array([5], "int16")}))
    assert scan.find_rows(log, ["5"], _parts) is None


def test_a_damaged_file_is_no_answer(saved, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    for path in Path(saved["number"]).iterdir():
        data = bytearray(path.read_bytes())
        if path.suffix == ".arrow":
            data[len(data) // 2] ^= 1
        (whole / path.name).write_bytes(data)
    with pytest.raises(FormatError, match=r"its checksum is wrong\); restore"):
        scan.find_rows(str(whole), ["5"], _parts)


def test_numbers_are_written_as_they_are(saved):
    said = CliRunner().invoke(main, ["lookup", saved["number"], "29", "--format", "json"]).stdout
    row = json.loads(said)
    assert row["share"] == ROWS["share"].iloc[-1]
    assert '"narrow": 2.9,' in said or '"narrow": 2.9}' in said
    assert row["when"] == "2013-01-02T11:00:00+00:00"


def test_keys_from_standard_input(saved):
    said = CliRunner().invoke(
        main, ["lookup", saved["name"], "-", "--format", "csv"], input="N5\r\nN9\n"
    )
    assert [line.split(",")[0] for line in said.stdout.splitlines()] == ["name", "N5", "N9"]


def test_what_answers_at_once_imports_neither_pandas_nor_dask(saved):
    program = (
        "import sys; from dgpuhash.cli import main\n"
        "for given in (['--help'], ['--version'], ['info', sys.argv[1]], ['join', '--help'],\n"
        "              ['lookup', sys.argv[1], 'N5'],\n"
        "              ['lookup', sys.argv[1], 'N5', '--format', 'json']):\n"
        "    main(given, standalone_mode=False)\n"
        "assert not {'pandas', 'dask', 'distributed'} & set(sys.modules)"
    )
    made = subprocess.run(
        [sys.executable, "-c", program, saved["name"]], capture_output=True, text=True, timeout=120
    )
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize(
    "values",
    [
        [decimal.Decimal("1.25"), None, decimal.Decimal("30.1")],
        [None, None, None],
        [2**60 + 1, None, 5],
        [datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)],
        [b"a", None, b"b"],
        [True, None, False],
    ],
    ids=repr,
)
def test_columns_of_objects_are_looked_up(client, tmp_path, monkeypatch, values):
    rows = pd.DataFrame({"k": list("abc"), "price": pd.Series(values, dtype=object)})
    with DistributedIndex.build(rows, on="k", client=client) as index:
        index.save(str(tmp_path / "saved"))
    path = str(tmp_path / "saved")
    assert "price: object" in CliRunner().invoke(main, ["info", path]).stdout
    monkeypatch.setattr("dgpuhash.cli.lookup.client_for", lambda _: contextlib.nullcontext(client))
    said = []
    for most in (scan.MOST_KEYS, 0):
        monkeypatch.setattr(scan, "MOST_KEYS", most)
        result = CliRunner().invoke(main, ["lookup", path, *"abc", "--format", "csv"])
        assert result.exit_code == 0, result.output
        said.append(result.stdout)
    assert said[0] == said[1]
