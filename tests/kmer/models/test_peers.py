"""The model, and an index, beside Debian's Kraken 2 (``make peers``): whole lines."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from kmer.models.minimizers import MinimizerModel
from kmer.tiers import TINY
from kmer.worlds import World, fastq

from dgpuhash.kmer import MinimizerIndex, read_sequences
from dgpuhash.kmer.masking import mask_letters

pytestmark = [
    pytest.mark.genomes,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kraken2-build") is None, reason="make peers installs it"),
]


def run(*command):
    subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("k", "l", "spaces"),
    [(35, 31, 7), (35, 31, 0), (24, 16, 3), (20, 15, 2), (31, 31, 7), (40, 12, 1)],
)
def test_lines_are_those_of_kraken(tmp_path, k, l, spaces):  # noqa: E741
    world = World(k * l, pairs=200, scale=300)
    made = MinimizerModel(world.references, world.taxonomy, k=k, l=l, spaces=spaces)
    db = tmp_path / "db"
    db.mkdir()
    world.taxonomy.write(db / "taxonomy")
    (db / "taxonomy" / "none.accession2taxid").write_text(
        "accession\taccession.version\ttaxid\tgi\n"
    )
    lines = [
        f">{each.name}|kraken:taxid|{each.taxid}\n{each.letters}\n" for each in world.references
    ]
    (tmp_path / "references.fa").write_text("".join(lines))
    run("kraken2-build", "--db", db, "--no-masking", "--add-to-library", tmp_path / "references.fa")
    run(
        "kraken2-build", "--db", db, "--no-masking", "--build", "--kmer-len", k,
        "--minimizer-len", l, "--minimizer-spaces", spaces,
    )  # fmt: skip
    index = MinimizerIndex.build(
        tmp_path / "references.fa", taxonomy=db / "taxonomy", k=k, l=l, spaces=spaces
    )
    names = [f"r{at}" for at in range(len(world.pairs))]
    files = [tmp_path / "1.fq", tmp_path / "2.fq"]
    for mate, file in enumerate(files):
        sides = ([each[mate] for each in both] for both in (world.pairs, world.qualities))
        file.write_text(fastq([f"{name}/{mate + 1}" for name in names], *sides))
    for options in (
        {}, {"confidence": 0.1}, {"confidence": 0.3}, {"confidence": 0.71},
        {"minimum_hit_groups": 0}, {"minimum_hit_groups": 5}, {"minimum_base_quality": 3},
        {"minimum_base_quality": 21, "confidence": 0.2},
    ):  # fmt: skip
        given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        masks = "minimum_base_quality" in options
        for paired in (True, False):
            reads = ["--paired", *files] if paired else files[:1]
            run("kraken2", "--db", db, "--output", tmp_path / "out", *given, *reads)
            found = [line.rstrip(" ") for line in (tmp_path / "out").read_text().splitlines()]
            expected = [
                made.call(
                    one, other if paired else None, qualities=quality if masks else ("", ""),
                    **options,
                ).line(name if paired else f"{name}/1")
                for name, (one, other), quality in zip(
                    names, world.pairs, world.qualities, strict=True
                )
            ]  # fmt: skip
            assert found == expected
            mates = files[1] if paired else None
            index.classify(files[0], mates, **options).write(tmp_path / "ours", overwrite=True)
            assert (tmp_path / "ours").read_text().splitlines() == expected


def test_a_smaller_database_has_the_minimizers_of_krakens(tmp_path):
    world = World(5, pairs=150, scale=900)
    db = tmp_path / "db"
    db.mkdir()
    world.write(tmp_path / "world")
    shutil.copytree(tmp_path / "world" / "taxonomy", db / "taxonomy")
    (db / "taxonomy" / "none.accession2taxid").write_text(
        "accession\taccession.version\ttaxid\tgi\n"
    )
    lines = [
        f">{each.name}|kraken:taxid|{each.taxid}\n{each.letters}\n" for each in world.references
    ]
    (tmp_path / "references.fa").write_text("".join(lines))
    run("kraken2-build", "--db", db, "--no-masking", "--add-to-library", tmp_path / "references.fa")
    run("kraken2-build", "--db", db, "--no-masking", "--build", "--max-db-size", 20_000)
    said = subprocess.run(
        ["kraken2-inspect", "--db", db], check=True, capture_output=True, text=True
    ).stdout
    least = int(re.search(r"Min clear hash value = (\d+)", said)[1])
    assert least > 2**62
    index = MinimizerIndex.build(
        tmp_path / "references.fa", taxonomy=db / "taxonomy", least_hash=least
    )
    reads = tmp_path / "1.fq"
    names = [f"r{at}" for at in range(len(world.pairs))]
    reads.write_text(fastq(names, [first for first, _ in world.pairs]))
    run("kraken2", "--db", db, "--output", tmp_path / "out", reads)
    found = [line.rstrip(" ") for line in (tmp_path / "out").read_text().splitlines()]
    index.classify(reads).write(tmp_path / "ours")
    assert (tmp_path / "ours").read_text().splitlines() == found
    made = MinimizerModel(world.references, world.taxonomy, least_hash=least)
    assert set(index._table.items()[0].tolist()) == set(made.taxids)


@pytest.mark.skipif(shutil.which("dustmasker") is None, reason="Kraken 2's package installs it")
def test_masks_are_those_of_dustmasker(tmp_path):
    checked = 0
    for file in sorted((TINY.folder / "genomes").iterdir()):
        (batch,) = read_sequences(file)
        if set(batch.letters.tobytes()) > set(b"ACGT"):
            # It takes other letters for A.
            continue
        path = tmp_path / "one.fa"
        records = (batch.sequence(row).decode() for row in range(len(batch)))
        path.write_text("".join(f">{row}\n{each}\n" for row, each in enumerate(records)))
        run("dustmasker", "-in", path, "-outfmt", "fasta", "-out", tmp_path / "masked.fa")
        (masked,) = read_sequences(tmp_path / "masked.fa")
        ours = mask_letters("dust", batch.letters, batch.offsets)
        theirs = mask_letters("lowercase", masked.letters, masked.offsets)
        assert ours.tobytes() == theirs.tobytes()
        checked += int((ours == ord("N")).sum())
    assert checked > 500
