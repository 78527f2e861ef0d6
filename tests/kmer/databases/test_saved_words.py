"""Files of version 3, with minimizers in words: saves that are killed, and disks that are full."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kmer.tiers import TINY

from dgpuhash.errors import FormatError
from dgpuhash.kmer import MinimizerIndex, load_index
from dgpuhash.tables.arguments.file_layout import LATER_VERSION, PREFIX

# Saves the index of one file to another's place, under a limit on the size of files, or with a kill
# where it is about to take its name.
_SAVES = """
import os, resource, signal, sys
from dgpuhash.kmer import load_index
from dgpuhash.tables import serialization
index = load_index(sys.argv[1])
if sys.argv[3] == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
else:
    serialization.rename_into_place = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
try:
    index.save(sys.argv[2], overwrite=True)
except OSError as error:
    print("refused", error.errno)
"""


@pytest.fixture(scope="module")
def index() -> MinimizerIndex:
    return MinimizerIndex.build(TINY.folder / "genomes", taxonomy=TINY.taxonomy_folder)


def save(*arguments: object) -> subprocess.CompletedProcess[str]:
    # -B: under the limit, compiled modules would be cut as well.
    return subprocess.run(
        [sys.executable, "-B", "-c", _SAVES, *map(str, arguments)], capture_output=True, text=True,
        timeout=280,
    )  # fmt: skip


@pytest.mark.parametrize("fault", ["full", "killed"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_save_that_fails(
    index: MinimizerIndex, tmp_path: Path, fault: str, is_there: bool
) -> None:
    """What was there stays, nothing else is left, and the next save is whole."""
    source, place = tmp_path / "source.dgki", tmp_path / "place" / "index.dgki"
    index.save(source)
    whole = source.read_bytes()
    assert PREFIX.unpack_from(whole)[1] == LATER_VERSION
    assert "whole_keys" not in index.stats()
    place.parent.mkdir()
    before = b"an older file" if is_there else None
    if before is not None:
        place.write_bytes(before)
    done = save(source, place, fault)
    if fault == "full":
        assert done.stdout.startswith("refused"), (done.stdout, done.stderr)
        assert [each.name for each in place.parent.iterdir()] == ["index.dgki"] * is_there
    else:
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert (place.read_bytes() if place.exists() else None) == before
    index.save(place, overwrite=True)
    # What the killed one left went, too.
    assert [each.name for each in place.parent.iterdir()] == ["index.dgki"]
    assert place.read_bytes() == whole
    assert load_index(place).stats() == index.stats()


def test_every_truncation_is_refused(index: MinimizerIndex, tmp_path: Path) -> None:
    path = tmp_path / "index.dgki"
    index.save(path)
    whole = path.read_bytes()
    for length in sorted({0, 8, 31, 32, 100, len(whole) // 2, *range(len(whole) - 9, len(whole))}):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            load_index(path)
