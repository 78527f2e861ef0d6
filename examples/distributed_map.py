"""A map of a million keys on two workers: insert, find, save, and load onto three."""

import argparse
import tempfile

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from dgpuhash.distributed import DistributedMap


def main() -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        # Chunks are computed on the workers, and stay there.
        random = da.random.default_rng(7)
        keys = client.persist(random.integers(0, 1 << 40, 1_000_000, chunks=250_000))
        with DistributedMap.from_arrays(keys, keys % 1000, capacity=1_000_000) as table:
            print(table)
            asked = keys[::2] + da.arange(500_000, chunks=125_000) % 2
            values, found = table.find(asked, default=-1)
            print(f"{int(found.sum().compute()):,} of {len(asked):,} keys are stored")
            wrong = (found & (values != asked % 1000)).sum()
            table.upsert(keys[:1000], -keys[:1000])
            _, content = table.items()
            print(f"{int((content < 0).sum().compute()):,} values are below 0 now")
            table.save(folder)

        cluster.scale(3)
        client.wait_for_workers(3)
        with DistributedMap.load(folder) as table:
            values, found = table.find(np.asarray(keys[:3].compute()))
            print(f"loaded onto {len(table.workers)} workers: {len(table):,} pairs")
            right = found.all() and (values < 0).all() and not wrong.compute()
            print("Right." if right else "Wrong!")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
