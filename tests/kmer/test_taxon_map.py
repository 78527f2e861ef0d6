"""Minimizers and taxa in words of eight bytes: exact, as a dictionary has them."""

from __future__ import annotations

import numpy as np
import pytest
from kmer.tiers import TINY

from dgpuhash import backend as backends
from dgpuhash.errors import FormatError
from dgpuhash.kmer import MinimizerIndex, load_index
from dgpuhash.kmer.databases import taxon_words
from dgpuhash.kmer.databases.taxon_words import WordLayout, why_whole_keys
from dgpuhash.kmer.minimizers import building
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.minimizers.taxon_map import TaxonMap
from dgpuhash.tables import lca
from dgpuhash.tables.arguments.file_layout import PREFIX
from dgpuhash.tables.serialization import read_file, write_file

TINY_BUILD = {"references": TINY.folder / "genomes", "taxonomy": TINY.taxonomy_folder}
TINY_READS = [TINY.folder / f"reads_{mate}.fq.gz" for mate in (1, 2)]


def drawn(rng, settings, n):
    """Return minimizers, each letter of which that counts is drawn."""
    bits = np.uint64(settings.spaced)
    return rng.integers(0, 4**settings.l, n, dtype=np.uint64) & bits


def drawn_parents(rng, n):
    return np.array([0, 0, *(rng.integers(1, node) for node in range(2, n))])


def folded(parents, keys, nodes):
    made = {}
    for key, node in zip(keys.tolist(), nodes.tolist(), strict=True):
        held = made.setdefault(key, node)
        while held != node:
            held, node = (parents[held], node) if held > node else (held, parents[node])
        made[key] = int(held)
    return made


def items_of(host, table):
    keys, taxa = map(host, table.items())
    assert len(keys) == len(table)
    return dict(zip(keys.tolist(), taxa.tolist(), strict=True))


@pytest.mark.parametrize(
    ("l", "spaces", "n", "taxa"),
    [(31, 7, 30_000, 300), (31, 0, 30_000, 100), (18, 3, 20_000, 10**5), (8, 2, 4000, 300),
     (1, 0, 50, 5)],
)  # fmt: skip
def test_minimizers_have_the_ancestors_that_a_dictionary_has(device, l, spaces, n, taxa):  # noqa: E741
    backend, rng = backends.get(device.name), np.random.default_rng(l)
    put, host = backend.from_host, backend.to_host
    settings = MinimizerSettings(k=l, l=l, spaces=spaces)
    keys = drawn(rng, settings, n)
    keys = rng.permutation(np.concatenate([keys, keys[::2], keys[::5], keys[:1].repeat(500)]))
    parents = drawn_parents(rng, taxa)
    nodes = rng.integers(1, taxa, len(keys)).astype(np.uint32)
    # It grows from the least room, in the middle of batches.
    table = TaxonMap(backend, settings, taxa=taxa)
    change = lca(parents).on(backend)
    for at in range(0, len(keys), 9000):
        some = slice(at, at + 9000)
        table._insert_combined(put(keys[some]), put(nodes[some]), change)
    expected = folded(parents, keys, nodes)
    assert items_of(host, table) == expected
    absent = drawn(rng, settings, 2000)
    asked = np.concatenate([keys, absent])
    wanted = np.array([expected.get(key, 0) for key in asked.tolist()], np.uint32)
    tight = table.copy()
    tight.tighten()
    assert tight.nbytes <= table.nbytes and tight.layout.has_bits_for(taxa)
    assert tight.layout.words * 0.8 < max(len(table), 8192) or spaces == 0
    for each in (table, tight, table.of_room(3 * n)):
        taxa_found, there = map(host, each.find(put(asked)))
        assert (taxa_found == wanted).all() and (there == (wanted != 0)).all()
        assert items_of(host, each) == expected
    numbers = np.append(0, rng.permutation(np.arange(1, taxa))).astype(np.uint32)
    table.renumber(put(numbers), taxa)
    assert items_of(host, table) == {key: numbers[taxon] for key, taxon in expected.items()}
    assert items_of(host, tight) == expected


def test_bits_of_words():
    for minimizer_bits, lines in (
        (48, 2**10),
        (48, 5_000_001),
        (62, 2**24),
        (2, 2**10),
        (30, 12_345),
    ):
        layout = WordLayout.of_lines(minimizer_bits, lines)
        assert 2**layout.lower_bits * lines >= 2**minimizer_bits
        assert layout.lower_bits + layout.taxon_bits + taxon_words.STEP_BITS <= 64
    # Minimizers of 62 bits have words from 2^27 places on, with as many taxa as 16 bits have.
    assert WordLayout.of_lines(62, 2**24).has_bits_for(2**16)
    assert why_whole_keys(48, 10**7, 3_000_000) == ""
    assert "leave 12 for 100,000 taxa" in why_whole_keys(62, 10**7, 100_000)
    assert "fewer bytes" in why_whole_keys(48, 1000, 10)


def called(index):
    found = index.classify(*TINY_READS)
    calls = [taxid for batch in found for taxid in batch.calls.taxids.tolist()]
    return calls, list(found.report_lines()), list(index.inspect())


def test_both_forms_call_reads_alike_and_say_what_they_are(monkeypatch):
    packed = MinimizerIndex.build(**TINY_BUILD)
    assert isinstance(packed._table, TaxonMap) and "whole_keys" not in packed.stats()
    spaced = MinimizerIndex.build(**TINY_BUILD, spaces=0)
    assert isinstance(spaced._table, TaxonMap) is ("whole_keys" not in spaced.stats())
    monkeypatch.setattr(building, "why_whole_keys", lambda *_: "as is wanted here")
    whole = MinimizerIndex.build(**TINY_BUILD)
    assert not isinstance(whole._table, TaxonMap)
    assert called(packed) == called(whole)
    assert packed.stats()["nbytes"] < 0.7 * whole.stats()["nbytes"]
    monkeypatch.undo()
    # What is added goes to the form that is better then.
    both = MinimizerIndex.build(
        sorted((TINY.folder / "genomes").iterdir())[:1], taxonomy=TINY.taxonomy_folder
    )
    both = both.merge(
        MinimizerIndex.build(
            sorted((TINY.folder / "genomes").iterdir())[1:], taxonomy=TINY.taxonomy_folder
        )
    )
    assert called(both) == called(packed)


def test_files_have_words_and_a_version_of_their_own(tmp_path):
    index = MinimizerIndex.build(**TINY_BUILD)
    path, other = tmp_path / "db.dgki", tmp_path / "other.dgki"
    index.save(path)
    assert PREFIX.unpack(path.read_bytes()[: PREFIX.size])[1] == 3
    loaded = load_index(path)
    assert isinstance(loaded._table, TaxonMap)
    assert called(loaded) == called(index)
    header, buffers = read_file(path)
    words = buffers["index taxon words"].view(np.uint64)
    free = np.flatnonzero(words == 2**64 - 1)
    stored = np.flatnonzero(words != 2**64 - 1)
    layout = buffers["index taxon layout"].view(np.int64)

    def refused(why, *, at=None, to=None, name="index taxon words"):
        changed = {key: array.copy() for key, array in buffers.items()}
        changed[name].view(np.uint64)[at] = to
        write_file(other, header, changed, overwrite=True)
        with pytest.raises(FormatError, match=why):
            load_index(other)

    refused("unknown taxa", at=stored[0], to=words[stored[0]] | np.uint64(2**12))
    refused("unknown taxa", at=free[0], to=0)
    refused("unknown taxa", at=stored[0], to=2**64 - 1)
    refused("are not found", at=stored, to=words[stored[::-1]])
    for field, number in ((0, 2), (1, 8), (1, layout[1] + 1), (2, 46), (5, 6), (6, 7)):
        refused("layout|unknown taxa|taxon words", at=field, to=number, name="index taxon layout")
