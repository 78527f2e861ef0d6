"""Indexes of fewer bytes: minimizers left out by their hashes."""

from __future__ import annotations

from itertools import chain

import pytest
from click.testing import CliRunner
from kmer.models.minimizers import MinimizerModel
from kmer.tiers import TINY
from kmer.worlds import World

from dgpuhash.cli import main
from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer import MinimizerIndex, load_index

WORLD = World(23, pairs=60, scale=900)
SMALL = {"k": 24, "l": 18, "spaces": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


def table_of(index):
    return dict(zip(*(each.tolist() for each in index._table.items()), strict=True))


@pytest.mark.parametrize("least", [1, 2**62, 2**63, 2**64 - 2**58])
def test_a_bound_leaves_minimizers_out_as_the_model_does(folder, tmp_path, least):
    given = {"taxonomy": folder / "taxonomy", **SMALL}
    index = MinimizerIndex.build(folder / "*.fa", least_hash=least, **given)
    made = MinimizerModel(WORLD.references, WORLD.taxonomy, least_hash=least, **SMALL)
    taxids = index.taxonomy.taxids
    expected = {key: int(taxids[node]) for key, node in table_of(index).items()}
    assert expected == made.taxids
    later = MinimizerIndex.build([folder / "0.fa", folder / "1.fa"], least_hash=least, **given)
    later.add([folder / "2.fa", folder / "3.fa"], taxonomy=folder / "taxonomy")
    assert table_of(later).keys() == made.taxids.keys()
    index.save(tmp_path / "db.dgki")
    assert load_index(tmp_path / "db.dgki").settings.least_hash == least
    assert index.stats()["least_hash"] == least


@pytest.mark.parametrize("bounds", [(0, 2**63), (2**63, 0), (2**62, 2**63), (2**62, 0, 2**63)])
def test_indexes_of_two_bounds_merge_to_that_of_the_higher(folder, bounds):
    given = {"taxonomy": folder / "taxonomy", "order": "given", **SMALL}
    files = sorted(folder.glob("*.fa"))
    parts = [files[at :: len(bounds)] for at in range(len(bounds))]
    first, *others = (
        MinimizerIndex.build(own, least_hash=least, **given)
        for own, least in zip(parts, bounds, strict=True)
    )
    before = table_of(first)
    made = first.merge(*others)
    whole = MinimizerIndex.build([*chain(*parts)], least_hash=max(bounds), **given)
    assert table_of(made) == table_of(whole)
    assert made.settings == whole.settings
    assert table_of(first) == before


@pytest.mark.parametrize("nbytes", [4_096, 5_000, 20_000, 10**7])
def test_an_index_has_at_most_so_many_bytes(folder, nbytes):
    given = {"taxonomy": folder / "taxonomy", **SMALL}
    whole = MinimizerIndex.build(folder / "*.fa", **given)
    index = MinimizerIndex.build(folder / "*.fa", max_db_size=nbytes, **given)
    assert index.stats()["nbytes"] <= nbytes
    least = index.settings.least_hash
    assert table_of(index) == table_of(
        MinimizerIndex.build(folder / "*.fa", least_hash=least, **given)
    )
    assert (least == 0) == (len(index) == len(whole))
    # As many as have room, but for the share of a bound.
    assert len(index) == len(whole) or len(index) > 0.7 * nbytes / 14
    assert index.provenance[0].options["least_hash"] == least


def test_estimates_follow_the_bound(folder):
    for least in (2**62, 2**63):
        found = MinimizerIndex.estimate(folder / "*.fa", least_hash=least, **SMALL)
        index = MinimizerIndex.build(
            folder / "*.fa", taxonomy=folder / "taxonomy", least_hash=least, **SMALL
        )
        assert found.distinct == pytest.approx(len(index), rel=0.15)


def test_commands_take_a_size(tmp_path):
    def run(*arguments, code=0):
        result = CliRunner().invoke(main, ["kmer", "build", *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result.stderr

    genomes = [TINY.folder / "genomes", "--taxonomy", TINY.taxonomy_folder]
    path = tmp_path / "db.dgki"
    run(*genomes, "--rule", "kraken2", "--max-db-size", "100kB", "-o", path)
    assert load_index(path).stats()["nbytes"] <= 100_000
    path.unlink()
    for options, said in (
        (["--rule", "kraken2", "--max-db-size", "big"], "--max-db-size big: not a number of bytes"),
        (["--rule", "kraken2", "--max-db-size", "9"], "max_db_size=9; use 4,096 to"),
        (
            ["--rule", "metacache", "--max-db-size", "1GB"],
            "--max-db-size is an option of the rule of Krak",
        ),
    ):
        assert said in run(*genomes, *options, "-o", path, code=2)
    assert list(tmp_path.iterdir()) == []


def test_sizes_and_bounds_that_cannot_be_are_refused(folder):
    with pytest.raises(SpecError, match="max_db_size is kept by one process"):
        MinimizerIndex.build("x.fa", taxonomy="x", client=object(), max_db_size=100)
    for least in (-1, 2**64):
        with pytest.raises(SpecError, match="least_hash="):
            MinimizerIndex.build(folder / "0.fa", taxonomy=folder / "taxonomy", least_hash=least)


def test_the_standard_input_is_not_read_twice():
    with pytest.raises(SequenceError, match="read twice"):
        MinimizerIndex.build("-", taxonomy=None, max_db_size=10**6, **SMALL)
