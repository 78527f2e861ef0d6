"""A mesh's voxels in a hash table (thesis, Fig. 1.1), its bytes beside those of a dense grid."""

import argparse

import pandas as pd

from dgpuhash import HashMap, backend


def torus(xp, around: int, across: int):
    """Return the triangles, (n, 3, 3), of a knobbly torus inside the unit cube."""
    u, v = xp.linspace(0, 2 * xp.pi, around + 1)[:, None], xp.linspace(0, 2 * xp.pi, across + 1)
    tube = 0.1 + 0.02 * xp.cos(9 * u + 3 * v)
    ring = 0.3 + tube * xp.cos(v)
    points = 0.5 + xp.stack([ring * xp.cos(u), ring * xp.sin(u), tube * xp.sin(v)], -1)
    a, b, c, d = points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]
    return xp.concatenate([xp.stack(each, 2).reshape(-1, 3, 3) for each in ((a, b, c), (a, c, d))])


def voxels(xp, triangles, side: int) -> HashMap:
    """Return a map from the surface's voxels, x + side · (y + side · z), to a normal."""
    longest = float(xp.abs(triangles - xp.roll(triangles, 1, 1)).max()) * side
    steps = int(2 * longest) + 2  # points of a triangle are less than half a voxel apart
    i, j = xp.meshgrid(xp.arange(steps + 1), xp.arange(steps + 1))
    shares = xp.stack([i, j, steps - i - j], -1)[i + j <= steps] / steps
    x, y, z = xp.moveaxis((shares @ triangles * side).astype("uint32"), -1, 0)
    normals = xp.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    nx, ny, nz = (511 + 511 * normals / xp.linalg.norm(normals, axis=1)[:, None]).astype("uint32").T
    packed = xp.repeat(nx | ny << 10 | nz << 20, len(shares))
    return HashMap.from_arrays((x + side * (y + side * z)).ravel(), packed, keep="first")


def main(device: str, sides: list[int]) -> None:
    xp, rows = backend.get(device).xp, []
    triangles = torus(xp, 600, 200)
    for side in sides:
        grid = voxels(xp, triangles, side)
        shared = sum(grid.contains(grid.items()[0] + step).sum() for step in (1, side, side**2))
        faces, dense = 6 * len(grid) - 2 * int(shared), side**3 * grid.value_dtype.itemsize
        rows.append((side, len(grid), faces, grid.nbytes, dense, dense / grid.nbytes))
    table = pd.DataFrame(rows, columns=["side", "voxels", "open faces", "bytes", "dense", "times"])
    print(f"{len(triangles):,} triangles, {device}")
    print(table.round(1).to_string(index=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sides", type=int, nargs="*", default=[64, 128, 256], help="at least 16")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=backend.default_device())
    main(**vars(parser.parse_args()))
