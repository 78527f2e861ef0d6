"""Taxonomies beside plain Python, and what is wrong with some."""

from __future__ import annotations

import pickle
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kmer.taxonomy_model import LETTERS, SLOTS, Model

from dgpuhash.errors import ExistsError, FormatError, TaxonomyError
from dgpuhash.kmer import KmerCounts, Taxonomy
from dgpuhash.tables.serialization import read_file, write_file

ROOT = (1, 1, "no rank")
FOLDER = Path(__file__).parent / "data" / "taxonomy"
RANKS = [*LETTERS, "no rank", "clade", "strain", "realm", "cellular root", "species group"]
RANKS += ["subgenus", "superorder", "infraorder", "division", "cohort", "subspecies"]

NAMES = st.sampled_from(["name ", '"Candidatus" ', "d'Herelle's ", "#1 ", "Ångström ", "a,b; "])


@pytest.fixture(scope="module")
def taxonomy():
    return Taxonomy.read(FOLDER)


@pytest.fixture(scope="module")
def model():
    return Model.read(FOLDER)


def of_dumps(folder, nodes, **others):
    """Return the taxonomy of rows of nodes, and of texts of other files."""
    texts = {
        "names": "".join(
            f"{each[0]}\t|\tname {each[0]}\t|\t\t|\tscientific name\t|\n" for each in nodes
        ),
        "nodes": "".join("\t|\t".join(map(str, each)) + "\t|\n" for each in nodes),
        **others,
    }
    for name, text in texts.items():
        (folder / f"{name}.dmp").write_text(text)
    return Taxonomy.read(folder)


@st.composite
def trees(draw):
    """Return a model of a random tree; taxids are in no order."""
    n = draw(st.integers(1, 40))
    taxids = draw(st.lists(st.integers(2, 2**40), min_size=n - 1, max_size=n - 1, unique=True))
    taxids = [1, *taxids]
    taxa = {1: (1, draw(st.sampled_from(["no rank", "domain"])), "root")}
    for at, taxid in enumerate(taxids[1:], 1):
        parent = taxids[draw(st.integers(0, at - 1))]
        taxa[taxid] = (parent, draw(st.sampled_from(RANKS)), draw(NAMES) + str(taxid))
    order = draw(st.permutations(list(taxa)))
    return Model({taxid: taxa[taxid] for taxid in order})


def check_all(taxonomy, model, pairs):
    taxids = [0, *model.taxa]
    assert len(taxonomy) == len(model.taxa)
    for taxid in model.taxa:
        assert taxonomy.lineage(taxid) == model.lineage(taxid)
        assert taxonomy.parent(taxid) == (0 if taxid == model.root else model.taxa[taxid][0])
        assert taxonomy.rank(taxid) == model.taxa[taxid][1]
        assert taxonomy.name(taxid) == model.taxa[taxid][2]
    assert taxonomy.names(taxids)[1:] == [name for _, _, name in model.taxa.values()]
    assert taxonomy.ranks(taxids)[1:] == [rank for _, rank, _ in model.taxa.values()]
    assert taxonomy.report_codes(taxids) == [model.code(taxid) for taxid in taxids]
    assert taxonomy.ranked(taxids).tolist() == [model.ranked(taxid) for taxid in taxids]
    left, right = np.array(pairs).T
    assert taxonomy.lca(left, right).tolist() == [model.lca(*pair) for pair in pairs]
    offsets = np.unique([0, len(left) // 3, len(left) // 3, len(left) // 2, len(left)])
    runs = [left[low:high].tolist() for low, high in pairwise(offsets)]
    assert taxonomy.lca_of(left, offsets).tolist() == [model.lca_of(run) for run in runs]
    assert taxonomy.lca_of(left) == model.lca_of(left.tolist())
    parents = taxonomy.parents
    assert (parents[1:] < np.arange(1, len(parents))).all()
    assert taxonomy.taxids[parents[2:]].tolist() == [
        model.taxa[taxid][0] for taxid in taxonomy.taxids[2:].tolist()
    ]


def test_the_tree_of_ncbi_is_that_of_plain_python(taxonomy, model):
    pairs = np.random.default_rng(1).choice([0, *model.taxa], (500, 2)).tolist()
    check_all(taxonomy, model, pairs)
    assert repr(taxonomy) == "<Taxonomy: 179 taxa below 1 root, 39 species>"
    assert taxonomy.accession_files == (str(FOLDER / "nucl_gb.accession2taxid"),)


@settings(max_examples=25, deadline=None)
@given(trees(), st.data())
def test_random_trees_are_those_of_plain_python(tmp_path_factory, tree, data):
    taxids = st.sampled_from([0, *tree.taxa])
    pairs = data.draw(st.lists(st.tuples(taxids, taxids), min_size=1, max_size=30))
    folder = tree.write(tmp_path_factory.mktemp("tree"))
    taxonomy = Taxonomy.read(folder)
    check_all(taxonomy, tree, pairs)
    clade = data.draw(st.sampled_from(list(tree.taxa)))
    within = taxonomy.is_within([0, *tree.taxa], clade).tolist()
    assert within == [False, *(clade in tree.lineage(taxid) for taxid in tree.taxa)]
    kept = [pair[0] for pair in pairs]
    small = taxonomy.subset(kept)
    wanted = {1, *(each for taxid in kept if taxid for each in tree.lineage(taxid))}
    check_all(
        small,
        Model({taxid: tree.taxa[taxid] for taxid in tree.taxa if taxid in wanted}),
        [pair for pair in pairs if wanted.issuperset({*pair} - {0})] or [(0, 1)],
    )


def test_runs_without_taxa_have_no_ancestor(taxonomy):
    offsets = [0, 0, 2, 4, 4, 5, 5]
    found = taxonomy.lca_of([0, 0, 511145, 573, 10710], offsets)
    assert found.tolist() == [0, 0, 543, 0, 10710, 0]
    assert taxonomy.lca_of(np.empty(0, np.int64)) == 0
    # Runs need not begin at the first taxid, nor end at the last one.
    assert taxonomy.lca_of([2, 511145, 573, 2], [1, 3]).tolist() == [543]


def test_lift_gives_the_ancestor_in_a_slot(taxonomy):
    assert taxonomy.lift([511145, 0, 10710, 2], "genus").tolist() == [561, 0, 186765, 0]
    assert taxonomy.lift([511145, 10710], "superkingdom").tolist() == [2, 10239]
    with pytest.raises(
        TaxonomyError, match=r"'realm' is not a rank of lineages; use one of sequence, "
    ):
        taxonomy.lift([562], "realm")


def test_todays_ranks_of_ncbi(tmp_path):
    nodes = [
        (1, 1, "no rank"),
        (131567, 1, "cellular root"),
        (2, 131567, "domain"),
        (10239, 1, "acellular root"),
        (2559587, 10239, "realm"),
        (2732396, 2559587, "kingdom"),
        (28883, 10239, "class"),
        (9, 28883, "strain"),
    ]
    taxonomy = of_dumps(tmp_path, nodes)
    codes = taxonomy.report_codes([each[0] for each in nodes])
    assert codes == ["R", "R1", "D", "D", "D1", "K", "C", "C1"]
    assert taxonomy.lift([2, 2559587, 9], "domain").tolist() == [2, 10239, 10239]


def test_merged_taxids_are_followed_and_deleted_ones_refused(tmp_path, taxonomy):
    assert taxonomy.lineage(1034808) == taxonomy.lineage(562)
    assert 1034808 in taxonomy
    assert 999999999 not in taxonomy
    assert "562" not in taxonomy
    assert taxonomy.current([1034808, 0, 5]).tolist() == [562, 0, 5]
    with pytest.raises(TaxonomyError, match=r"NCBI deleted 1 taxid: 999999999; look up"):
        taxonomy.name(999999999)
    with pytest.raises(TaxonomyError, match=r"2 taxids not in the taxonomy: 3, 4; take a"):
        taxonomy.lca([4, 3, 562], 562)
    with pytest.raises(TaxonomyError, match=r"taxid 0 is not a taxon"):
        taxonomy.rank(0)
    nodes = [(1, 1, "no rank"), (5, 1, "species")]
    others = {
        "merged": "8\t|\t7\t|\n7\t|\t5\t|\n6\t|\t9\t|\n5\t|\t1\t|\n",
        "delnodes": "5\t|\n9\t|\n",
    }
    twice = of_dumps(tmp_path, nodes, **others)
    # What is in the tree is neither merged nor deleted.
    assert twice.numbers([8, 7, 5]).tolist() == [2, 2, 2]
    with pytest.raises(TaxonomyError, match=r"NCBI deleted 1 taxid: 6"):
        twice.numbers([6])


def test_names_lead_to_taxids(tmp_path, taxonomy):
    assert taxonomy.taxid("Escherichia coli") == 562
    assert taxonomy.taxid("d__Bacteria") == taxonomy.taxid("Bacteria", rank="domain") == 2
    with pytest.raises(TaxonomyError, match=r"no taxon is named 'E\. coli'; give the scientific"):
        taxonomy.taxid("E. coli")
    with pytest.raises(TaxonomyError, match=r"no taxon is named 'Bacteria' of rank genus"):
        taxonomy.taxid("Bacteria", rank="genus")
    tree = {1: (1, "no rank", "root"), 5: (1, "genus", "Bacillus"), 6: (1, "order", "Bacillus")}
    other = Taxonomy.read(Model(tree).write(tmp_path))
    assert other.taxid("Bacillus", rank="order") == 6
    with pytest.raises(TaxonomyError, match=r"2 taxa .* 5 \(genus\), 6 \(order\); give a taxid"):
        other.taxid("Bacillus")


def test_lines_may_end_and_begin_otherwise(tmp_path, taxonomy):
    for name in ("nodes", "names", "merged", "delnodes"):
        text = (FOLDER / f"{name}.dmp").read_text().replace("\n", "\r\n\r\n")
        # Bars without tabs, as some programs write them.
        (tmp_path / f"{name}.dmp").write_text("\ufeff" + text.replace("\t|", "|"), newline="")
    other = Taxonomy.read(tmp_path)
    np.testing.assert_array_equal(other.parents, taxonomy.parents)
    assert other.names(other.taxids) == taxonomy.names(taxonomy.taxids)
    assert other.ranks(other.taxids) == taxonomy.ranks(taxonomy.taxids)
    assert 1034808 in other


def test_names_need_not_be_unicode(tmp_path):
    taxonomy = of_dumps(tmp_path, [ROOT, (5, 1, "genus")])
    text = (tmp_path / "names.dmp").read_bytes().replace(b"name 5", b"n\xe4me 5")
    (tmp_path / "names.dmp").write_bytes(text)
    assert Taxonomy.read(tmp_path).names([1, 5]) == [taxonomy.name(1), "n\ufffdme 5"]


def test_names_that_miss_are_taxids(tmp_path):
    nodes = [(1, 1, "no rank"), (5, 1, "species")]
    taxonomy = of_dumps(tmp_path, nodes, names="1\t|\troot\t|\t\t|\tscientific name\t|\n")
    assert taxonomy.names([0, 1, 5]) == ["unclassified", "root", "taxid 5"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([ROOT, (5, 1, "genus"), (5, 1, "species")], r"line 3: taxid 5 is there already"),
        ([ROOT, (5, 7, "genus")], r"line 2: the parent of taxid 5, 7, is not there"),
        ([ROOT, (5, 5, "genus")], r"line 2: taxid 5 is a second root beside 1"),
        ([(5, 6, "genus"), (6, 5, "genus")], r"nodes\.dmp: no taxid is its own parent"),
        ([ROOT, (5, 6, "genus"), (6, 5, "genus")], r"line 2: taxid 5 is its own ancestor"),
        ([ROOT, (0, 1, "genus")], r"line 2: taxid 0 is not above 0"),
        ([ROOT, ("x", 1, "genus")], r"line 2: 'x' is not a taxid"),
        ([ROOT, ("", 1, "genus")], r"line 2: '' is not a taxid"),
        ([ROOT, (5,)], r"line 2: 1 columns, and 3 or more are needed"),
        ([], r"nodes\.dmp is empty"),
    ],
)
def test_nodes_that_are_no_tree_are_refused(tmp_path, nodes, message):
    with pytest.raises(TaxonomyError, match=f"{message}.*; download the taxonomy again|{message};"):
        of_dumps(tmp_path, nodes)


@pytest.mark.parametrize(
    ("name", "columns"),
    [("nodes.dmp", 3), ("merged.dmp", 2), ("delnodes.dmp", 1), ("names.dmp", 4)],
)
def test_files_that_end_within_a_column_are_refused(tmp_path, name, columns):
    """Where a taxid or a rank was cut, what is left is another."""
    folder = tmp_path / "taxonomy"
    shutil.copytree(FOLDER, folder)
    before, _, line = (FOLDER / name).read_text().rstrip().rpartition("\n")
    for end in range(1, len(line) + 1):
        cut = line[:end]
        (folder / name).write_text(f"{before}\n{cut}")
        if cut.count("|") < columns:
            with pytest.raises(TaxonomyError, match=rf"{name}, line \d+: "):
                Taxonomy.read(folder)
    assert len(Taxonomy.read(folder).parents) == len(Taxonomy.read(FOLDER).parents)


def test_files_that_miss_are_named(tmp_path):
    with pytest.raises(TaxonomyError, match=r"nowhere is not a folder; name the folder with nodes"):
        Taxonomy.read(tmp_path / "nowhere")
    with pytest.raises(TaxonomyError, match=r"nodes\.dmp is not there; unpack NCBI's taxdump"):
        Taxonomy.read(tmp_path)
    (tmp_path / "nodes.dmp").write_text("1\t|\t1\t|\tno rank\t|\n")
    with pytest.raises(TaxonomyError, match=r"names\.dmp is not there"):
        Taxonomy.read(tmp_path)


def test_saved_taxonomies_are_the_same(tmp_path, taxonomy, model):
    path = tmp_path / "taxonomy"
    taxonomy.save(path)
    with pytest.raises(ExistsError):
        taxonomy.save(path)
    loaded = Taxonomy.load(path)
    check_all(loaded, model, [(511145, 573), (0, 2)])
    assert loaded.lineage(1034808) == taxonomy.lineage(562)
    assert loaded.is_deleted([999999999, 562]).tolist() == [True, False]
    check_all(pickle.loads(pickle.dumps(taxonomy)), model, [(511145, 573)])
    small = taxonomy.subset([511145, 0])
    small.save(path, overwrite=True)
    assert len(Taxonomy.load(path)) == len(taxonomy.lineage(511145))
    assert 1034808 in Taxonomy.load(path)


def test_other_files_are_refused(tmp_path, taxonomy):
    KmerCounts.from_letters(np.frombuffer(b"ACGT", np.uint8), [0, 4], k=3).save(tmp_path / "counts")
    with pytest.raises(FormatError, match=r"contains no taxonomy; pass a file that Taxonomy"):
        Taxonomy.load(tmp_path / "counts")
    taxonomy.save(tmp_path / "sound")
    header, arrays = read_file(tmp_path / "sound")
    damages = {
        "no tree": {"taxonomy parents": arrays["taxonomy parents"][::-1].copy()},
        "unknown ranks": {"taxonomy ranks": arrays["taxonomy ranks"] + np.uint8(99)},
        "its content cannot be read": {"taxonomy offsets": arrays["taxonomy offsets"][::-1].copy()},
    }
    for message, damage in damages.items():
        write_file(tmp_path / "damaged", header, {**arrays, **damage}, overwrite=True)
        with pytest.raises(FormatError, match=message):
            Taxonomy.load(tmp_path / "damaged")


GTDB = """\
RS_GCF_000005845.2\td__Bacteria;p__Pseudomonadota;c__Gammaproteobacteria;o__Enterobacterales;\
f__Enterobacteriaceae;g__Escherichia;s__Escherichia coli
GB_GCA_000008085.1\td__Archaea;p__Nanoarchaeota;c__;o__;f__;g__;s__
"""


def test_gtdb_has_seven_ranks_and_the_same_taxids_always(tmp_path):
    (tmp_path / "one.tsv").write_text(GTDB)
    first, second = GTDB.splitlines(keepends=True)
    (tmp_path / "bac.tsv").write_text(first.replace("\n", "\r\n"), newline="")
    (tmp_path / "ar.tsv").write_text(second + "\n")
    taxonomy = Taxonomy.from_gtdb(tmp_path / "one.tsv")
    both = Taxonomy.from_gtdb([tmp_path / "ar.tsv", tmp_path / "bac.tsv"])
    np.testing.assert_array_equal(taxonomy.taxids, both.taxids)
    coli = taxonomy.taxid("Escherichia coli")
    # Of blake2b's digest of "s__Escherichia coli"; no release may change it.
    assert coli == 1428214007933893
    assert taxonomy.report_codes(taxonomy.lineage(coli)) == list("SGFOCPDR")
    assert taxonomy.ranked([coli])[0, SLOTS.index("family")] == taxonomy.taxid(
        "f__Enterobacteriaceae"
    )
    assert taxonomy.rank(taxonomy.taxid("Nanoarchaeota")) == "phylum"
    assert taxonomy.taxids.max() < 2**53


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("G1 d__A\n", r"line 1: no tab; write an accession, a tab and a lineage"),
        ("\nG1\td__A;c__B\n", r"line 2: 'd__A;c__B' is not a GTDB lineage"),
        ("G1\td__A;p__;c__B\n", r"line 1: .* is not a GTDB lineage"),
        ("G1\td__;p__\n", r"line 1: .* is not a GTDB lineage"),
        (
            "G1\td__A;p__B\nG2\td__C;p__B\n",
            r"line 2: p__B is below d__C, and below d__A at .*line 1",
        ),
        ("\n", r"no lineage in it"),
    ],
)
def test_gtdb_that_is_wrong_is_refused(tmp_path, text, message):
    (tmp_path / "gtdb.tsv").write_text(text)
    with pytest.raises(TaxonomyError, match=rf"{re.escape(str(tmp_path))}/gtdb\.tsv.*{message}"):
        Taxonomy.from_gtdb(tmp_path / "gtdb.tsv")
