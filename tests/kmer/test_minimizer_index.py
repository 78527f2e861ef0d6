"""The index of minimizers beside Kraken 2 and beside plain Python, on each device."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
from kmer import models as model
from kmer.models import minimizers as minimizer_models
from kmer.taxonomy_model import Model
from kmer.tiers import DATA, MINI, TINY, lines_without_codes
from kmer.worlds import World, arrays, fasta, rows

from dgpuhash import backend as backends
from dgpuhash.errors import ExistsError, FormatError, SequenceError, SpecError, TaxonomyError
from dgpuhash.kmer import MinimizerIndex, Taxonomy
from dgpuhash.kmer.formats.report import kreport
from dgpuhash.kmer.minimizers import building, runs
from dgpuhash.kmer.minimizers import rule as minimizer_rule
from dgpuhash.kmer.minimizers.settings import CallOptions, MinimizerSettings
from dgpuhash.tables.serialization import read_file, write_file

FEW = {"k": 20, "l": 15, "spaces": 2}


def called(device, index, pairs, *, with_mates=True, **options):
    """Return the calls and the details of pairs, or of first mates alone."""
    firsts, seconds = zip(*pairs, strict=True)
    given = [*arrays(firsts), *(arrays(seconds) if with_mates else ())]
    found = index.call(*map(device.array, given), detail=True, **options)
    assert isinstance(found.taxids, type(device.array(given[1])))
    return found.on_host(device.backend)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return references, reads and the folder of the references."""
    made = World(4, pairs=60)
    return made, made.write(tmp_path_factory.mktemp("references"))


def check_tier(device, tier):
    index = MinimizerIndex.build(
        tier.folder / "genomes", taxonomy=tier.taxonomy_folder, device=device.name
    )
    pairs = [tier.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]
    calls = index.classify(*pairs)
    expected = tier.calls("kraken2.calls.tsv")
    assert calls.to_pandas().taxid.tolist() == expected
    report = tier.text("kraken2.report").splitlines()
    assert lines_without_codes(calls.report_lines()) == lines_without_codes(report)
    lines = [line.split("\t") for line in index.inspect()]
    theirs = [line.split("\t") for line in tier.text("kraken2.inspect.txt").splitlines()]
    clades = {line[4]: int(line[1]) for line in lines}
    assert {line[4]: line[5] for line in theirs} == {line[4]: line[5] for line in lines}
    assert {line[4]: int(line[1]) for line in theirs} == clades
    return index


@pytest.fixture
def two_threads(monkeypatch):
    """Cut references as kraken2-build does with two threads, which made the tiers."""
    monkeypatch.setattr(runs, "BLOCK_LETTERS", 2**13)


def test_tier_tiny(device, two_threads):
    index = check_tier(device, TINY)
    stats = index.stats()
    assert stats["distinct"] == len(index) == 74253
    assert (stats["targets"], stats["letters"], stats["taxa"]) == (40, 233194, 14)
    assert repr(index) == f"<MinimizerIndex: 74,253 minimizers of 40 sequences, {device.name}>"


@pytest.mark.genomes
@pytest.mark.skipif(not DATA.is_dir(), reason="DGPUHASH_KMER_DATA names no folder")
def test_tier_mini(device, two_threads):
    check_tier(device, MINI)


@pytest.mark.parametrize("segment_rows", [1, 30, 1000])
def test_segments_do_not_matter(device, host, monkeypatch, world, segment_rows):
    """Runs that go on from one lane to the next, and lanes with too little room at first."""
    made, folder = world
    expected = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **FEW)
    calls = rows(called(host, expected, made.pairs))
    monkeypatch.setitem(runs._SEGMENT_ROWS, device.name, segment_rows)
    monkeypatch.setattr(runs, "_ROOM", 0.01)
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", device=device.name, **FEW)
    for one, other in zip(index.taxon_counts(), expected.taxon_counts(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert rows(called(device, index, made.pairs)) == calls


@pytest.mark.parametrize("share", [0, 0.0005, 0.02])
def test_runs_at_ambiguous_letters_are_in_order(device, host, share):
    """Also at borders of segments, in and between records of all lengths, and without a node."""
    rng = np.random.default_rng(5)
    letters = rng.choice(np.frombuffer(b"ACGTacgt", np.uint8), 30_000)
    letters[rng.random(len(letters)) < share] = ord("N")
    letters[[4095, 8192, 12_287, 12_288, 29_965, 29_966]] = ord("N")
    cuts = np.sort(rng.integers(0, len(letters), 150))
    offsets = np.concatenate([[0, 0], cuts[cuts % 10_000 > 5000], [len(letters)]])
    nodes = (np.arange(len(offsets) - 1) % 4).astype(np.uint32)

    def kmers(on, letters, offsets, nodes=None, **options):
        settings = MinimizerSettings(**options)
        given = (on.array(each) for each in (letters, offsets))
        nodes = None if nodes is None else on.array(nodes)
        made = runs.minimizer_runs(on.backend, settings, *given, nodes=nodes)
        columns = [
            made.starts,
            made.minimizers,
            made.kmers,
            *([] if nodes is None else [made.nodes]),
        ]
        there = [on.backend.to_host(each).tolist() for each in columns]
        return [
            (start + each, minimizer, *node)
            for start, minimizer, count, *node in zip(*there, strict=True)
            for each in range(count)
        ]

    expected = kmers(device, letters, offsets, nodes, ambiguous="exact")
    for at in np.flatnonzero(letters == ord("N")).tolist():
        record = np.searchsorted(offsets, at, side="right") - 1
        window = letters[at + 1 : at + 35]
        if at + 35 <= offsets[record + 1] and nodes[record]:
            early = kmers(host, window, np.array([0, 34]), k=34, ambiguous="exact")
            expected += [(at, minimizer, nodes[record]) for _, minimizer in early]
    expected.sort()
    assert kmers(device, letters, offsets, nodes) == expected


@pytest.mark.parametrize("with_mates", [True, False])
def test_slices_of_a_batch_are_called_as_the_whole(device, monkeypatch, world, with_mates):
    made, folder = world
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", device=device.name, **FEW)
    options = {"with_mates": with_mates, "confidence": 0.1}
    calls = called(device, index, made.pairs, **options)
    for letters in (50, 700):
        monkeypatch.setitem(minimizer_rule._SLICE_LETTERS, device.name, letters)
        found = called(device, index, made.pairs, **options)
        assert rows(found) == rows(calls)
        assert found.hits.tolist() == calls.hits.tolist()


def test_seen_minimizers(device, world):
    made, folder = world
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", device=device.name, **FEW)
    expected = model.MinimizerModel(made.references, made.taxonomy, **FEW)
    met = []
    for pair in made.pairs:
        for letters in pair:
            those = [each for each in expected.minimizers(letters) if each is not None]
            met += [one for one, other in zip(those, [None, *those], strict=False) if one != other]
    met = [each for each in met if expected.taxids.get(each)]
    seen = index.seen_minimizers()
    for some in (made.pairs[:5], made.pairs[5:]):
        called(device, index, some, seen=seen)
    assert len(seen) == len(set(met))
    for counts, those in zip(seen.by_clade(), (met, set(met)), strict=True):
        for taxid in index.taxonomy.taxids[1:].tolist():
            lines = (made.taxonomy.lineage(expected.taxids[each]) for each in those)
            assert counts[index.taxonomy.numbers(taxid)] == sum(taxid in line for line in lines)
    line = next(iter(kreport(index.taxonomy, [0, 1], minimizers=seen.by_clade())))
    assert line.split("\t")[3:5] == ["0", "0"]


@pytest.mark.parametrize("confidence", [0, 0.02, 0.2])
def test_long_reads_of_many_taxa(device, tmp_path, confidence):
    """Reads of more taxa than are looked through one by one, on several levels."""
    draw = random.Random(9)
    taxa = {1: (1, "no rank", "root")}
    for taxid in range(2, 160):
        taxa[taxid] = (
            draw.randint(max(1, taxid // 3 - 2), max(1, taxid // 3)),
            "no rank",
            f"t{taxid}",
        )
    taxonomy, letters = Model(taxa), "".join(draw.choices("ACGT", k=12000))
    references = [
        model.Reference(f"r{taxid}", letters[at : at + 150], taxid)
        for taxid, at in zip(range(2, 160), range(0, 12000, 75), strict=False)
    ]
    (tmp_path / "all.fa").write_text(fasta(references))
    taxonomy.write(tmp_path / "taxonomy")
    made = model.MinimizerModel(references, taxonomy, **FEW)
    index = MinimizerIndex.build(
        tmp_path / "all.fa", taxonomy=tmp_path / "taxonomy", device=device.name, **FEW
    )
    given = [letters, letters[3000:9000] * 2, letters[:700], letters[5000:5100], "", "ACGT" * 500]
    given += ["".join(draw.choice("NACGTACGTACGTACGTACGTACGT") if draw.random() < 0.02 else each
                      for each in letters)]  # fmt: skip
    pairs = [(read, given[at - 1]) for at, read in enumerate(given)]
    assert len({each for each in made.call(letters).entries if each > 0}) > 100
    for with_mates in (True, False):
        expected = [
            made.call(read, mate if with_mates else None, confidence=confidence)
            for read, mate in pairs
        ]
        found = called(device, index, pairs, with_mates=with_mates, confidence=confidence)
        assert rows(found) == [(each.taxid, each.runs()) for each in expected]
        assert found.hits.tolist() == [each.hits(taxonomy) for each in expected]


def test_no_order_matters(device, world):
    made, folder = world
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", device=device.name, **FEW)
    files = sorted(folder.glob("*.fa"), reverse=True)
    other = MinimizerIndex.build(
        files, taxonomy=folder / "taxonomy", order="given", device=device.name, **FEW
    )
    assert other.targets.names != index.targets.names
    assert sorted(other.targets.names) == sorted(index.targets.names)
    calls = rows(called(device, index, made.pairs))
    assert rows(called(device, other, made.pairs)) == calls
    assert rows(called(device, index, made.pairs[::-1])) == calls[::-1]
    one_by_one = [rows(called(device, index, [pair]))[0] for pair in made.pairs]
    assert one_by_one == calls


def test_add(device, world):
    """References of taxa that the index knows, and of others."""
    made, folder = world
    files = sorted(folder.glob("*.fa"))
    taxonomy = Taxonomy.read(folder / "taxonomy")
    whole = MinimizerIndex.build(files, taxonomy=taxonomy, device=device.name, **FEW)
    index = MinimizerIndex.build(files[2:3], taxonomy=taxonomy, device=device.name, **FEW)
    taxa = len(index.taxonomy)
    index.add(files[:2])
    assert len(index.taxonomy) > taxa
    index.add(files[3:], taxonomy=folder / "taxonomy")
    for one, other in zip(index.taxon_counts(), whole.taxon_counts(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert rows(called(device, index, made.pairs)) == rows(called(device, whole, made.pairs))
    told = ("letters", "distinct", "targets", "taxa")
    assert [index.stats()[name] for name in told] == [whole.stats()[name] for name in told]
    assert index.targets.names[:1] == [each.name for each in made.files[2]]
    with pytest.raises(TaxonomyError, match="id is there already"):
        index.add(files[0])
    assert index.stats()["targets"] == whole.stats()["targets"]


def test_letters_in_arrays_are_references_as_well(device, monkeypatch, world):
    made, folder = world
    taxonomy = Taxonomy.read(folder / "taxonomy")
    files = sorted(folder.glob("*.fa"))
    whole = MinimizerIndex.build(files, taxonomy=taxonomy, device=device.name, **FEW)
    given = made.references
    for letters in (2**20, 300):
        monkeypatch.setitem(building._SLICE_LETTERS, device.name, letters)
        some = [given[:4], given[4:]]
        (one, offsets), (other, others) = (arrays([each.letters for each in part]) for part in some)
        taxids = [[each.taxid for each in part] for part in some]
        index = MinimizerIndex.from_letters(
            device.array(one), device.array(offsets), taxids[0], taxonomy=taxonomy,
            names=[each.name for each in some[0]], **FEW,
        )  # fmt: skip
        index.add_letters(device.array(other), device.array(others), taxids[1])
        for one, other in zip(index.taxon_counts(), whole.taxon_counts(), strict=True):
            np.testing.assert_array_equal(one, other)
        assert rows(called(device, index, made.pairs)) == rows(called(device, whole, made.pairs))
        assert index.targets.names[:5] == [*(each.name for each in some[0]), "5"]
        np.testing.assert_array_equal(index.targets.lengths, whole.targets.lengths)
        assert index.stats()["letters"] == whole.stats()["letters"]


def test_letters_that_do_not_fit(world):
    _, folder = world
    given = {"taxonomy": folder / "taxonomy", **FEW}
    with pytest.raises(SequenceError, match="of 2 references"):
        MinimizerIndex.from_letters(*arrays(["ACGT", "A"]), [8], **given)
    with pytest.raises(SequenceError, match="of 2 references"):
        MinimizerIndex.from_letters(*arrays(["ACGT", "A"]), [8, 8], names=["one"], **given)
    with pytest.raises(TaxonomyError, match="not in the taxonomy: 77"):
        MinimizerIndex.from_letters(*arrays(["ACGT", "A"]), [8, 77], **given)
    index = MinimizerIndex.from_letters(*arrays(["ACGT" * 9]), [8], names=["one"], **given)
    with pytest.raises(SequenceError, match="are there already"):
        index.add_letters(*arrays(["ACGT"]), [8], names=["one"])
    assert len(index.targets.names) == 1
    masked = MinimizerIndex.from_letters(*arrays(["acgt" * 9]), [8], mask="lowercase", **given)
    assert (len(masked), len(index) > 0) == (0, True)
    assert len(MinimizerIndex.from_letters(*arrays([]), [], **given)) == 0


def test_add_by_a_taxonomy_that_changed(host, world, tmp_path):
    made, folder = world
    files = sorted(folder.glob("*.fa"))
    index = MinimizerIndex.build(files[:1], taxonomy=folder / "taxonomy", **FEW)
    changed = Model({**made.taxonomy.taxa, 8: (7, "species", "moved")})
    changed.write(tmp_path)
    calls = rows(called(host, index, made.pairs))
    with pytest.raises(TaxonomyError, match="taxid 8 of the index has another parent"):
        index.add(files[1:], taxonomy=tmp_path)
    assert rows(called(host, index, made.pairs)) == calls


def test_a_map_that_grows(device, monkeypatch, world):
    _, folder = world
    expected = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **FEW)
    monkeypatch.setitem(building._MOST_ROOM, device.name, 10)
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", device=device.name, **FEW)
    for one, other in zip(index.taxon_counts(), expected.taxon_counts(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_references_without_a_taxon_are_left_out(device, world, tmp_path):
    made, _ = world
    references = made.files[1]
    text = fasta(references).replace(f"taxid|{references[0].taxid}\n", "\n", 1)
    (tmp_path / "some.fa").write_text(text)
    made.taxonomy.write(tmp_path / "taxonomy")
    given = {"taxonomy": tmp_path / "taxonomy", "device": device.name, **FEW}
    with pytest.raises(TaxonomyError, match="1 reference without a taxid"):
        MinimizerIndex.build(tmp_path / "some.fa", **given)
    index = MinimizerIndex.build(tmp_path / "some.fa", allow_unplaced=1, **given)
    expected = model.MinimizerModel(references[1:], made.taxonomy, **FEW)
    assert len(index) == len(expected.taxids)
    assert index.targets.taxids.tolist() == [0, *(each.taxid for each in references[1:])]


def test_save_and_load(device, world, tmp_path):
    made, folder = world
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", device=device.name, **FEW)
    index.save(tmp_path / "made.dgki")
    with pytest.raises(ExistsError):
        index.save(tmp_path / "made.dgki")
    loaded = MinimizerIndex.load(tmp_path / "made.dgki", device.name)
    assert (loaded.device, loaded.settings, len(loaded)) == (
        device.name,
        index.settings,
        len(index),
    )
    assert rows(called(device, loaded, made.pairs)) == rows(called(device, index, made.pairs))
    assert loaded.targets.names == index.targets.names
    same = ("letters", "distinct", "taxa", "targets")
    assert [loaded.stats()[name] for name in same] == [index.stats()[name] for name in same]
    # The taxa that it has are known, further ones only with their taxonomy.
    (tmp_path / "more.fa").write_text(f">more taxid|8\n{made.files[0][0].letters}\n")
    loaded.add(tmp_path / "more.fa")
    assert len(loaded.targets.names) == len(index.targets.names) + 1
    data = bytearray((tmp_path / "made.dgki").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "made.dgki").write_bytes(data)
    with pytest.raises(FormatError, match="damaged"):
        MinimizerIndex.load(tmp_path / "made.dgki")


@pytest.mark.parametrize("form", ["slots", "minimizers", "other seed"])
def test_files_of_every_form(device, world, tmp_path, monkeypatch, form):
    """Slots as they are; minimizers where slots are mostly free, as older releases wrote them."""
    made, folder = world
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", device=device.name, **FEW)
    monkeypatch.setattr(building, "_LEAST_LOAD", 1.0 if form == "minimizers" else 0.0)
    path = tmp_path / "made.dgki"
    index.save(path)
    header, buffers = read_file(path)
    assert ("index slot keys" in buffers) != ("index minimizers" in buffers)
    if form == "other seed":
        header["told"]["seed"] ^= 1
    write_file(path, header, buffers, overwrite=True)
    loaded = MinimizerIndex.load(path, device.name)
    assert len(loaded) == len(index)
    assert [*loaded.inspect()] == [*index.inspect()]
    assert rows(called(device, loaded, made.pairs)) == rows(called(device, index, made.pairs))


@pytest.mark.parametrize("load", [0.0, 1.0])
def test_files_with_unknown_taxa(host, world, tmp_path, monkeypatch, load):
    _, folder = world
    monkeypatch.setattr(building, "_LEAST_LOAD", load)
    path = tmp_path / "made.dgki"
    MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **FEW).save(path)
    header, buffers = read_file(path)
    words = buffers["index nodes" if load else "index slot values"].view(np.uint32)
    words[np.flatnonzero(words != 2**32 - 1)[0]] = 10**6
    write_file(path, header, buffers, overwrite=True)
    with pytest.raises(FormatError, match="unknown taxa"):
        MinimizerIndex.load(path)


def test_settings_and_options_that_are_impossible(world):
    _, folder = world
    for given, text in [
        ({"k": 30}, "k=30; use 31 to 62"),
        ({"k": 63}, "k=63; use 31 to 62"),
        ({"l": 32}, "l=32; use 1 to 31"),
        ({"l": 0}, "l=0; use 1 to 31"),
        ({"spaces": 8}, "spaces=8; use 0 to 7"),
        ({"k": 35.5}, "k=35.5; use a whole number"),
        ({"width": 3}, "no setting 'width'"),
        ({"mask": "upper"}, "mask='upper'"),
    ]:
        with pytest.raises(SpecError, match=text):
            MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **given)
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **FEW)
    letters, offsets = arrays(["ACGT"])
    for given, text in [
        ({"confidence": 1.1}, "confidence=1.1; use 0 to 1"),
        ({"confidence": float("nan")}, "use a number"),
        ({"confidence": "high"}, "use a number"),
        ({"minimum_hit_groups": -1}, "minimum_hit_groups=-1"),
        ({"minimum_base_quality": 94}, "minimum_base_quality=94; use 0 to 93"),
        ({"hitmin": 3}, "no option 'hitmin'"),
    ]:
        with pytest.raises(SpecError, match=text):
            index.call(letters, offsets, **given)
    assert pickle.loads(pickle.dumps(CallOptions(0.5))) == CallOptions(0.5)
    assert MinimizerSettings().spaced == int("11" * 17 + "0011" * 7, 2)


def test_arrays_that_do_not_fit(world):
    _, folder = world
    index = MinimizerIndex.build(folder, taxonomy=folder / "taxonomy", **FEW)
    letters, offsets = arrays(["ACGT", "AC"])
    with pytest.raises(SequenceError, match="2 reads and 1 mates"):
        index.call(letters, offsets, *arrays(["ACGTAC"]))
    with pytest.raises(SequenceError, match="do not divide 6 letters"):
        index.call(letters, offsets[:2])
    with pytest.raises(SequenceError, match="5 qualities of 6 letters"):
        index.call(letters, offsets, qualities=letters[:5], minimum_base_quality=3)
    none = index.call(*arrays([]), detail=True)
    assert (len(none), none.detail_offsets.tolist()) == (0, [0])
    empty = index.call(*arrays(["", ""]), *arrays(["", "A"]), detail=True)
    assert empty.taxids.tolist() == [0, 0]
    assert rows(empty) == [(0, [(-2, 1)]), (0, [(-2, 1)])]


@pytest.mark.parametrize("ambiguous", ["kraken2", "exact"])
def test_blocks_of_references_are_those_of_kraken2(device, monkeypatch, tmp_path, ambiguous):
    """Also of pieces, and of letters that are no bases."""
    monkeypatch.setattr(runs, "BLOCK_LETTERS", 64)
    monkeypatch.setattr(minimizer_models, "BLOCK", 64)
    world = World(3, pairs=12)
    letters = [each.letters for each in world.references]
    settings = {"k": 20, "l": 15, "spaces": 2, "ambiguous": ambiguous}
    expected = model.MinimizerModel(world.references, world.taxonomy, **settings)
    for size in (50, 2**20):
        monkeypatch.setitem(building._SLICE_LETTERS, device.name, size)
        some, offsets = map(device.array, arrays(letters))
        found = MinimizerIndex.from_letters(
            some, offsets, [each.taxid for each in world.references],
            taxonomy=world.write(tmp_path) / "taxonomy", **settings,
        )  # fmt: skip
        keys = backends.get(device.name).to_host(found._table.items()[0])
        assert set(keys.tolist()) == {key for key, taxid in expected.taxids.items() if taxid}


def test_files_of_before_are_exact():
    assert MinimizerSettings.of_saved({"l": 27, "spaces": 6}).ambiguous == "exact"
    assert MinimizerSettings.of_saved({"ambiguous": "kraken2"}).ambiguous == "kraken2"
    with pytest.raises(SpecError, match="ambiguous='yes'; use one of kraken2, exact"):
        MinimizerSettings.of(ambiguous="yes")
