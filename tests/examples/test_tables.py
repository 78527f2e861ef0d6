"""Examples of tables, against dense grids, SciPy and sets."""

from __future__ import annotations

import importlib.util
import itertools
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from clusters import cluster_of
from crews import crew_of_threads
from scipy import ndimage

from dgpuhash import HashMap, HashSet, backend
from dgpuhash.backend.compiler import compile_kernels
from dgpuhash.tables.user_kernels.verbs import view_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def program(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(line):
    return [float(word) for word in line.split()]


def dense(codes, side):
    grid = np.zeros((side, side, side), bool)
    grid.reshape(-1)[codes] = True
    return grid


def test_voxels_of_a_mesh(device, capsys):
    voxels, side = program("voxels"), 32
    triangles = voxels.torus(device.backend.xp, 60, 30)
    grid = voxels.voxels(device.backend.xp, triangles, side)
    codes, normals = map(device.backend.to_host, grid.items())
    triangles = device.backend.to_host(triangles)
    corners = (triangles.reshape(-1, 3) * side).astype(int)
    assert set(corners @ [1, side, side**2]) <= set(codes.tolist())
    # A voxel has a point of a triangle, which is no longer than one and a half voxels.
    places = np.stack([codes % side, codes // side % side, codes // side**2], -1) + 0.5
    middles = triangles.mean(axis=1) * side
    assert (np.abs(places[:, None] - middles).max(-1).min(-1) < 2).all()
    # A normal of a ring about the axis z points up above z = 0.5, down below.
    up = (normals >> 20).astype(int) - 511
    assert np.corrcoef(up, places[:, 2])[0, 1] ** 2 > 0.8

    voxels.main(device.name, [side])
    triangles = voxels.torus(device.backend.xp, 600, 200)
    grid = voxels.voxels(device.backend.xp, triangles, side)
    known = dense(device.backend.to_host(grid.items()[0]), side)
    faces = sum(np.diff(known, axis=axis).sum() for axis in range(3))
    row = numbers(capsys.readouterr().out.splitlines()[2])
    assert row[:5] == [side, known.sum(), faces, grid.nbytes, 4 * side**3]


def test_intersection_of_models(device, capsys):
    intersect, side, points = program("intersect"), 32, 20_000
    shapes = intersect.models(device.backend.xp, points, 1)
    table = intersect.voxels(device.backend.xp, *shapes, side)
    codes, states = map(device.backend.to_host, table.items())
    known = []
    for model, (cloud, centre) in enumerate(zip(*map(device.backend.to_host, shapes), strict=True)):
        surface = np.zeros((side, side, side), bool)
        surface[tuple((cloud * side).astype(int).T[::-1])] = True
        parts, _ = ndimage.label(~surface)
        inside = parts == parts[tuple((centre[0] * side).astype(int)[::-1])]
        mine = codes // side**3 == model
        expected = surface + 2 * inside.astype(int)
        found = np.zeros(side**3, int)
        found[codes[mine] % side**3] = states[mine]
        assert (found.reshape(expected.shape) == expected).all()
        assert 500 < surface.sum() < inside.sum() < side**3 / 4
        known.append(expected)

    intersect.main(device.name, 1, side, points)
    first, second = known
    expected = [
        (first == 1) & (second == 1),
        (first == 1) & (second == 2),
        (first > 0) & (second > 0),
    ]
    lines = capsys.readouterr().out.splitlines()
    assert numbers(lines[1])[:4] == [1, *(mask.sum() for mask in expected)]
    assert "ms a frame" in lines[2]


def test_a_surface_with_holes_is_no_endless_flood():
    intersect = program("intersect")
    with pytest.raises(AssertionError, match="give more points"):
        intersect.main("cpu", 1, 64, 100)


def test_triangles_of_a_changing_graph(device, capsys):
    graph = program("dynamic_graph")
    pairs = itertools.combinations([1, 4, 5, 7, 2**20, 2**31 - 1], 2)
    codes = np.array([low << 32 | high for low, high in pairs] + [4 << 32 | 9, 7 << 32 | 9])
    edges = HashSet("int64", method="slab", device=device.name)
    edges.insert(device.array(codes))
    assert graph.triangles(device.backend.xp, edges) == 6 * 5 * 4 // 6 + 1
    edges.erase(device.array(codes[:1]))  # four triangles had it
    assert graph.triangles(device.backend.xp, edges) == 6 * 5 * 4 // 6 + 1 - 4
    graph.main(device.name, nodes=100, batches=4, rows=1500)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and lines[-1] == "Equal."
    assert all(numbers(line)[4] == numbers(line)[5] > 100 for line in lines[1:-1])


def test_words_by_a_kernel_of_ones_own(device, capsys):
    fused = program("fused")
    fused.main(device.name, letters=30_000)
    text = np.random.default_rng(7).integers(0, 4, 30_000, dtype="uint8").tobytes()
    different = {text[first : first + 10] for first in range(len(text) - 9)}
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split() == [device.name, "29991", str(len(different))]
    assert lines[-1] == "Right."
    assert ("NumPy makes the keys" in lines[0]) == (device.name == "cpu")


def test_a_kernel_of_ones_own(device, capsys):
    program("own_kernel").main(device.name, rows=30_000)
    assert capsys.readouterr().out.endswith("\nRight.\n")


# The rest of each kernel's parameters: their declarations, and how they are passed on.
WORDS = "const unsigned char* text; dg::u64 words;", "args.text, args.words"
PRICES = (
    "const int* articles; const int* shops; float* sums; unsigned long long rows;",
    "args.articles, args.shops, args.sums, args.rows",
)


@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize(
    ("name", "verb", "dtypes", "parameters"),
    [
        ("fused", "insert_words", ("uint32", "uint32"), WORDS),
        ("own_kernel", "add_prices", ("int32", "float32"), PRICES),
    ],
)
def test_the_kernels_of_examples_compile(arch, name, verb, dtypes, parameters):
    view = view_of(HashMap(*dtypes, device="cpu")._opened().lend(write=verb == "insert_words"))
    kernel = program(name).KERNEL.replace("VIEW", view.type)
    kernel = kernel.replace('extern "C" __global__', "__device__")
    declared, passed = parameters
    code = (
        f"{view.include}{kernel}\nstruct Args {{ {view.type} view; {declared} }};\n"
        f"__global__ void run(Args args) {{ {verb}(args.view, {passed}); }}\n"
    )
    assert "warning" not in compile_kernels((), ["run"], arch, code=code).log.lower()


@contextmanager
def client_of_threads(device, count, scheduler):
    with crew_of_threads(backend.get(device), count) as crew:
        yield crew.client


def test_weak_scaling_tells_the_efficiency(capsys, monkeypatch):
    scaling = program("weak_scaling")
    monkeypatch.setattr(scaling, "start", client_of_threads)
    scaling.main("cpu", [1, 2], "slab", 3000)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "slab, cpu"
    alone, both = map(numbers, lines[1:])
    assert (alone[:2], alone[4:], both[:2]) == ([1, 3000], [1, 1], [2, 6000])
    monkeypatch.setattr(scaling, "seconds", lambda _, device, count, *more: (count * 0.25, 0.5))
    scaling.main("cpu", [1, 2], "auto", 2_000_000)
    lines = capsys.readouterr().out.splitlines()
    assert numbers(lines[2]) == [1, 2e6, 8, 4, 1, 1]
    assert numbers(lines[3]) == [2, 4e6, 8, 8, 0.5, 1]


@pytest.mark.cluster
def test_weak_scaling_on_a_cluster_that_is_there(capsys):
    with cluster_of(2, processes=True) as client:
        address = client.scheduler.address
        program("weak_scaling").main("cpu", [], "auto", 3000, scheduler=address)
        _, _, alone, both = capsys.readouterr().out.splitlines()
        assert (numbers(alone)[:2], numbers(both)[:2]) == ([1, 3000], [2, 6000])
        assert len(client.nthreads()) == 2
