"""References: numbers, batches and places of the sequences of files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dgpuhash.errors import SequenceError, SpecError, TaxonomyError
from dgpuhash.kmer import Taxonomy
from dgpuhash.kmer.references import References, numbered_files

HERE = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def taxonomy():
    return Taxonomy.read(HERE / "taxonomy")


@pytest.fixture
def folder(tmp_path):
    """Three files; that of the name of the first bytes comes last by its letters' case."""
    texts = {
        "b.fa": ">b1 taxid|562 of b\nACGTAC\nGT\n>b2 taxid|573\n",
        "Z.fa": ">z1 kraken:taxid|666\nGGGGGGGGGGacgtnACGTACGTAGG\n",
        "é.fa": ">e1 taxid|1280\nTTT\n>e2 taxid|1280\nA\n>e3 taxid|562\nCCCC\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def names_of(files):
    return [Path(file).name for file in files]


def test_files_are_numbered_by_the_bytes_of_their_paths(folder):
    given = [folder / name for name in ("é.fa", "b.fa", "Z.fa")]
    assert names_of(numbered_files(given)) == ["Z.fa", "b.fa", "é.fa"]
    assert names_of(numbered_files(folder)) == ["Z.fa", "b.fa", "é.fa"]
    assert names_of(numbered_files(given, "given")) == ["é.fa", "b.fa", "Z.fa"]
    with pytest.raises(SpecError, match="order='name'; use 'path' or 'given'"):
        numbered_files(given, "name")


@pytest.mark.parametrize("first", [True, False], ids=["placed first", "placed after"])
def test_targets_have_names_files_lengths_and_taxids(folder, taxonomy, first):
    letters = []
    references = References(folder, progress=letters.append)
    if first:
        references.place(taxonomy)
    read = list(references.batches())
    if not first:
        references.place(taxonomy)
    targets = references.targets
    assert targets.names == ["z1", "b1", "b2", "e1", "e2", "e3"]
    assert [names_of(targets.files)[at] for at in targets.file_of] == [
        "Z.fa", "b.fa", "b.fa", "é.fa", "é.fa", "é.fa",
    ]  # fmt: skip
    assert targets.record_in_file.tolist() == [0, 0, 1, 0, 1, 2]
    assert targets.lengths.tolist() == [26, 8, 0, 3, 1, 4]
    assert targets.taxids.tolist() == [666, 562, 573, 1280, 1280, 562]
    assert [batch.targets.tolist() for batch in read] == [[0], [1, 2], [3, 4, 5]]
    assert sum(letters) == references.letters == 42


def test_pieces_cover_each_window_once(tmp_path, taxonomy, monkeypatch):
    monkeypatch.setattr("dgpuhash.kmer.sequences.files.CHUNK_NBYTES", 500)
    rng = random.Random(5)
    texts = ["".join(rng.choices("ACGT", k=n)) for n in (3, 4_000, 0, 250, 5_000, 700)]
    for at in (0, 1):
        (tmp_path / f"{at}.fa").write_text(
            "".join(f">r{at}{n} taxid|562\n{text}\n" for n, text in enumerate(texts))
        )
    window, stride = 40, 13
    references = References(tmp_path)
    references.place(taxonomy)
    found, ends, cuts = {}, {}, 0
    for batch in references.batches(overlap=window - 1, stride=stride, batch_letters=600):
        cuts += batch.is_cut
        for piece, (target, start) in enumerate(zip(batch.targets, batch.starts, strict=True)):
            letters = batch.letters[batch.offsets[piece] : batch.offsets[piece + 1]].tobytes()
            assert start % stride == 0
            last = piece == len(batch.targets) - 1
            for at in range(0, len(letters), stride):
                if at + window <= len(letters) or not (last and batch.is_cut):
                    assert (target, start + at) not in found
                    found[target, start + at] = letters[at : at + window]
            ends[target] = start + len(letters)
    assert cuts >= 10
    for target, text in enumerate(texts * 2):
        assert ends[target] == len(text) == references.targets.lengths[target]
        for at in range(0, len(text), stride):
            assert found.pop((target, at)) == text[at : at + window].encode()
    assert not found


def test_small_letters_are_masked_on_request(folder):
    first = [next(References(folder, mask=mask).batches()) for mask in ("none", "lowercase")]
    assert first[0].letters.tobytes() == b"GGGGGGGGGGacgtnACGTACGTAGG"
    assert first[1].letters.tobytes() == b"GGGGGGGGGGNNNNNACGTACGTAGG"
    with pytest.raises(SpecError, match="mask='upper'; use one of 'none', 'lowercase'"):
        References(folder, mask="upper")


def test_numbers_go_on_behind_known_targets(folder, taxonomy):
    old = References([folder / "b.fa"])
    old.place(taxonomy)
    new = References([folder / "Z.fa", folder / "é.fa"], known=old.targets)
    new.place(taxonomy)
    assert [batch.targets.tolist() for batch in new.batches()] == [[2], [3, 4, 5]]
    both = old.targets.join(new.targets)
    whole = References([folder / name for name in ("b.fa", "Z.fa", "é.fa")], order="given")
    whole.place(taxonomy)
    for one, other in zip(both, whole.targets, strict=True):
        assert list(one) == list(other)
    again = References(folder / "b.fa", known=both)
    with pytest.raises(TaxonomyError, match=r"2 references whose id is there already: b1 of"):
        again.place(taxonomy)
    with pytest.raises(SequenceError, match=r"b1 of .* is there already, in .*b\.fa"):
        again.place(None)
    assert again.place(taxonomy, allow_unplaced=2).taxids.tolist() == [562, 573]


def test_what_cannot_be_read_twice_is_refused(folder, taxonomy):
    with pytest.raises(SequenceError, match="the standard input cannot be; name files"):
        References("-").place(taxonomy)
    references = References(folder)
    references.place(taxonomy)
    (folder / "b.fa").write_text(">other taxid|562\nACGT\n")
    with pytest.raises(SequenceError, match="changed while they were read; build again"):
        list(references.batches())


def test_ids_come_once_without_a_taxonomy_too(folder):
    references = References([folder / "b.fa", folder / "b.fa"])
    with pytest.raises(SequenceError, match=r"b1 of .*b\.fa is there already"):
        references.place(None)
    assert References(folder).place(None).taxids.tolist() == [0] * 6
