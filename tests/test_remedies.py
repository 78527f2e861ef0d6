"""Code that an error text gives as its remedy: each is run on the input that raised the error.

The remedies are read from the source. One without a case fails; a case is a line of `CASES`.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import importlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click import ClickException
from clusters import cluster_of, lazy, rerun_of

import dgpuhash
from dgpuhash import BloomFilter, CountMap, FrameIndex, HashMap, HashSet, backend
from dgpuhash.cli.columns import AggregateCall
from dgpuhash.cli.files.saved_index import read_saved
from dgpuhash.cli.groupby import _named_aggregates
from dgpuhash.dask import verbs
from dgpuhash.distributed import (
    DistributedBloomFilter,
    DistributedCountMap,
    DistributedIndex,
    DistributedMap,
    DistributedSet,
)
from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.groupby import steps
from dgpuhash.distributed.merge import strategy
from dgpuhash.distributed.query import fetch
from dgpuhash.distributed.runs.kept import RECEIPT
from dgpuhash.errors import DgpuhashError
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.spec import TableSpec
from dgpuhash.tables.bloom.spec import FilterSize

ROOT = Path(__file__).resolve().parents[1]
PARENTHESES = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
CALL = re.compile(rf"(?<![\w'`])\.?[A-Za-z_][\w.]*{PARENTHESES}(?:\.\w+(?:{PARENTHESES})?)*")
# Functions of ours that return code, and that code.
WRITTEN = {"astype": ".astype({})", "_spans": "frame.dt.floor({})"}
# What is called as a remedy is, and names what was asked for, or is in other languages.
WORDS = {
    "AGGREGATE(COLUMN)", "Column(s)", "DG_STRUCT({})", "Label(s)", "len({})", "len(left_on)",
    "len(right_on)", "pandas.tseries.frequencies.to_offset({})", "stats()", "transform(name)",
    "transform({})",
}  # fmt: skip


def remedies() -> Iterator[tuple[str, str]]:
    """Yield the module and the code of each remedy in the source; ``{}`` stands for a value."""
    for path in sorted((ROOT / "dgpuhash").rglob("*.py")):
        name = str(path.relative_to(ROOT / "dgpuhash"))
        if name.startswith("bench/"):
            continue
        for text in texts(ast.parse(path.read_text())):
            for found in CALL.finditer(text):
                if " " in text and "\n" not in text and found.group() not in WORDS:
                    yield name, found.group()


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that are neither docstrings nor help of the command line."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        inner: list[Any] = [node.value] if isinstance(node, ast.Expr) else []
        if isinstance(node, ast.keyword) and node.arg in {"help", "metavar"}:
            inner = list(ast.walk(node))
        elif isinstance(node, ast.JoinedStr):
            inner = node.values
        left_out.update(map(id, inner))
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(rendered, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def rendered(part: Any) -> str:
    """Return a part of an f-string: the code that it calls for, or ``{}``."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    called = getattr(getattr(part.value, "func", None), "id", None)
    return WRITTEN.get(str(called), "{}")


@dataclass(frozen=True)
class Case:
    """An input, what raises with it, and names that its remedy needs beside the input's own."""

    given: Callable[[], Any]
    verb: Callable[[Any], Any]
    fill: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    needs: str = ""


def code_of(message: str, pattern: str) -> str:
    """Return the code of a message that a pattern of the source stands for."""
    begin = end = message.index(pattern.replace("frame.dt", "frame[{}]").partition("{}")[0])
    while end == begin or re.match(r"(?:\.\w+)+\(", message[end:]):
        end, depth = message.index("(", end) + 1, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(message[end], 0)
            end += 1
    return message[begin:end]


def cured(code: str, given: Any, names: dict[str, Any]) -> Any:
    """Return what the code of a remedy makes of an input."""
    known = {
        "pandas": pd, "numpy": np, "pyarrow": pa, "dask": dask, "distributed": distributed,
        "datetime": datetime, "json": json, "dgpuhash": dgpuhash, **names,
        "DistributedIndex": DistributedIndex, "given": given,
    }  # fmt: skip
    for name in ("x", "frame", "column", "array", "keys", "values", "table", "index", "Series",
                 "groups", "client"):  # fmt: skip
        known.setdefault(name, given)
    first = re.split(r"\W", code)[0]
    whole = code.startswith("'") or (first and first in known)
    made = eval(code if whole else f"given.{code.removeprefix('.')}", known)
    return given if made is None else made


def indexed(column: Any, stored: Any) -> Any:
    """Insert a column into an index that stores another one."""
    kept = pd.Series(stored) if isinstance(stored, list) else stored
    index = FrameIndex.build(pd.DataFrame({"k": range(len(kept)), "v": kept}), on="k")
    return index.insert(pd.DataFrame({"k": 9, "v": column}))


def keyed(column: Any) -> Any:
    """Build an index on a column."""
    return FrameIndex.build(pd.DataFrame({"k": column}), on="k")


def objects(*values: Any) -> pd.Series:
    return pd.Series(list(values), dtype=object)


def arrow(kind: pa.DataType, *values: Any) -> pd.Series:
    return pd.Series(list(values), dtype=pd.ArrowDtype(kind))


def saved(column: Any) -> Any:
    """Save an index that stores a column."""
    index = FrameIndex.build(pd.DataFrame({"k": range(len(column)), "v": column}), on="k")
    with tempfile.TemporaryDirectory() as folder:
        index.save(f"{folder}/index")


def stored(rows: Any, on: Any = "k", **options: Any) -> Any:
    """Build an index on the cluster, and close it; return its rows."""
    with DistributedIndex.build(rows, on=on, **options) as index:
        return len(index)


def module(name: str) -> Any:
    """Return a library that only some machines have."""
    return importlib.import_module(name)


FRAME = {"k": [1, 2, 1], "v": [1.5, 2.5, 3.5]}
MONTHS = pd.DataFrame({"t": pd.date_range("2020-01-05", periods=9, freq="17D"), "v": range(9)})
NESTED = np.array([[1, 2], [3, 4]])
RECORD = np.dtype([("a", "i4"), ("b", "f8")])
TURNED = np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [4, 0]})
ORDERED = pd.CategoricalDtype(["b", "a"], ordered=True)
ZONED = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
ONE = decimal.Decimal("1.25")
TABLE = tempfile.mkdtemp()


def frame() -> pd.DataFrame:
    return pd.DataFrame(FRAME)


def parts(**columns: Any) -> Any:
    """Return a lazy frame of columns, in two partitions."""
    return lazy(pd.DataFrame(columns), 2)


def unknown(*values: Any) -> Any:
    """Return a lazy column of categories that Dask does not know."""
    return parts(k=list(values))["k"].astype("category")


def categories(*each: list[Any], ordered: bool = False) -> Any:
    """Return a lazy column of these categories by partition, of which Dask knows the first ones."""
    pieces = [pd.Series(pd.Categorical(own, own, ordered=ordered), name="k") for own in each]
    return dd.from_map(lambda piece: piece, pieces, meta=pieces[0].iloc[:0])


def sizes(column: Any) -> Any:
    """Count the rows of each value of a lazy column."""
    return dgpuhash.groupby(column.to_frame("k"), "k").size().compute()


def grouped(column: Any, how: str = "sum", **options: Any) -> Any:
    """Aggregate a column by another one."""
    pairs = pd.DataFrame({"k": [1] * len(column), "v": column})
    return getattr(dgpuhash.groupby(pairs, "k", **options)["v"], how)()


def groups_of(columns: Any) -> Any:
    return dgpuhash.groupby(pd.DataFrame({"k": columns}), "k").size()


def taken(call: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Return a verb for an index that has the name ``taken``, and is closed by its remedy."""

    def verb(given: Any) -> Any:
        call("taken").close()

    return verb


def named(name: str) -> Any:
    return DistributedIndex.build(frame(), on="k", name=name)


def other_client(workers: int) -> distributed.Client:
    """Return a client of another cluster, in this process, of some workers."""
    options = {"processes": False, "dashboard_address": ":0", "set_as_default": False}
    return distributed.Client(n_workers=workers, **options)


def on_another_cluster(rows: pd.DataFrame) -> Any:
    """Return a lazy frame whose partitions are in memory there."""
    return other_client(1).persist(lazy(rows, 2))


def closed_client() -> distributed.Client:
    """Return a client of this cluster that was closed, and has made an index."""
    address = distributed.get_client().scheduler.address
    with distributed.Client(address, set_as_default=False) as made:
        DistributedIndex.build(frame(), on="k", name="outlives", client=made)
    return made


INDEX = f"{TABLE}/index"


def saved_index() -> str:
    """Save an index anew at `INDEX`."""
    shutil.rmtree(INDEX, ignore_errors=True)
    with DistributedIndex.build(frame(), on="k") as index:
        index.save(INDEX)
    return INDEX


def set_saved() -> str:
    with DistributedSet("int64") as made:
        made.save(f"{TABLE}/set of workers", overwrite=True)
    return f"{TABLE}/set of workers"


def resolving() -> str:
    """Save an index that resolves second rows as it answers."""
    given = {"mode": "independent", "conflict": "first", "unique": True}
    with DistributedIndex.build(lazy(frame(), 2), on="k", **given) as index:
        index.save(f"{TABLE}/resolving", overwrite=True)
    return f"{TABLE}/resolving"


def rebuilt_elsewhere() -> None:
    with named("mine"):
        DistributedIndex.open("mine").rebuild(whole=True)


def replaced() -> Any:
    """Return a handle of an index in whose place another client has put one."""
    handle = named("again")
    DistributedIndex.open("again").close()
    named("again")
    return handle


def merged_with_index(rows: Any) -> None:
    with DistributedIndex.build(frame(), on="k") as index:
        index.merge(rows)


def erased(keys: Any) -> None:
    with DistributedIndex.build(frame(), on="k") as index:
        index.erase(keys)


def table_of_keys(keys: Any) -> None:
    with DistributedSet("int64") as made:
        made.insert(keys)


def map_of_values(values: Any) -> None:
    with DistributedMap("int64", "int64") as made:
        made.insert(da.from_array([1, 2]), values)


def counted(counts: Any) -> None:
    with DistributedCountMap("int64") as made:
        made.insert(np.array([1]), counts)


def random_rows() -> Any:
    """Return a lazy frame that has other rows at each computation."""

    def drawn(number: int) -> pd.DataFrame:
        return pd.DataFrame({"k": np.random.default_rng().integers(0, 1 << 40, 9), "v": number})

    return dd.from_map(drawn, [1, 2, 3], meta=frame().astype({"v": "int64"})[:0])


def run_again(verb: Callable[[Any], Any], task: str) -> Callable[[Any], Any]:
    """Return a verb one of whose tasks runs twice, as where a worker was lost."""

    def rerun(given: Any) -> None:
        with pytest.MonkeyPatch.context() as patch, rerun_of(distributed.get_client(), task):
            patch.setattr(steps, "_FEW_STATES", {"cpu": 0})
            patch.setattr(strategy, "late_broadcast_nbytes", lambda: 0)
            verb(given).compute()

    return rerun


def merge_of_few_rows(probes: Any) -> None:
    """Merge where a partition of the result may have nine rows."""
    with (
        pytest.MonkeyPatch.context() as patch,
        DistributedIndex.build(frame(), on="k") as index,
    ):
        patch.setattr(fetch, "MOST_ROWS", 9)
        assert len(index.merge(probes).compute()) == 12


def value_counts(values: Any) -> None:
    """Count the rows of each value of a lazy column as under `dgpuhash.dask.enable`."""
    verbs._counts(values, distributed.get_client()).compute()


def inserted(column: Any, values: list[Any]) -> None:
    """Insert values into an index on the cluster that stores a lazy column."""
    rows = column.to_frame("v").assign(k=1)
    with DistributedIndex.build(rows, on="k") as index:
        index.insert(pd.DataFrame({"v": values, "k": 2}))


def merge_before_a_change() -> Any:
    """Return a merge with an index that has changed since."""
    index = named("changed")
    merged = index.merge(frame())
    index.insert(frame())
    return merged


# By module and code: the input, and the verb that raises with it, and does not with the remedy.
CASES: dict[tuple[str, str], list[Case]] = {
    ("backend/device.py", "x.fill_null(…)"): [
        Case(lambda: pa.array([1, None]), backend.get("cpu").asarray, {"…": "0"}),
    ],
    ("backend/device.py", "x.filled(…)"): [
        Case(lambda: np.ma.array([1, 2], mask=[0, 1]), backend.get("cpu").asarray, {"…": "0"}),
    ],
    ("frames/dataframes/pandas_arrow.py", ".astype('str')"): [
        Case(lambda: objects((1, 2), (3,)), saved),
        Case(lambda: objects({"a": 1}, {"b": 2}), saved),
    ],
    ("frames/dataframes/pandas_arrow.py", ".astype('str').astype('category')"): [
        Case(lambda: objects((1, 2), (3,)).astype("category"), saved),
    ],
    ("frames/dataframes/dispatch.py", "pandas.DataFrame(…)"): [
        Case(lambda: FRAME, lambda x: FrameIndex.build(frame(), on="k").insert(x), {"…": "given"}),
    ],
    ("frames/dataframes/dispatch.py", "compute()"): [
        Case(lambda: lazy(frame(), 2), lambda x: FrameIndex.build(frame(), on="k").insert(x)),
    ],
    ("frames/dataframes/interop.py", "table.to_pandas()"): [
        Case(lambda: pa.table({"k": [1]}), lambda x: keyed([1]).contains(x)),
    ],
    ("frames/dataframes/remedies.py", ".astype({})"): [
        Case(lambda: objects(ONE), lambda x: indexed(x, arrow(pa.decimal128(6, 2), ONE))),
        Case(lambda: objects(ONE), lambda x: indexed(x, arrow(pa.decimal256(60, 2), ONE))),
        Case(
            lambda: objects(datetime.time(1)),
            lambda x: indexed(x, arrow(pa.time64("us"), datetime.time(2))),
        ),
        Case(
            lambda: objects(datetime.timedelta(1)),
            lambda x: indexed(x, arrow(pa.duration("us"), datetime.timedelta(2))),
        ),
        Case(lambda: objects(ZONED), lambda x: indexed(x, MONTHS["t"].dt.tz_localize("UTC"))),
        Case(lambda: objects(ZONED), lambda x: indexed(x, arrow(pa.timestamp("us", "UTC"), ZONED))),
        Case(
            lambda: objects(datetime.date(2020, 1, 1)),
            lambda x: indexed(x, arrow(pa.date32(), datetime.date(2020, 1, 2))),
        ),
    ],
    ("frames/dataframes/pandas_casts.py", ".astype({})"): [
        Case(
            lambda: MONTHS["t"].astype("M8[s]"),
            lambda x: indexed(pd.Series([pd.Timestamp("2020-01-01 00:00:00.5")]), x),
        ),
    ],
    ("frames/dataframes/pandas_casts.py", ".astype('Float64')"): [
        Case(lambda: arrow(pa.int64(), 1), lambda x: indexed(pd.Series([1.5]), x)),
    ],
    ("frames/dataframes/pandas_casts.py", ".astype('boolean')"): [
        Case(lambda: pd.Series([True]), lambda x: indexed(objects(None), x)),
        Case(lambda: pd.Series([True]), lambda x: indexed(pd.Series([None], dtype="boolean"), x)),
    ],
    ("frames/dataframes/pandas_casts.py", ".cat.as_unordered()"): [
        Case(
            lambda: pd.Series(["a"], dtype=ORDERED),
            lambda x: indexed(pd.Series(["c"], dtype="category"), x),
        ),
    ],
    ("frames/dataframes/pandas_checks.py", ".astype(column.dtype.newbyteorder('='))"): [
        Case(lambda: pd.Series([1], dtype=">i8"), keyed),
    ],
    ("frames/dataframes/pandas_checks.py", "pandas.Series(column.tolist(), column.index, 'str')"): [
        Case(lambda: arrow(pa.string_view(), "a"), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", ".astype('Float64')"): [
        Case(lambda: objects(1.5, None), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", ".astype('Int64')"): [
        Case(lambda: objects(2**62 + 1, None), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", "Series.infer_objects()"): [
        Case(lambda: objects(1, 2), keyed),
        Case(lambda: objects(1.5, 2.5), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", ".astype('boolean')"): [
        Case(lambda: objects(True, None), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", ".astype('date32[day][pyarrow]')"): [
        Case(lambda: objects(datetime.date(2020, 1, 1), None), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", ".astype('str')"): [
        Case(lambda: objects(1, "a"), keyed),
        Case(lambda: objects([1], [2]), keyed),
    ],
    (
        "frames/dataframes/pandas_keys.py",
        ".astype(pandas.ArrowDtype(pyarrow.decimal256(76, 38))).astype('str')",
    ): [
        Case(lambda: objects(ONE, None), keyed),
        Case(lambda: arrow(pa.decimal128(38, 0), decimal.Decimal(10) ** 37), keyed),
        Case(lambda: arrow(pa.decimal128(38, 30), decimal.Decimal("1e-30")), keyed),
    ],
    ("frames/dataframes/tagged.py", ".str.encode('utf-8', 'replace').str.decode('utf-8')"): [
        Case(lambda: objects("\ud800a"), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", "Series.astype(object).str.decode('utf-8')"): [
        Case(lambda: objects(b"a"), keyed),
        Case(lambda: arrow(pa.binary(), b"a"), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", "Series.dt.to_timestamp()"): [
        Case(lambda: pd.Series(pd.period_range("2020", periods=2)), keyed),
    ],
    ("frames/dataframes/pandas_keys.py", "Series.sparse.to_dense()"): [
        Case(lambda: pd.Series(pd.arrays.SparseArray([1, 2])), keyed),
    ],
    ("frames/dataframes/promotion.py", ".astype({})"): [
        Case(
            lambda: pd.Series([2**60 + 1]),
            lambda x: FrameIndex.build(pd.DataFrame({"k": [1], "v": x}), on="k").lookup(
                pd.DataFrame({"k": [1, 2]})
            ),
        ),
        Case(
            lambda: pd.Series([2**64 - 1]),
            lambda x: dgpuhash.merge(
                pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [1], "v": x}), "left"
            ),
        ),
    ],
    ("frames/groupby/aggregates/decimals.py", ".astype('float64')"): [
        Case(lambda: arrow(pa.decimal128(38, 0), *[decimal.Decimal("9" * 38)] * 2), grouped),
    ],
    ("frames/groupby/aggregates/options.py", "pd.Timestamp(0)"): [
        Case(
            lambda: MONTHS["t"],
            lambda x: grouped(x if isinstance(x, pd.Series) else MONTHS["t"] != x, "any"),
            names={"pd": pd},
        ),
    ],
    ("frames/groupby/aggregates/options.py", "pd.Period(ordinal=0, freq=freq)"): [
        Case(
            lambda: MONTHS["t"].dt.to_period("D"),
            lambda x: grouped(
                x if isinstance(x, pd.Series) else MONTHS["t"].dt.to_period("D") != x, "all"
            ),
            names={"pd": pd, "freq": "D"},
        ),
    ],
    ("frames/groupby/methods.py", "groups.agg({})"): [
        Case(
            lambda: dgpuhash.groupby(frame(), "k"),
            lambda x: x if isinstance(x, pd.DataFrame) else x.transform("list"),
        ),
    ],
    ("frames/groupby/grouping_keys.py", ".dt.normalize().map({}, na_action='ignore')"): [
        Case(
            lambda: MONTHS["t"],
            lambda x: dgpuhash.groupby(
                MONTHS, pd.Grouper(key="t", freq="ME") if x.iloc[0] == MONTHS["t"][0] else x
            ).size(),
        ),
    ],
    ("frames/groupby/grouping_keys.py", "frame.dt.floor({})"): [
        Case(
            lambda: MONTHS,
            lambda x, freq=freq: dgpuhash.groupby(
                MONTHS, pd.Grouper(key="t", freq=freq) if x is MONTHS else x
            ).size(),
        )
        for freq in ("D", "6h", "ME", "MS", "QE", "W", "YS", "BME", "SME")
    ],
    ("frames/groupby/aggregates/values.py", ".astype('str')"): [
        Case(lambda: objects(b"a", 1), groups_of),
        Case(lambda: objects(1, (2,)), groups_of),
    ],
    ("frames/groupby/verb.py", "frame.to_pandas()"): [
        Case(lambda: pa.table(FRAME), lambda x: dgpuhash.groupby(x, "k").apply(len)),
    ],
    ("frames/groupby/verb.py", "pandas.DataFrame(…)"): [
        Case(lambda: FRAME, lambda x: dgpuhash.groupby(x, "k"), {"…": "given"}),
    ],
    ("frames/key_columns.py", ".astype('str')"): [
        Case(lambda: pd.Series([1]), lambda x: keyed(["1"]).merge(pd.DataFrame({"k": x}))),
    ],
    ("frames/key_columns.py", "pandas.to_datetime(…).astype('date32[day][pyarrow]')"): [
        Case(
            lambda: MONTHS["t"],
            lambda x: keyed(arrow(pa.date32(), datetime.date(2020, 1, 5))).merge(
                pd.DataFrame({"k": x})
            ),
            {"…": "given"},
        ),
    ],
    ("frames/key_input.py", "compute()"): [
        Case(lambda: lazy(frame(), 2)["k"], lambda x: keyed([1]).lookup(x)),
    ],
    ("frames/labels.py", "reset_index()"): [
        Case(lambda: frame().set_index("k"), lambda x: FrameIndex.build(x, on="k")),
    ],
    ("frames/labels.py", "to_frame()"): [
        Case(lambda: frame()["k"], lambda x: FrameIndex.build(x, on="k")),
    ],
    ("frames/merge/accessor.py", ".astype('str')"): [
        Case(
            lambda: objects({1}, {2}),
            lambda x: pd.DataFrame({"k": x}).dgpuhash.drop_duplicates("k"),
        ),
    ],
    ("frames/merge/arguments.py", "dgpuhash.merge(left, right, how=…)"): [
        Case(
            lambda: frame(),
            lambda x: FrameIndex.build(x, on="k").merge(x, how="cross") if "v" in x else x,
            {"…": "'cross'"},
            {"left": frame(), "right": frame()},
        ),
    ],
    ("frames/row_store.py", ".astype('float64')"): [
        Case(lambda: pd.Series([2**60 + 1]), lambda x: indexed(pd.Series([1.5]), x)),
    ],
    ("spec.py", "values.astype({})"): [
        Case(lambda: np.zeros(2, TURNED), lambda x: HashMap.from_arrays([1, 2], x)),
        Case(
            lambda: np.zeros(2, [("x", TURNED), ("y", "i8")]),
            lambda x: HashMap.from_arrays([1, 2], x),
        ),
    ],
    ("tables/arguments/casts.py", ".astype({})"): [
        Case(lambda: np.array([1.0, 2.0]), HashSet("int64").insert),
        Case(lambda: np.array(["7"]), HashSet("int32").insert),
        Case(
            lambda: np.zeros(1, [("a", "i4"), ("b", "f4")]),
            lambda x: HashMap("int64", RECORD).insert([1], x),
        ),
    ],
    ("tables/arguments/combine.py", "lca(parents)"): [
        Case(
            lambda: "xor",
            lambda x: HashMap("int64", "int64").insert([1], [1], combine=x),
            names={"lca": dgpuhash.lca, "parents": np.array([0, 0])},
        ),
    ],
    ("tables/arguments/file_layout.py", "table.save()"): [
        Case(
            lambda: __file__,
            dgpuhash.load,
            {"table.save()": "saved_table()"},
            {"saved_table": lambda: saved_table()},
        ),
    ],
    ("tables/arguments/interop.py", ".dt.tz_convert('UTC').dt.tz_localize(None)"): [
        Case(lambda: MONTHS["t"].dt.tz_localize("Asia/Tokyo"), lambda x: HashMap.from_arrays(x, x)),
    ],
    ("tables/arguments/objects.py", ".astimezone(datetime.UTC).replace(tzinfo=None)"): [
        Case(lambda: ZONED, lambda x: HashMap.from_arrays([x], [1])),
    ],
    ("tables/arguments/objects.py", "pandas.notna({})"): [
        Case(
            lambda: np.array([1, None]),
            lambda x: HashSet("int64").insert(
                x if x.dtype == object else np.array([1, None])[x].astype("int64")
            ),
        ),
    ],
    ("tables/arguments/objects.py", ".astype(…)"): [
        Case(
            lambda: np.array([1, None]),
            lambda x: HashSet("int64").insert(x),
            {".astype(…)": "given[pandas.notna(given)].astype('int64')"},
        ),
    ],
    ("tables/arguments/interop.py", ".ravel()"): [
        Case(lambda: NESTED, HashSet("int64").insert),
    ],
    ("tables/arguments/interop.py", "numpy.array(rows, {})"): [
        Case(
            lambda: [[1, 2.0]],
            lambda x: HashMap("int64", RECORD).insert([1], x),
            names={"rows": [(1, 2.0)]},
        ),
    ],
    ("tables/columns/group_reduce.py", ".astype('float64')"): [
        Case(
            lambda: np.array([1], "f16"), lambda x: dgpuhash.group_reduce(np.array([1]), x, "sum")
        ),
    ],
    ("tables/columns/group_reduce.py", ".view('int64')"): [
        Case(
            lambda: np.array([1], "M8[s]"), lambda x: dgpuhash.group_reduce(np.array([1]), x, "sum")
        ),
    ],
    ("tables/columns/group_reduce.py", "unique(keys)"): [
        Case(
            lambda: np.array([1]),
            lambda x: (
                x if isinstance(x, tuple) or x.size == 0 else dgpuhash.group_reduce(x, {}, "sum")
            ),
            names={"unique": lambda x: (dgpuhash.unique(x),)},
        ),
    ],
    ("tables/count_map.py", ".astype('uint64')"): [
        Case(lambda: np.array([1.0]), lambda x: CountMap("int64").insert([1], counts=x)),
    ],
}
CASES |= {
    ("cli/columns.py", code): [
        Case(lambda: "price", lambda x: AggregateCall().convert(x, None, None), {code: repr(code)})
    ]
    for code in ("sum(price)", "count()", "quantile(price, q=0.9)")
}
CASES["distributed/cluster/client.py", "distributed.Client()"] = [
    Case(lambda: None, lambda x: client_of(x).close(),
         {"Client()": "Client(processes=False, dashboard_address=None)"}),
]  # fmt: skip
CASES["distributed/ingest/commit.py", "client.wait_for_workers(1)"] = [
    Case(lambda: other_client(0), lambda x: stored(frame(), client=x),
         {"client": "given.cluster.scale(1) or given"}),
]  # fmt: skip
CASES["tables/bloom/spec.py", "BloomFilter(key_dtype, capacity=)"] = [
    Case(lambda: TableSpec.of("bloom_filter", "int64"),
         lambda x: x.insert([1]) if isinstance(x, BloomFilter) else FilterSize.of(x),
         {"key_dtype, capacity=": "'int64', capacity=9"}, {"BloomFilter": BloomFilter}),
]  # fmt: skip
# Of these, the input is made on a cluster.
ON_CLUSTER: dict[tuple[str, str], list[Case]] = {
    ("distributed/cluster/client.py", "client.compute({}).result()"): [
        Case(
            lambda: on_another_cluster(frame()),
            lambda x: stored(x, client=distributed.get_client()),
            {"rows": "given", "client": "distributed.futures_of(given)[0].client"},
        ),
    ],
    ("distributed/cluster/client.py", "DistributedIndex.open(name, client)"): [
        Case(
            lambda: closed_client(),
            lambda x: len(x) if isinstance(x, DistributedIndex) else stored(frame(), client=x),
            {"name, client": "'outlives', distributed.get_client()"},
        ),
    ],
    ("distributed/cluster/client.py", "distributed.Client(address)"): [
        Case(
            lambda: "client",
            lambda x: stored(frame(), client=x),
            {"distributed.Client(address)": "distributed.get_client()"},
        ),
    ],
    ("dask/verbs.py", ".astype({})"): [
        Case(lambda: lazy(frame(), 2)["k"].astype(pd.CategoricalDtype([1, 2, 3])), value_counts),
        Case(lambda: unknown("a", "b"), value_counts),
    ],
    ("frames/dataframes/pandas_casts.py", ".cat.as_known()"): [
        Case(lambda: unknown(1, 2), lambda x: inserted(x, [3])),
    ],
    ("distributed/groupby/owners.py", "persist()"): [
        Case(
            random_rows,
            run_again(lambda x: dgpuhash.groupby(x, "k").sum(), "dgpuhash_reduce"),
        ),
    ],
    ("distributed/merge/tasks.py", "persist()"): [
        Case(
            random_rows,
            run_again(lambda x: dgpuhash.merge(x, lazy(frame(), 2), "outer", on="k"), RECEIPT),
        ),
    ],
    ("distributed/query/fetch.py", ".repartition(npartitions=…)"): [
        Case(lambda: lazy(pd.DataFrame({"k": [1] * 6}), 1), merge_of_few_rows, {"…": "3"}),
    ],
    ("distributed/shards/shard_store.py", "index.merge(…)"): [
        Case(
            merge_before_a_change,
            lambda x: x.compute(),
            {"index": "DistributedIndex.open('changed')", "…": "frame()"},
            {"frame": frame},
        ),
    ],
    ("distributed/groupby/keys.py", ".assign()"): [
        Case(
            lambda: lazy(frame(), 2),
            lambda x: dgpuhash.groupby(x, "g" if "g" in x else np.array([1, 2, 1])).size(),
            {"()": "(g=given['k'])"},
        ),
    ],
    ("distributed/merge/verb.py", ".assign()"): [
        Case(
            lambda: lazy(frame(), 2),
            lambda x: dgpuhash.merge(
                x, frame(), left_on="g" if "g" in x else x["k"] + 1, right_on="k"
            ),
            {"()": "(g=given['k'])"},
        ),
    ],
    ("distributed/merge/verb.py", ".reset_index().sort_values(…)"): [
        Case(
            lambda: lazy(frame(), 2).clear_divisions(),
            lambda x: dgpuhash.merge(
                x,
                frame(),
                left_index=True,
                right_index=True,
                sort=x.index.name is None and "index" not in x,
            ).compute(),
            {"…": "'index'"},
        ),
    ],
    ("distributed/groupby/transform.py", "groups.agg({})"): [
        Case(
            lambda: dgpuhash.groupby(lazy(frame(), 2), "k"),
            lambda x: x.compute() if hasattr(x, "compute") else x.transform("list"),
        ),
    ],
    ("distributed/ingest/source.py", ".to_frame()"): [
        Case(lambda: lazy(frame(), 2)["k"], lambda x: merged_with_index(x)),
    ],
    ("distributed/ingest/source.py", "dask.dataframe.from_dask_array(array, columns=[…])"): [
        Case(lambda: da.from_array(NESTED), stored, {"…": "'k', 'v'"}),
    ],
    ("distributed/ingest/source.py", "dask.dataframe.from_delayed([…], meta=…)"): [
        Case(
            lambda: dask.delayed(frame()),
            stored,
            {"[…]": "given", "meta=…": "meta=meta"},
            {"meta": frame().iloc[:0]},
        ),
    ],
    ("distributed/partition/conflict.py", ".astype('int64')"): [
        Case(
            lambda dtype=dtype: pd.Series([1], dtype=dtype),
            lambda x: stored(
                lazy(pd.DataFrame({"k": [1], "v": x}), 1),
                mode="independent",
                conflict="sum",
                unique=True,
            ),
        )
        for dtype in ("int8", "int32", "uint16", "uint32")
    ],
    ("distributed/partition/registry.py", "DistributedIndex.open({}).close()"): [
        Case(lambda: named("taken") and None, lambda x: named("taken").close()),
    ],
    ("distributed/tables/batch.py", ".ravel()"): [
        Case(lambda: da.from_array(NESTED), table_of_keys),
    ],
    ("distributed/tables/batch.py", ".to_dask_array(lengths=True)"): [
        Case(lambda: lazy(frame(), 2)["k"], table_of_keys),
    ],
    ("distributed/tables/batch.py", ".astype({})"): [
        Case(lambda: da.from_array(np.array([1, 2], object), chunks=2), table_of_keys),
    ],
    ("distributed/tables/batch.py", "dask.array.from_array(values, chunks=keys.chunks)"): [
        Case(lambda: np.array([1, 2]), map_of_values, names={"keys": da.from_array([1, 2])}),
    ],
    ("distributed/tables/bloom_filter.py", "keys.compute_chunk_sizes()"): [
        Case(
            lambda: lazy(frame(), 2)["k"].to_dask_array(),
            lambda x: DistributedBloomFilter.from_keys(x).close(),
        ),
    ],
    ("distributed/tables/count_map.py", ".astype('uint64')"): [
        Case(lambda: np.array([1.0]), counted),
    ],
    ("cli/files/saved_index.py", "DistributedIndex.load({}).merge(left)"): [
        Case(
            lambda: resolving(),
            lambda x: (
                read_saved(x, distributed.get_client()) if isinstance(x, str) else x.compute()
            ),
            names={"left": frame()},
        ),
    ],
    ("cli/groupby.py", "sum(price)"): [
        Case(
            lambda: "sum(price)",
            lambda x: _named_aggregates(
                pd.DataFrame({"k": [1], "price": [2]}),
                ["k"],
                [AggregateCall().convert(each, None, None) for each in ("sum(price)", x)],
            ),
            {"sum(price)": "'total=sum(price)'"},
        )
    ],
    ("distributed/index/creation.py", ".load(url)"): [
        Case(
            lambda: saved_index() and DistributedIndex,
            lambda x: x.open("absent") if x is DistributedIndex else x.close(),
            names={"url": INDEX},
        ),
    ],
    ("distributed/index/rebuild.py", ".load(url)"): [
        Case(
            lambda: saved_index() and DistributedIndex,
            lambda x: rebuilt_elsewhere() if x is DistributedIndex else x.close(),
            names={"url": INDEX},
        ),
    ],
    ("distributed/tables/maintenance.py", ".load(url)"): [
        Case(
            lambda: DistributedSet,
            lambda x: DistributedSet("int64").rebuild() if x is DistributedSet else x.close(),
            names={"url": set_saved},
            fill={"url": "url()"},
        ),
    ],
    ("distributed/partition/registry.py", "DistributedIndex.open({})"): [
        Case(lambda: replaced(), lambda x: x.lookup([1])),
    ],
    ("distributed/storage/checkpoint.py", "DistributedIndex.load(url, durable=url)"): [
        Case(
            lambda: saved_index(),
            lambda x: (
                DistributedIndex.build(frame(), on="k", durable=x)
                if isinstance(x, str)
                else x.close()
            ),
            names={"url": INDEX},
        ),
    ],
    ("distributed/index/index.py", "compute()"): [
        Case(lambda: lazy(frame(), 2)["k"].to_dask_array(), erased),
    ],
    ("frames/dataframes/tagged.py", ".astype('str')"): [
        Case(
            lambda: objects({"a"}.__class__, {"b"}.__class__),
            lambda x: dgpuhash.groupby(lazy(pd.DataFrame({"k": x}), 2), "k").size().compute(),
        ),
    ],
    ("frames/groupby/partial/keys.py", ".cat.as_unknown()"): [
        Case(lambda: categories(["a"], [1]), sizes),
        Case(lambda: categories(["b", "a"], ["c", "b", "a"], ordered=True), sizes),
    ],
    ("frames/groupby/partial/keys.py", ".cat.as_unordered()"): [
        Case(lambda: categories(["b", "a"], ["a", "b"], ordered=True), sizes),
    ],
    ("frames/keys/categories.py", ".cat.as_unordered()"): [
        Case(lambda: categories(["b", "a"], ["a", "b"], ordered=True).cat.as_unknown(), sizes),
    ],
    ("frames/groupby/partial/keys.py", ".cat.as_known()"): [
        Case(
            lambda: unknown("a", "b"),
            lambda x: GroupPlan.of(x._meta.to_frame("k"), "k", how="size", observed=False),
        ),
    ],
}


def saved_table() -> str:
    table = f"{TABLE}/set"
    HashSet("int64").save(table, overwrite=True)
    return table


# Tests of the remedies of errors that take another process, lost workers or a GPU.
ELSEWHERE: dict[tuple[str, str], str] = {
    ("distributed/tables/base.py", "x.map_blocks({})"):
        "tests/distributed/tables/test_gpus.py::test_arrays_on_another_device",
    ("backend/cuda.py", "multiprocessing.get_context('spawn')"):
        "tests/tables/test_fork.py::test_tables_on_a_gpu_say_what_to_do",
    ("distributed/cluster/client.py", "load(url)"):
        "tests/distributed/test_faults.py::test_killed_and_loaded_again",
    ("distributed/cluster/rpc.py", "rebuild()"):
        "tests/distributed/test_faults.py::test_killed_between_build_and_merge_then_rebuilt",
    ("frames/dataframes/promotion.py", ".astype('object')"):
        "tests/frames/merge/test_promotion.py::test_intervals_and_sparse_columns_are_not_rounded",
    ("distributed/ingest/source.py", ".persist()"):
        "tests/distributed/ingest/test_whole.py::test_the_remedies_help",
    ("distributed/ingest/source.py", "frame.repartition(npartitions=frame.npartitions).persist()"):
        "tests/distributed/ingest/test_whole.py::test_the_remedies_help",
    ("distributed/merge/aligned.py", "frame.clear_divisions()"):
        "tests/distributed/merge/test_aligned.py::test_null_labels_are_in_the_last_partition",
    ("distributed/merge/typed.py", ".cat.as_known()"):
        "tests/distributed/merge/test_categories.py::"
        "test_categories_of_another_type_than_those_of_the_first_partition",
    ("distributed/shards/table_store.py", "rebuild()"):
        "tests/distributed/tables/test_maintenance.py::test_lost_parts_alone_are_rebuilt",
    ("kmer/databases/merging.py", "gather()"):
        "tests/kmer/databases/test_merging.py::test_what_keeps_indexes_apart",
    ("tables/commit.py", "clear()"):
        "tests/tables/test_interrupted.py::test_a_kernel_that_fails_between_others",
}  # fmt: skip
# Of arrays, frames or tables on a GPU, and of CuPy or cuDF: a machine without one raises none of
# these errors. They were judged by reading.
NOWHERE: set[tuple[str, str]] = {
    *(("backend/__init__.py", each) for each in ("cupy.asarray(x)", "cupy.asnumpy(x)")),
    ("backend/cuda.py", "cupy.asarray(x)"), ("backend/cuda.py", "cupy.cuda.Device({})"),
    ("backend/cuda.py", "cupy.get_default_memory_pool().free_all_blocks()"),
    *(("backend/device.py", each)
      for each in (".to_pandas()", "cudf.from_pandas(x)", "cupy.asarray(x)", "cupy.asnumpy(x)")),
    ("distributed/groupby/group_by.py", ".to_backend('pandas')"),
    ("distributed/ingest/source.py", ".to_backend({})"),
    ("frames/dataframes/cudf.py", ".astype({})"),
    ("frames/dataframes/cudf.py", "cudf.Series(keys)"),
    ("frames/dataframes/cudf_columns.py", ".astype(cudf.Decimal128Dtype(38, 9)).astype('str')"),
    ("frames/dataframes/cudf_columns.py", ".astype('str')"),
    *(("frames/dataframes/dispatch.py", each)
      for each in ("cudf.from_pandas(frame)", "cupy.asarray(array)", "cupy.asarray(x)",
                   "cupy.asnumpy(array)", "cupy.asnumpy(x)", "frame.to_pandas()")),
    ("frames/grouped/aggregation.py", ".to_pandas()"),
    ("frames/grouped/aggregation.py", "frame.to_pandas()"),
    ("frames/groupby/cudf/group_by.py", "frame.dropna()"),
    ("frames/groupby/cudf/assembly.py", ".astype('str')"),
    ("frames/groupby/partial/cudf/host.py", ".astype('str')"),
    *(("frames/groupby/partial/cudf/plan.py", each)
      for each in (".to_backend('pandas')", ".to_pandas()")),
    ("frames/groupby/cudf/groups.py", "frame.to_pandas()"),
    ("frames/index.py", "frame.to_pandas()"),
    ("kmer/calls.py", "cupy.asnumpy(letters)"),
    ("tables/arguments/interop.py", ".astype({})"),
    ("tables/arguments/interop.py", "x.view('u1').reshape(len(x), -1)"),
}  # fmt: skip
COVERED = {*CASES, *ON_CLUSTER, *ELSEWHERE, *NOWHERE}


def test_every_remedy_has_a_case():
    assert sorted(set(remedies()) - COVERED) == []


def test_every_case_has_a_remedy():
    assert sorted(COVERED - set(remedies())) == []


@pytest.mark.parametrize("where", sorted(set(ELSEWHERE.values())))
def test_that_a_remedy_is_run_elsewhere(where):
    file, _, name = where.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()


def each_case(table: dict[tuple[str, str], list[Case]]) -> Any:
    found = [(key, case) for key, cases in table.items() for case in cases]
    names = lambda each: ": ".join(each) if isinstance(each, tuple) else ""  # noqa: E731
    return pytest.mark.parametrize(("key", "case"), found, ids=names)


@each_case(CASES)
def test_remedies(key, case):
    run(key[1], case)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with cluster_of(2, processes=False) as made:
        yield made


@pytest.mark.cluster
@each_case(ON_CLUSTER)
def test_remedies_on_a_cluster(client, key, case):
    with client.as_current(), dask.config.set({"dataframe.convert-string": False}):
        run(key[1], case)


def run(pattern: str, case: Case) -> None:
    """Run the verb of a case, and then with its remedy."""
    given = case.given()
    with pytest.raises((DgpuhashError, ClickException)) as raised:
        case.verb(given)
    code = code_of(str(raised.value), pattern)
    for old, new in case.fill.items():
        code = code.replace(old, new)
    case.verb(cured(code, given, case.names))
