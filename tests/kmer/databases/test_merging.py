"""Indexes merged: those of one build of all references, or what keeps them apart is told."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from kmer.taxonomy_model import Model
from kmer.worlds import TAXA, World, arrays, rows

from dgpuhash.cli import main
from dgpuhash.errors import SequenceError, SpecError, TaxonomyError
from dgpuhash.kmer import KmerCounts, MinimizerIndex, SketchIndex, Taxonomy, load_index
from dgpuhash.kmer.sketches import building

WORLD = World(11, pairs=60)
SMALL = {"k": 11, "sketch": 8, "window": 40, "order": "given"}
FEW = {"k": 13, "l": 9, "spaces": 2, "order": "given"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def files(folder):
    return sorted(folder.glob("*.fa"))


def calls_of(index, array=np.asarray, **options):
    firsts, seconds = zip(*WORLD.pairs, strict=True)
    given = map(array, (*arrays(firsts), *arrays(seconds)))
    return rows(index.call(*given, detail=True, **options))


def stats_of(index):
    # What tables take depends on how they grew.
    sizes = ("nbytes", "load")
    return {name: value for name, value in index.stats().items() if not name.startswith(sizes)}


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.mark.parametrize("few", [0, 10**6])
@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("cap", [1, 2, 3, 254])
def test_sketches_are_those_of_one_build(
    folder, files, tmp_path, device, monkeypatch, cap, removes, few
):
    """Whether lists grow where they are, or all are stored anew."""
    monkeypatch.setattr(building, "_FEW", few)
    given = {**SMALL, "cap": cap, "remove_overpopulated": removes, "device": device.name}
    given["taxonomy"] = Taxonomy.read(folder / "taxonomy")
    whole = SketchIndex.build(files, **given)
    first = SketchIndex.build(files[:1], **given)
    second = SketchIndex.build(files[1:3], **given)
    second.add(files[3])
    second.save(tmp_path / "second.dgki")
    for made in (
        first.merge(second),
        first.merge(load_index(tmp_path / "second.dgki", device.name)),
        first.merge(*(SketchIndex.build(file, **given) for file in files[1:])),
    ):
        assert made.digests() == whole.digests()
        assert stats_of(made) == stats_of(whole)
        assert made.targets.names == whole.targets.names
        assert made.taxonomy.taxids.tolist() == whole.taxonomy.taxids.tolist()
        for options in ({}, {"lowest": "genus", "maxcand": 3, "cov_percentile": 20}):
            found, expected = (calls_of(each, device.array, **options) for each in (made, whole))
            assert found == expected
    # Those merged are as they were, and additions go on behind all.
    assert first.digests() == SketchIndex.build(files[:1], **given).digests()
    made = SketchIndex.build(files[:1], **given).merge(SketchIndex.build(files[1], **given))
    made.add(files[2:])
    assert made.digests() == whole.digests()


def test_minimizers_are_those_of_one_build(folder, files, tmp_path, device):
    given = {**FEW, "taxonomy": folder / "taxonomy", "device": device.name}
    whole = MinimizerIndex.build(files, **given)
    first, *others = (MinimizerIndex.build(file, **given) for file in files)
    others[-1].save(tmp_path / "last.dgki")
    others[-1] = load_index(tmp_path / "last.dgki", device.name)
    # New minimizers go to free slots of a table whose numbers of taxa changed.
    first._table.reserve(10 * len(whole))
    made = first.merge(*others)
    assert list(made.inspect()) == list(whole.inspect())
    assert stats_of(made) == stats_of(whole)
    assert made.taxonomy.taxids.tolist() == whole.taxonomy.taxids.tolist()
    assert calls_of(made) == calls_of(whole)
    assert len(first) < len(made)


def test_what_keeps_indexes_apart(folder, files, tmp_path):
    taxonomy = folder / "taxonomy"
    one = SketchIndex.build(files[:2], taxonomy=taxonomy, **SMALL)
    for changed, told in (
        ({"cap": 3}, "cap is 254 here and 3 there"),
        ({"mask": "lowercase"}, "mask"),
        ({"window": 41}, "window"),
    ):
        other = SketchIndex.build(files[2], taxonomy=taxonomy, **{**SMALL, **changed})
        with pytest.raises(SpecError, match=told):
            one.merge(other)
    # In what order each one's files were numbered does not matter.
    path = SketchIndex.build(files[2:], taxonomy=taxonomy, **{**SMALL, "order": "path"})
    assert len(one.merge(path)) == len(WORLD.references)
    with pytest.raises(SpecError, match="taxonomy and one has none"):
        one.merge(SketchIndex.build(files[2], taxonomy=None, **SMALL))
    with pytest.raises(SpecError, match="does not merge with a MinimizerIndex"):
        one.merge(MinimizerIndex.build(files[2], taxonomy=taxonomy))
    with pytest.raises(SequenceError, match=r"ref0\.1 of .*0\.fa is there already"):
        one.merge(SketchIndex.build(files[:1], taxonomy=taxonomy, **SMALL))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ((4, "genus", "Escherichia"), "6 has another parent"),
        ((5, "no rank", "Escherichia"), "6 has another rank"),
        ((5, "genus", "Shigella"), "6 has another name"),
    ],
)
def test_other_taxonomies_are_refused(folder, files, tmp_path, changed, told):
    Model({**TAXA, 6: changed}).write(tmp_path)
    for rule, settings in ((SketchIndex, SMALL), (MinimizerIndex, FEW)):
        one = rule.build(files[:2], taxonomy=folder / "taxonomy", **settings)
        with pytest.raises(TaxonomyError, match=f"{told} here than there"):
            one.merge(rule.build(files[3], taxonomy=tmp_path, **settings))


def test_the_command_takes_what_files_are(folder, files, tmp_path):
    names = [tmp_path / f"{number}.dgki" for number in range(len(files))]
    given = ("--rule", "kraken2", "--taxonomy", folder / "taxonomy", "--order", "given")
    for file, name in zip(files, names, strict=True):
        run("build", file, *given, "-o", name)
    run("build", *files, *given, "-o", tmp_path / "whole.dgki")
    said = run("merge", *names, "-o", tmp_path / "merged.dgki")
    assert "merged.dgki: 13 sequences, 11,989 letters" in said
    one, other = (tmp_path / f"{name}.dgki" for name in ("merged", "whole"))
    assert run("inspect", one, "--report") == run("inspect", other, "--report")
    for number in "ab":
        KmerCounts.count(files[0], k=5).save(tmp_path / f"{number}.dgkc")
    run("merge", tmp_path / "a.dgkc", tmp_path / "b.dgkc", "-o", tmp_path / "c.dgkc")
    assert KmerCounts.load(tmp_path / "c.dgkc").total == 2 * KmerCounts.count(files[0], k=5).total
    mixed = run("merge", names[0], tmp_path / "a.dgkc", "-o", tmp_path / "x", code=2)
    assert "0.dgki is an index and" in mixed
    twice = run("merge", names[0], names[1], names[0], "-o", tmp_path / "x", code=2)
    assert "0.dgki: ref0.1 of" in twice
    assert not (tmp_path / "x").exists()
    assert "exists already" in run("merge", *names, "-o", names[0], code=2)
    np.testing.assert_array_equal(
        load_index(tmp_path / "merged.dgki").targets.lengths,
        load_index(tmp_path / "whole.dgki").targets.lengths,
    )
