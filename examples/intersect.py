"""Two animated models intersected by a new table of voxels for each frame (thesis, Fig. 1.2)."""

import argparse
import time

import pandas as pd

from dgpuhash import HashMap, backend


def models(xp, points: int, frame: int):
    """Return the points, (2, n, 3), and centres, (2, 1, 3), of two dented balls that meet."""
    z, turn = xp.linspace(1, -1, points), xp.arange(points) * xp.pi * (3 - 5**0.5)  # a spiral
    ball = xp.stack([xp.sqrt(1 - z**2) * xp.cos(turn), xp.sqrt(1 - z**2) * xp.sin(turn), z], -1)
    radius = 0.28 + 0.03 * xp.stack([xp.sin(6 * ball[:, 0] + frame), xp.cos(5 * z - frame)])
    centres = 0.5 + xp.asarray([[[0.1]], [[-0.1]]]) * xp.cos(frame / xp.asarray([5, 7, 9]))
    return centres + radius[..., None] * ball, centres


def voxels(xp, points, centres, side: int) -> HashMap:
    """Return a map from x + side * (y + side * (z + side * model)) to 1, surface, or 2, inside."""
    strides, model = xp.asarray([1, side, side**2], "int32"), xp.asarray([[0], [side**3]], "int32")
    cells = [(each * side).astype("int32") * strides for each in (points, centres)]
    surface, new = ((each.sum(-1, dtype="int32") + model).ravel() for each in cells)
    table = HashMap.from_arrays(surface, xp.ones(len(surface), "uint8"))
    while len(new):  # flood fill: an insert tells which keys were not stored before
        new = new[table.insert(new, xp.full(len(new), 2, "uint8"))]
        new = (new[:, None] + xp.concatenate([strides, -strides])).ravel()
        assert len(new) < 12 * side**2, "the surfaces have holes; give more points"
    return table


def main(device: str, frames: int, side: int = 128, points: int = 160_000) -> None:
    used, rows = backend.get(device), []
    for shapes in (models(used.xp, points, frame) for frame in range(frames + 1)):
        start = used.synchronize() or time.perf_counter()
        codes, mine = (table := voxels(used.xp, *shapes, side)).items()
        other, _ = table.find(codes + side**3, default=0)  # the second model's at the same place
        masks = [(mine == 1) & (other == kind) for kind in (1, 2)] + [other > 0]
        rows.append((*(int(each.sum()) for each in masks), 1e3 * (time.perf_counter() - start)))
    table = pd.DataFrame(rows, columns=["surfaces meet", "surface inside", "common voxels", "ms"])
    print(table[1:].round(1).to_string())  # the first frame has compiled kernels
    print(f"{table['ms'][1:].median():.1f} ms a frame, {device}; thesis: 15 to 19, on a GTX 280")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default=backend.default_device())
    main(**vars(parser.parse_args()))
