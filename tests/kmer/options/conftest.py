"""References, reads and indexes that tests of options share."""

from __future__ import annotations

from functools import cache

import pytest
from kmer.options.world import WORLD
from kmer.worlds import fastq

from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences import files as sequence_files
from dgpuhash.kmer.sketches import building


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def built(folder):
    """Return indexes of the references, each made once."""

    @cache
    def of(rule, **settings):
        files = sorted(folder.glob("*.fa"))
        return rule.build(files, taxonomy=folder / "taxonomy", **settings)

    return of


@pytest.fixture
def in_pieces(monkeypatch):
    """Cut references into pieces of about a hundred letters."""
    monkeypatch.setitem(References.batches.__kwdefaults__, "batch_letters", 60)
    monkeypatch.setitem(building._BATCH_LETTERS, "cpu", 60)
    monkeypatch.setattr(sequence_files, "CHUNK_NBYTES", 23)


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    """Return files of first and second mates, with qualities."""
    folder = tmp_path_factory.mktemp("reads")
    paths = []
    for mate in (0, 1):
        sides = [[each[mate] for each in both] for both in (WORLD.pairs, WORLD.qualities)]
        names = [f"pair{at}/{mate + 1} of many" for at in range(len(WORLD.pairs))]
        paths.append(folder / f"{mate}.fq")
        paths[-1].write_text(fastq(names, *sides))
    return paths
