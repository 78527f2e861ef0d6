"""Types of public names: what mypy refuses, and which parameters may be anything."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import dgpuhash
from dgpuhash import distributed, kmer, typing
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.frames.merge import arguments
from dgpuhash.kmer import options
from dgpuhash.kmer.minimizers import settings as minimizer_settings
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.spec import KINDS

ROOT = Path(__file__).resolve().parent.parent
CALLS = ROOT / "tests" / "typing"

# Public parameters that may be of any type, with the reason.
OF_ANY_TYPE = {
    # What the language passes.
    "Taxonomy.__contains__(taxid)",
    # What is passed on to functions of users, as in pandas.
    *(f"GroupBy.{verb}({rest})" for verb in ("agg", "aggregate", "apply", "transform")
      for rest in ("args", "kwargs")),
    # What only this library passes.
    "FrameIndex.insert_arrays(arrays)",
    "FrameIndex.match(keys)",
    "FrameIndex.page(keys)",
    "FrameIndex.page(marks)",
    "FrameIndex.unmarked(marks)",
    "Lookup.__init__(frame)",
    "Lookup.__init__(found)",
    "Lookup.__init__(query_rows)",
    # Those of either rule.
    "ServedIndex.call(options)",
    "ServedIndex.call_many(options)",
    "ServedIndex.classify(options)",
    "ServedIndex.prepare(options)",
    "SketchIndex.call(options)",
    "SketchIndex.prepare(options)",
    "TableSpec.of(settings)",
    "Taxonomy.from_arrays(header)",
}  # fmt: skip
SPECIAL = {"__init__", "__call__", "__contains__", "__getitem__"}


def test_mypy_refuses_wrong_calls_and_accepts_right_ones():
    wrong, right = CALLS / "wrong_calls.py", CALLS / "right_calls.py"
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", wrong, right],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert not told.stderr
    found = {
        (name, int(line), code)
        for name, line, code in re.findall(
            r"^tests/typing/(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", told.stdout, re.MULTILINE
        )
    }
    expected = {
        ("wrong_calls", number, line.rpartition("  # ")[2])
        for number, line in enumerate(wrong.read_text().splitlines(), 1)
        if "  # " in line
    }
    assert len(expected) > 20
    assert found == expected, told.stdout


def public_functions() -> Iterator[tuple[str, object]]:
    """Yield the functions and methods that the documentation shows, with their names."""
    names = {
        "dgpuhash": dgpuhash.__all__,
        "dgpuhash.distributed": distributed.__all__,
        "dgpuhash.kmer": kmer.__all__,
        "dgpuhash.dask": dgpuhash.dask.__all__,
        "dgpuhash.frames": ["FrameAccessor", "GroupBy", "Lookup", "LookupMixin"],
    }
    for module, public in names.items():
        for name in public:
            thing = getattr(importlib.import_module(module), name)
            if inspect.isfunction(thing):
                yield name, thing
            if inspect.isclass(thing):
                for verb, member in inspect.getmembers_static(thing):
                    member = getattr(member, "__func__", member)
                    if inspect.isfunction(member) and (verb in SPECIAL or verb[0] != "_"):
                        yield f"{name}.{verb}", member


def test_public_parameters_have_types_that_say_something():
    vague = set()
    for name, function in public_functions():
        if not (getattr(function, "__module__", None) or "").startswith("dgpuhash"):
            continue
        for parameter in inspect.signature(function).parameters.values():
            # A callback may take and return anything.
            said = re.sub(r"Callable\[(\[[^]]*\]|\.\.\.), \w+\]", "", str(parameter.annotation))
            if parameter.name != "self" and re.search(r"\b(Any|object|Array|AnyFrame)\b", said):
                vague.add(f"{name}({parameter.name})")
    assert vague == OF_ANY_TYPE


@pytest.mark.parametrize(
    ("literal", "known"),
    [
        (typing.MergeHow, arguments._HOWS),
        (typing.Validate, arguments._VALIDATED),
        (typing.ConflictName, [each.value for each in Conflict]),
        (typing.TableKind, KINDS),
        (typing.IndexMode, ["auto", *(each.value for each in Placement)]),
    ],
)
def test_literals_name_what_there_is(literal, known):
    assert set(get_args(literal)) == set(known)


def test_settings_have_the_names_that_there_are():
    settings = {name for each in dgpuhash.methods().values() for name in each.settings}
    assert set(typing.KeyTableSettings.__annotations__) == settings
    lists = set(dgpuhash.methods()["bucket_list"].settings) - set(
        typing.MethodSettings.__annotations__
    )
    assert lists == {"initial_bucket", "growth"}
    for kind, known in (
        (options.SketchOptions, SketchSettings),
        (options.MinimizerOptions, minimizer_settings.MinimizerSettings),
        (options.MinimizerCallOptions, minimizer_settings.CallOptions),
    ):
        assert set(kind.__annotations__) == set(known.__slots__)
