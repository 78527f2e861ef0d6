"""TPC-H under change: answers of eight queries, kept while orders come and go, equal DuckDB's.

The part to read is `dgpuhash/bench/refresh/kept.py`: 150 lines of public verbs. `dgpuhash bench
refresh` measures them beside DuckDB and Polars.
"""

import argparse

from dgpuhash import bench

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="of the data, default 0.01")
    parser.add_argument("--rounds", type=int, default=3, help="of changes, default 3")
    given = parser.parse_args()
    bench.run("refresh", scale=given.scale, fractions=[0.001], repeats=given.rounds)
    print("Equal in each round.")
