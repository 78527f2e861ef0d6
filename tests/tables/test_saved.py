"""Saved tables: round trips, whole files or none, and files that lie."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
from agreement import agree
from fsspec.implementations.memory import MemoryFileSystem
from model import MapModel, MultiMapModel, SetModel
from strategies import KEY_DTYPES, VALUE_DTYPES, random_keys, random_values

import dgpuhash.tables
from dgpuhash.errors import FormatError, SpecError, UnsupportedError
from dgpuhash.tables import HashMap, HashSet, MultiMap, persist
from dgpuhash.tables.persist import read_file, write_file

PREFIX = struct.Struct("<8sII16s")


@pytest.mark.parametrize("key", KEY_DTYPES)
def test_set_round_trip(device, key, tmp_path):
    table, model = HashSet(key, device=device.name, seed=9, max_load=0.6), SetModel()
    keys = random_keys(key, 500, 1)
    table.insert(device.array(keys))
    model.insert(keys)
    table.save(tmp_path / "set")
    loaded = HashSet.load(tmp_path / "set", device=device.name)
    assert loaded.spec == table.spec
    agree(device, loaded, model)


@pytest.mark.parametrize("value", VALUE_DTYPES)
def test_map_and_multimap_round_trip(device, value, tmp_path):
    keys, values = random_keys("int32", 500, 1, distinct=90), random_values(value, 500, 1)
    for table, model in (
        (HashMap("int32", value, device=device.name), MapModel()),
        (MultiMap("int32", value, device=device.name), MultiMapModel()),
    ):
        if isinstance(table, HashMap):
            table.insert(device.array(keys), device.array(values), keep="first")
        else:
            table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        table.save(tmp_path / "table")
        loaded = dgpuhash.tables.load(tmp_path / "table", device.name)
        assert type(loaded) is type(table)
        assert loaded.device == device.name
        agree(device, loaded, model)
        loaded.erase(device.array(keys[:50]))
        model.erase(keys[:50])
        agree(device, loaded, model)


@pytest.mark.parametrize("value", ["int16", "datetime64[s]", "S3", "i4,f8,S4"])
def test_a_table_of_one_device_loads_on_the_other(device, host, value, tmp_path):
    keys, values = random_keys("M8[ns]", 300, 1, distinct=90), random_values(value, 300, 1)
    for one, other in ((device, host), (host, device)):
        table, model = MultiMap("M8[ns]", value, device=one.name), MultiMapModel()
        table.insert(one.array(keys), one.array(values))
        model.insert(keys, values)
        table.save(tmp_path / "table")
        agree(other, MultiMap.load(tmp_path / "table", device=other.name), model)


@pytest.mark.parametrize("make", [HashSet, HashMap, MultiMap])
def test_empty_tables(make, tmp_path):
    table = make("int8") if make is HashSet else make("int8", "S9")
    table.save(tmp_path / "empty")
    assert len(make.load(tmp_path / "empty")) == 0


def test_urls(tmp_path):
    table = HashSet.from_keys(np.arange(100))
    for url in ("memory://folder/set", f"file://{tmp_path}/set"):
        table.save(url)
        assert len(HashSet.load(url)) == 100
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    table.save(f"file://{tmp_path}/set?[1]*")
    with pytest.raises(SpecError, match=r"\[, which fsspec takes for a pattern"):
        table.save("memory://folder/set[1]")
    assert not fsspec.filesystem("memory").glob("/folder/set?*")


def test_wrong_kind_is_refused(tmp_path):
    HashSet.from_keys([1, 2]).save(tmp_path / "set")
    with pytest.raises(FormatError, match=r"dgpuhash\.load"):
        HashMap.load(tmp_path / "set")
    with pytest.raises(FileNotFoundError):
        HashSet.load(tmp_path / "absent")


@pytest.fixture
def saved(tmp_path) -> Path:
    path = tmp_path / "lists"
    MultiMap.from_arrays(np.arange(50) % 7, np.arange(50)).save(path)
    return path


def test_every_truncation_is_refused(saved, tmp_path):
    whole = saved.read_bytes()
    cut = tmp_path / "cut"
    for length in [*range(200), *range(200, len(whole), 97), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            dgpuhash.tables.load(cut)
    cut.write_bytes(whole + b"\0")
    with pytest.raises(FormatError, match="bytes long"):
        dgpuhash.tables.load(cut)


def test_every_flipped_byte_is_refused_or_harmless(saved, tmp_path):
    whole = saved.read_bytes()
    flipped = tmp_path / "flipped"
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        flipped.write_bytes(damaged)
        try:
            table = dgpuhash.tables.load(flipped)
        except FormatError:
            continue
        # Only the zeros between buffers are not covered by a checksum.
        assert whole[position] == 0
        assert len(table) == 50


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04" + b"0" * 100, b"\x80\x04pickle", b"dgpuhash"]
)
def test_foreign_files_are_refused(content, tmp_path):
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(FormatError, match="save"):
        dgpuhash.tables.load(tmp_path / "foreign")


def test_newer_versions_are_refused(saved):
    whole = bytearray(saved.read_bytes())
    whole[8] = 99
    saved.write_bytes(whole)
    with pytest.raises(FormatError, match="version 99"):
        dgpuhash.tables.load(saved)


HOSTILE = [
    lambda m: m["header"].update(size=2**47),
    lambda m: m["header"].update(size=-1),
    lambda m: m["header"].update(size="50"),
    lambda m: m["header"].pop("spec"),
    lambda m: m["header"].update(spec="{"),
    lambda m: m["header"].update(spec=json.dumps({"kind": "map"})),
    lambda m: _respec(m, kind="map"),
    lambda m: _respec(m, kind="set", value_dtype=None),
    lambda m: _respec(m, key_dtype="|O"),
    lambda m: _respec(m, key_dtype="<i4"),
    lambda m: _respec(m, value_dtype="|O"),
    lambda m: _respec(m, value_dtype="<i2"),
    lambda m: _respec(m, value_dtype=[["a", "O"]]),
    lambda m: _respec(m, value_dtype=[[["a"]]]),
    lambda m: _respec(m, initial_bucket=2**40),
    lambda m: _respec(m, growth=1e300),
    lambda m: _respec(m, max_load=1e-300),
    lambda m: _respec(m, surprise=1),
    lambda m: m.update(header=[]),
    lambda m: m.update(buffers={}),
    lambda m: m.update(buffers=[]),
    lambda m: m["buffers"].append(m["buffers"][0]),
    lambda m: m["buffers"][0].update(nbytes=2**60),
    lambda m: m["buffers"][0].update(nbytes=-64),
    lambda m: m["buffers"][0].update(nbytes=1.5),
    lambda m: m["buffers"][0].update(name=["keys"]),
    lambda m: m["buffers"][0].update(name="chaves"),
    lambda m: m["buffers"][0].update(blake2b="00"),
]


def _respec(manifest, **changes):
    spec = json.loads(manifest["header"]["spec"])
    manifest["header"]["spec"] = json.dumps(spec | changes)


@pytest.mark.parametrize("change", HOSTILE)
def test_manifests_that_lie_are_refused(saved, change):
    """Checksums are right: whoever wrote this wanted to be believed."""
    whole = saved.read_bytes()
    length = PREFIX.unpack_from(whole)[2]
    manifest = json.loads(whole[PREFIX.size : PREFIX.size + length])
    change(manifest)
    text = json.dumps(manifest).encode()
    start = PREFIX.size + length
    body = whole[start + -start % 64 :]
    prefix = PREFIX.pack(b"dgpuhash", 1, len(text), persist._digest(text))
    start = len(prefix) + len(text)
    saved.write_bytes(prefix + text + bytes(-start % 64) + body)
    with pytest.raises(FormatError):
        dgpuhash.tables.load(saved)


@pytest.mark.parametrize(
    "offsets",
    [
        [0, 3, 2, 4],
        [0, 0, 2, 4],
        [1, 2, 3, 4],
        [0, 1, 2, 3],
        [0, 1, 2, 2**62],
        [0, -(2**62), 2, 4],
    ],
)
def test_offsets_that_lie_are_refused(tmp_path, offsets):
    table = MultiMap.from_arrays([1, 2, 3, 3], [1, 2, 3, 4])
    table.save(tmp_path / "table")
    header, buffers = read_file(tmp_path / "table")
    buffers["offsets"] = np.array(offsets)
    write_file(tmp_path / "table", header, buffers)
    with pytest.raises(FormatError, match="offsets"):
        dgpuhash.tables.load(tmp_path / "table")


def test_a_file_system_that_only_reads():
    class ReadOnly(MemoryFileSystem):
        protocol = "readonly"

        def _open(self, path, mode="rb", **options):
            raise NotImplementedError

    fsspec.register_implementation("readonly", ReadOnly, clobber=True)
    with pytest.raises(UnsupportedError, match="readonly://saved cannot be written"):
        HashSet.from_keys([1]).save("readonly://saved")


def test_doubled_keys_are_refused(tmp_path):
    for table in (HashSet.from_keys([1, 2]), MultiMap.from_arrays([1, 2], [1, 2])):
        table.save(tmp_path / "table")
        header, buffers = read_file(tmp_path / "table")
        buffers["keys"] = np.array([7, 7])
        write_file(tmp_path / "table", header, buffers)
        with pytest.raises(FormatError, match="distinct"):
            dgpuhash.tables.load(tmp_path / "table")


def test_an_error_while_writing_keeps_the_old_file(saved, monkeypatch):
    old = saved.read_bytes()

    def full(file_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(persist.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        HashSet.from_keys([1]).save(saved)
    assert saved.read_bytes() == old
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_full_disk_leaves_no_half_file(tmp_path):
    """A real limit on the size of files, in a process of its own."""
    path = tmp_path / "table"
    code = (
        "import resource, signal, sys, numpy as np\n"
        "from dgpuhash.tables import HashSet\n"
        "table = HashSet.from_keys(np.arange(100_000))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    table.save(sys.argv[1])\n"
        "except OSError as error:\n"
        "    print('refused', error.errno)\n"
    )
    assert resource.RLIMIT_FSIZE is not None
    found = subprocess.run(
        # -B: under the limit, compiled modules would be cut as well.
        [sys.executable, "-B", "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert found.stdout.startswith("refused"), (found.returncode, found.stdout, found.stderr)
    assert list(tmp_path.iterdir()) == []
