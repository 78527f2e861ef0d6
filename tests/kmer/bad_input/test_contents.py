"""Files of k-mers with right checksums and wrong contents: FormatError, or an answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import wrong

from dgpuhash.cli.files.saved_facts import facts_of
from dgpuhash.errors import FormatError
from dgpuhash.kmer import KmerCounts, MinimizerIndex, SketchIndex, Taxonomy, load_index
from dgpuhash.kmer.index_file import rule_of
from dgpuhash.kmer.minimizers.rule import MinimizerRule
from dgpuhash.kmer.part_tasks import loaded_part
from dgpuhash.kmer.sketches.rule import SketchRule
from dgpuhash.tables.serialization import read_file, write_file


def letters(number: int) -> str:
    return "".join(random.Random(number).choices("ACGT", k=800))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of each kind, as programs write them."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "gtdb.tsv").write_text("GCA_1.1\td__Archaea;p__Nano\n")
    taxonomy = Taxonomy.from_gtdb(folder / "gtdb.tsv")
    taxids = taxonomy.taxids.tolist()
    (folder / "refs.fa").write_text(
        "".join(f">r{taxid} taxid|{taxid}\n{letters(taxid)}\n" for taxid in taxids[1:])
    )
    taxonomy.save(folder / "taxonomy")
    SketchIndex.build(folder / "refs.fa", taxonomy=taxonomy).save(folder / "sketches")
    MinimizerIndex.build(folder / "refs.fa", taxonomy=taxonomy).save(folder / "minimizers")
    for k in (21, 41):
        KmerCounts.count(folder / "refs.fa", k=k).save(folder / f"counts of {k}")
    return folder


def use_index(path: Path) -> None:
    index = load_index(path)
    assert repr(index)
    list(index.provenance)
    index.stats()
    options = {"cov_percentile": 20.0} if isinstance(index, SketchIndex) else {}
    index.classify(path.with_name("refs.fa"), **options).summary()


def use_taxonomy(path: Path) -> None:
    taxonomy = Taxonomy.load(path)
    taxids = taxonomy.taxids[1:]
    assert len(taxonomy.names(taxids)) == len(taxonomy.report_codes(taxids)) == len(taxonomy)
    taxonomy.ranked(taxids)
    assert taxonomy.lca_of(taxids) == taxonomy.lineage(int(taxids[-1]))[-1]
    taxonomy.subset(taxids[-1:])


def use_counts(path: Path) -> None:
    counts = KmerCounts.load(path)
    assert repr(counts)
    counts.histogram()
    counts.query(["A" * counts.k])


USES: dict[str, Callable[[Path], Any]] = {
    "taxonomy": use_taxonomy,
    "sketches": use_index,
    "minimizers": use_index,
    "counts of 21": use_counts,
    "counts of 41": use_counts,
}


@pytest.mark.parametrize("kind", USES)
def test_a_wrong_header_is_told(folder, kind):
    header, buffers = read_file(folder / kind)
    USES[kind](folder / kind)
    refused = 0
    for place, value, other in wrong(header):
        write_file(folder / "other", other, buffers, overwrite=True)
        for use in (USES[kind], lambda path: facts_of(str(path))):
            try:
                use(folder / "other")
            except FormatError as error:
                refused += 1
                assert str(folder / "other") in str(error), (place, value)
    assert refused > 10


def worker_part(path: Path, mode: str) -> None:
    if rule_of(path) == MinimizerIndex.rule:
        part = loaded_part(MinimizerRule, str(path), mode, 2, 0, None)
        assert (part.table.items()[1] < len(part.taxids)).all()
    else:
        part = loaded_part(SketchRule, str(path), mode, 2, 0, None)
        assert len(part.table.items()[0]) == len(part.table)


def changed(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """Return the bytes of an array with other numbers in it, or more or fewer of them."""
    width = rng.choice([each for each in (1, 2, 4, 8) if len(array) % each == 0])
    numbers = array.view(f"u{width}").copy()
    most = int(np.iinfo(numbers.dtype).max)
    choice = rng.randrange(7)
    if choice == 0 or not len(numbers):
        numbers = np.append(numbers, numbers.dtype.type(rng.randrange(most)))
    elif choice == 1:
        numbers = numbers[: rng.randrange(len(numbers))]
    elif choice == 2:
        numbers = np.sort(numbers)
    elif choice == 3:
        numbers = numbers[rng.sample(range(len(numbers)), len(numbers))]
    elif choice == 4:
        numbers[:] = rng.choice([0, 1, most, rng.randrange(most)])
    elif choice == 5:
        numbers = np.frombuffer(rng.randbytes(numbers.nbytes), numbers.dtype)
    else:
        numbers[rng.randrange(len(numbers))] = rng.choice([0, 1, most, most // 2, most // 2 + 1])
    return numbers.view(np.uint8)


@pytest.mark.parametrize("kind", USES)
def test_random_arrays_are_refused_or_answer(folder, kind):
    header, buffers = read_file(folder / kind)
    rng, refused = random.Random(kind), 0
    path = folder / f"other {kind}"
    uses = [USES[kind]]
    if USES[kind] is use_index:
        uses += [partial(worker_part, mode=mode) for mode in ("distributed", "independent")]
    for _ in range(60):
        name = rng.choice([*buffers])
        other = {**buffers, name: changed(buffers[name], rng)}
        write_file(path, header, other, overwrite=True)
        try:
            rng.choice(uses)(path)
        except FormatError as error:
            refused += 1
            assert str(path) in str(error), name
    assert refused > 5


def first_of(dtype: str, number: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return what writes a number over the first one of an array."""

    def written(array: np.ndarray) -> np.ndarray:
        numbers = array.view(dtype).copy()
        numbers[0] = number
        return numbers.view(np.uint8)

    return written


def free_slots_taken(keys: np.ndarray) -> np.ndarray:
    slots = keys.view(np.uint64).copy()
    slots[slots == slots.max()] = np.arange(np.count_nonzero(slots == slots.max()))
    return slots.view(np.uint8)


WRONG: list[tuple[str, str, Callable[[np.ndarray], np.ndarray], str]] = [
    ("taxonomy", "taxonomy taxids", first_of("i8", 7), "no numbers above 0"),
    ("taxonomy", "taxonomy taxids", lambda raw: -raw.view("i8"), "no numbers above 0"),
    ("taxonomy", "taxonomy taxids", lambda raw: np.minimum(raw.view("i8"), 2), "one taxid"),
    ("taxonomy", "taxonomy names", lambda raw: raw | 128, "UTF8"),
    ("taxonomy", "taxonomy offsets", lambda raw: raw.view("i8")[::-1], "its content cannot"),
    ("sketches", "targets taxids", first_of("i8", 999), "unknown taxa"),
    ("minimizers", "targets taxids", first_of("i8", -1), "unknown taxa"),
    ("sketches", "targets lengths", first_of("i8", -1), "below 0"),
    ("sketches", "targets lengths", first_of("i8", 2**62), "too long"),
    ("sketches", "targets lengths", first_of("i8", 20), "no windows of its targets"),
    ("sketches", "targets record_in_file", first_of("i8", -1), "below 0"),
    ("sketches", "index locations", first_of("u8", 2**40), "no windows of its targets"),
    ("sketches", "index locations", first_of("u8", 2**31), "no windows of its targets"),
    ("sketches", "index offsets", lambda raw: raw.view("i8") * 2, "have no ends"),
    ("sketches", "index offsets", first_of("i8", -1), "have no ends"),
    ("sketches", "index features", lambda raw: np.zeros_like(raw), "some keys occur twice"),
    ("minimizers", "index slot keys", free_slots_taken, "unknown taxa"),
    ("minimizers", "index slot values", lambda raw: np.zeros_like(raw), "unknown taxa"),
]


@pytest.mark.parametrize(("kind", "name", "change", "why"), WRONG)
def test_a_wrong_array_is_refused_at_the_load(folder, kind, name, change, why):
    header, buffers = read_file(folder / kind)
    path = folder / f"other {kind}"
    other = np.ascontiguousarray(change(buffers[name])).view(np.uint8)
    write_file(path, header, {**buffers, name: other}, overwrite=True)
    load: Callable[[Path], Any] = Taxonomy.load if kind == "taxonomy" else load_index
    with pytest.raises(FormatError, match=why) as raised:
        load(path)
    assert str(path) in str(raised.value)
    if kind != "taxonomy":
        for mode in ("distributed", "independent", "replicated"):
            with pytest.raises(FormatError, match=why):
                worker_part(path, mode)
