"""Files of indexes that workers write, each its part."""

from __future__ import annotations

import threading

import pytest
from kmer.workers.pairs import fields_of, of_pairs

from dgpuhash.errors import ExistsError, FormatError, IndexLost
from dgpuhash.kmer import MinimizerIndex, SketchIndex, load_index
from dgpuhash.kmer.databases import part_files
from dgpuhash.kmer.index_file import read_index

SETTINGS = {
    SketchIndex: {"k": 11, "sketch": 8, "window": 40, "cap": 2, "remove_overpopulated": True},
    MinimizerIndex: {"k": 14, "l": 11, "spaces": 2},
}


@pytest.fixture(scope="module", params=SETTINGS, ids=["sketches", "minimizers"])
def both(request, folder):
    """Return the class of an index, and one of this process."""
    kind = request.param
    return kind, kind.build(folder, taxonomy=folder / "taxonomy", **SETTINGS[kind])


def on(client, kind, folder, mode="distributed"):
    made = kind.build(
        folder, taxonomy=folder / "taxonomy", client=client, mode=mode, **SETTINGS[kind]
    )
    # Nothing comes to this process.
    made.gather = None
    return made


def same(index, expected):
    assert fields_of(of_pairs(index, detail=True)) == fields_of(of_pairs(expected, detail=True))
    told, of_one = (
        {name: value for name, value in each.stats().items() if not name.startswith(("nb", "load"))}
        for each in (index, expected)
    )
    assert told | of_one == told
    if expected.rule == "metacache":
        assert index.digests() == expected.digests()
    else:
        assert list(index.inspect()) == list(expected.inspect())


@pytest.mark.parametrize("mode", ["distributed", "independent", "replicated"])
def test_parts_are_read_anywhere(clients, folder, both, tmp_path, mode):
    kind, expected = both
    path = tmp_path / "parts.dgki"
    on(clients[3], kind, folder, mode).save(path)
    assert len(read_index(path).parts) == (1 if mode == "replicated" else 3)
    same(load_index(path), expected)
    with pytest.raises(ExistsError):
        on(clients[3], kind, folder, mode).save(path)
    found = load_index(path, client=clients[2], mode=mode)
    same(found, expected)
    # What was read is written as any.
    found.save(path, overwrite=True)
    load_index(path).save(tmp_path / "again.dgki")
    same(load_index(tmp_path / "again.dgki"), expected)


def elsewhere(*arguments):
    """Stand for a worker that does not see the file."""
    return threading.current_thread() is threading.main_thread()


def test_workers_that_do_not_see_the_file(clients, folder, both, tmp_path, monkeypatch):
    kind, expected = both
    place = "local" if kind is SketchIndex else "memory"
    monkeypatch.setattr(part_files, "_write_part", elsewhere)
    monkeypatch.setattr(part_files, "PIECE_NBYTES", 1000)
    path = tmp_path / "parts.dgki" if place == "local" else "memory://parts.dgki"
    on(clients[3], kind, folder).save(path)
    same(load_index(path), expected)


def test_what_is_wrong_is_told(clients, folder, both, tmp_path, monkeypatch):
    kind, _ = both
    path = tmp_path / "parts.dgki"
    made = on(clients[3], kind, folder)
    made.save(path)
    text = bytearray(path.read_bytes())
    text[-1] ^= 1
    path.write_bytes(text)
    with pytest.raises(FormatError, match="checksum"):
        load_index(path)
    # Nothing is left of one that was made anew, or of a disk that is full.
    monkeypatch.setattr(part_files, "_arrays_in", lambda part: [])
    with pytest.raises(IndexLost, match="save it again"):
        part_files._write_part(None, str(path), (0, b""), [("one", 1, "")], [0])
    with pytest.raises(FileNotFoundError):
        made.save(tmp_path / "no" / "parts.dgki")
    assert [each.name for each in tmp_path.iterdir()] == ["parts.dgki"]
