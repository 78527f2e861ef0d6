"""Golden answers: a digest of what merges and groupbys give for each of many small frames.

They tell whether a change of the code changes an answer: values, dtypes, labels, their order, the
type of an error, and what a write into an input does to a result. `tests/suites` tells whether
answers are right; these only tell whether they are the same.

``python tests/golden.py`` compares the answers with `golden-cpu.txt` and names those that differ,
``--write`` writes the file, ``--show NAME`` prints the answers of a group, and ``--device cuda``
takes frames of cuDF. Groups of a library that is not installed are left out.
"""

from __future__ import annotations

import argparse
import datetime
import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from hashlib import blake2b
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import dgpuhash
from dgpuhash import FrameIndex

__all__ = ["PACKAGES", "answers", "differences", "read", "versions"]

FOLDER = Path(__file__).parent
PACKAGES = {
    "cpu": ("pandas", "numpy", "pyarrow", "polars"),
    "cuda": ("pandas", "numpy", "pyarrow", "cudf"),
}
"""Packages whose answers are part of ours, by device."""

NAN, DAY = float("nan"), 86_400
PLACES = [0, 1, None, 2, 0, 3, 1, 4, 0, None, 2, 0]
OTHER_PLACES = [4, 0, 2, None, 0, 5, 1]


def _arrow(values: list[Any], dtype: pa.DataType) -> pd.Series:
    return pd.Series(pd.array(pa.array(values, dtype), dtype=pd.ArrowDtype(dtype)))


def _numpy(dtype: str) -> Callable[[list[Any]], pd.Series]:
    return lambda values: pd.Series(values, dtype=dtype)


def _filled(dtype: str, fill: Any) -> Callable[[list[Any]], pd.Series]:
    return lambda values: pd.Series(
        [fill if each is None else each for each in values], dtype=dtype
    )


def _typed(dtype: pa.DataType) -> Callable[[list[Any]], pd.Series]:
    return lambda values: _arrow(values, dtype)


def _ticks(dtype: str) -> Callable[[list[Any]], pd.Series]:
    return lambda values: pd.Series(
        np.array([-(2**63) if each is None else each for each in values], "i8").view(dtype)
    )


_INTS, _BIG = [7, -1, 0, 3, 100, 5], [2**53 + 1, 2**53, -(2**63), 2**63 - 1, 0, 1]
_FLOATS, _TEXT = [0.5, -0.0, NAN, 1e300, 0.0, 7.0], ["a", "", "ä€", "b" * 30, "A", "\0"]
_DATES = [datetime.date(2020, 1, 1 + day) for day in range(6)]
_INSTANTS = [0, 1, -DAY, DAY, 1_600_000_000, 5]

# Six values of each kind of column, and what makes a column of some of them and nulls.
KINDS: dict[str, tuple[list[Any], Callable[[list[Any]], pd.Series]]] = {
    **{name: (_INTS, _filled(name, 9)) for name in ("int8", "int16", "int32", "int64")},
    **{name: ([7, 1, 0, 3, 100, 5], _filled(name, 9)) for name in ("uint8", "uint32", "uint64")},
    "big": (_BIG, _filled("int64", 9)),
    "float32": ([0.5, -0.0, NAN, 1e30, 0.0, 7.0], _filled("float32", NAN)),
    "float64": (_FLOATS, _filled("float64", NAN)),
    "complex": ([1j, 0, 1, 2j, -1, 7], _filled("complex128", NAN)),
    "bool": ([True, False, True, False, True, False], _filled("bool", False)),
    **{name: (_INTS, _numpy(name)) for name in ("Int8", "Int64")},
    "Int64 big": (_BIG, _numpy("Int64")),
    "UInt64": ([2**64 - 1, 0, 1, 2, 3, 2**63], _numpy("UInt64")),
    "Float64": ([0.5, -0.0, 2.0, 1e300, 0.0, 7.0], _numpy("Float64")),
    "boolean": ([True, False, True, False, True, False], _numpy("boolean")),
    **{name: (_TEXT, _numpy(name)) for name in ("str", "string", "object", "category")},
    "category int": (_INTS, _numpy("category")),
    "bytes": ([each.encode() for each in _TEXT], _numpy("object")),
    "objects": ([1, 2.5, True, Decimal("2.5"), 2**53 + 1, 0], _numpy("object")),
    "dates": (_DATES, _numpy("object")),
    **{f"datetime {unit}": (_INSTANTS, _ticks(f"M8[{unit}]")) for unit in ("s", "us", "ns")},
    "zoned": (_INSTANTS, lambda values: _ticks("M8[us]")(values).dt.tz_localize("CET")),
    "timedelta": (_INSTANTS, _ticks("m8[ns]")),
    "period": ([pd.Period(ordinal=each, freq="M") for each in _INTS], _numpy("period[M]")),
    "interval": ([pd.Interval(each, each + 1) for each in _INTS], _numpy("interval")),
    "arrow int32": (_INTS, _typed(pa.int32())),
    "arrow int64": (_BIG, _typed(pa.int64())),
    "arrow double": (_FLOATS, _typed(pa.float64())),
    "arrow text": (_TEXT, _typed(pa.string())),
    "arrow binary": ([each.encode() for each in _TEXT], _typed(pa.binary())),
    "arrow date": (_DATES, _typed(pa.date32())),
    "arrow decimal": ([Decimal(each) / 4 for each in _INTS], _typed(pa.decimal128(9, 2))),
    "arrow datetime": (_INSTANTS, _typed(pa.timestamp("ms"))),
}
# Kinds whose values are compared with each other.
MIXED = (
    ("int8", "int64"), ("int64", "uint64"), ("int64", "float64"), ("big", "float64"),
    ("big", "Int64 big"), ("Int64", "int32"), ("int64", "bool"), ("UInt64", "arrow int64"),
    ("str", "object"), ("str", "category"), ("string", "arrow text"), ("object", "bytes"),
    ("category int", "int64"), ("datetime s", "datetime ns"), ("arrow datetime", "datetime us"),
    ("dates", "arrow date"), ("arrow decimal", "objects"), ("objects", "float64"),
    ("zoned", "datetime us"), ("int64", "str"), ("arrow double", "Float64"),
)  # fmt: skip
PAIRS = (*zip(KINDS, KINDS, strict=True), *MIXED)
FEW = (
    "int64",
    "float64",
    "Int64",
    "str",
    "category",
    "datetime us",
    "arrow text",
    "objects",
    "big",
)
HOWS = ("inner", "left", "right", "outer", "semi", "anti", "right_anti")
# Kinds that frames of other libraries than pandas cannot hold, or hold as another one of these.
PANDAS_ONLY = {
    "complex", "bytes", "objects", "dates", "period", "interval", "Int8", "Int64", "Int64 big",
    "UInt64",
    "Float64", "boolean", "string", "object", "datetime ns", "arrow int32", "arrow text",
}  # fmt: skip


def column(kind: str, places: list[int | None]) -> pd.Series:
    """Return a column of some of the values of a kind, at their places, and nulls."""
    values, make = KINDS[kind]
    return make([None if place is None else values[place] for place in places])


def frame(key: str, places: list[int | None], payload: str, second: bool = False) -> pd.DataFrame:
    """Return a frame of a key `k`, perhaps a second key `j`, and three columns of one side."""
    rows = np.arange(len(places))
    columns = {"k": column(key, places)} | ({"j": pd.Series(rows % 2)} if second else {})
    return pd.DataFrame(columns).assign(
        **{
            f"{payload}int": rows,
            f"{payload}text": [f"{payload}{row}" for row in rows],
            f"{payload}flag": rows % 3 == 0,
        }
    )


def sides(pair: tuple[str, str], second: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the two frames of a merge by keys of two kinds."""
    ours, theirs = pair
    return frame(ours, PLACES, "x", second), frame(theirs, OTHER_PLACES, "y", second)


Ask = Callable[[], Any]
Library = Callable[[pd.DataFrame], Any]


def merges(of: Library, pairs: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, list[Ask]]]:
    """Yield what is asked of merges of the frames of a library, in groups."""

    def asked(pair: tuple[str, str], how: Any, second: bool = False, **options: Any) -> Ask:
        def ask() -> Any:
            left, right = (of(each) for each in sides(pair, second))
            return Written(dgpuhash.merge(left, right, how, **options), left, right)

        return ask

    def labelled(pair: tuple[str, str], how: Any) -> Ask:
        def ask() -> Any:
            left, right = (of(each).set_index("k") for each in sides(pair))
            return dgpuhash.merge(left, right, how, left_index=True, right_index=True)

        return ask

    for how in HOWS:
        yield f"merge {how}", [asked(pair, how, on="k") for pair in pairs]
    few = tuple((kind, kind) for kind in FEW if (kind, kind) in pairs)
    for how in HOWS[:5]:
        yield f"merge two keys {how}", [asked(pair, how, True, on=["k", "j"]) for pair in pairs]
        for name, options in OPTIONS.items():
            asks = [asked(pair, how, **({"on": "k"} | options)) for pair in few]
            yield f"merge {name} {how}", asks
    yield "merge cross", [asked(pair, "cross") for pair in few]
    if of is not unchanged and of is not on_gpu:
        return
    for how in HOWS[:4]:
        yield f"merge labels {how}", [labelled(pair, how) for pair in pairs]
    for how in ("inner", "left", "semi", "anti"):
        yield f"index merge {how}", [standing(of, pair, how) for pair in pairs]
    for verb in ("lookup", "find", "contains"):
        yield f"index {verb}", [standing(of, pair, verb) for pair in pairs]


OPTIONS: dict[str, dict[str, Any]] = {
    "sort": {"sort": True},
    "nulls apart": {"nulls_equal": False},
    "indicator": {"indicator": True},
    "one to one": {"validate": "1:1"},
    "names": {"on": None, "left_on": "k", "right_on": "yint"},
    "nullable": {"promote": "nullable"},
    "pandas": {"promote": "pandas"},
    "columns": {"columns": ["yint"]},
}


def standing(of: Library, pair: tuple[str, str], verb: Any) -> Ask:
    """Return what asks a standing index of the right side for the left one."""

    def ask() -> Any:
        left, right = (of(each) for each in sides(pair))
        index = FrameIndex.build(right, on="k")
        if verb in ("lookup", "find", "contains"):
            return getattr(index, verb)(left["k"])
        return index.merge(left, "k", how=verb)

    return ask


AGGREGATES = (
    "all", "any", "count", "first", "idxmax", "last", "max", "mean", "median", "min", "nunique",
    "prod", "quantile", "sem", "size", "std", "sum", "unique", "value_counts", "var",
)  # fmt: skip


# Verbs of groups by the values of each kind.
BY_VALUES: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "sum by": (lambda g: g[["i"]].sum(), {"by": "v"}),
    "sum by all": (lambda g: g[["i"]].sum(), {"by": "v", "dropna": False, "sort": False}),
    "size by two": (lambda g: g.size(), {"by": ["v", "k"]}),
    "columns by": (lambda g: g.agg({"i": ["sum", "max"]}), {"by": "v", "as_index": False}),
    "transform by": (lambda g: g["i"].transform("mean"), {"by": "v"}),
    "head by": (lambda g: g.head(1), {"by": "v"}),
}


def of_values(verb: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what asks a verb of the values of groups."""
    return lambda groups: verb(groups["v"])


def groupbys(of: Library, kinds: tuple[str, ...]) -> Iterator[tuple[str, list[Ask]]]:
    """Yield what is asked of the groups of the frames of a library, in groups."""

    def asked(kind: str, verb: Callable[[Any], Any], by: Any = "k", **options: Any) -> Ask:
        return lambda: verb(dgpuhash.groupby(of(_grouped(kind)), by, **options))

    for name in AGGREGATES:
        verb = of_values(operator.methodcaller(name))
        yield f"groupby {name}", [asked(kind, verb) for kind in kinds]
    for name, (verb, options) in BY_VALUES.items():
        yield f"groupby {name}", [asked(kind, verb, **options) for kind in kinds]


def _grouped(kind: str) -> pd.DataFrame:
    rows = np.arange(len(PLACES))
    return pd.DataFrame({"k": rows % 3, "v": column(kind, PLACES), "i": rows})


class Written:
    """Result of a merge whose inputs are written into afterwards."""

    def __init__(self, result: Any, *inputs: Any) -> None:
        self.result, self.inputs = result, inputs

    def lines(self) -> list[str]:
        """Return the result, and what of it or of the inputs writes into the other change."""
        found = shown(self.result)
        if not isinstance(self.result, pd.DataFrame):
            return found
        before = [shown(each) for each in self.inputs]
        _write(self.result)
        if [shown(each) for each in self.inputs] != before:
            found.append("a write into the result changes an input")
        after = shown(self.result)
        for each in self.inputs:
            _write(each)
        if shown(self.result) != after:
            found.append("a write into an input changes the result")
        return found


def _write(frame: pd.DataFrame) -> None:
    for place in range(frame.shape[1]):
        frame.iloc[:, place] = frame.iloc[::-1, place].set_axis(frame.index)


def shown(answer: Any) -> list[str]:
    """Return an answer as lines of text: its class, labels, dtypes and values."""
    if isinstance(answer, Written):
        return answer.lines()
    if isinstance(answer, tuple):
        return [line for each in answer for line in shown(each)]
    lines = [type(answer).__name__]
    if type(answer).__module__.startswith("cudf"):
        lines += [repr(answer.dtypes if answer.ndim == 2 else answer.dtype)]
        answer = answer.to_pandas()
    if isinstance(answer, pd.DataFrame | pd.Series):
        whole = answer.to_frame() if isinstance(answer, pd.Series) else answer
        lines += [repr(getattr(answer, "name", None)), repr(whole.columns), repr(answer.attrs)]
        for level in range(whole.index.nlevels):
            lines.append(_column(whole.index.get_level_values(level)))
        return lines + [_column(whole.iloc[:, place]) for place in range(whole.shape[1])]
    if hasattr(answer, "to_pylist"):
        return [*lines, repr(answer.schema.types), repr(answer.to_pydict())]
    if hasattr(answer, "to_dict"):
        return [*lines, repr(answer.schema), repr(answer.to_dict(as_series=False))]
    if hasattr(answer, "get"):
        answer = answer.get()
    return [*lines, str(getattr(answer, "dtype", "")), repr(getattr(answer, "tolist", str)())]


def _column(values: Any) -> str:
    listed = [(type(each).__name__, each) for each in values.astype(object)]
    return f"{values.name!r} {values.dtype} {listed!r}"


def unchanged(frame: pd.DataFrame) -> Any:
    """Return a frame of pandas as it is."""
    return frame


def as_arrow(frame: pd.DataFrame) -> Any:
    """Return a frame as a table of PyArrow."""
    return pa.Table.from_pandas(frame, preserve_index=False)


def as_polars(frame: pd.DataFrame) -> Any:
    """Return a frame as one of polars."""
    import polars as pl

    return pl.DataFrame(as_arrow(frame))


def on_gpu(frame: pd.DataFrame) -> Any:
    """Return a frame as one of cuDF."""
    import cudf

    return cudf.from_pandas(frame)


LIBRARIES: dict[str, dict[str, Library]] = {
    "cpu": {"pandas": unchanged, "polars": as_polars, "arrow": as_arrow},
    "cuda": {"cudf": on_gpu},
}


def versions(device: str = "cpu") -> dict[str, str]:
    """Return the versions of the packages of a device; "none" for those that are not installed."""
    installed = packages_distributions()
    return {
        each: version(installed[each][0]) if each in installed else "none"
        for each in PACKAGES[device]
    }


def answers(device: str = "cpu", only: str = "") -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the answers of each group whose name has `only` in it, as lines of text."""
    here = versions(device)
    for library, of in LIBRARIES[device].items():
        if here.get(library) == "none":
            continue
        left_out = set() if of is unchanged else PANDAS_ONLY
        kinds = tuple(kind for kind in KINDS if kind not in left_out)
        pairs = tuple(pair for pair in PAIRS if left_out.isdisjoint(pair))
        for verbs in (merges(of, pairs), groupbys(of, kinds)):
            for name, group in verbs:
                if only in f"{library} {name}":
                    yield f"{library} {name}", [_answered(ask) for ask in group]


def _answered(ask: Ask) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return shown(ask())
        except Exception as error:
            return [type(error).__name__]


def digest(answer: list[str]) -> str:
    """Return six letters that stand for an answer."""
    return blake2b("\n".join(answer).encode(), digest_size=3).hexdigest()


def read(device: str = "cpu") -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the versions that golden answers were written with, and their digests by group."""
    text = (FOLDER / f"golden-{device}.txt").read_text().splitlines()
    groups = {name: digests.split() for name, digests in (line.split(": ") for line in text)}
    return dict(each.split("=") for each in groups.pop("versions")), groups


def differences(device: str = "cpu", only: str = "") -> list[str]:
    """Return the names of the answers that are not the golden ones, and those that are gone."""
    _, golden = read(device)
    absent = {name for name, here in versions(device).items() if here == "none"}
    wanted = {name for name in golden if only in name and name.split()[0] not in absent}
    found = []
    for name, group in answers(device, only):
        digests = [digest(each) for each in group]
        wanted.discard(name)
        if len(digests) != len(golden.get(name, [])):
            found.append(f"{name}: {len(digests)} answers in place of {len(golden.get(name, []))}")
        else:
            places = [place for place, each in enumerate(digests) if each != golden[name][place]]
            found += [f"{name}: number {place}" for place in places]
    return found + [f"{name}: is gone" for name in sorted(wanted)]


def main(arguments: list[str] | None = None) -> int:
    """Compare, write or print answers; return how many differ, at most 1."""
    parser = argparse.ArgumentParser(description="Compare answers with the golden ones.")
    parser.add_argument("--device", choices=LIBRARIES, default="cpu")
    parser.add_argument("--only", default="", help="groups with this text in their names")
    parser.add_argument("--show", action="store_true", help="print the answers")
    parser.add_argument("--write", action="store_true", help="write the file")
    options = parser.parse_args(arguments)
    if options.show:
        for name, group in answers(options.device, options.only):
            for place, answer in enumerate(group):
                print(f"{name}: number {place}", *answer, sep="\n    ")
    elif options.write:
        lines = [f"versions: {' '.join(map('='.join, versions(options.device).items()))}"]
        for name, group in answers(options.device):
            lines.append(f"{name}: {' '.join(digest(each) for each in group)}")
        (FOLDER / f"golden-{options.device}.txt").write_text("\n".join(lines) + "\n")
    else:
        found = differences(options.device, options.only)
        print(*found, f"{len(found)} answers differ", sep="\n")
        return min(len(found), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
