"""Layering of rooms, length of modules and folders, GPU library imports.

Rooms are the modules and folders of `dgpuhash`, and those of its larger folders.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from code_lines import lines_by_room

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "dgpuhash").rglob("*.py"))
KERNELS = sorted(
    path for path in (ROOT / "kernels").rglob("*") if path.suffix in {".cuh", ".cpp", ".hpp", ".h"}
)

LONGEST_MODULE = 600
WIDEST_FOLDER = 24
# Shorter modules belong into the only one that imports them.
SHORTEST_MODULE = 40
# Lines of code of a room, as `code_lines` counts them; what merges or deletes takes some away.
MOST_CODE = {
    "distributed": 20_565,
    "frames": 15_969,
    "tables": 11_826,
    "kmer": 11_328,
    "bench": 9_075,
    "cli": 3_742,
    "backend": 1_672,
    "dask": 710,
}
# Modules of a second way, which one over columns of every library replaces; none may come back.
MUST_GO: set[str] = set()
GONE = {
    "frames/dataframes/cudf_keys.py",
    "frames/groupby/cudf/results.py",
    "frames/groupby/partial/cudf/states.py",
    "frames/merge/agreement.py",
    "frames/merge/comparable.py",
    "frames/merge/cudf/__init__.py",
    "frames/merge/cudf/plan.py",
    "frames/merge/mixin.py",
    "frames/merge/standing.py",
    "frames/merge_result.py",
}
NAMELESS_ROOMS = {"utils", "helpers", "common", "misc"}

# A room may import itself and every room with a smaller number; types may come from anywhere.
PYTHON_ROOMS = {
    "accessors": 0,
    "errors": 0,
    "typing": 0,
    "compression": 1,
    "config": 1,
    "seeds": 1,
    "spec": 2,
    "backend": 3,
    "tables": 4,
    "frames": 5,
    "distributed": 6,
    "dask": 7,
    "kmer": 7,
    "bench": 8,
    "demo": 9,
    "cli": 10,
    "__main__": 11,
    "__init__": 11,
}
ROOMS_WITHIN = {
    "backend": [
        {"memory", "native", "constants", "launch_buffer", "compiler", "unnamed_file"},
        {"layout", "device"},
        {"kernel"},
        {"cache", "launches"},
        {"batch"},
        {"base"},
        {"cpu", "cuda"},
    ],
    "tables": [
        {"memory_errors", "cached", "commit", "stats"},
        {"rwlock", "select"},
        {"arguments"},
        {"serialization", "store"},
        {"open_addressing"},
        {"columns", "bucket_list"},
        {"stores"},
        {"methods"},
        {"base"},
        {"user_kernels"},
        {"bloom", "ids"},
        {"count_map", "hash_map", "hash_set", "multi_map"},
    ],
    "frames": [
        {"key_columns"},
        {"dataframes"},
        {"labels"},
        {"keys", "spill"},
        {"row_store", "matches"},
        {"keyed_rows"},
        {"pages", "int_float_warning", "stats", "serialization"},
        {"merge"},
        {"lookup", "groupby"},
        {"key_input"},
        {"lookup_mixin"},
        {"index"},
        {"grouped"},
    ],
    "distributed": [
        {"cluster"},
        {"events"},
        {"partition"},
        {"collective", "storage"},
        {"pruning"},
        {"shards"},
        {"pipeline", "ingest"},
        {"runs"},
        {"query", "tables"},
        {"dashboard"},
        {"merge"},
        {"groupby"},
        {"index"},
        {"grouped"},
        {"accessor", "load"},
    ],
    "kmer": [
        {"masking", "options", "sequences"},
        {"cluster"},
        {"counts", "taxonomy", "worker_reads"},
        {"accessions"},
        {"placement"},
        {"calls", "references"},
        {"index_file", "target_runs"},
        {"databases", "distributions"},
        {"rule"},
        {"formats", "local_index"},
        {"abundance"},
        {"summaries"},
        {"classify", "part_tasks"},
        {"worker_index"},
        {"minimizers", "sketches"},
        {"loading"},
        {"server"},
    ],
    "bench": [
        {"figure", "machine", "memory", "options", "timing"},
        {"keys"},
        {"limits", "method", "peers"},
        {"papers", "tables", "workers"},
        {"cpu", "frames", "kmer", "refresh"},
        {"report"},
        {"model"},
    ],
}
# Rooms whose imports for type checkers alone may still point to rooms above; take some away.
TYPES_MAY_RUN_UP = {"backend", "frames", "kmer"}
# Circles of two modules, of which one imports the other in a function; take some away.
CIRCLES = {
    ("frames/dataframes/cudf_columns", "cudf"),
    ("frames/merge/index", "distinct"),
    ("kmer/minimizers/index", "on_workers"),
    ("kmer/sketches/index", "on_workers"),
    ("tables/methods/growing_lists", "bucket_list"),
    ("tables/stores/list_recipe", "list_store"),
    ("tables/stores/recipe", "method_store"),
}
# A backend is pickled by its name, and looked up by it.
TIES = {("dgpuhash/backend/base.py", "dgpuhash.backend.get")}
KERNEL_ROOMS = {
    "core": 0,
    "probe": 1,
    "grid": 1,
    "memory": 1,
    "table": 2,
    "batch": 2,
    "kmer": 2,
    "launch": 3,
    "device": 4,
    "host": 4,
}

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


# The only module that may import what Dask and distributed do not document, or name such fields of
# their schedulers, workers and clients.
DASK_INTERNALS = "dgpuhash/distributed/cluster/dask_internals.py"
UNDOCUMENTED = re.compile(
    r"dask(\.\w+)*\._|dask\.dataframe\.(dask_expr|io|utils)\b"
    r"|distributed\.(_|(batched|client|core|diagnostics|protocol|scheduler|utils|worker)\b)"
)
UNDOCUMENTED_FIELDS = {
    "_instances", "client_comms", "client_desires_keys", "client_releases_keys", "handlers",
    "has_what", "memory_manager", "peekn", "transitions", "update_data", "wants_what", "who_wants",
    "worker_send",
}  # fmt: skip


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "dgpuhash").with_suffix("").parts[0]


def without_types(tree: ast.Module) -> ast.Module:
    """Return the module without code for type checkers."""

    class Runtime(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            name = node.test.id if isinstance(node.test, ast.Name) else None
            return None if name == "TYPE_CHECKING" else node

    return Runtime().visit(tree)


def upward_within(path: str, imported: set[str]) -> list[str]:
    """Return the imports of a file that point to a room above its own.

    The file is in one of the larger folders.
    """
    _, folder, *rest = Path(path).with_suffix("").parts
    if folder not in ROOMS_WITHIN or rest == ["__init__"]:
        return []
    ranks = {
        room: rank for rank, rooms in enumerate(ROOMS_WITHIN[folder]) for room in sorted(rooms)
    }
    assert rest[0] in ranks, f"{folder}/{rest[0]} is a new room: give it a place in ROOMS_WITHIN"
    found = []
    for name in imported:
        parts = name.split(".")
        if parts[:2] != ["dgpuhash", folder] or len(parts) < 3 or (path, name) in TIES:
            continue
        # What is none of its rooms is a name that the folder itself gives, above all of them.
        if parts[2] != rest[0] and ranks.get(parts[2], len(ranks)) >= ranks[rest[0]]:
            found.append(name)
    return sorted(found)


def imports(tree: ast.AST) -> set[str]:
    """Return the dotted names of all imports of `tree`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import on line {node.lineno}; write the full name"
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def late_imports(path: Path, tree: ast.Module) -> set[tuple[str, str]]:
    """Return the modules of a file's folder that its functions import, and that import the file."""
    file = path.relative_to(ROOT).with_suffix("")
    folder, own = ".".join(file.parts[:-1]), ".".join(file.parts)
    names = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in imports(node)
    }
    beside = {path.with_name(f"{name.removeprefix(f'{folder}.')}.py") for name in names}
    return {
        ("/".join(file.parts[1:]), other.stem)
        for other in beside
        if other.is_file() and own in imports(ast.parse(other.read_text()))
    }


def upward(room: str, imported: set[str]) -> list[str]:
    """Return the imports that point to a room above `room`."""
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


def test_the_rule_catches_an_upward_import_within_a_folder():
    imported = imports(ast.parse("from dgpuhash.distributed.query.plan import MergePlans"))
    assert upward_within("dgpuhash/distributed/ingest/source.py", imported) == [
        "dgpuhash.distributed.query.plan",
        "dgpuhash.distributed.query.plan.MergePlans",
    ]
    assert upward_within("dgpuhash/distributed/index/index.py", imported) == []


def test_ties_are_there():
    for path, name in TIES:
        assert name in imports(ast.parse((ROOT / path).read_text()))


def importers() -> dict[str, set[str]]:
    """Return the modules that import each module."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        own = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name in imports(ast.parse(path.read_text())):
            found.setdefault(name, set()).add(own)
    return found


def test_short_modules_have_several_importers():
    found, lonely = importers(), set()
    for path in MODULES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.read_text().count("\n") < SHORTEST_MODULE and len(found.get(name, ())) == 1:
            lonely.add(str(path.relative_to(ROOT / "dgpuhash").with_suffix("")))
    assert not lonely, "merge each into the module that imports it"


def test_folders_are_short():
    files = [
        path
        for folder in ("dgpuhash", "kernels", "tests", "scripts", "examples", "cluster")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".so"} and "__pycache__" not in path.parts
    ]
    wide = {
        folder for folder, n in Counter(path.parent for path in files).items() if n > WIDEST_FOLDER
    }
    assert not {str(folder.relative_to(ROOT)) for folder in wide}


def test_rooms_do_not_grow():
    lines = lines_by_room()
    assert {room: lines[room] for room, most in MOST_CODE.items() if lines[room] > most} == {}


def test_modules_of_a_second_way_only_become_fewer():
    found = {str(path.relative_to(ROOT / "dgpuhash")) for path in MODULES}
    second = {name for name in found if name.startswith("frames/merge/cudf/")} | (
        found & (MUST_GO | GONE)
    )
    assert second == MUST_GO, "take those that are gone from MUST_GO, and add none"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module(path):
    text = path.read_text()
    tree = ast.parse(text)
    room = room_of(path)
    assert room in PYTHON_ROOMS, f"{room} is a new room: give it a place in PYTHON_ROOMS"
    assert upward(room, imports(tree)) == []
    checked = without_types(ast.parse(text)) if room in TYPES_MAY_RUN_UP else tree
    assert upward_within(str(path.relative_to(ROOT)), imports(checked)) == []
    assert late_imports(path, tree) <= CIRCLES
    assert path.stem not in NAMELESS_ROOMS
    assert text.count("\n") <= LONGEST_MODULE, "more than one noun in a file?"
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


def touches_internals(tree: ast.AST) -> set[str]:
    """Return the undocumented modules and fields of Dask that a module names."""
    fields = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {name for name in imports(tree) if UNDOCUMENTED.match(name)} | (
        fields & UNDOCUMENTED_FIELDS
    )


def test_internals_of_dask_stand_in_one_module():
    found = {
        str(path.relative_to(ROOT)): touches_internals(ast.parse(path.read_text()))
        for path in MODULES
    }
    touched = found.pop(DASK_INTERNALS)
    assert touched >= UNDOCUMENTED_FIELDS and "dask._task_spec.Task" in touched
    assert {path: names for path, names in found.items() if names} == {}


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
