"""`groupby` of files: what pandas gives of all rows, and mistakes in one line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import LocalCluster
from suites.raising import no_other_engine

from dgpuhash.cli import main

ROWS = 240
AGGREGATES = {
    "total": "sum(price)", "n": "count()", "sold": "count(pieces)", "most": "max(pieces)",
    "mean(price)": "mean(price)", "exact": "sum(id)", "spread": "std(price, ddof=0)",
}  # fmt: skip
BY_ROWS = {"middle": "median(price)", "top": "quantile(price, q=0.9)", "kinds": "nunique(pieces)"}


def frame_of():
    rng = np.random.default_rng(8)
    pieces = pd.array(rng.integers(0, 9, ROWS), dtype="Int64")
    pieces[rng.random(ROWS) < 0.2] = pd.NA
    return pd.DataFrame({
        "shop": rng.choice(["a", "b", "c,d", None], ROWS), "year": rng.integers(2020, 2023, ROWS),
        "price": rng.normal(size=ROWS).round(3), "pieces": pieces,
        "id": 2**53 + rng.integers(0, 99, ROWS), "unread": rng.random(ROWS),
    })  # fmt: skip


FRAME = frame_of()


@pytest.fixture(scope="module")
def cluster():
    """Return the address of a cluster of two workers."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None,
        protocol="tcp://",
    ) as made:  # fmt: skip
        yield made.scheduler_address


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the rows in three files of each format."""
    made = tmp_path_factory.mktemp("sales")
    for part in range(3):
        rows = FRAME.iloc[80 * part : 80 * part + 80]
        rows.to_csv(made / f"sales-{part}.csv", index=False)
        rows.to_parquet(made / f"sales-{part}.parquet", index=False)
    return made


def run(*arguments, at=None, code=0):
    command = ["groupby", *map(str, arguments), *(["--scheduler", at] if at else [])]
    with no_other_engine():
        result = CliRunner().invoke(main, command)
    assert result.exit_code == code, result.output
    return result


def options_of(aggregates):
    for label, call in aggregates.items():
        yield from ("--agg", call if label == call else f"{label}={call}")


def expected_of(by, dropna=True):
    """Return all aggregates as pandas has them."""
    groups = FRAME.groupby(by, dropna=dropna)
    return pd.DataFrame({
        "total": groups["price"].sum(), "n": groups.size(), "sold": groups["pieces"].count(),
        "most": groups["pieces"].max(), "mean(price)": groups["price"].mean(),
        "exact": groups["id"].sum(), "spread": groups["price"].std(ddof=0),
        "middle": groups["price"].median(), "top": groups["price"].quantile(0.9),
        "kinds": groups["pieces"].nunique(),
    }).reset_index()  # fmt: skip


def same(made, expected):
    pd.testing.assert_frame_equal(made, expected[list(made.columns)], check_dtype=False)


@pytest.mark.parametrize(
    ("ending", "read"),
    [(".parquet", pd.read_parquet), (".arrow", pd.read_feather), (".csv.gz", pd.read_csv)],
)
def test_files_of_each_format(folder, cluster, tmp_path, ending, read):
    source = [f"{folder}/sales-{part}.csv" for part in range(3)]
    if ending != ".parquet":
        source = [f"{folder}/sales-[01].parquet", f"{folder}/sales-2.parquet"]
    target = f"{tmp_path}/out{ending}"
    options = ["--by", "shop,year", *options_of({**AGGREGATES, **BY_ROWS}), "-o", target]
    said = run(*source, *options, at=cluster)
    assert said.stdout.startswith(f"{target}: 9 groups of 240 rows by shop, year in ")
    assert said.stderr.startswith("median, quantile, nunique: the rows of the columns")
    same(read(target), expected_of(["shop", "year"]))


def test_nulls_as_keys_and_no_order(folder, cluster, tmp_path):
    target = f"{tmp_path}/out.parquet/"
    said = run(
        f"{folder}/sales-*.parquet", "--by", "shop", "--keep-nulls", "--no-sort",
        *options_of(AGGREGATES), "-o", target, at=cluster,
    )  # fmt: skip
    assert said.stderr == ""
    made = pd.read_parquet(target).sort_values("shop", ignore_index=True)
    same(made, expected_of("shop", dropna=False))


def test_a_table_on_the_terminal(folder):
    """Without a cluster of one's own, and of no more groups than one can read."""
    said = run(f"{folder}/sales-*.csv", "--by", "shop", "--agg", "n=count()", "--agg", "max(id)")
    (head,) = [line for line in said.stdout.splitlines() if "max(id)" in line]
    assert [each.strip() for each in head.strip("┃").split("┃")] == ["shop", "n", "max(id)"]
    for shop, rows in FRAME.groupby("shop"):
        (line,) = [line for line in said.stdout.splitlines() if f"│ {shop} " in line]
        assert f" {len(rows)} " in line
        assert f" {rows['id'].max()} " in line
    assert "3 groups of 240 rows by shop in" in said.stderr
    many = run(f"{folder}/sales-0.parquet", "--by", "price", "--agg", "n=count()")
    assert many.stdout.count("│") == 3 * 40
    assert f"and {FRAME[:80]['price'].nunique() - 40} more groups" in many.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--by", "shop"], "Missing option '--agg'"),
        (["--by", "shop", "--agg", "total:sum(price)"], "e.g. 'total=sum(price)', 'n=count()'"),
        (["--by", "shop", "--agg", "quantile(price, q=1.2.3)"], "'1.2.3' in"),
        (["--by", "shop", "--agg", "summ(price)"], "'summ' of files; do you mean sum?; there"),
        (["--by", "shop", "--agg", "idxmin(price)"], "no aggregate 'idxmin' of files"),
        (["--by", "shop", "--agg", "sum(prise)"], "no column 'prise'; the files have ['shop',"),
        (["--by", "shop", "--agg", "sum()"], "sum() needs a column, as in 'sum(price)'"),
        (["--by", "shop", "--agg", "sum(price, q=1)"], "unexpected keyword argument 'q'"),
        (["--by", "shop", "--agg", "shop=sum(price)"], "several columns called 'shop'"),
        (["--by", "shopp", "--agg", "sum(price)"], "no column ['shopp']"),
        (["--by", "shop", "--agg", "mean(shop)"], "does not support operation 'mean'"),
        (["--by", "shop", "--agg", "sum(price)", "-o", "out.txt"], ".jsonl or .arrow"),
    ],
)
def test_mistakes_are_told_in_one_line(folder, cluster, options, told):
    said = run(f"{folder}/sales-*.csv", *options, at=cluster, code=2)
    line = said.output.strip().splitlines()[-1]
    assert line.startswith("Error: ")
    assert told in line


def test_arrow_files_are_read(tmp_path):
    FRAME.to_feather(tmp_path / "sales.arrow")
    said = run(tmp_path / "sales.arrow", "--by", "shop", "--agg", "n=count()", "-o", "-")
    assert said.stdout == FRAME.groupby("shop").size().reset_index(name="n").to_csv(index=False)
