"""Example of a welded triangle soup, against NumPy's distinct rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "weld.py"


@pytest.fixture
def weld():
    spec = importlib.util.spec_from_file_location("weld", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("method", ["auto", "cuckoo"])
def test_the_mesh_is_the_soup(device, weld, method):
    soup = weld.sphere(device.backend.xp, 14, 9)
    ids, *mesh = weld.weld(device.backend.xp, soup, method)
    soup, vertices, buffer = map(device.backend.to_host, (soup, *mesh))
    corners = np.unique(np.round(soup.reshape(-1, 3) * 2**21), axis=0)
    assert len(ids) == len(vertices) == len(corners) == 14 * 8 + 2
    assert (np.unique(vertices * 2**21, axis=0) == corners).all()
    # Of two triangles a square, one is without area where the square has a pole.
    area = np.linalg.norm(np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0]), axis=1)
    assert np.abs(vertices[buffer] - soup[area > 1e-12]).max() < 2**-21
    assert len(buffer) == 2 * 14 * 9 - 2 * 14


def test_the_mesh_is_closed_and_small(device, weld, capsys):
    weld.main(device.name, "auto", [12, 20])
    _, *rows = capsys.readouterr().out.splitlines()
    for size, row in zip([12, 20], rows, strict=True):
        soup, mesh, ids, vertices, triangles, lonely = map(int, row.split())
        assert vertices == 2 * size * (size - 1) + 2 and triangles == 2 * vertices - 4
        assert (soup, mesh) == (144 * size**2, 12 * (vertices + triangles))
        assert lonely == 0 and mesh < soup / 2 and 8 * vertices < ids
