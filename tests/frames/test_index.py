"""FrameIndex: inserts and deletes, settings and refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames.generated import frame_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from dgpuhash.errors import (
    ColumnError,
    DeviceError,
    KeyTypeError,
    OutOfMemoryError,
    TableBroken,
    UnsupportedError,
)
from dgpuhash.frames import FrameIndex, KeyEncoder
from dgpuhash.frames.dataframes.pandas import PandasFrames
from dgpuhash.frames.keys.table import KeyTable
from dgpuhash.tables.stats import format_bytes

PLANES = pd.DataFrame(
    {
        "tailnum": ["N1", "N2", "N3"],
        "seats": np.array([55, 182, 20], "int16"),
        "maker": pd.Categorical(["A", "B", None]),
    }
)
FLIGHTS = pd.DataFrame({"flight": [1, 2, 3, 4], "tailnum": ["N2", None, "N9", "N1"]})


@settings(max_examples=60)
@given(frame_pairs(most_keys=2), st.sampled_from([64, 2]), st.data())
def test_changes_agree_with_a_frame(pair, hash_bits, data):
    _, rows, _, on = pair
    encoder = KeyEncoder.for_frame(rows, on, hash_bits=hash_bits)
    index = FrameIndex.build(rows.iloc[:0], on, encoder=encoder)
    model = rows.iloc[:0]
    for _ in range(data.draw(st.integers(1, 4))):
        some = data.draw(st.lists(st.sampled_from(range(len(rows))), max_size=8))
        batch = rows.iloc[some]
        verb = data.draw(st.sampled_from(["insert", "upsert", "erase"]))
        if verb == "upsert":
            batch = _first_of_each(batch, on)
            assert index.upsert(batch) == len(batch)
            left = model[~_matches(model, batch, on)]
            model = pd.concat([left, batch], ignore_index=True)
        elif verb == "insert":
            index.insert(batch)
            model = pd.concat([model, batch], ignore_index=True)
        else:
            gone = _matches(model, batch, on)
            assert index.erase(batch) == int(gone.sum())
            model = model[~gone].reset_index(drop=True)
        assert len(index) == len(model)
        assert_frame_equal(index.frame(), model)
        assert_frame_equal(index.merge(rows[on], on=on), rows[on].merge(model, on=on))


def _matches(frame: pd.DataFrame, keys: pd.DataFrame, on: list[str]) -> np.ndarray:
    numbered = frame[on].assign(row=np.arange(len(frame)))
    return np.isin(numbered["row"], numbered.merge(keys[on].drop_duplicates(), on=on)["row"])


def _first_of_each(frame: pd.DataFrame, on: list[str]) -> pd.DataFrame:
    keys = frame[on].assign(row=np.arange(len(frame)))
    pairs = keys.merge(keys.rename(columns={"row": "other"}), on=on)
    later = pairs.loc[pairs["other"] < pairs["row"], "row"]
    return frame.iloc[~np.isin(np.arange(len(frame)), later)]


@pytest.mark.parametrize("hash_bits", [64, 1])
@pytest.mark.parametrize("dtype", ["str", "int64", "Int64"])
def test_upserts(hash_bits, dtype):
    frame = pd.DataFrame({"k": pd.Series(range(20)).astype(dtype), "v": range(20)})
    encoder = KeyEncoder.for_frame(frame, "k", hash_bits=hash_bits)
    for unique in (True, False):
        index = FrameIndex.build(frame, "k", unique=unique, encoder=encoder)
        with pytest.raises(ColumnError, match=r"'k'.* more than one row of the upsert"):
            index.upsert(frame.iloc[[3, 4, 3]])
        with pytest.raises(ColumnError):
            index.upsert(frame[["k"]])
        kept = frame.iloc[2:].assign(v=-1)
        for _ in range(4):
            assert index.upsert(kept) == 18
        assert index.upsert(kept[:0]) == 0
        assert_frame_equal(index.frame(), pd.concat([frame[:2], kept], ignore_index=True))
        assert index.is_unique
        if hash_bits == 64:
            assert index.one_row_per_key
        # Rows that are replaced do not stay.
        assert len(index.store) <= 2 * len(index)


def test_an_upsert_that_cannot_put_its_rows_back_says_so(monkeypatch):
    index = FrameIndex.build(pd.DataFrame({"k": [1, 1, 2], "v": [1, 2, 3]}), "k")

    def fail(*_: Any, **__: Any) -> None:
        raise OutOfMemoryError("1 byte needed and 0 free; use less")

    monkeypatch.setattr(KeyTable, "insert", fail)
    with pytest.raises(OutOfMemoryError):
        index.upsert(pd.DataFrame({"k": [1], "v": [9]}))
    monkeypatch.undo()
    for ask in (lambda: index.lookup([2]), lambda: len(index), index.frame):
        with pytest.raises(TableBroken, match="load a save"):
            ask()


def test_erased_rows_are_dropped_when_they_are_more_than_half():
    index = FrameIndex.build(pd.DataFrame({"k": range(100), "v": range(100)}), "k")
    index.erase(pd.DataFrame({"k": range(50)}))
    assert index.stats().erased_rows == 50
    assert index.erase(pd.DataFrame({"k": range(10, 51)})) == 1
    assert index.stats().erased_rows == 0
    assert index.frame()["v"].tolist() == list(range(51, 100))
    assert index.lookup([60, 3])["v"].tolist()[0] == 60


def test_only_the_columns_asked_for_are_kept():
    index = FrameIndex.build(PLANES, "tailnum", columns=["maker"])
    assert list(index.meta.columns) == ["tailnum", "maker"]
    found = index.merge(FLIGHTS, columns=[])
    assert list(found.columns) == ["flight", "tailnum"]
    with pytest.raises(ColumnError, match=r"no column \['seats'\] in the index"):
        index.merge(FLIGHTS, columns=["seats"])
    with pytest.raises(ColumnError, match=r"no column \['wings'\]"):
        FrameIndex.build(PLANES, "tailnum", columns=["wings"])


@pytest.mark.parametrize("hash_bits", [64, 1])
@pytest.mark.parametrize("dtype", ["str", "int64", "Int64"])
def test_unique(hash_bits, dtype):
    frame = pd.DataFrame({"k": pd.Series(range(20)).astype(dtype), "v": range(20)})
    encoder = KeyEncoder.for_frame(frame, "k", hash_bits=hash_bits)
    index = FrameIndex.build(frame, "k", unique=True, encoder=encoder)
    assert index.is_unique
    with pytest.raises(ColumnError, match=r"'k'.*drop_duplicates"):
        index.insert(frame.iloc[3:4])
    fresh = frame.assign(k=pd.Series([100, 101] + [102] * 18).astype(dtype))
    with pytest.raises(ColumnError, match="more than one row"):
        index.insert(fresh)
    assert len(index) == 20
    index.insert(fresh.iloc[:3])
    assert len(index) == 23
    open_index = FrameIndex.build(frame, "k", encoder=encoder)
    open_index.insert(frame.iloc[3:4])
    assert not open_index.is_unique
    open_index.erase(frame.iloc[3:4])
    assert open_index.is_unique


def test_null_keys_of_a_unique_index():
    frame = pd.DataFrame({"k": pd.array([1, None, None], dtype="Int64")})
    with pytest.raises(ColumnError, match="unique"):
        FrameIndex.build(frame, "k", unique=True)
    assert FrameIndex.build(frame[:2], "k", unique=True).is_unique


@pytest.mark.parametrize("dtype", ["UInt64", "UInt32"])
def test_the_reserved_code_is_told_from_null(dtype):
    from dgpuhash.frames.keys.encoding import NULL_CODE

    reserved = NULL_CODE[8 if dtype == "UInt64" else 4]
    rows = pd.DataFrame({"k": pd.array([None, reserved, None], dtype=dtype), "v": [1, 2, 3]})
    index = FrameIndex.build(rows, "k")
    query = pd.DataFrame({"k": pd.array([reserved, None, 5], dtype=dtype)})
    assert_frame_equal(index.merge(query, how="left"), query.merge(rows, how="left"))
    assert index.erase(query[:1]) == 1
    assert index.frame()["v"].tolist() == [1, 3]


def test_inserted_columns_take_the_dtypes_of_the_index():
    index = FrameIndex.build(PLANES, "tailnum")
    more = pd.DataFrame(
        {
            "maker": ["C", "A"],
            "wings": [2, 2],
            "seats": [7, 8],
            "tailnum": pd.Series(["N4", "N5"], dtype=object),
        }
    )
    index.insert(more)
    assert list(index.frame()["maker"].cat.categories) == ["A", "B", "C"]
    expected = PLANES.assign(maker=PLANES["maker"].cat.add_categories("C"))
    assert_frame_equal(index.frame()[:3], expected)
    index.insert(more.assign(seats=[1.5, 2.5]))
    assert index.frame()["seats"].dtype == "float64"
    with pytest.raises(ColumnError, match=r"'seats' is str.*build the index from .astype\('str'\)"):
        index.insert(more.assign(seats=["a", "b"]))
    with pytest.raises(ColumnError, match=r"no column \['maker'\]"):
        index.insert(more.drop(columns="maker"))
    with pytest.raises(KeyTypeError):
        index.insert(more.assign(tailnum=[4, 5]))
    assert len(index) == 7


def test_numbers_are_no_truth_values():
    index = FrameIndex.build(pd.DataFrame({"k": [1], "v": [True]}), "k")
    index.insert(pd.DataFrame({"k": [2], "v": [0]}))
    with pytest.raises(ColumnError, match=r"'v' is int64.*stores it as bool.*astype"):
        index.insert(pd.DataFrame({"k": [3], "v": [5]}))
    # As bool, nulls would become False.
    with pytest.raises(ColumnError, match=r"'v' is object.*nulls.*astype\('boolean'\)"):
        index.insert(pd.DataFrame({"k": [3, 4], "v": [True, None]}))
    assert index.frame()["v"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("stored", "given", "number"),
    [
        ("int64", "uint64", 2**63),
        ("uint64", "int64", -1),
        ("uint64", "int8", -1),
        ("int8", "uint64", 2**63),
        ("Int64", "UInt64", 2**63 + 2**11),
        ("UInt8", "Int8", -1),
    ],
)
def test_numbers_of_the_other_sign_stay_what_they_are(stored, given, number):
    rows = pd.DataFrame({"k": [1], "v": [1]}).astype(stored)
    index, beyond = FrameIndex.build(rows, "k"), pd.Series([number], dtype=given)
    with pytest.raises(KeyTypeError, match=r"'k' has values.*do not fit"):
        index.insert(rows.assign(k=beyond))
    assert len(index) == 1
    index.insert(rows.assign(k=pd.Series([2], dtype=given), v=beyond))
    assert index.frame()["v"].astype("float64").tolist() == [1, float(number)]


@pytest.mark.parametrize(
    ("stored", "given", "number"),
    [
        ("int64", "double[pyarrow]", 0.5),
        ("int64[pyarrow]", "float64", 0.5),
        ("int64[pyarrow]", "uint64", 2**64 - 1),
        ("double[pyarrow]", "int64", 2**53 + 1),
        ("int8", "int64[pyarrow]", 2**53 + 1),
    ],
)
def test_numbers_that_arrow_would_have_to_round_are_refused(stored, given, number):
    """Or the rows could not be put together later."""
    rows = pd.DataFrame({"k": [1, 2], "v": pd.Series([1, 2], dtype=stored)})
    if "64" in stored:
        rows.loc[0, "v"] = 2**63 - 1
    index = FrameIndex.build(rows, "k")
    with pytest.raises(ColumnError, match=r"'v' is.*Arrow does not round.*'Float64'"):
        index.insert(pd.DataFrame({"k": [3], "v": pd.Series([number], dtype=given)}))
    assert index.lookup([3, 1], promote="nullable")["v"].isna().tolist() == [True, False]


def test_wider_numbers_of_arrow_are_kept():
    rows = pd.DataFrame({"k": [1], "v": pd.Series([1], dtype="int8[pyarrow]")})
    index = FrameIndex.build(rows, "k")
    index.insert(pd.DataFrame({"k": [2], "v": [2**62 + 1]}))
    assert index.frame()["v"].tolist() == [1, 2**62 + 1]


def test_numbers_that_no_cast_takes_are_kept():
    rows = pd.DataFrame({"k": [1], "v": pd.Series([1], dtype="Int64")})
    index = FrameIndex.build(rows, "k")
    index.insert(rows.assign(v=np.float32("inf")))
    assert index.frame()["v"].tolist() == [1, np.inf]


@pytest.mark.parametrize(
    ("stored", "number", "given", "other"),
    [
        ("int64", 2**53 + 1, "float64", 0.5),
        ("Int64", 2**63 - 1, "Float64", 0.5),
        ("uint64", 2**64 - 1, "float32", 0.5),
        ("float64", 0.5, "int64", 2**53 + 1),
        ("float64", 0.5, "int64", 2**63 - 1),
        ("Float64", 0.5, "UInt64", 2**64 - 1),
        ("int64", 1, "uint64", 2**64 - 1),
        ("int64", -(2**53) - 1, "uint64", 2**63),
    ],
)
def test_integers_that_floats_beside_them_would_round_are_refused(stored, number, given, other):
    rows = pd.DataFrame({"k": [1], "v": pd.Series([number], dtype=stored)})
    index = FrameIndex.build(rows, "k")
    more = pd.DataFrame({"k": [2], "v": pd.Series([other], dtype=given)})
    with pytest.raises(ColumnError, match=r"'v' holds integers such as.*'float64'"):
        index.insert(more)
    assert_frame_equal(index.frame(), rows)
    index.insert(more.iloc[:0])
    index.insert(rows.assign(k=3))
    assert index.frame()["v"].tolist() == [number, number]


def test_integers_are_not_rounded_once_floats_are_stored():
    index = FrameIndex.build(pd.DataFrame({"k": [1], "v": [5]}), "k")
    index.insert(pd.DataFrame({"k": [2], "v": [0.5]}))
    with pytest.raises(ColumnError, match="9007199254740993, which would be rounded"):
        index.insert(pd.DataFrame({"k": [3], "v": [2**53 + 1]}))
    index.insert(pd.DataFrame({"k": [3], "v": [2**54]}))
    assert index.frame()["v"].tolist() == [5, 0.5, 2**54]
    # Where all rows went, so did the floats.
    index.erase(index.frame())
    index.insert(pd.DataFrame({"k": [3], "v": [2**53 + 1]}))
    assert index.frame()["v"].tolist() == [2**53 + 1]


@pytest.mark.parametrize("stored", [[1, 2], pd.array([1, 2], "Int8"), [True, False], ["1", "2"]])
def test_categories_keep_their_dtype(stored):
    rows = pd.DataFrame({"k": [1, 2], "v": pd.Categorical(stored)})
    index, first = FrameIndex.build(rows, "k"), rows["v"].cat.categories
    as_others = rows["v"].cat.rename_categories(
        first.astype("float64" if first[0] != "1" else object)
    )
    index.insert(rows.assign(v=as_others))
    assert index.frame()["v"].dtype == rows["v"].dtype
    other = pd.Categorical([1.5, None]) if stored != ["1", "2"] else pd.Categorical([1, None])
    with pytest.raises(ColumnError, match=f"'v' is category.*categories of {first.dtype}"):
        index.insert(rows.assign(v=other))
    assert index.frame()["v"].tolist() == [*stored, *stored]


def test_categories_are_no_numbers_that_may_be_missing():
    index = FrameIndex.build(pd.DataFrame({"k": [1], "v": [1]}), "k")
    with pytest.raises(ColumnError, match=r"'v' is category.*stores it as int64"):
        index.insert(pd.DataFrame({"k": [2], "v": pd.Categorical([None], categories=[1])}))
    index.insert(pd.DataFrame({"k": [2], "v": pd.Categorical([7])}))
    assert index.frame()["v"].tolist() == [1, 7]


def test_rows_of_one_column_by_its_label():
    index = FrameIndex.build(PLANES, "tailnum")
    assert_frame_equal(index.frame("seats"), PLANES[["seats"]])


def test_match_gives_rows_in_query_order_and_insertion_order():
    rows = pd.DataFrame({"k": [1, 2, 1, 3, 1], "v": [10, 20, 11, 30, 12]})
    index = FrameIndex.build(rows, "k")
    query_rows, frame = index.match(pd.DataFrame({"q": [3, 1, 9]}), on="q", columns=["v"])
    assert query_rows.dtype == np.int64
    assert query_rows.tolist() == [0, 1, 1, 1]
    assert frame["v"].tolist() == [30, 10, 11, 12]
    assert index.match(rows[:2], how="semi").query_rows.tolist() == [0, 1]
    anti = index.match(pd.DataFrame({"k": [9, 1, 8]}), how="anti")
    assert anti.query_rows.tolist() == [0, 2]
    assert anti.frame is None


@pytest.mark.parametrize("how", ["cross", "nonsense"])
def test_other_joins_are_refused_with_the_way_to_get_them(how):
    index = FrameIndex.build(PLANES, "tailnum")
    for refused in (index.merge, index.match):
        with pytest.raises(UnsupportedError, match="use one of"):
            refused(FLIGHTS, how=how)
    for how in ("right", "outer"):
        with pytest.raises(UnsupportedError, match="anti"):
            index.match(FLIGHTS, how=how)


@pytest.mark.parametrize("how", ["right", "outer"])
def test_rows_of_the_index_without_a_match_are_told(how):
    index = FrameIndex.build(PLANES, "tailnum")
    wanted = FLIGHTS.merge(PLANES, how=how, on="tailnum")
    pd.testing.assert_frame_equal(index.merge(FLIGHTS, how=how), wanted)
    index.erase(PLANES[["tailnum"]].iloc[:1])
    wanted = FLIGHTS.merge(PLANES.iloc[1:], how=how, on="tailnum")
    pd.testing.assert_frame_equal(index.merge(FLIGHTS, how=how), wanted)


def test_join_columns_are_checked():
    index = FrameIndex.build(PLANES.assign(year=2000), ["tailnum", "year"])
    flights = FLIGHTS.assign(year=2000)
    assert len(index.merge(flights, on=["year", "tailnum"])) == 2
    with pytest.raises(ColumnError, match="left_on="):
        index.merge(flights, on="tailnum")
    with pytest.raises(ColumnError, match="left_on has 1 columns"):
        index.merge(flights, left_on="tailnum")
    with pytest.raises(ColumnError, match="exclude each other"):
        index.merge(flights, on=["year", "tailnum"], left_on=["year", "tailnum"])
    with pytest.raises(ColumnError, match=r"no column \['year'\]"):
        index.merge(FLIGHTS)
    with pytest.raises(KeyTypeError, match="'flight' holds int64"):
        index.merge(flights, left_on=["flight", "year"])


def test_frames_of_another_kind_are_refused():
    index = FrameIndex.build(PLANES, "tailnum")
    for wrong in ({"tailnum": ["N1"]}, [1], np.arange(3)):
        with pytest.raises(KeyTypeError, match=r"pandas.DataFrame"):
            index.merge(wrong)
        with pytest.raises(KeyTypeError, match=r"pandas.DataFrame"):
            FrameIndex.build(wrong, "tailnum")
    with pytest.raises(DeviceError):
        FrameIndex.build(PLANES, "tailnum", device="tpu")


@pytest.mark.parametrize("rows", [0, 1])
def test_tiny_indexes(rows):
    index = FrameIndex.build(PLANES[:rows], "tailnum")
    for how in ("inner", "left"):
        found = index.merge(FLIGHTS, how=how)
        assert_frame_equal(found, FLIGHTS.merge(PLANES[:rows], how=how))
        assert_frame_equal(index.merge(FLIGHTS[:0], how=how), FLIGHTS[:0].merge(PLANES[:rows]))
    assert len(index.merge(FLIGHTS, how="semi")) == rows
    assert len(index.merge(FLIGHTS, how="anti")) == 4 - rows
    assert index.erase(FLIGHTS) == rows
    assert len(index.lookup([])) == 0


def test_it_describes_itself():
    index = FrameIndex.build(PLANES, "tailnum")
    assert repr(index).startswith("<FrameIndex on ['tailnum']: 3 rows")
    assert f"{format_bytes(index.nbytes)}, columns {list(PLANES)[1:]!r}, pandas on" in repr(index)
    assert "<td style='text-align:right'>3</td>" in index._repr_html_()
    stats: Any = index.stats()
    assert (stats.rows, stats.packing, stats.table, stats.frames) == (
        3,
        "hashed",
        "HashMap",
        "pandas",
    )
    assert index.nbytes == stats.row_nbytes + stats.table_nbytes
    index.insert(PLANES)
    assert index.stats().table == "MultiMap"


def test_threads_that_change_an_index_take_turns():
    index = FrameIndex.build(pd.DataFrame({"k": [-1], "v": [0]}), on="k")

    def work(number):
        for first in range(number * 4000, (number + 1) * 4000, 500):
            rows = pd.DataFrame({"k": np.arange(first, first + 500), "v": first})
            index.insert(rows)
            assert_frame_equal(index.merge(rows[["k"]]), rows)
            assert index.erase(rows[:50]) == 50
            assert index.contains(rows["k"][:60]).sum() == 10

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(index) == 1 + 4 * 8 * 450


def test_a_label_is_not_its_letters():
    index = FrameIndex.build(PLANES, "tailnum", columns="seats")
    assert list(index.meta.columns) == ["tailnum", "seats"]
    assert list(index.merge(FLIGHTS, columns="seats").columns) == ["flight", "tailnum", "seats"]
    with pytest.raises(ColumnError, match="'wings'"):
        index.merge(FLIGHTS, columns="wings")
    with pytest.raises(KeyTypeError, match="to_frame"):
        index.merge(FLIGHTS["tailnum"])
    assert index.contains(np.array("N1")).tolist() == [True]


def test_columns_that_are_not_stored_are_named():
    index = FrameIndex.build(PLANES, on="tailnum")
    for read in index.frame, lambda columns: index.match(PLANES, columns=columns):
        with pytest.raises(ColumnError, match=r"no column \['year'\] in the index; its columns"):
            read(["seats", "year"])


def test_rows_of_a_reader_that_found_none_have_no_dtypes():
    index = FrameIndex.build(PLANES, "tailnum")
    nothing = pd.DataFrame(columns=PLANES.columns)
    index.insert(nothing)
    assert len(index) == 3 and index.frame().dtypes.equals(PLANES.dtypes)
    numbers = FrameIndex.build(pd.DataFrame({"k": [1], "v": [2]}), "k")
    assert len(numbers.lookup(nothing.rename(columns={"tailnum": "k"}))) == 0


def test_times_that_a_coarser_unit_cannot_hold():
    stored = pd.DataFrame({"k": [1], "t": np.array(["2020-01-01"], "M8[s]")})
    index = FrameIndex.build(stored, "k")
    finer = pd.DataFrame({"k": [2], "t": np.array(["2020-01-01T00:00:00.5"], "M8[us]")})
    with pytest.raises(ColumnError, match=r"build the index from .astype\('datetime64\[us\]'\)"):
        index.insert(finer)
    index.insert(pd.DataFrame({"k": [2], "t": np.array(["2020-01-02"], "M8[us]")}))
    assert index.frame()["t"].dtype == "M8[s]"


def test_reads_after_inserts_copy_no_large_page(monkeypatch):
    rows = pd.DataFrame({"k": np.arange(20_000) % 15_000, "t": [f"t{i}" for i in range(20_000)]})
    rows["c"] = rows["t"].str[:2].astype("category")
    copied, concat = [0], PandasFrames.concat

    def counted(self, frames):
        frames = list(frames)
        copied.append(sum(map(len, frames)))
        return concat(self, frames)

    monkeypatch.setattr(PandasFrames, "concat", counted)
    index, random = FrameIndex.build(rows, on="k"), np.random.default_rng(4)
    whole = rows
    for size in (1, 1, 7, 300, 1, 40, 1, 500):
        new = rows.iloc[random.integers(0, 20_000, size)].assign(k=lambda f: f["k"] + 9_000)
        index.insert(new)
        whole = pd.concat([whole, new], ignore_index=True)
        asked = pd.DataFrame({"k": random.integers(0, 25_000, 60), "x": np.arange(60)})
        found = index.merge(asked)
        assert_frame_equal(found, asked.merge(whole, on="k"))
        assert index.lookup(asked["k"])["t"].dropna().tolist() == found["t"].tolist()
        assert index.contains(asked["k"]).tolist() == asked["k"].isin(whole["k"]).tolist()
    assert max(copied) < 2000
    assert_frame_equal(index.frame(), whole)
    # Pages of other dtypes are put together, so that a part has the dtypes of all.
    index.insert(new.assign(c=pd.Categorical(["zz"] * len(new))))
    assert "zz" in index.merge(asked)["c"].cat.categories
