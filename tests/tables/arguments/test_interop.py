"""Arrays of any library as input, and answers of the same library."""

from __future__ import annotations

import array

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dgpuhash
from dgpuhash.errors import DeviceError, KeyTypeError, ShapeError
from dgpuhash.tables import HashMap, HashSet, MultiMap

KEYS = np.array([5, 1, 9, 1])
VALUES = np.array([0.5, 1.5, 2.5, 1.5])


def filled() -> HashMap:
    return HashMap.from_arrays(KEYS[:2], VALUES[:2])


def test_numpy():
    values, found = filled().find(KEYS)
    assert type(values) is np.ndarray
    assert type(found) is np.ndarray
    assert values.tolist() == [0.5, 1.5, 0, 1.5]
    assert found.tolist() == [True, True, False, True]


KINDS_OF_PANDAS = {
    "int64": ("bool", "int64", "float64"),
    "int32": ("bool", "int64", "float64"),
    "Int64": ("boolean", "Int64", "Float64"),
    "Int8": ("boolean", "Int64", "Float64"),
    "Float64": ("boolean", "Int64", "Float64"),
    "int64[pyarrow]": ("bool[pyarrow]", "int64[pyarrow]", "double[pyarrow]"),
    "float[pyarrow]": ("bool[pyarrow]", "int64[pyarrow]", "double[pyarrow]"),
}


@pytest.mark.parametrize("dtype", KINDS_OF_PANDAS)
def test_pandas_series_keep_their_index_and_kind_of_dtype(dtype):
    mask, counts, reals = KINDS_OF_PANDAS[dtype]
    index = list("abcd")
    keys = pd.Series(KEYS, index=index, name="key").astype(dtype)

    def check(found, expected, kind, index=index):
        pd.testing.assert_series_equal(found, pd.Series(expected, index=index, dtype=kind))

    there = [True, True, False, True]
    values, found = filled().find(keys)
    check(values, [0.5, 1.5, 0, 1.5], reals)
    check(found, there, mask)
    check(filled().contains(keys), there, mask)
    check(filled().count(keys), [1, 1, 0, 1], counts)
    assert filled().erase(keys).dtype == mask
    check(HashSet.from_keys(keys[:0]).insert(keys), [True, True, True, False], mask)
    check(dgpuhash.isin(keys, KEYS[:2]), there, mask)
    values, offsets = MultiMap.from_arrays(KEYS[:2], VALUES[:2]).find(keys)
    check(values, [0.5, 1.5, 1.5], reals, None)
    check(offsets, [0, 1, 2, 2, 3], counts, None)
    distinct = [5, 1, 9]
    codes, uniques = dgpuhash.factorize(keys)
    check(codes, [0, 1, 2, 1], counts)
    check(uniques, distinct, dtype, None)
    check(dgpuhash.unique(keys), distinct, dtype, None)
    uniques, often = dgpuhash.value_counts(keys)
    check(uniques, [1, 5, 9], dtype, None)
    check(often, [2, 1, 1], counts, None)
    uniques, results = dgpuhash.group_reduce(keys, keys, ["min", "last", "count", "any"])
    check(uniques, distinct, dtype, None)
    check(results["min"], distinct, dtype, None)
    check(results["last"], distinct, dtype, None)
    check(results["count"], [1, 2, 1], counts, None)
    check(results["any"], [True] * 3, mask, None)


@pytest.mark.parametrize("dtype", ["Int64", "Float32", "int64[pyarrow]", "boolean"])
def test_pandas_arrays_and_indexes_keep_their_kind_of_dtype(dtype):
    keys = pd.array([1, 0, 1], dtype="Int64").astype(dtype)
    for given in (keys, pd.Index(keys)):
        uniques = dgpuhash.unique(given)
        assert type(uniques) is type(given)
        assert uniques.dtype == dtype
        assert uniques.tolist() == [1, 0]
        found = dgpuhash.isin(given, [1])
        assert type(found) is type(given) or isinstance(found, pd.arrays.BooleanArray)
        assert found.dtype == ("bool[pyarrow]" if "pyarrow" in dtype else "boolean")


def test_nan_of_nullable_floats_stays_one():
    reals = pd.Series(pd.arrays.FloatingArray(np.array([np.nan, 1.5]), np.zeros(2, bool)))
    for keys in (reals, pd.Series(pd.array(pa.array([np.nan, 1.5]), "double[pyarrow]"))):
        uniques = dgpuhash.unique(keys)
        assert uniques.dtype == keys.dtype
        assert not uniques.array.isna().any()
        assert np.isnan(uniques.iloc[0])
        values, found = HashMap.from_arrays([1], [np.nan]).find(keys)
        assert found.tolist() == [False, False]
        assert values.dtype == keys.dtype


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("ms"), pa.duration("s")])
def test_arrow_times_keep_their_type(kind):
    keys = pa.array([86_400_000, 0, 0] if kind != pa.date32() else [1, 0, 0], pa.int64())
    keys = (keys.cast(pa.int32()) if kind == pa.date32() else keys).cast(kind)
    assert dgpuhash.unique(keys).type == kind
    assert dgpuhash.factorize(keys)[1].equals(keys[:2])
    series = pd.Series(pd.array(keys, pd.ArrowDtype(kind)))
    uniques, results = dgpuhash.group_reduce(series, {"t": series}, {"t": "max"})
    assert uniques.dtype == results["t"].dtype == series.dtype
    assert uniques.tolist() == series[:2].tolist()


def test_pandas_series_of_lists():
    table = MultiMap.from_arrays(pd.Series(KEYS), pd.Series(VALUES))
    values, offsets = table.find(pd.Series([1, 5], index=[7, 8]))
    pd.testing.assert_series_equal(values, pd.Series([1.5, 1.5, 0.5]))
    pd.testing.assert_series_equal(offsets, pd.Series([0, 2, 3]))
    # As many values as keys, by chance: they are still not rows of the argument.
    values, offsets = table.find(pd.Series([1, 8, 5], index=[7, 8, 9]))
    pd.testing.assert_series_equal(values, pd.Series([1.5, 1.5, 0.5]))


def test_pandas_index_and_arrays():
    values, found = filled().find(pd.Index(KEYS))
    pd.testing.assert_index_equal(values, pd.Index([0.5, 1.5, 0, 1.5]))
    assert isinstance(found, pd.Index)
    extension = filled().find(pd.array(KEYS, dtype="Int64"))[0]
    assert extension.dtype == "Float64"
    assert np.asarray(extension).tolist() == [0.5, 1.5, 0, 1.5]


def test_pandas_dates():
    days = pd.Series(pd.date_range("2020-01-01", periods=3))
    table = HashMap.from_arrays(days, days)
    values, _ = table.find(days[::-1])
    pd.testing.assert_series_equal(values, days[::-1])
    assert table.key_dtype == days.dtype


def test_numpy_nullable_without_nulls_and_float_nans_are_taken():
    table = HashSet("float64")
    table.insert(pd.Series([1.0, np.nan]))
    assert table.contains(pd.Series([np.nan])).all()
    assert HashSet("bool").insert(pd.Series([True, False], dtype="boolean")).all()


@pytest.mark.parametrize("keys", [pa.array(KEYS), pa.chunked_array([KEYS[:1], KEYS[1:]])])
def test_arrow(keys):
    values, found = filled().find(keys)
    assert values.equals(pa.array([0.5, 1.5, 0, 1.5]))
    assert found.equals(pa.array([True, True, False, True]))


def test_arrow_dates_and_bools():
    days = pa.array(np.array(["2020-01-01", "2020-01-02"], "M8[D]"))
    table = HashMap.from_arrays(days, pa.array([True, False]))
    assert table.key_dtype == np.dtype("M8[D]")
    assert table.find(days)[0].equals(pa.array([True, False]))


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        (np.arange(1, 3).view("M8[ms]"), "series index array arrow"),
        (np.array([0.5, 2], "f2"), "series array arrow"),
        (np.array([0.5, 2], np.longdouble), "series index array"),
        (np.array([2**31 - 1, -(2**31)], "M8[D]"), "arrow"),
        (np.array(["NaT", "2020"], "M8[D]"), "arrow"),
        (np.array([2**31, 1], "M8[D]"), ""),
        *(
            (np.arange(1, 3).view(dtype), "")
            for dtype in (
                "M8[10ms]",
                "m8[7s]",
                "m8[Y]",
                "m8[M]",
                "m8[D]",
                "M8[h]",
                "M8[W]",
                "M8[ps]",
            )
        ),
    ],
)
def test_values_that_a_library_lacks_come_as_numpy_arrays(values, kinds):
    keys = np.array([1, 2])
    table = HashMap.from_arrays(keys, values)
    for kind, asked in {
        "series": pd.Series(keys),
        "index": pd.Index(keys),
        "array": pd.array(keys),
        "arrow": pa.array(keys),
    }.items():
        found = table.find(asked)[0]
        assert isinstance(found, np.ndarray) == (kind not in kinds.split())
        assert np.asarray(found).dtype == values.dtype
        np.testing.assert_array_equal(np.asarray(found), values)


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1], pa.time32("s")),
        pa.array([1], pa.time64("ns")),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([1], pa.timestamp("ns", "UTC")),
        pd.Series([pd.Timestamp("2020", tz="UTC")], dtype=pd.ArrowDtype(pa.timestamp("ns", "UTC"))),
        pd.Series([1], dtype=pd.ArrowDtype(pa.time64("us"))),
    ],
)
def test_times_of_day_and_of_a_zone_have_no_numpy_form(times):
    for call in (HashSet.from_keys, HashSet("M8[ns]").insert):
        with pytest.raises(KeyTypeError, match=r"no fixed-size NumPy form.*tz_convert"):
            call(times)


def test_what_arrow_cannot_read_is_said_plainly():
    class Foreign:
        def __arrow_c_array__(self, schema=None):
            raise pa.ArrowInvalid("unsupported format '_pli128'")

    class Stream:
        def __arrow_c_stream__(self, schema=None):
            raise pa.ArrowNotImplementedError("unsupported format '_pli128'")

    for keys in (Foreign(), Stream()):
        with pytest.raises(KeyTypeError, match=r"_pli128.*NumPy dtype"):
            filled().contains(keys)


def test_arrow_protocol_of_other_libraries():
    class Foreign:
        def __arrow_c_array__(self, schema=None):
            return pa.array(KEYS).__arrow_c_array__(schema)

    class Stream:
        def __arrow_c_stream__(self, schema=None):
            return pa.chunked_array([KEYS]).__arrow_c_stream__(schema)

    for keys in (Foreign(), Stream()):
        assert filled().contains(keys).equals(pa.array([True, True, False, True]))


def test_dlpack_of_other_libraries():
    class Tensor:
        def __dlpack__(self, **options):
            return KEYS.__dlpack__(**options)

        def __dlpack_device__(self):
            return KEYS.__dlpack_device__()

    assert filled().contains(Tensor()).tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    "keys", [KEYS.tolist(), tuple(KEYS), range(3), array.array("q", KEYS), memoryview(KEYS)]
)
def test_sequences(keys):
    found = filled().contains(keys)
    assert type(found) is np.ndarray
    assert found.tolist() == [key in (5, 1) for key in keys]


def test_lists_are_cast_by_value():
    table = HashMap("uint8", "float32")
    table.insert([0, 255], [0.1, 2])
    assert table.find([255])[0].tolist() == [2]
    assert HashSet("uint64").insert([2**64 - 1, 0]).all()
    assert HashSet("float32").insert([2**24]).all()
    assert HashSet("int8").insert([]).tolist() == []
    assert HashSet("M8[s]").insert([np.datetime64("2020-01-01")]).all()
    assert HashSet("float32").insert([np.inf, np.nan]).all()
    with pytest.raises(KeyTypeError, match="without changing"):
        HashSet("float32").insert([1e300, np.inf])
    for value in ("complex64", "complex128"):
        waves = HashMap("int64", value)
        for key, number in enumerate([1, 0.5, 1j, -2 + 0.1j, complex(np.inf, np.nan)]):
            assert waves.insert([key], [number]).all()
            assert (
                waves.find([99], default=number)[0].tobytes() == np.array(number, value).tobytes()
            )
        with pytest.raises(KeyTypeError, match="without changing"):
            waves.insert([7], [2**53 + 1])
    with pytest.raises(KeyTypeError, match="without changing"):
        HashMap("int64", "complex64").insert([1], [1e300j])
    with pytest.raises(KeyTypeError, match="without changing"):
        HashMap("int64", "float64").insert([1], [1j])
    assert HashSet.from_keys([]).key_dtype == np.float64


def test_safe_casts():
    assert filled().contains(np.array([5, 9], "int32")).tolist() == [True, False]
    assert filled().contains(np.array([5, 9], "uint8")).tolist() == [True, False]
    assert filled().contains(np.array([5, 9], ">i8")).tolist() == [True, False]
    table = HashSet.from_keys(np.array(["2020-01-01"], "M8[ns]"))
    assert table.contains(np.array(["2020-01-01"], "M8[D]")).all()
    text = HashMap("int64", "S8")
    text.insert([1], np.array([b"abc"]))
    assert text.find([1])[0].tolist() == [b"abc"]


def test_noncontiguous_readonly_and_reversed_arrays(device):
    keys = np.arange(20).reshape(10, 2)
    keys.flags.writeable = False
    table = HashMap("int64", "int64", device=device.name)
    moved = device.array(keys)
    table.insert(moved[:, 0], moved[::-1, 1])
    values, found = table.find(moved[::-2, 0])
    assert device.backend.to_host(found).all()
    assert device.backend.to_host(values).tolist() == keys[::2, 1].tolist()


def test_device_follows_the_data(device):
    table = HashSet("int64")
    assert table.device is None
    table.insert(device.array(KEYS))
    assert table.device == device.name
    assert HashSet("int64", device=device.name).insert([1, 2]).tolist() == [True, True]


class OnGpu:
    """Stand-in for a GPU array, with what a table reads of it first."""

    dtype = np.dtype(np.int64)

    @property
    def __cuda_array_interface__(self):
        return {"shape": (1,), "typestr": "<i8", "data": (0, True), "version": 3}

    def __len__(self):
        return 1


def test_arrays_of_two_devices_are_refused():
    table = filled()
    for call in (
        lambda: table.contains(OnGpu()),
        lambda: table.insert(KEYS[:1], OnGpu()),
        lambda: table.upsert(OnGpu(), VALUES[:1]),
        lambda: HashMap("int64", "float64").insert(OnGpu(), VALUES[:1]),
    ):
        with pytest.raises(DeviceError, match="cupy"):
            call()
    assert len(table) == 2


@pytest.mark.gpu
def test_gpu_kinds():
    import cupy

    table = HashMap.from_arrays(cupy.asarray(KEYS[:2]), cupy.asarray(VALUES[:2]))
    values, found = table.find(cupy.asarray(KEYS))
    assert isinstance(values, cupy.ndarray)
    assert isinstance(found, cupy.ndarray)
    assert values.get().tolist() == [0.5, 1.5, 0, 1.5]
    with pytest.raises(DeviceError, match="cupy"):
        table.find(KEYS)
    with pytest.raises(DeviceError, match="cupy"):
        table.insert(cupy.asarray(KEYS), VALUES)
    with pytest.raises(DeviceError, match="cupy"):
        HashMap("int64", "float64").insert(KEYS, cupy.asarray(VALUES))


@pytest.mark.gpu
def test_work_is_ordered_on_the_current_stream():
    import cupy

    table = HashMap("int64", "int64", device="cuda", capacity=1 << 20)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        keys = cupy.arange(1 << 20)
        table.insert(keys, keys * 2)
        values, found = table.find(keys)
        right = (values == keys * 2).all() & found.all()
    stream.synchronize()
    assert bool(right)


@pytest.mark.gpu
@pytest.mark.cudf
def test_nan_of_a_cudf_series_is_a_value():
    import cudf

    numbers = cudf.Series([0.0, 1.0])
    table = HashMap.from_arrays(cudf.Series([1, 2]), numbers / numbers)
    np.testing.assert_array_equal(table.find(cudf.Series([1, 2]))[0].to_pandas(), [np.nan, 1])
    for missing in (cudf.Series([0.0, None]), cudf.Index([0.0, None])):
        with pytest.raises(ShapeError, match="1 null"):
            HashMap.from_arrays(cudf.Series([1, 2]), missing)


@pytest.mark.gpu
@pytest.mark.cudf
def test_cudf_series():
    import cudf

    table = HashMap.from_arrays(cudf.Series(KEYS[:2]), cudf.Series(VALUES[:2]))
    keys = cudf.Series(KEYS, index=[3, 4, 5, 6])
    values, found = table.find(keys)
    assert values.to_pandas().to_dict() == {3: 0.5, 4: 1.5, 5: 0, 6: 1.5}
    assert found.to_pandas().tolist() == [True, True, False, True]
    days = cudf.Series(pd.Series(pd.date_range("2020-01-01", periods=3)))
    dated = HashMap.from_arrays(days, days)
    assert dated.key_dtype.kind == "M"
    assert dated.find(days)[0].to_pandas().equals(days.to_pandas())
