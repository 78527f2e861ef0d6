"""Taxids of accessions, and the places of references."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kmer.taxonomy_model import Model, distance

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer import Reference, Taxonomy, accessions, place_references
from dgpuhash.kmer.accessions import taxids_of

HERE = Path(__file__).parent / "data"
TITLE = "accession\taccession.version\ttaxid\tgi\n"


@pytest.fixture(scope="module")
def taxonomy():
    return Taxonomy.read(HERE / "taxonomy")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The taxonomy without files of accessions."""
    folder = tmp_path_factory.mktemp("bare")
    for path in (HERE / "taxonomy").glob("*.dmp"):
        (folder / path.name).write_bytes(path.read_bytes())
    return Taxonomy.read(folder)


def written(tmp_path, text, name="map.tsv"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return str(path)


def found_in(tmp_path, text, wanted):
    found = taxids_of(wanted, [written(tmp_path, text)])
    return {name: [(each.distance, each.taxid) for each in those] for name, those in found.items()}


def test_the_lineages_of_references_are_those_of_metacache(taxonomy):
    title, *lines = (HERE / "tiny" / "metacache.lineages.txt").read_text().splitlines()
    ids = [line.split("\t")[0] for line in lines]
    placed = place_references(taxonomy, [(f"{each} some words", "x.fna") for each in ids])
    assert placed.notes == []
    rows = taxonomy.ranked(placed.taxids)[:, 1 : len(title.split("\t")) - 1].tolist()
    assert lines == [
        "\t".join(map(str, [each, -at, *row]))
        for at, (each, row) in enumerate(zip(ids, rows, strict=True), 1)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TITLE + "AB000001\tAB000001.3\t5\t0\nAB000002\tAB000002.1\t6\t0\n", [(1, 5)]),
        ("accession.version\ttaxid\nAB000001.1\t5\nAB000009.1\t7\n", [(0, 5)]),
        ("AB000001.2\t5\n", [(1, 5)]),
        ("AB000001.1 5\nX 6\n", [(0, 5)]),
        ("NZ_AB000001\t5\n", [(2, 5)]),
        ("## See README\n#assembly_accession\tbioproject\ttaxid\nAB000001.1\tP1\t5\n", [(0, 5)]),
        ("#note\n\nX\t7\n#note\nAB000001\t5\n\n", [(1, 5)]),
        ("\ufeffAB000001.1\t5\r\nX\t7\r\n", [(0, 5)]),
        ("AB000001.1\t5\nAB000001.2\t6\nAB000001.1\t5", [(0, 5), (1, 6)]),
        ("AB000001.1\t0\n", None),
        ("AB0000010\t5\nAB00000\t6\n", None),
    ],
)
def test_files_of_accessions_have_many_forms(tmp_path, text, expected):
    found = found_in(tmp_path, text, ["AB000001.1", "AB000003"])
    assert found == ({} if expected is None else {"AB000001.1": expected})


def test_names_of_other_kinds_have_no_versions(tmp_path):
    found = found_in(
        tmp_path, "contig.1\t5\ncontig.2\t6\nnode\t7\n", ["contig.2", "contig.3", "node.1"]
    )
    assert found == {"contig.2": [(0, 6)], "node.1": [(1, 7)]}


NAMES = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "NZ_"]),
        st.sampled_from(["A", "AB", "NC_", "NC_00", "contig", "a long name of "]),
        st.integers(0, 12).map(str),
        st.sampled_from(["", ".1", ".2", ".x"]),
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(NAMES, max_size=8),
    st.lists(st.tuples(NAMES, st.integers(1, 9)), min_size=1),
    st.data(),
)
def test_names_are_found_as_in_plain_python(tmp_path_factory, wanted, rows, data):
    lines = [f"{name}\t{taxid}\n" for name, taxid in rows]
    # A note makes the block a special one.
    lines.insert(data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from(["", "#x\n"])))
    path = written(tmp_path_factory.mktemp("rows"), "".join(lines))
    found = {
        name: {each[:2] for each in those} for name, those in taxids_of(wanted, [path]).items()
    }
    expected = {name: {(distance(name, there), taxid) for there, taxid in rows} for name in wanted}
    kept = {
        name: {each for each in those if each[0] is not None} for name, those in expected.items()
    }
    assert found == {name: those for name, those in kept.items() if those}


@pytest.mark.parametrize("end", ["", "#"])
def test_blocks_of_a_file_are_read_one_by_one(tmp_path, monkeypatch, end):
    monkeypatch.setattr(accessions, "BLOCK_NBYTES", 200)
    monkeypatch.setattr("dgpuhash.kmer.sequences.files.CHUNK_NBYTES", 64)
    # An empty line or a note makes the whole block a special one.
    lines = [f"AB{at:06d}\tAB{at:06d}.1\t{at + 1}\t0\n{end}" for at in range(100)]
    lines = [line.replace("#", "#note\n") for line in lines]
    path = tmp_path / "nucl.accession2taxid.gz"
    path.write_bytes(gzip.compress((TITLE + "".join(lines)).encode()))
    wanted = [f"AB{at:06d}.1" for at in range(0, 100, 3)]
    found = taxids_of(wanted, [str(path)])
    assert [found[name][0].taxid for name in wanted] == list(range(1, 101, 3))
    step = 2 if end else 1
    assert found["AB000090.1"][0].place == f"{path}, line {90 * step + 2}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A\t5\nB\tx\n", r"line 2: 'x' is not a taxid; download the file again, or correct"),
        ("A\t5\nB\n", r"line 2: 1 columns, and 2 are needed"),
        ("A\t5\nB\t\n", r"line 2: '' is not a taxid"),
        ("A\t5\nB\t-3\n", r"line 2: '-3' is not a taxid"),
        ("only words\n", r"line 1: 'words' is not a taxid"),
        (
            "word\n",
            r"map\.tsv: its first line is not an accession and a taxid; pass an accession2taxid",
        ),
        ("A\td__B;x__C\n", r"line 1: .* is not a GTDB lineage"),
    ],
)
def test_files_that_are_wrong_are_refused(tmp_path, text, message):
    with pytest.raises(TaxonomyError, match=message):
        taxids_of(["A", "B"], [written(tmp_path, text)])


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "nucl.accession2taxid.gz"
    path.write_bytes(gzip.compress(TITLE.encode() * 1000)[:-20])
    with pytest.raises(TaxonomyError, match=r"is cut short"):
        taxids_of(["A"], [str(path)])


@pytest.mark.parametrize(
    ("header", "file", "taxid"),
    [
        ("taxid|562 x", "", 562),
        ("kraken:taxid|562|X1", "", 562),
        ("X1|kraken:taxid|562 words", "", 562),
        ("X1 words taxid|562", "", 562),
        ("NC_000913.3 notaxid|573", "", 511145),
        ("NC_000913.3 taxid|573", "", 573),
        ("gi|556503834|ref|NC_000913.3| E. coli", "", 511145),
        ("NZ_NC_000913", "", 511145),
        ("CP017438.2", "", 83334),
        ("contig1", "NC_000913.fna.gz", 511145),
        ("contig1", "somewhere/GCF_000005845.2_ASM584v2_genomic.fna.gz", 562),
    ],
)
def test_headers_ids_and_files_give_places(tmp_path, taxonomy, header, file, taxid):
    text = "#assembly_accession\ttaxid\nGCF_000005845.2\t562\n"
    summary = written(tmp_path, text, "assembly_summary.txt")
    found = place_references(taxonomy, [(header, file)], [summary])
    assert found.taxids.tolist() == [taxid]


def test_gtdb_places_assemblies(tmp_path):
    text = "RS_GCF_000005845.2\td__Bacteria;p__P\nGB_GCA_000008085.1\td__Archaea;p__;c__\n"
    taxonomy = Taxonomy.from_gtdb(written(tmp_path, text))
    files = ["GCF_000005845.2_ASM584v2_genomic.fna.gz", "GCA_000008085.1.fa"]
    found = place_references(taxonomy, [(f"contig{at}", file) for at, file in enumerate(files)])
    assert taxonomy.names(found.taxids) == ["P", "Archaea"]


def test_references_without_a_place_are_named_and_counted(tmp_path, bare):
    path = written(tmp_path, "A\t562\nB\t562\nB\t573\nC\t12345\n")
    given = [Reference(name, "x.fa") for name in ("A", "B", "C", "D", "A words", "E")]
    with pytest.raises(TaxonomyError) as raised:
        place_references(bare, given, [path])
    said = str(raised.value)
    for part in (
        f"1 reference with two taxids: B of x.fa: 562 by {path}, line 2 and 573 by {path}, line 3;",
        f"1 reference whose taxid is not in the taxonomy: C of x.fa: 12345 by {path}, line 4;",
        "2 references without a taxid: D of x.fa, E of x.fa;",
        "1 reference whose id is there already: A of x.fa, also in x.fa;",
        "or allow 5 unplaced",
    ):
        assert part in said
    with pytest.raises(TaxonomyError, match=r"\(4 are allowed\)"):
        place_references(bare, given, [path], allow_unplaced=4)
    placed = place_references(bare, given, [path], allow_unplaced=5)
    assert placed.taxids.tolist() == [562, 0, 0, 0, 562, 0]
    assert len(placed.notes) == 4


def test_many_references_are_counted_and_some_named(bare):
    with pytest.raises(
        TaxonomyError, match=r"^9 references without a taxid: r0, .*, r4, and 4 more;"
    ):
        place_references(bare, [(f"r{at}", "") for at in range(9)])


def test_merged_taxids_are_followed_and_told_and_deleted_ones_refused(tmp_path, bare):
    path = written(tmp_path, "A\t1034808\nA\t562\nB\t1034808\nC\t999999999\n")
    placed = place_references(bare, [("A", ""), ("B", "")], [path])
    # Two taxids that are one today are no doubt.
    assert placed.taxids.tolist() == [562, 562]
    assert placed.notes == ["taxid 1034808 of B was merged into 562"]
    with pytest.raises(
        TaxonomyError, match=r"1 reference whose taxid NCBI deleted: C: 999999999 by"
    ):
        place_references(bare, [("C", "")], [path], allow_unplaced=9)


def test_the_surest_spelling_and_name_go_first(tmp_path, bare):
    text = "NC_000913.2\t561\nNC_000913.3\t511145\nNZ_NC_000913\t2\nNC_000913.fna\t573\n"
    path = written(tmp_path, text)
    found = place_references(
        bare,
        [("NC_000913.3", "NC_000913.fna"), ("NC_000913.2", ""), ("x", "NC_000913.fna")],
        [path],
    )
    assert found.taxids.tolist() == [511145, 561, 573]
    with pytest.raises(TaxonomyError, match=r"with two taxids"):
        place_references(bare, [("NC_000913.9", "")], [path])


def test_places_are_those_of_plain_python(taxonomy):
    model = Model.read(HERE / "taxonomy")
    rows = [
        line.split("\t")
        for line in (HERE / "taxonomy" / "nucl_gb.accession2taxid").read_text().splitlines()[1:]
    ]
    found = place_references(taxonomy, [(row[1], "") for row in rows])
    assert found.taxids.tolist() == [int(row[2]) for row in rows]
    assert np.isin(found.taxids, list(model.taxa)).all()
