"""Files of indexes: what is written is read again, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from kmer.tiers import TINY

from dgpuhash.errors import ExistsError, FormatError
from dgpuhash.kmer import Taxonomy
from dgpuhash.kmer.index_file import read_index, rule_of, write_index
from dgpuhash.kmer.references import Targets
from dgpuhash.tables.serialization import read_file, write_file

TARGETS = Targets(
    ["NC_1.1", "", "sp\u00e9c|3"], ["a.fa", "b\udcff.fa"], np.array([0, 0, 1], np.int32),
    np.array([0, 1, 0]), np.array([9000, 0, 2**40]), np.array([11676, 0, 1]), ["0f" * 32, ""],
)  # fmt: skip
ARRAYS = {"features": np.arange(5, dtype=np.uint32), "offsets": np.array([0, 2**40])}


@pytest.fixture(scope="module")
def taxonomy():
    return Taxonomy.read(TINY.taxonomy_folder)


def write(path, taxonomy=None, **changed):
    given = {"rule": "metacache", "settings": {"k": 16}, "arrays": ARRAYS, "targets": TARGETS}
    write_index(path, taxonomy=taxonomy, told={"seen": 3}, **{**given, **changed})


def test_what_was_written_is_read(tmp_path, taxonomy):
    path = tmp_path / "one.dgki"
    for given in (None, taxonomy):
        write(path, given, overwrite=True)
        found = read_index(path, "metacache")
        assert (found.rule, found.settings, found.told) == ("metacache", {"k": 16}, {"seen": 3})
        assert found.targets.names == TARGETS.names
        assert found.targets.files == TARGETS.files
        for one, other in zip(found.targets[2:-1], TARGETS[2:-1], strict=True):
            assert (one.dtype, one.tolist()) == (other.dtype, other.tolist())
        assert found.targets.sums == TARGETS.sums
        # They are not those of the file's map.
        found.targets.taxids[0] = 7
        for name, array in ARRAYS.items():
            assert found.arrays.get(name, array.dtype).tolist() == array.tolist()
        assert (found.taxonomy is None) == (given is None)
    assert found.taxonomy is not None
    assert found.taxonomy.taxids.tolist() == taxonomy.taxids.tolist()
    assert found.taxonomy.name(11676) == taxonomy.name(11676)
    assert rule_of(path) == "metacache"


def test_no_targets(tmp_path):
    write(tmp_path / "x", targets=Targets.none(), arrays={})
    found = read_index(tmp_path / "x").targets
    assert (found.names, found.files, len(found.taxids)) == ([], [], 0)


def test_others_are_refused(tmp_path):
    path = tmp_path / "x"
    write(path)
    with pytest.raises(ExistsError):
        write(path)
    with pytest.raises(FormatError, match="rule 'metacache', but 'kraken2' was requested"):
        read_index(path, "kraken2")
    write_file(tmp_path / "other", {"kind": "taxonomy"}, {})
    for read in (read_index, rule_of):
        with pytest.raises(FormatError, match="not an index of sequences"):
            read(tmp_path / "other")
    (tmp_path / "text").write_text(">r\nACGT\n")
    with pytest.raises(FormatError, match="not saved by dgpuhash"):
        read_index(tmp_path / "text")
    assert [file.name for file in tmp_path.iterdir() if "part" in file.name] == []


@pytest.mark.parametrize(
    ("name", "array", "told"),
    [
        ("targets taxids", np.zeros(2, np.int64), "differ in length"),
        ("targets file_of", np.array([0, 0, 2], np.int32), "unknown files"),
        ("targets name ends", np.array([0, 9, 4, 14]), "no ends"),
        ("targets name ends", np.zeros(0, np.int64), "no ends"),
        ("targets names", np.zeros(3, np.uint8), "no ends"),
        ("targets lengths", None, "is missing"),
        ("targets sums", np.zeros(32, np.uint8), "instead of 64"),
    ],
)
def test_targets_that_do_not_fit(tmp_path, name, array, told):
    write(tmp_path / "x")
    header, arrays = read_file(tmp_path / "x")
    if array is None:
        del arrays[name]
    else:
        arrays[name] = array
    write_file(tmp_path / "y", header, arrays)
    with pytest.raises(FormatError, match=told):
        read_index(tmp_path / "y")


def test_arrays_are_made_one_at_a_time(tmp_path):
    """A mapping that makes arrays as it is asked never has two."""

    class Lazy(dict):
        def __getitem__(self, name):
            return np.full(3, super().__getitem__(name))

    write(tmp_path / "x", arrays=Lazy(one=1, two=2))
    found = read_index(tmp_path / "x").arrays
    assert found.get("two", np.dtype(np.int64)).tolist() == [2, 2, 2]
