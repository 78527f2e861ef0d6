"""A CUDA kernel of your own that looks up prices and adds them up, in one launch."""

import argparse

import numpy as np

import dgpuhash
from dgpuhash import HashMap, backend

KERNEL = """
extern "C" __global__ void add_prices(
    VIEW view, const int* articles, const int* shops, float* sums, unsigned long long rows) {
  const dg::Tile<8> tile;                    // eight lanes look for a key together
  const auto row = (blockIdx.x * 1ull * blockDim.x + threadIdx.x) / 8;
  if (row >= rows) return;
  const auto got = view.find(tile, articles[row]);
  if (tile.lane() == 0 && got.found)
    atomicAdd(&sums[shops[row]], dg::device::as<float>(got.value));
}"""


def on_gpu(table: HashMap, articles, shops, sums) -> None:
    """Launch the kernel; CuPy compiles it at its first launch."""
    import cupy

    with table.device_view() as view:
        source = view.include + KERNEL.replace("VIEW", view.type)
        kernel = cupy.RawKernel(source, "add_prices", dgpuhash.kernel_options())
        blocks = -(-len(articles) * 8 // 256)
        kernel((blocks,), (256,), (view, articles, shops, sums, np.uint64(len(articles))))


def on_cpu(table: HashMap, articles, shops, sums) -> None:
    """Do the same by `for_each`, which calls a function with the rows whose keys are stored."""
    table.for_each(articles, lambda keys, prices, rows: np.add.at(sums, shops[rows], prices))


def main(device: str, rows: int = 1_000_000) -> None:
    xp, random = backend.get(device).xp, np.random.default_rng(7)
    prices = HashMap.from_arrays(xp.arange(10_000, dtype="i4"), xp.ones(10_000, "f4") / 4)
    articles = xp.asarray(random.integers(0, 20_000, rows, dtype="i4"))
    shops, sums = xp.asarray(random.integers(0, 8, rows, dtype="i4")), xp.zeros(8, "f4")
    (on_gpu if device == "cuda" else on_cpu)(prices, articles, shops, sums)
    known = backend.get(device).to_host(articles) < 10_000
    expected = np.bincount(backend.get(device).to_host(shops)[known], minlength=8) / 4
    print(device, *backend.get(device).to_host(sums).tolist())
    print("Right." if (backend.get(device).to_host(sums) == expected).all() else "Wrong!")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default=backend.default_device())
    main(**vars(parser.parse_args()))
