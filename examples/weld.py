"""A triangle soup welded to vertices and an index buffer, by the two-way index of its corners."""

import argparse

import pandas as pd

from dgpuhash import KeyIds, backend

BITS = 21  # of each coordinate, so that a corner is one key of 63 bits


def sphere(xp, around: int, across: int):
    """Return the triangles, (n, 3, 3), of a sphere in the unit cube, each with its own corners."""
    u, v = xp.arange(around)[:, None] * (2 * xp.pi / around), xp.linspace(0, xp.pi, across + 1)
    points = xp.stack([xp.sin(v) * xp.cos(u), xp.sin(v) * xp.sin(u), xp.cos(v) + 0 * u], -1)
    points = 0.5 + 0.4 * points
    a, c = points[:, :-1], xp.roll(points, -1, 0)[:, 1:]
    b, d = xp.roll(points, -1, 0)[:, :-1], points[:, 1:]
    return xp.concatenate([xp.stack(each, 2).reshape(-1, 3, 3) for each in ((a, c, b), (a, d, c))])


def weld(xp, soup, method: str):
    """Return the index of corners, the vertices, (k, 3), and the triangles' vertices, (n, 3)."""
    x, y, z = xp.rint(soup.reshape(-1, 3) * 2**BITS).astype("int64").T  # equal where they are close
    corners = x | y << BITS | z << 2 * BITS
    ids = KeyIds.from_keys(corners, method=method)
    buffer = ids.ids_of(corners)[0].reshape(-1, 3)
    vertices = (ids.items()[:, None] >> xp.arange(0, 3 * BITS, BITS) & 2**BITS - 1) / 2**BITS
    return ids, vertices, buffer[(buffer != xp.roll(buffer, 1, 1)).all(axis=1)]  # with an area


def main(device: str, method: str, sizes: list[int]) -> None:
    xp, rows = backend.get(device).xp, []
    for size in sizes:
        soup = sphere(xp, 2 * size, size)
        ids, vertices, buffer = weld(xp, soup, method)
        edges = KeyIds.from_keys((buffer << 32 | xp.roll(buffer, 1, 1)).ravel(), method=method)
        lonely = (~edges.contains(edges.items() >> 32 | edges.items() << 32)).sum()  # 0 if closed
        nbytes = 12 * len(vertices) + 4 * buffer.size  # of float32 and uint32, as renderers take
        rows.append((36 * len(soup), nbytes, ids.nbytes, len(vertices), len(buffer), int(lonely)))
    names = ["soup bytes", "mesh bytes", "ids bytes", "vertices", "triangles", "open edges"]
    print(pd.DataFrame(rows, columns=names).to_string(index=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", type=int, nargs="*", default=[16, 64, 256], help="rings")
    parser.add_argument("--method", default="auto", help="of the index")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=backend.default_device())
    main(**vars(parser.parse_args()))
