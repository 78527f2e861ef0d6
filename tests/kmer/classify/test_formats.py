"""Formats of calls beside plain Python, and abundances beside MetaCache's."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from kmer.classify.fakes import FakeIndex
from kmer.tiers import TINY

from dgpuhash.errors import ExistsError, FormatError, SpecError, TaxonomyError
from dgpuhash.kmer import Taxonomy
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.formats.calls import FORMATS, ChosenTaxa
from dgpuhash.kmer.formats.labels import Labels
from dgpuhash.kmer.formats.outputs import opened_output
from dgpuhash.kmer.formats.read_calls import CallStream, abundance_lines, read_calls
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.summaries import abundances, by_rank

TARGETS = Targets(
    ["NC_1.1", "NC_2.1"], ["a.fa"], np.zeros(2, np.int32), np.arange(2), np.array([900, 800]),
    np.array([511145, 272620]),
)  # fmt: skip
NAMES = {
    562: "Escherichia coli", 573: "Klebsiella pneumoniae", 1280: "Staphylococcus aureus",
    2: "Bacteria", -1: "NC_1.1", -2: "NC_2.1", 0: "unclassified",
}  # fmt: skip
RANKS = {2: "domain", -1: "sequence", -2: "sequence"}


@pytest.fixture(scope="module")
def taxonomy():
    return Taxonomy.read(TINY.taxonomy_folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Pairs whose headers have tabs, blanks before the id, marks of mates and bytes of no text."""
    rng = random.Random(8)
    heads = ["a/{} x", "b\tx", " c/{}", "d\xe9/{}", "e#/{}\ty", "/{}", "f/1/{}", "", 'g"h', "i/3"]
    folder = tmp_path_factory.mktemp("formats")
    rows = []
    for number in range(160):
        head = heads[number % len(heads)]
        sides = ["".join(rng.choices("ACGTN", k=rng.choice([0, 3, 5, 30]))) for _ in range(2)]
        rows.append((head, *sides))
    for mate in (1, 2):
        with (folder / f"r{mate}.fq").open("w", encoding="latin-1") as file:
            for head, *sides in rows:
                letters = sides[mate - 1]
                file.write(
                    f"@{head.replace('{}', str(mate))}\n{letters}\n+\n{'I' * len(letters)}\n"
                )
    return folder, rows


def id_of(head, *, paired):
    found = (head.replace("{}", "1").split(maxsplit=1) or [""])[0]
    if paired and len(found) > 2 and found[-2:] in ("/1", "/2"):
        found = found[:-2]
    return found.encode("latin-1")


def rows_of(index, rows, paired):
    for head, *sides in rows:
        used = sides[: 1 + paired]
        taxid, _, details = index.call_of(*(side.encode() for side in used))
        yield id_of(head, paired=paired), taxid, details, [len(side) for side in used]


def written(index, folder, paired, path, monkeypatch, **options):
    monkeypatch.setattr("dgpuhash.kmer.sequences.files.CHUNK_NBYTES", 600)
    files = [folder / f"r{mate}.fq" for mate in (1, 2)[: 1 + paired]]
    found = Classification(index, *files, batch_letters=200)
    found.write(path, **options)
    assert len(index.batches) > 5
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def run_text(run):
    taxid, count = run
    return {-1: f"A:{count}", -2: "|:|"}.get(taxid, f"{taxid}:{count}")


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("use_names", [False, True])
def test_kraken_lines(taxonomy, made, tmp_path, monkeypatch, paired, use_names):
    index = FakeIndex(taxonomy, TARGETS, "kraken2", [562, 0, 573, 2])
    text = written(index, made[0], paired, tmp_path / "calls", monkeypatch, use_names=use_names)
    expected = []
    for name, taxid, details, lengths in rows_of(index, made[1], paired):
        runs = " ".join(map(run_text, details)) or "0:0"
        call = f"{NAMES[taxid]} (taxid {taxid})" if use_names else taxid
        size = "|".join(map(str, lengths))
        status = "C" if taxid else "U"
        expected.append(b"%b\t%b\t%b" % (
            status.encode(), name, f"{call}\t{size}\t{runs}\n".encode(),
        ))  # fmt: skip
    assert text == b"".join(expected)
    assert b"|:|\n" in text or not paired


def test_kraken_lines_have_candidates_by_the_rule_of_metacache(
    taxonomy, made, tmp_path, monkeypatch
):
    index = FakeIndex(taxonomy, TARGETS, "metacache")
    text = written(index, made[0], True, tmp_path / "calls", monkeypatch, form="kraken")
    for line, (_, taxid, details, _) in zip(
        text.splitlines(), rows_of(index, made[1], True), strict=True
    ):
        columns = line.split(b"\t")
        assert columns[2] == str(taxid).encode()
        tops = " ".join(f"{one}:{hits}" for one, hits in details) or "0:0"
        assert columns[4] == tops.encode()


@pytest.mark.parametrize("use_names", [False, True])
def test_tsv_lines(taxonomy, made, tmp_path, monkeypatch, use_names):
    index = FakeIndex(taxonomy, TARGETS, "metacache")
    path = tmp_path / "c.gz"
    text = written(index, made[0], True, path, monkeypatch, form="tsv", use_names=use_names)
    expected = []
    for name, taxid, _, _ in rows_of(index, made[1], True):
        call = f"{NAMES[taxid]} (taxid {taxid})" if use_names else str(taxid)
        expected.append(b"%b\t%b\n" % (name, call.encode()))
    assert text == b"".join(expected)


def test_a_table_with_names_is_the_default_by_the_rule_of_metacache(
    taxonomy, made, tmp_path, monkeypatch
):
    index = FakeIndex(taxonomy, TARGETS, "metacache")
    text = written(index, made[0], True, tmp_path / "c", monkeypatch)
    said, titles, *lines = text.splitlines()
    assert said.startswith(b"# --format table; others: tsv")
    assert all(form.encode() in said for form in FORMATS)
    assert titles == b"read\ttaxid\trank\tname"
    rows = rows_of(index, made[1], True)
    for line, (name, taxid, _, _) in zip(lines, rows, strict=True):
        # As the taxonomy has it, where MetaCache's format has levels of lineages.
        rank = {0: "", 2: "superkingdom"}.get(taxid) or RANKS.get(taxid, "species" * (taxid > 0))
        call = f"{taxid}\t{rank}\t{NAMES[taxid]}"
        assert line == b"%b\t%b" % (name, call.encode())


@pytest.mark.parametrize("use_names", [False, True])
def test_metacache_lines(taxonomy, made, tmp_path, monkeypatch, use_names):
    index = FakeIndex(taxonomy, TARGETS, "metacache")
    text = written(
        index, made[0], True, tmp_path / "c", monkeypatch, form="metacache", use_names=use_names
    )
    head, *lines = text.splitlines()
    assert head == b"# TABLE_LAYOUT: query_header\t|\ttop_hits\t|\trank:taxname"
    for line, (name, taxid, details, _) in zip(lines, rows_of(index, made[1], True), strict=True):
        tops = ",".join(f"{NAMES[one] if one < 0 else one}:{hits}" for one, hits in details)
        call = f"{RANKS.get(taxid, 'species')}:{NAMES[taxid]}" if taxid else "--"
        call += f"({taxid})" if use_names and taxid else ""
        assert line == b"%b\t|\t%b" % (name, f"{tops}\t|\t{call}".encode())


def test_parquet_has_the_columns_of_the_frame(taxonomy, made, tmp_path, monkeypatch):
    index = FakeIndex(taxonomy, TARGETS)
    path = tmp_path / "calls.parquet"
    written(index, made[0], True, path, monkeypatch, form="parquet")
    files = [made[0] / "r1.fq", made[0] / "r2.fq"]
    frame = Classification(index, *files).to_pandas()
    found = pd.read_parquet(path)
    assert list(found) == ["read", "taxid", "rank", "hits", "length"]
    for name in found:
        assert found[name].astype(object).tolist() == frame[name].astype(object).tolist() or (
            name == "rank" and found[name].dropna().tolist() == frame[name].dropna().tolist()
        )


def test_formats_that_do_not_fit_are_refused(taxonomy, made, tmp_path):
    found = Classification(FakeIndex(taxonomy, TARGETS), made[0] / "r1.fq")
    with pytest.raises(SpecError, match="format='bam'; use one of table, tsv, kraken"):
        found.write(tmp_path / "calls", form="bam")
    with pytest.raises(SpecError, match="format 'metacache' has candidates"):
        found.write(tmp_path / "calls", form="metacache")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*; make it first"):
        found.write(tmp_path / "none" / "calls")
    assert list(tmp_path.iterdir()) == []
    found.write(tmp_path / "calls")
    with pytest.raises(ExistsError):
        found.write(tmp_path / "calls")
    found.write(tmp_path / "calls", overwrite=True)


def test_outputs_are_whole_or_not_there(tmp_path):
    path = tmp_path / "out.gz"
    with pytest.raises(ValueError, match="broken"), opened_output(path) as stream:
        stream.write(b"some")
        raise ValueError("broken")
    with pytest.raises(FileNotFoundError, match="other"), opened_output(path):
        (tmp_path / "other").read_bytes()
    assert list(tmp_path.iterdir()) == []
    told = pytest.raises(OSError, match=r"out\.gz cannot be written: No such file or directory")
    with told, opened_output(tmp_path / "none" / "out.gz"):
        pass
    with opened_output(Path("/dev/null")) as stream:
        stream.write(b"text")
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_is_told():
    told = pytest.raises(OSError, match="/dev/full cannot be written: No space left")
    with told, opened_output("/dev/full") as stream:
        stream.write(b"text" * 2**16)


def estimate(counts, lineages, wanted):
    """Return counts at a rank: lifted, then shared down one taxon at a time, as rules.md says."""
    levels = {call: next(at for at, one in enumerate(lineages[call]) if one) for call in counts}
    lifted = Counter()
    for call, count in counts.items():
        above = [at for at in range(max(wanted, levels[call]), 21) if lineages[call][at]]
        at = above[0] if above else levels[call]
        lifted[at, lineages[call][at]] += count
    path = {(at, one): each for each in lineages.values() for at, one in enumerate(each) if one}
    parent = {
        taxon: next(
            ((at, path[taxon][at]) for at in range(taxon[0] + 1, 21)
             if path[taxon][at] and (at, path[taxon][at]) in lifted), None,
        )
        for taxon in lifted
    }  # fmt: skip

    def subtree(taxon):
        return lifted0[taxon] + sum(subtree(each) for each in lifted if parent[each] == taxon)

    lifted0, result = dict(lifted), {}

    def share(taxon, count):
        children = [each for each in lifted if parent[each] == taxon]
        if not children:
            result[taxon] = count
            return
        total = sum(map(subtree, children))
        for child in children:
            share(child, lifted0[child] + count * subtree(child) / total)

    for taxon in lifted:
        if parent[taxon] is None:
            share(taxon, lifted0[taxon])
    return result


@pytest.mark.parametrize("rank", ["sequence", "species", "genus", "family", "domain"])
def test_abundances_are_lifted_and_shared(taxonomy, rank):
    rng = np.random.default_rng(4)
    labels = Labels(taxonomy, TARGETS)
    slot = {"sequence": 0, "species": 4, "genus": 6, "family": 10, "domain": 19}[rank]
    for n in (0, 1, 5, 60):
        calls = np.unique(rng.choice([-1, -2, *taxonomy.taxids[1:].tolist()], n))
        counts = rng.integers(1, 50, len(calls))
        lineages = {}
        for call in calls.tolist():
            lineages[call] = taxonomy.ranked(labels.lift(np.array([call])))[0].tolist()
            lineages[call][0] = min(call, 0)
        both = dict(zip(calls.tolist(), counts.tolist(), strict=True))
        expected = estimate(both, lineages, slot)
        found, reads = abundances(labels, np.append(calls, 0), np.append(counts, 7), rank)
        assert (found[-1], reads[-1]) == (0, 7)
        result = dict(zip(found[:-1].tolist(), reads[:-1].tolist(), strict=True))
        assert result == pytest.approx({taxid: count for (_, taxid), count in expected.items()})
        assert reads.sum() == pytest.approx(counts.sum() + 7)


def test_abundances_are_metacaches(taxonomy):
    references = References(TINY.folder / "genomes")
    references.place(taxonomy)
    labels = Labels(taxonomy, references.targets)
    counted = Counter(TINY.calls("metacache.sequence.calls.tsv"))
    calls, counts = (np.array(each) for each in zip(*sorted(counted.items()), strict=True))
    text = TINY.text("metacache.abundances.txt").splitlines()
    at = next(row for row, line in enumerate(text) if line.startswith("# estimated"))
    lines = abundance_lines(labels, *by_rank(labels, calls, counts), [text[0]])
    assert list(lines) == text[:at]
    lines = abundance_lines(labels, *abundances(labels, calls, counts, "species"), [text[at]])
    assert list(lines) == text[at:]


def test_taxa_are_chosen_by_taxid_clade_and_target(taxonomy):
    labels = Labels(taxonomy, TARGETS)
    calls = np.array([562, 0, -1, 573, 511145, -2, 2, 562])
    # 1034808 was merged into 562; target 1 is of 511145, a strain of 562.
    for texts, expected in (
        (["562"], [562]),
        (["1034808"], [562]),
        (["562+"], [562, -1, 511145]),
        (["511145", "0"], [0, -1, 511145]),
        (["-2,573"], [573, -2]),
        (["1+"], [562, -1, 573, 511145, -2, 2]),
    ):
        assert ChosenTaxa(texts, labels).among(calls).tolist() == [
            call in expected for call in calls
        ]
    for text in ("x", "", "+", "0+", "-1+", "562++", "5 6"):
        with pytest.raises(SpecError, match="is not a taxid; write taxids such as 562, 562"):
            ChosenTaxa([text], labels)
    with pytest.raises(TaxonomyError, match="not in the taxonomy: 7"):
        ChosenTaxa(["7+"], labels)


@pytest.mark.parametrize("form", ["table", "tsv", "kraken", "parquet"])
@pytest.mark.parametrize("use_names", [False, True])
def test_calls_are_read_as_they_were_written(
    taxonomy, made, tmp_path, monkeypatch, form, use_names
):
    index = FakeIndex(taxonomy, TARGETS, "metacache")
    path = tmp_path / ("calls.gz" if form == "tsv" else "calls")
    # Bytes of no text are replaced in frames.
    written(index, made[0], True, path, monkeypatch, form=form, use_names=use_names)
    rows = list(rows_of(index, made[1], True))
    blocks = list(read_calls(path))
    assert len(blocks) > 1 or form == "parquet"
    assert [each for ids, _ in blocks for each in ids.to_pylist()] == [
        name.decode(errors="replace").encode() if form == "parquet" else name for name, *_ in rows
    ]
    assert [call for _, calls in blocks for call in calls.tolist()] == [row[1] for row in rows]
    stream, taken = CallStream(path), []
    found = Classification(index, made[0] / "r1.fq", made[0] / "r2.fq", batch_letters=77)
    if form != "parquet":
        for batch in found:
            taken += stream.take(batch.ids).tolist()
        stream.finish()
        assert taken == [row[1] for row in rows]


def test_files_without_calls_are_refused(tmp_path):
    path = tmp_path / "calls"
    for text, said in (
        ("a\t1\nb\tx\n", "lines from 1 on: no calls"),
        ("one\n", "no calls"),
        ("a\t1\nb\t2\t3\n", "no calls"),
        ("a\t1.5\n", "no calls"),
        ("# --format table\nread\ttaxid\trank\tname\na\tx\t\t\n", "lines from 3 on: no calls"),
        ("PAR1 and no more", "has no calls"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=said):
            list(read_calls(path))
    for text in ("", "# --format table; others\n", "# --format table; others\nread\ttaxid\n"):
        path.write_text(text)
        assert list(read_calls(path)) == []
    pd.DataFrame({"x": [1]}).to_parquet(path)
    with pytest.raises(FormatError, match="has no calls"):
        list(read_calls(path))
