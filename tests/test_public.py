"""Promises of `import dgpuhash`: sorted names, no GPU, docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import dgpuhash
from dgpuhash import distributed, errors, kmer


def test_all_is_complete_and_sorted():
    assert sorted(dgpuhash.__all__) == list(dgpuhash.__all__)
    for name in dgpuhash.__all__:
        assert getattr(dgpuhash, name) is not None
    modules = {
        "accessors",
        "backend",
        "bench",
        "cli",
        "compression",
        "config",
        "dask",
        "demo",
        "distributed",
        "frames",
        "kmer",
        "spec",
        "tables",
        "typing",
    }
    public = {name for name in vars(dgpuhash) if not name.startswith("_")} - modules - {"seeds"}
    assert public - {"annotations", "TYPE_CHECKING"} <= set(dgpuhash.__all__)


def test_version():
    assert dgpuhash.__version__ == metadata.version("dgpuhash")
    assert "__version__" in dir(dgpuhash)


def test_errors_all_is_complete_and_sorted():
    kinds = [name for name, kind in vars(errors).items() if inspect.isclass(kind)]
    assert sorted(kinds) == errors.__all__
    for name in kinds:
        assert issubclass(getattr(errors, name), errors.DgpuhashError)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("dgpuhash", name) for name in dgpuhash.__all__ if name != "errors"),
        *(("dgpuhash.distributed", name) for name in distributed.__all__),
        *(("dgpuhash.dask", name) for name in dgpuhash.dask.__all__ if name != "Answer"),
        *(("dgpuhash.kmer", name) for name in kmer.__all__),
        ("dgpuhash.frames", "FrameAccessor"),
        ("dgpuhash.frames", "GroupBy"),
        ("dgpuhash.frames", "Lookup"),
    ],
)
def test_public_names_are_documented_with_an_example(module, name):
    thing = getattr(importlib.import_module(module), name)
    documentation = inspect.getdoc(thing) or ""
    assert documentation
    if inspect.isclass(thing):
        assert ">>> " in documentation, f"{name} shows no example"
        for verb, member in vars(thing).items():
            if not verb.startswith("_") and (
                inspect.isfunction(member) or isinstance(member, property)
            ):
                assert inspect.getdoc(member), f"{name}.{verb} has no docstring"
    elif callable(thing):
        assert ">>> " in documentation, f"{name} shows no example"


def test_import_touches_no_gpu_and_no_cluster():
    code = (
        "import sys, dgpuhash; "
        "heavy = {'cupy', 'cudf', 'rmm', 'cuda', 'numba', 'distributed', 'dask_cuda'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout.strip() == "[]"


def test_package_ships_its_type_marker():
    spec = importlib.util.find_spec("dgpuhash")
    assert spec is not None
    assert importlib.resources.files("dgpuhash").joinpath("py.typed").is_file()


EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_import_public_names_alone(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "dgpuhash":
            public = {*importlib.import_module(node.module).__all__, "backend", "bench"}
            assert {alias.name for alias in node.names} <= public
