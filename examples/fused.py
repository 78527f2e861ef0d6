"""A kernel of one's own that makes keys and inserts them in one launch: ten-letter words of DNA."""

import argparse

import numpy as np
import pandas as pd

import dgpuhash
from dgpuhash import HashMap, backend

KERNEL = """
extern "C" __global__ void insert_words(VIEW view, const unsigned char* text, dg::u64 words) {
  const dg::Tile<8> tile;
  const auto place = (blockIdx.x * 1ull * blockDim.x + threadIdx.x) / 8;
  if (place >= words) return;
  dg::u32 word = 0;
  for (int i = 0; i < 10; ++i) word = 4 * word + text[place + i];
  view.insert(tile, word, static_cast<dg::u32>(place));
}"""


def launch(table: HashMap, text, words: int) -> None:
    """Insert the words of a text of the letters 0 to 3, each with one of its places."""
    import cupy

    with table.device_view(write=True) as view:
        source = view.include + KERNEL.replace("VIEW", view.type)
        kernel = cupy.RawKernel(source, "insert_words", dgpuhash.kernel_options())
        kernel((-(-words * 8 // 256),), (256,), (view, text, np.uint64(words)))


def main(device: str, letters: int = 1_000_000) -> None:
    text = np.random.default_rng(7).integers(0, 4, letters, dtype="uint8")
    words = np.lib.stride_tricks.sliding_window_view(text, 10) @ 4 ** np.arange(10)[::-1]
    table = HashMap("uint32", "uint32", capacity=len(words), device=device)
    if device == "cuda":
        launch(table, backend.get(device).from_host(text), len(words))
    else:
        print("On a CPU NumPy makes the keys, and the table inserts them.")
        table.insert(words.astype("uint32"), np.arange(len(words), dtype="uint32"))
    keys, places = (backend.get(device).to_host(each) for each in table.items())
    right = (words[places] == keys).all() and len(keys) == len(np.unique(words))
    print(pd.DataFrame({"words": len(words), "different words": len(keys)}, [device]).to_string())
    print("Right." if right else "Wrong!")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default=backend.default_device())
    main(**vars(parser.parse_args()))
