"""Arrows between rooms point one way, modules stay short, GPU libraries stay in their rooms."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "dgpuhash").rglob("*.py"))
KERNELS = sorted(
    path for path in (ROOT / "kernels").rglob("*") if path.suffix in {".cuh", ".cpp", ".hpp", ".h"}
)

LONGEST_MODULE = 420
NAMELESS_ROOMS = {"utils", "helpers", "common", "misc"}

# A room may import itself and every room with a smaller number.
PYTHON_ROOMS = {
    "errors": 0,
    "seeds": 1,
    "spec": 2,
    "backend": 3,
    "tables": 4,
    "frames": 5,
    "distributed": 6,
    "bench": 7,
    "demo": 8,
    "cli": 9,
    "__main__": 10,
    "__init__": 10,
}
KERNEL_ROOMS = {"core": 0, "probe": 1, "table": 2, "batch": 2, "launch": 3, "host": 4}

# The only rooms that may name a GPU library, and then inside functions.
GPU_LIBRARIES = {
    "cupy": {"backend", "frames", "distributed", "bench", "demo"},
    "cuda": {"backend", "bench"},
    "cudf": {"frames", "distributed", "bench", "demo"},
    "pylibcudf": {"frames", "bench"},
    "rmm": {"backend", "distributed", "bench", "demo"},
    "dask_cuda": {"bench", "demo", "cli"},
    "dask_cudf": {"frames", "distributed", "demo"},
}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "dgpuhash").with_suffix("").parts[0]


def imports(tree: ast.AST) -> set[str]:
    """Dotted names of everything that `tree` imports, wherever in the file."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import on line {node.lineno}; write the full name"
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def upward(room: str, imported: set[str]) -> list[str]:
    """The imports that point to a room above `room`."""
    rank = PYTHON_ROOMS[room]
    found = []
    for name in imported:
        parts = name.split(".")
        if parts[0] != "dgpuhash" or len(parts) < 2 or parts[1] == room:
            continue
        target = PYTHON_ROOMS.get(parts[1])
        if target is not None and target >= rank:
            found.append(name)
    return sorted(found)


def test_the_rule_catches_an_upward_import():
    source = "from dgpuhash.distributed import DistributedIndex\nimport dgpuhash.errors"
    assert upward("tables", imports(ast.parse(source))) == [
        "dgpuhash.distributed",
        "dgpuhash.distributed.DistributedIndex",
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module(path):
    text = path.read_text()
    tree = ast.parse(text)
    room = room_of(path)
    assert room in PYTHON_ROOMS, f"{room} is a new room: give it a place in PYTHON_ROOMS"
    assert upward(room, imports(tree)) == []
    assert path.stem not in NAMELESS_ROOMS
    assert text.count("\n") <= LONGEST_MODULE, "split it: one noun per file"
    for name in imports(tree):
        allowed = GPU_LIBRARIES.get(name.split(".")[0])
        assert allowed is None or room in allowed, f"{name} is no import for {room}"
    at_import = {
        name
        for node in tree.body
        if not isinstance(node, ast.If)
        for name in imports(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assert not {name for name in at_import if name.split(".")[0] in GPU_LIBRARIES}


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: str(path.relative_to(ROOT)))
def test_kernel_file(path):
    room = path.relative_to(ROOT / "kernels").parts[0]
    assert path.stem not in NAMELESS_ROOMS
    if room not in KERNEL_ROOMS:
        assert path.parent == ROOT / "kernels", (
            f"{room} is a new room: give it a place in KERNEL_ROOMS"
        )
        return
    text = path.read_text()
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, flags=re.MULTILINE):
        target = name.split("/")[0] if "/" in name else room
        assert target in KERNEL_ROOMS, f'"{name}": include by a path from kernels/'
        if target != room:
            assert KERNEL_ROOMS[target] < KERNEL_ROOMS[room], f"{name} is above {room}"
    if room != "host":
        headers = re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, flags=re.MULTILINE)
        assert not [name for name in headers if re.match(r"cu|cooperative|thrust", name)]


def test_kernel_launches_stand_in_launch_only():
    offenders = [
        str(path.relative_to(ROOT))
        for path in KERNELS
        if "__global__" in path.read_text()
        and path.relative_to(ROOT / "kernels").parts[0] not in {"core", "launch"}
    ]
    assert offenders == []
