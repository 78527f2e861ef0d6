"""`join` of files with files and with saved indexes: every kind of join beside pandas."""

from __future__ import annotations

from types import SimpleNamespace

import dask.dataframe as dd
import pandas as pd
import pytest
from click.testing import CliRunner
from clusters import assert_same_rows
from distributed import Client, LocalCluster
from suites.raising import no_other_engine

from dgpuhash.cli import main
from dgpuhash.cli.columns import JoinKind
from dgpuhash.cli.progress import RowProgress
from dgpuhash.distributed import DistributedIndex

# Integers that floats would round, keys that occur twice on both sides, and nulls as keys.
LEFT = pd.DataFrame(
    {
        "k": ["a", "b", None, "b", "z", "c", None, "d", "e"],
        "n": range(9),
        "x": [2**60 + number for number in range(9)],
    }
)
RIGHT = pd.DataFrame(
    {
        "k": ["b", None, "q", "b", "a", "r"],
        "y": [2**60 + number for number in range(6)],
        "yes": [True, False, True, True, False, False],
        "n": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
    }
)
NULLABLE = {
    "left": {"n": "Int64", "x": "Int64"},
    "right": {"y": "Int64", "yes": "boolean"},
}
HOWS = ("inner", "left", "right", "outer", "semi", "anti")


@pytest.fixture(scope="module")
def cluster():
    """Return the address of a cluster of two workers."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None,
        protocol="tcp://",
    ) as made:  # fmt: skip
        yield made.scheduler_address


@pytest.fixture(scope="module")
def sides(tmp_path_factory, cluster):
    """Return the sides as CSV and Parquet files, and the right one as an index, too."""
    folder = tmp_path_factory.mktemp("sides")
    for part in range(3):
        rows = LEFT.iloc[3 * part : 3 * part + 3]
        rows.to_csv(folder / f"left-{part}.csv", index=False)
        rows.to_parquet(folder / f"left-{part}.parquet")
    RIGHT[:4].to_parquet(folder / "right-0.parquet")
    RIGHT[4:].to_parquet(folder / "right-1.parquet")
    RIGHT.to_csv(folder / "right.csv", index=False)
    RIGHT.rename(columns={"k": "key"}).to_parquet(folder / "named.parquet")
    made = SimpleNamespace(csv=f"{folder}/left-*.csv", parquet=f"{folder}/left-*.parquet")
    made.right, made.right_csv = f"{folder}/right-*.parquet", f"{folder}/right.csv"
    made.index, made.named = f"{folder}/right.dgph", f"{folder}/named.parquet"
    run("build", made.right, "--on", "k", "-o", made.index, at=cluster)
    return made


def run(*arguments, at, code=0, nulls_equal=True):
    command = [*map(str, arguments), "--scheduler", at]
    if nulls_equal and arguments[0] == "join":
        command.append("--nulls-equal")
    with no_other_engine():
        result = CliRunner().invoke(main, command)
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def expected_of(how, left_on="k", right_on="k", **options):
    """Return what pandas gives where integers and truths may be null."""
    if how in ("semi", "anti"):
        return LEFT[LEFT["k"].isin(RIGHT["k"]) == (how == "semi")]
    left, right = LEFT, RIGHT.rename(columns={"k": right_on})
    if how in ("right", "outer"):
        left = left.astype(NULLABLE["left"])
    if how in ("left", "outer"):
        right = right.astype(NULLABLE["right"])
    return left.merge(right, how, left_on=left_on, right_on=right_on, **options)


def check(found, expected, how):
    """Assert that rows are equal, and in the order of the left side where it keeps them."""
    expected = expected.reset_index(drop=True)
    if how in ("right", "outer"):
        assert found.dtypes.to_dict() == expected.dtypes.to_dict()
        assert_same_rows(found, expected)
    else:
        pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("how", HOWS)
def test_every_kind_of_join_of_files(sides, cluster, tmp_path, how):
    target = tmp_path / "out.parquet"
    options = ["--on", "k", "--how", how, "-o", target]
    said = run("join", sides.csv, sides.right, *options, at=cluster)
    expected = expected_of(how)
    check(pd.read_parquet(target), expected, how)
    first, second = said.splitlines()
    assert first.startswith(f"{target}: {len(expected)} rows in ")
    told = f"{how} join of 9 rows of {sides.csv} with 6 rows of {sides.right} on k"
    assert second.strip() == told


@pytest.mark.parametrize("how", HOWS)
def test_every_kind_of_join_with_a_saved_index(sides, cluster, tmp_path, how):
    target = f"{tmp_path}/out.parquet/"
    said = run("join", sides.parquet, sides.index, "--how", how, "-o", target, at=cluster)
    expected = expected_of(how)
    check(pd.read_parquet(target), expected, how)
    assert said.startswith(f"{target}: {len(expected)} rows in ")
    assert f"9 rows of {sides.parquet} with 6 rows of {sides.index} on k" in said


@pytest.mark.parametrize("how", HOWS)
def test_null_keys_match_none_by_default(sides, cluster, tmp_path, how):
    target = tmp_path / "out.parquet"
    options = ["--on", "k", "--how", how, "-o", target]
    arguments = ["join", sides.csv, sides.right, *options, "--scheduler", cluster]
    result = CliRunner().invoke(main, [*map(str, arguments)])
    left, right = LEFT.dropna(subset="k"), RIGHT.dropna(subset="k")
    count = {
        "inner": len(left.merge(right, on="k")), "left": len(left.merge(right, "left", "k")) + 2,
        "right": len(left.merge(right, "right", "k")) + 1,
        "outer": len(left.merge(right, "outer", "k")) + 3,
        "semi": left["k"].isin(right["k"]).sum(), "anti": (~left["k"].isin(right["k"])).sum() + 2,
    }  # fmt: skip
    assert len(pd.read_parquet(target)) == count[how]
    out = {"inner": ["left", "right"], "left": ["right"], "right": ["left"], "semi": ["left"]}
    told = {"left": f"2 of {sides.csv}", "right": f"1 of {sides.right}"}
    parts = " and ".join(told[side] for side in out.get(how, []))
    said = f"were left out: {parts}; --nulls-equal" if parts else ""
    assert said in result.stderr
    assert ("left out" in result.stderr) == bool(parts)


def test_a_directory_without_an_ending_has_parquet_files(sides, cluster, tmp_path):
    target = f"{tmp_path}/not/there/yet/"
    run("join", sides.csv, sides.index, "--how", "left", "-o", target, at=cluster)
    check(pd.read_parquet(target), expected_of("left"), "left")


@pytest.mark.parametrize(
    ("name", "how"),
    [("full", "outer"), ("FULL_OUTER", "outer"), ("leftouter", "left"), ("left_outer", "left"),
     ("right-outer", "right"), ("leftsemi", "semi"), ("left_semi", "semi")],
)  # fmt: skip
def test_names_of_joins_in_sql(name, how):
    assert JoinKind().convert(name, None, None) == how


def test_names_of_other_libraries(sides, cluster, tmp_path):
    target = tmp_path / "out.parquet"
    options = ["--how", "left_anti", "--indicator", "-o", target]
    run("join", sides.parquet, sides.index, *options, at=cluster)
    expected = LEFT.merge(RIGHT.astype(NULLABLE["right"]), "left_anti", on="k", indicator=True)
    check(pd.read_parquet(target), expected, "left_anti")
    options = ["--how", "leftsemi", "-o", target, "--force"]
    run("join", sides.parquet, sides.index, *options, at=cluster)
    check(pd.read_parquet(target), expected_of("semi"), "semi")


def test_a_cross_join(sides, cluster, tmp_path):
    target = tmp_path / "out.parquet"
    said = run("join", sides.parquet, sides.index, "--how", "cross", "-o", target, at=cluster)
    assert_same_rows(pd.read_parquet(target), LEFT.merge(RIGHT, how="cross"))
    assert said.rstrip().endswith(sides.index)


def test_keys_of_two_names(sides, cluster, tmp_path):
    target = tmp_path / "out.parquet"
    options = ["--left-on", "k", "--right-on", "key", "--suffixes", "_left,_right", "-o", target]
    said = run("join", sides.csv, sides.named, *options, "--how", "outer", at=cluster)
    expected = expected_of("outer", right_on="key", suffixes=("_left", "_right"))
    check(pd.read_parquet(target), expected, "outer")
    assert said.rstrip().endswith("on k = key")


def test_columns_of_both_sides_are_the_keys_where_none_is_named(sides, cluster, tmp_path):
    target = tmp_path / "out.parquet"
    options = ["--dtype", "n=float64", "--how", "outer", "-o", target]
    said = run("join", sides.csv, sides.right_csv, *options, at=cluster)
    left, right = LEFT.astype({"x": "Int64", "n": float}), RIGHT.astype(NULLABLE["right"])
    assert_same_rows(pd.read_parquet(target), left.merge(right, how="outer"))
    assert said.rstrip().endswith("on k, n")


@pytest.mark.parametrize(
    ("given", "name", "target"),
    [("--indicator", "_merge", "out.parquet"), ("--indicator=side", "side", "out.csv/")],
)
def test_an_indicator_tells_the_side_of_each_row(sides, cluster, tmp_path, given, name, target):
    into = f"{tmp_path}/{target}"
    options = ["--on", "k", "--how", "outer", given, "-o", into]
    run("join", sides.parquet, sides.right, *options, at=cluster)
    expected = expected_of("outer", indicator=name)
    if "parquet" in target:
        found = pd.read_parquet(into)
        assert found[name].dtype == expected[name].dtype
    else:
        types = expected.dtypes.drop(name).to_dict()
        parts = [pd.read_csv(part, dtype=types) for part in (tmp_path / "out.csv").iterdir()]
        found = pd.concat(parts)
    assert_same_rows(found.astype({name: str}), expected.astype({name: str}))


@pytest.mark.parametrize(
    ("validate", "target", "said"),
    [
        ("1:1", "out.parquet", "dataset; not a one-to-one merge"),
        ("1:m", "out.csv", "not unique in left dataset; not a one-to-many merge"),
        ("m:1", "out.parquet/", "not unique in right dataset; not a many-to-one merge"),
    ],
)
def test_a_failed_validation_leaves_no_output(sides, cluster, tmp_path, validate, target, said):
    options = ["--on", "k", "--how", "outer", "--validate", validate, "-o", f"{tmp_path}/{target}"]
    output = run("join", sides.parquet, sides.index, *options, at=cluster, code=2)
    assert output.startswith("Error: ")
    assert said in output
    assert "use another --validate" in output
    assert not any(tmp_path.iterdir())


def test_a_validation_that_holds(sides, cluster, tmp_path):
    pd.DataFrame({"k": ["a", "b", "w"], "v": [1, 2, 3]}).to_csv(tmp_path / "v.csv", index=False)
    target = tmp_path / "out.csv"
    options = ["--on", "k", "--validate", "m:1", "--how", "semi", "-o", target]
    run("join", sides.csv, tmp_path / "v.csv", *options, at=cluster)
    assert pd.read_csv(target)["k"].tolist() == ["a", "b", "b"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--on", "k", "--left-on", "k"], "give it alone, or --left-on and --right-on"),
        (["--on", "k", "--how", "cross"], "cross compares no keys; leave them out"),
        (["--on", "k", "--how", "semi", "--indicator"], "leave it out, or use --how left"),
        (["--on", "k", "--how", "sideways"], "'outer', 'semi', 'anti'"),
        (["--on", "k,k"], "give each once"),
        (["--on", "k", "--indicator=x"], "existing column for indicator column: 'x'"),
        (["--left-on", "k,n", "--right-on", "key"], "each with --left-on and --right-on"),
        (["--left-on", "k"], "no column ['k']; the columns are ['key', 'y', 'yes', 'n']; name its"),
        (["--left-on", "n", "--right-on", "key"], "--dtype NAME=TYPE reads a column"),
        (["--left-on", "k", "--right-on", "key", "--dtype", "w=str"], "no columns ['w']"),
    ],
)
def test_options_that_do_not_fit(sides, cluster, tmp_path, options, says):
    target = tmp_path / "out.parquet"
    right = sides.named if "--left-on" in options and "--on" not in options else sides.right
    said = run("join", sides.parquet, right, *options, "-o", target, at=cluster, code=2)
    assert says in " ".join(said.split())
    assert "Traceback" not in said
    assert not any(tmp_path.iterdir())


def test_sides_without_a_column_in_common(sides, cluster, tmp_path):
    pd.DataFrame({"other": [1]}).to_csv(tmp_path / "other.csv", index=False)
    arguments = ["join", sides.csv, tmp_path / "other.csv", "-o", tmp_path / "out.csv"]
    said = run(*arguments, at=cluster, code=2)
    assert "no column in common; name the keys with --left-on and --right-on" in said


def test_a_join_with_an_index_whose_log_goes_on(cluster, tmp_path):
    """Its rows are those of the save, with later inserts and without what was erased."""
    log, target = f"{tmp_path}/log", tmp_path / "out.parquet"
    more = pd.DataFrame({"k": ["z", "b"], "y": [7, 8], "yes": [True, False], "n": [0.0, 1.0]})
    with Client(cluster) as client:
        rows = dd.from_pandas(RIGHT, npartitions=2)
        with DistributedIndex.build(rows, on="k", client=client, durable=log) as index:
            index.erase(["b", "q"])
            index.insert(more)
    LEFT.to_parquet(tmp_path / "left.parquet")
    options = ["--how", "outer", "-o", target]
    said = run("join", tmp_path / "left.parquet", log, *options, at=cluster)
    kept = pd.concat([RIGHT[~RIGHT["k"].isin(["b", "q"])], more]).astype(NULLABLE["right"])
    expected = LEFT.astype(NULLABLE["left"]).merge(kept, how="outer", on="k")
    assert_same_rows(pd.read_parquet(target), expected)
    assert f"9 rows of {tmp_path}/left.parquet with {len(kept)} rows of {log}" in said


def test_an_index_without_rows(cluster, tmp_path):
    RIGHT[:0].to_parquet(tmp_path / "none.parquet")
    LEFT.to_parquet(tmp_path / "left.parquet")
    run("build", tmp_path / "none.parquet", "--on", "k", "-o", tmp_path / "none.dgph", at=cluster)
    arguments = [tmp_path / "left.parquet", tmp_path / "none.dgph", "-o", tmp_path / "out.csv"]
    run("join", *arguments, "--how", "anti", at=cluster)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out.csv"), LEFT)


def test_an_index_that_resolves_rows_as_it_answers(sides, cluster, tmp_path):
    saved = f"{tmp_path}/sums.dgph"
    with Client(cluster) as client:
        settings = {"mode": "independent", "conflict": "sum", "client": client}
        with DistributedIndex.build(RIGHT[["k", "n"]].dropna(), on="k", **settings) as index:
            index.save(saved)
    arguments = ["join", sides.csv, saved, "-o", tmp_path / "out.csv"]
    said = run(*arguments, at=cluster, code=2)
    assert "conflict='sum'" in said
    assert "DistributedIndex.load" in said


def test_progress_counts_rows_once_and_shows_them_on_a_terminal(cluster, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with Client(cluster) as client, RowProgress(client) as progress:
        frame = progress.counted(dd.from_pandas(LEFT, npartitions=3), "left", {"n": "Int64"})
        written = progress.writing(3)
        for _ in range(2):
            assert frame.compute()["n"].dtype == "Int64"
            written()
        assert progress.rows == {"left": 9}
    shown = capsys.readouterr()
    assert "9 rows of left read" in shown.err
    assert "2/3" in shown.err
    assert not shown.out
