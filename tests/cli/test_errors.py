"""Errors of the command line: one line, exit code 2, no traceback."""

from __future__ import annotations

import errno
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import click
import fsspec
import pandas as pd
import pytest
from click.testing import CliRunner

from dgpuhash.cli import main
from dgpuhash.cli.errors import OneLineErrors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with planes.parquet, its index, and flights.csv.

    The index is planes.dgph.
    """
    made = tmp_path_factory.mktemp("files")
    planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [10, 20]})
    planes.to_parquet(made / "planes.parquet")
    pd.DataFrame({"tailnum": ["N2", "N9"]}).to_csv(made / "flights.csv", index=False)
    run("build", made / "planes.parquet", "--on", "tailnum", "-o", made / "planes.dgph")
    return made


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


def expect_error(*arguments, says):
    output = run(*arguments, code=2)
    line = output.strip().splitlines()[-1]
    assert line.startswith("Error: ")
    assert says in line
    assert "Traceback" not in output


def test_a_missing_source(folder):
    expect_error(
        "build", folder / "absent.parquet", "--on", "a", "-o", folder / "x", says="absent.parquet"
    )


def test_keys_of_another_type(folder, tmp_path):
    """The remedy is one of this command's, not only of Python."""
    numbered = tmp_path / "numbered.csv"
    pd.DataFrame({"tailnum": [1, 2]}).to_csv(numbered, index=False)
    arguments = (
        "join",
        numbered,
        folder / "planes.dgph",
        "--on",
        "tailnum",
        "-o",
        tmp_path / "o.csv",
    )
    expect_error(*arguments, says="; here --dtype NAME=TYPE reads a column as another type")
    run(*arguments, "--dtype", "tailnum=str")


def test_a_wrong_key_column(folder):
    output = folder / "wrong.dgph"
    expect_error(
        "build", folder / "planes.parquet", "--on", "tailnumber", "-o", output, says="tailnumber"
    )
    assert not output.exists()


def test_a_wrong_column_to_keep(folder):
    arguments = ["--on", "tailnum", "--columns", "wings", "-o", folder / "wrong.dgph"]
    expect_error("build", folder / "planes.parquet", *arguments, says="wings")


def test_duplicate_keys_where_none_may_be(folder, tmp_path):
    pd.DataFrame({"tailnum": ["N1", "N1"]}).to_parquet(tmp_path / "twice.parquet")
    arguments = ["--on", "tailnum", "--unique", "-o", tmp_path / "twice.dgph"]
    expect_error("build", tmp_path / "twice.parquet", *arguments, says="unique")


def test_a_missing_index(folder):
    expect_error("lookup", folder / "absent.dgph", "N1", says="absent.dgph")


def test_a_foreign_index(folder):
    expect_error("lookup", folder / "planes.parquet", "N1", says="planes.parquet")


@pytest.mark.parametrize("pattern", ["manifest.json", "*.arrow"])
def test_a_truncated_index(folder, tmp_path, pattern):
    saved = tmp_path / "planes.dgph"
    run("build", folder / "planes.parquet", "--on", "tailnum", "-o", saved)
    (file,) = saved.glob(pattern)
    file.write_bytes(file.read_bytes()[:-5])
    expect_error("lookup", saved, "N1", says="planes.dgph")


def test_an_unknown_way_to_join(folder):
    target = folder / "out.parquet"
    source = [folder / "flights.csv", folder / "planes.dgph"]
    expect_error("join", *source, "--how", "sideways", "-o", target, says="'sideways'")
    assert not target.exists()


@pytest.mark.parametrize("how", ["inner", "left", "anti"])
def test_a_join_on_a_column_that_the_source_lacks(folder, how):
    arguments = [folder / "flights.csv", folder / "planes.dgph", "--how", how, "--on", "plane"]
    says = f"LEFT, {folder / 'flights.csv'}: no column ['plane']; the columns are ['tailnum']; "
    says += "name its keys with --left-on"
    expect_error("join", *arguments, "-o", folder / "out.parquet", says=says)


@pytest.mark.parametrize("target", ["nowhere://a.parquet", "absent://a.parquet"])
def test_a_target_on_no_file_system(folder, target):
    fsspec.register_implementation("absent", "absent.Files", errtxt="Install it", clobber=True)
    source = [folder / "flights.csv", folder / "planes.dgph"]
    expect_error("join", *source, "-o", target, says=target)
    expect_error("build", folder / "planes.parquet", "--on", "tailnum", "-o", target, says=target)


@pytest.mark.parametrize("source", ["f1.parquet", "f*.parquet"])
def test_a_join_over_its_own_source(folder, tmp_path, source):
    pd.DataFrame({"tailnum": ["N2", "N9"]}).to_parquet(tmp_path / "f1.parquet")
    before = (tmp_path / "f1.parquet").read_bytes()
    arguments = [tmp_path / source, folder / "planes.dgph", "-o", tmp_path / "f1.parquet"]
    expect_error("join", *arguments, says="f1.parquet is one of the sources; name another file")
    assert (tmp_path / "f1.parquet").read_bytes() == before


@pytest.mark.parametrize("target", ["o.parquet", "o.csv", "o.parquet/", "x.dgph"])
def test_a_place_that_cannot_be_written(folder, caplog, target):
    arguments = ["join", folder / "flights.csv", folder / "planes.dgph"]
    if target == "x.dgph":
        arguments = ["build", folder / "planes.parquet", "--on", "tailnum"]
    remedy = "; choose a place that you may write to"
    expect_error(*arguments, "-o", f"/proc/{target}", says=f"Error: /proc/{target} cannot be")
    expect_error(*arguments, "-o", f"/proc/{target}", says=remedy)
    # No task was begun that now fails.
    failed = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert not [each for each in failed if each.name.startswith(("distributed", "dgpuhash"))]


def test_suffixes_that_tell_no_columns_apart(folder):
    source = [folder / "flights.csv", folder / "planes.dgph"]
    for given in ("_x", "_x,_x"):
        expect_error("join", *source, "--suffixes", given, "-o", folder / "o", says="two endings")


@pytest.mark.parametrize("name", ["taken.csv", "planes.csv"])
def test_a_target_that_is_a_directory(folder, tmp_path, name):
    shutil.copytree(folder / "planes.dgph", tmp_path / "planes.csv")
    (tmp_path / "taken.csv").mkdir()
    before = sorted(tmp_path.rglob("*"))
    source = [folder / "flights.csv", tmp_path / "planes.csv"]
    expect_error("join", *source, "-o", tmp_path / name, says=f"{name} is a directory; name")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_key_with_too_many_parts(folder, tmp_path):
    frame = pd.DataFrame({"a": [1], "b": [2], "c": [3]})
    frame.to_parquet(tmp_path / "pairs.parquet")
    saved = tmp_path / "pairs.dgph"
    run("build", tmp_path / "pairs.parquet", "--on", "a,b", "-o", saved)
    expect_error("lookup", saved, "1,2,3", says="3 parts")
    expect_error("lookup", saved, "1,two", says="column b")


def test_no_scheduler_at_the_address(folder, monkeypatch):
    monkeypatch.setattr("dgpuhash.cli.cluster.CONNECT_SECONDS", 1)
    arguments = ["--scheduler", "tcp://127.0.0.1:9", folder / "planes.dgph", "N1"]
    said = "tcp://127.0.0.1:9 after 1 s; check the address, and that a scheduler runs there"
    expect_error("lookup", *arguments, says=said)


@pytest.mark.parametrize("address", ["here", "carrier-pigeon://here:1"])
def test_what_is_no_address_of_a_scheduler(folder, address):
    where = ["--scheduler", address]
    expect_error("lookup", folder / "planes.dgph", "N1", *where, says="such as tcp://host:8786")


@pytest.mark.parametrize("scheme", ["ucx", "ucxx"])
def test_an_address_whose_protocol_is_not_installed(folder, monkeypatch, scheme):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    arguments = [folder / "planes.dgph", "N1", "--scheduler", f"{scheme}://here:8786"]
    expect_error("lookup", *arguments, says="pip install '.[ucx]' in a checkout")


@pytest.mark.parametrize("target", ["/proc/o.parquet", "/proc/o/", "/dev/null/o.csv"])
def test_an_output_that_cannot_be_written_is_known_before_the_work(folder, monkeypatch, target):
    monkeypatch.setattr("dgpuhash.cli.join.client_for", None)
    arguments = ["join", folder / "flights.csv", folder / "planes.dgph", "-o", target]
    expect_error(*arguments, says=target)


@pytest.mark.parametrize("target", ["-", "-.arrow", "-.parquet"])
def test_standard_output_of_what_fails_is_empty(folder, tmp_path, target):
    arguments = ["join", folder / "flights.csv", tmp_path / "odd.csv", "--validate", "m:1"]
    (tmp_path / "odd.csv").write_text("tailnum,x\nN2,1\nN2,2\n")
    result = CliRunner().invoke(main, [*map(str, arguments), "-o", target])
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("typed", "says"),
    [("serch", "There are bench, build"), ("gropuby", "Did you mean 'groupby'?")],
)
def test_only_what_is_written_much_alike_is_suggested(typed, says):
    expect_error(typed, says=says)


@pytest.mark.parametrize(
    ("typed", "meant"), [("avg", "mean"), ("stddev", "std"), ("summ", "sum"), ("MAX", "max")]
)
def test_other_names_of_aggregates(folder, typed, meant):
    arguments = ["groupby", folder / "planes.parquet", "--by", "tailnum"]
    expect_error(*arguments, "--agg", f"a={typed}(seats)", says=f"; do you mean {meant}?")


@pytest.mark.parametrize("name", ["a::b.csv", "file:x.csv", "s3:y.csv"])
def test_files_whose_names_look_like_urls(folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame({"tailnum": ["N1", "N1"]})
    rows.to_csv(f"./{name}", index=False)
    assert "1 group of 2 rows" in run("groupby", name, "--by", "tailnum", "--agg", "n=count()")


def test_a_full_disk_is_named():
    program = Path(sys.executable).with_name("dgpuhash")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        found = subprocess.run(
            [program, "completion", "bash"], stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=120, check=False,
        )  # fmt: skip
    assert found.returncode == 2
    assert found.stderr.startswith("Error: the output cannot be written: No space left on device; ")
    assert len(found.stderr.strip().splitlines()) == 1


def test_a_reader_that_has_enough_is_no_mistake():
    @click.command()
    def talk():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    result = CliRunner().invoke(OneLineErrors(commands=[talk]), ["talk"])
    assert (result.exit_code, result.output) == (1, "")


def test_the_program_itself_prints_one_line():
    program = Path(sys.executable).with_name("dgpuhash")
    found = subprocess.run(
        [program, "build", "absent.csv", "--on", "a", "-o", "a.dgph"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 2
    assert found.stderr.startswith("Error: absent.csv: no such file")
    assert len(found.stderr.strip().splitlines()) == 1


def test_csv_columns_that_change_their_type(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("dgpuhash.cli.files.csv_files.SAMPLE_NBYTES", 1000)
    source = tmp_path / "a.csv"
    source.write_text("zip,rows\n" + "1,1\n" * 9999 + "X1,1.5\n")
    arguments = [source, "--on", "zip", "-o", tmp_path / "a.dgph"]
    expect_error("build", *arguments, says="--dtype rows=float64 --dtype zip=str")
    run("build", *arguments, "--dtype", "rows=float64", "--dtype", "zip=str")


@pytest.mark.parametrize("verb", ["build", "join"])
def test_faults_that_are_found_while_computing_are_one_line(folder, tmp_path, monkeypatch, verb):
    monkeypatch.setattr("dgpuhash.cli.files.csv_files.SAMPLE_NBYTES", 100)
    lines = []
    handler = logging.Handler(logging.ERROR)
    monkeypatch.setattr(handler, "emit", lines.append)
    logging.getLogger("distributed").addHandler(handler)
    source = tmp_path / "a.csv"
    source.write_text("tailnum,n\n" + "N1,1\n" * 1000 + "N2,1,2\n")
    options = ["--on", "tailnum"] if verb == "build" else [folder / "planes.dgph"]
    target = tmp_path / ("a.dgph" if verb == "build" else "out.csv")
    expect_error(verb, source, *options, "-o", target, says="a.csv cannot be read as csv: ")
    logging.getLogger("distributed").removeHandler(handler)
    assert not lines
    assert list(tmp_path.iterdir()) == [source]


def test_files_of_several_types_that_have_one_in_common(folder, tmp_path):
    for number, hours in enumerate(([1, 2], [0.5, 2.5])):
        rows = pd.DataFrame({"tailnum": ["N1", "N2"], "hours": hours})
        rows.to_parquet(tmp_path / f"{number}.parquet")
    target = tmp_path / "out.parquet"
    run("join", tmp_path / "[01].parquet", folder / "planes.dgph", "-o", target)
    assert pd.read_parquet(target)["hours"].tolist() == [1, 2, 0.5, 2.5]


@pytest.mark.parametrize(
    ("dtype", "key"), [("int8", "300"), ("uint64", "-1"), ("uint64", "9" * 30)]
)
def test_keys_that_no_number_of_the_dtype_is(tmp_path, dtype, key):
    pd.DataFrame({"k": pd.Series([1], dtype=dtype)}).to_parquet(tmp_path / "k.parquet")
    run("build", tmp_path / "k.parquet", "--on", "k", "-o", tmp_path / "k.dgph")
    expect_error("lookup", tmp_path / "k.dgph", "--", key, says=f"column k is {dtype}")
