"""Temporary files of saves: the next save or load of the name removes what a killed one left."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dgpuhash import FrameIndex, HashMap
from dgpuhash.kmer import Taxonomy
from dgpuhash.tables.arguments.temporary import sweep_parts

KILLED = """
import os, signal, sys
import numpy as np
from dgpuhash.tables import serialization
from dgpuhash import HashMap

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

table = HashMap.from_arrays(np.arange(1000), np.arange(1000))
serialization.rename_into_place = killed
table.save(sys.argv[1], overwrite=True)
"""


def table_of(path: Path) -> None:
    HashMap.from_arrays(np.arange(9), np.arange(9)).save(path, overwrite=True)


def index_of(path: Path) -> None:
    FrameIndex.build(pd.DataFrame({"k": [1, 2]}), on="k").save(path, overwrite=True)


def taxonomy_of(path: Path) -> None:
    lines = path.with_suffix(".tsv")
    lines.write_text("GCA_1.1\td__Archaea\n")
    Taxonomy.from_gtdb(lines).save(path, overwrite=True)


FILES: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "table": (table_of, HashMap.load),
    "index": (index_of, FrameIndex.load),
    "taxonomy": (taxonomy_of, Taxonomy.load),
}


def left_beside(path: Path, digit: str = "a") -> Path:
    return path.with_name(f"{path.name}.{digit * 32}.part")


def test_what_a_killed_save_left_is_removed(tmp_path):
    path = tmp_path / "saved"
    for again in (table_of, HashMap.load):
        done = subprocess.run([sys.executable, "-c", KILLED, path], check=False, timeout=120)
        assert done.returncode == -signal.SIGKILL
        (left,) = tmp_path.glob("saved.*.part")
        assert left.stat().st_size
        again(path)
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("verb", ["save", "load"])
def test_only_parts_of_the_name_whose_lock_is_free_go(tmp_path, kind, verb):
    path = tmp_path / "saved"
    save, load = FILES[kind]
    save(path)
    free, held, other = left_beside(path), left_beside(path, "b"), left_beside(tmp_path / "saves")
    like = tmp_path / "saved.mine.part"
    for each in (free, held, other, like):
        each.write_text("half")
    with held.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (save if verb == "save" else load)(path)
        assert not free.exists()
        assert all(each.exists() for each in (held, other, like))
    (save if verb == "save" else load)(path)
    assert not held.exists()


def test_a_folder_that_cannot_be_listed_is_left(tmp_path):
    sweep_parts(str(tmp_path / "none" / "saved"))
