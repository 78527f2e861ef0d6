"""Masks of references, beside a model and however records are cut."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from kmer.models.dust import dust

from dgpuhash.errors import SpecError
from dgpuhash.kmer import MinimizerIndex, SketchIndex, Taxonomy, load_index
from dgpuhash.kmer.masking import mask_letters
from dgpuhash.kmer.references import References
from dgpuhash.kmer.target_runs import runs_of


def repetitive(draw: random.Random, length: int) -> str:
    """Return letters with stretches of short repeats, and among these errors, N and small ones."""
    parts: list[str] = []
    while sum(map(len, parts)) < length:
        unit = "".join(draw.choices("ACGT", k=draw.choice([1, 1, 2, 3, 4, 5, 7])))
        repeat = list(unit * draw.randint(1, 40))[: draw.randint(4, 90)]
        for at in range(len(repeat)):
            if draw.random() < 0.06:
                repeat[at] = draw.choice("ACGTacgtN")
        parts.append("".join(repeat))
        parts.append("".join(draw.choices("ACGT", k=draw.randint(0, 150))))
    return "".join(parts)[:length]


def arrays_of(records):
    letters = np.frombuffer("".join(records).encode(), np.uint8)
    return letters, np.append(0, np.cumsum([len(each) for each in records])).astype(np.int64)


@pytest.mark.parametrize("seed", range(6))
def test_dust_is_that_of_the_model(seed):
    draw = random.Random(seed)
    records = [
        repetitive(draw, draw.choice([0, 2, 3, 4, 63, 64, 65, 300, 2000])) for _ in range(20)
    ]
    letters, offsets = arrays_of(records)
    text = mask_letters("dust", letters, offsets).tobytes().decode()
    assert [text[start:end] for start, end in pairwise(offsets)] == list(map(dust, records))
    assert letters.tobytes().decode() == "".join(records)


def test_threads_take_blocks_of_long_records():
    draw = random.Random(7)
    records = [repetitive(draw, 70_000), repetitive(draw, 5), repetitive(draw, 40_000)]
    letters, offsets = arrays_of(records)
    text = mask_letters("dust", letters, offsets).tobytes().decode()
    assert text == "".join(map(dust, records))
    assert 0.02 < text.count("N") / len(text) < 0.9


@pytest.mark.parametrize(
    ("overlap", "stride"), [(34, 1), (126, 112), (126, 127), (30, 5), (9, 200)]
)
def test_a_mask_does_not_depend_on_where_records_are_cut(tmp_path, overlap, stride):
    draw = random.Random(overlap)
    records = [repetitive(draw, length) for length in (5000, 30, 0, 700, 211, 4000)]
    file = tmp_path / "some.fa"
    file.write_text("".join(f">r{at}\n{each}\n" for at, each in enumerate(records)))
    whole = list(map(dust, records))
    wanted = {
        (number, at): each[at : at + overlap + 1]
        for number, each in enumerate(whole)
        for at in range(0, len(each) - overlap, stride)
    }
    for size in (1, 40, 100, 150, 333, 1000, 2500):
        references = References(file, mask="dust")
        found: dict[tuple[int, int], str] = {}
        pieces = 0
        for batch in references.batches(overlap=overlap, stride=stride, batch_letters=size):
            pieces += len(batch.targets)
            for at, (number, start) in enumerate(zip(batch.targets, batch.starts, strict=True)):
                text = batch.letters[batch.offsets[at] : batch.offsets[at + 1]].tobytes().decode()
                assert text == whole[number][start : start + len(text)]
                first = -start % stride
                for begin in range(first, len(text) - overlap, stride):
                    key = (int(number), int(start) + begin)
                    assert key not in found
                    found[key] = text[begin : begin + overlap + 1]
        assert found == wanted
        assert pieces > len(records) or size == 2500
        assert references.targets.lengths.tolist() == list(map(len, records))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two files of genomes, a taxonomy and reads of both."""
    folder = tmp_path_factory.mktemp("masked")
    lines = [f"GB_GCA_00000000{at}.1\td__Archaea;p__P{at}\n" for at in (1, 2)]
    (folder / "gtdb.tsv").write_text("".join(lines))
    draw = random.Random(3)
    genomes = [repetitive(draw, 9000) for _ in range(2)]
    for at, letters in enumerate(genomes, 1):
        (folder / f"GCA_00000000{at}.1.fna").write_text(f">s{at}\n{letters}\n")
        (folder / f"masked{at}.GCA_00000000{at}.1.fa").write_text(f">s{at}\n{dust(letters)}\n")
    return folder, genomes


@pytest.mark.parametrize("rule", [MinimizerIndex, SketchIndex])
def test_an_index_is_that_of_masked_files(world, rule, tmp_path):
    folder, genomes = world
    taxonomy = Taxonomy.from_gtdb(folder / "gtdb.tsv")
    made = rule.build(folder / "GCA*.fna", taxonomy=taxonomy, mask="dust")
    by_hand = rule.build(folder / "masked*.fa", taxonomy=taxonomy)
    plain = rule.build(folder / "GCA*.fna", taxonomy=taxonomy)
    taxids = made.targets.taxids
    arrays = arrays_of(genomes)
    of_arrays = rule.from_letters(*arrays, taxids, taxonomy=taxonomy, mask="dust")
    path = tmp_path / "made.dgki"
    made.save(path)
    loaded = load_index(path)
    assert loaded.settings.mask == "dust"
    keys = [_keys(each) for each in (made, by_hand, plain, of_arrays, loaded)]
    assert keys[0] == keys[1] == keys[3] == keys[4]
    assert keys[2] != keys[0]


def _keys(index):
    if isinstance(index, SketchIndex):
        return index.digests()
    return set(index._table.items()[0].tolist())


def test_runs_of_workers_mask_as_one_process_does(world):
    folder, genomes = world
    references = References(folder / "GCA*.fna", mask="dust")
    for _ in references.batches():
        pass
    run, rest = runs_of(references, str, [0, 1, 2])
    for each, letters in ((run, genomes[0]), (rest, genomes[1])):
        (batch,) = each.batches(overlap=34)
        assert batch.letters.tobytes().decode() == dust(letters)


def test_other_masks_are_refused(world):
    with pytest.raises(SpecError, match="mask='seg'; use one of 'none', 'lowercase', 'dust'"):
        MinimizerIndex.build(world[0] / "GCA*.fna", taxonomy=None, mask="seg")
    with pytest.raises(SpecError, match="mask='seg'; use one of"):
        SketchIndex.from_letters(*arrays_of(["ACGT" * 20]), taxonomy=None, mask="seg")
