"""Disks that fill up during a save: the previous save stays whole."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from distributed import Client

from dgpuhash.distributed import DistributedIndex

pytestmark = pytest.mark.cluster

# For user namespaces: root's name is enough to mount a disk that only the command sees.
ALONE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MOUNT = 'mount -t tmpfs -o size=3m tmpfs "$1"'


def rows(start: int, stop: int) -> pd.DataFrame:
    """Return rows of 16 bytes."""
    return pd.DataFrame({"k": np.arange(start, stop), "v": np.arange(start, stop) / 8})


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fails_and_leaves_all_as_it_was(
    client: Client, index: DistributedIndex, folder: Path, error: int
) -> None:
    """Assert that saves of `index` fail and leave all files as they were.

    The index fits neither over the save ``folder / "good"``, which has 40,000 rows, nor beside it.
    """
    before = content(folder)
    for name in ("good", "new"):
        with pytest.raises(OSError, match=os.strerror(error)):
            index.save(folder / name)
        assert content(folder) == before
        assert [path.name for path in folder.iterdir()] == ["good"]
    with DistributedIndex.load(folder / "good", client) as loaded:
        assert len(loaded) == 40_000
        assert loaded.contains(np.arange(0, 40_000, 97)).all()


def limit(nbytes: int) -> None:
    """Limit the size of this worker's files; Python ignores the signal."""
    sys.dont_write_bytecode = nbytes != resource.RLIM_INFINITY
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes if nbytes > 0 else hard, hard))


def test_workers_that_may_not_write_so_much(processes, tmp_path):
    with DistributedIndex.build(rows(0, 40_000), on="k", client=processes) as index:
        index.save(tmp_path / "good")
        index.insert(rows(40_000, 200_000))
        processes.run(limit, 500_000)
        try:
            fails_and_leaves_all_as_it_was(processes, index, tmp_path, errno.EFBIG)
        finally:
            processes.run(limit, resource.RLIM_INFINITY)
        index.save(tmp_path / "good")
        with DistributedIndex.load(tmp_path / "good", processes) as loaded:
            assert len(loaded) == 200_000


def test_a_durable_insert_that_does_not_fit(processes, tmp_path):
    with DistributedIndex.build(
        rows(0, 40_000), on="k", client=processes, durable=tmp_path / "log"
    ) as index:
        before = content(tmp_path)
        processes.run(limit, 500_000)
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                index.insert(rows(40_000, 200_000))
        finally:
            processes.run(limit, resource.RLIM_INFINITY)
        assert (content(tmp_path), len(index), index.epoch) == (before, 40_000, 1)
        assert index.insert(rows(40_000, 200_000)) == 160_000
    with DistributedIndex.load(tmp_path / "log", processes) as loaded:
        assert len(loaded) == 200_000


def test_a_small_disk(tmp_path):
    """A real one, in a process that may mount it."""
    try:
        tried = subprocess.run(
            [*ALONE, MOUNT, "sh", tmp_path], capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare here, so no small disk can be mounted")
    if tried.returncode:
        pytest.skip(f"nobody may mount a small disk here: {tried.stderr.strip()}")
    found = subprocess.run(
        [*ALONE, f'{MOUNT} && exec "$2" -B "$3" "$1"', "sh", tmp_path, sys.executable, __file__],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "support")},
    )
    assert found.stdout.endswith("done\n"), (found.returncode, found.stdout, found.stderr)


def on_a_small_disk(folder: Path) -> None:
    """Save indexes on a disk that is too small; runs in its process.

    40,000 rows fit three times, 160,000 rows once and not beside others.
    """
    with (
        cluster_of(2, processes=True) as client,
        DistributedIndex.build(rows(0, 40_000), on="k", client=client) as index,
    ):
        index.save(folder / "good")
        index.insert(rows(40_000, 160_000))
        fails_and_leaves_all_as_it_was(client, index, folder, errno.ENOSPC)
        # The shards fit, and the manifest does not.
        index.erase(rows(40_000, 160_000))
        disk = os.statvfs(folder)
        shards = [path.stat().st_size for path in (folder / "good").glob("*.arrow")]
        left = disk.f_bavail - sum(-(-nbytes // disk.f_frsize) for nbytes in shards)
        (folder / "good" / "filler").write_bytes(bytes(left * disk.f_frsize))
        fails_and_leaves_all_as_it_was(client, index, folder, errno.ENOSPC)
        (folder / "good" / "filler").unlink()
        index.save(folder / "good")
        with DistributedIndex.load(folder / "good", client) as loaded:
            assert len(loaded) == 40_000
    assert len(content(folder)) == 3
    shutil.rmtree(folder / "good")


def logged_on_a_small_disk(folder: Path) -> None:
    """Insert durably on a disk that is too small; runs in its process.

    First the rows do not fit, then only the record does not.
    """
    with (
        cluster_of(2, processes=True) as client,
        DistributedIndex.build(
            rows(0, 40_000), on="k", client=client, durable=folder / "log"
        ) as index,
    ):
        before = content(folder)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            index.insert(rows(40_000, 200_000))
        disk = os.statvfs(folder)
        filler = folder / "filler"
        for pages in range(disk.f_bavail - 2, disk.f_bavail):
            filler.write_bytes(bytes(pages * disk.f_frsize))
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                index.insert(rows(40_000, 40_010))
            filler.unlink()
        assert (content(folder), len(index), index.epoch) == (before, 40_000, 1)
        assert index.insert(rows(40_000, 40_010)) == 10
        with DistributedIndex.load(folder / "log", client) as loaded:
            assert len(loaded) == 40_010


def test_two_indexes_saved_to_one_place_at_once(threads, tmp_path):
    """One of them is there in the end, whole."""
    where = tmp_path / "saved"
    with (
        DistributedIndex.build(rows(0, 1000), on="k", client=threads) as one,
        DistributedIndex.build(rows(0, 3000), on="k", client=threads) as other,
    ):
        one.save(where)
        errors: list[Exception] = []

        def save(index: DistributedIndex) -> None:
            try:
                for _ in range(8):
                    index.save(where, overwrite=True)
            except Exception as error:
                errors.append(error)

        savers = [threading.Thread(target=save, args=(index,)) for index in (one, other)]
        for saver in savers:
            saver.start()
        for saver in savers:
            saver.join()
        assert errors == []
        with DistributedIndex.load(where, threads) as loaded:
            assert len(loaded) in {1000, 3000}
    assert not list(where.glob("*.part"))


if __name__ == "__main__":
    on_a_small_disk(Path(sys.argv[1]))
    logged_on_a_small_disk(Path(sys.argv[1]))
    print("done")
