"""Saved tables: round trips, atomic writes, corrupt files."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pytest
from agreement import agree
from fsspec.implementations.memory import MemoryFileSystem
from model import MapModel, MultiMapModel, SetModel
from strategies import KEY_DTYPES, VALUE_DTYPES, random_keys, random_values

import dgpuhash
import dgpuhash.tables
from dgpuhash.errors import ExistsError, FormatError, SpecError, UnsupportedError
from dgpuhash.frames import FrameIndex
from dgpuhash.tables import HashMap, HashSet, MultiMap, serialization
from dgpuhash.tables.arguments import checksums
from dgpuhash.tables.arguments.checksums import Pieces, digest_of
from dgpuhash.tables.open_addressing import slot_order
from dgpuhash.tables.serialization import read_file, write_file

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
        table.save(tmp_path / "table", overwrite=True)
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
        table.save(tmp_path / "table", overwrite=True)
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
        with pytest.raises(ExistsError, match=r"overwrite=True"):
            table.save(url)
        table.save(url, overwrite=True)
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


def test_one_load_opens_any_file(tmp_path):
    made = {
        "set": HashSet.from_keys([1, 2]),
        "map": HashMap.from_arrays([1, 2], [3, 4]),
        "lists": MultiMap.from_arrays([1, 1], [3, 4]),
        "rows": FrameIndex.build(pd.DataFrame({"k": [1, 2]}), "k"),
    }
    for name, each in made.items():
        for place in (tmp_path / name, f"memory://any/{name}"):
            each.save(place)
            loaded = dgpuhash.load(place)
            assert type(loaded) is type(each)
            assert len(loaded) == len(each)
            with pytest.raises(FormatError, match=r"use dgpuhash\.load for any kind"):
                next(kind for kind in (HashMap, MultiMap) if name != kind.kind).load(place)
    fsspec.filesystem("memory").rm("/any", recursive=True)
    with pytest.raises(FormatError, match=r"has no frame index; use dgpuhash\.load"):
        FrameIndex.load(tmp_path / "set")
    for load in (dgpuhash.load, HashSet.load, FrameIndex.load):
        with pytest.raises(FormatError, match=r"is a directory.* dgpuhash\.load"):
            load(tmp_path)
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "absent")


def test_a_folder_of_a_cluster_takes_a_client(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UnsupportedError, match=r"no Dask client; make one .* or pass client="):
        dgpuhash.load(tmp_path)


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
    lambda m: m["buffers"][0].update(crc32="00"),
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
    prefix = PREFIX.pack(b"dgpuhash", 2, len(text), digest_of(text))
    start = len(prefix) + len(text)
    saved.write_bytes(prefix + text + bytes(-start % 64) + body)
    with pytest.raises(FormatError):
        dgpuhash.tables.load(saved)


def test_files_of_version_1_are_read(saved):
    """Their checksums are those of all bytes."""
    header, buffers = read_file(saved)
    described = [
        {"name": name, "nbytes": len(array), "blake2b": digest_of(array.data).hex()}
        for name, array in buffers.items()
    ]
    text = json.dumps({"header": header, "buffers": described}).encode()
    data = PREFIX.pack(b"dgpuhash", 1, len(text), digest_of(text)) + text
    for array in buffers.values():
        data += bytes(-len(data) % 64) + array.tobytes()
    saved.write_bytes(data)
    for name, array in read_file(saved)[1].items():
        assert array.tobytes() == buffers[name].tobytes()
    saved.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(FormatError, match="checksum of buffer"):
        read_file(saved)


def test_arrays_in_pieces_are_those_that_are_whole(tmp_path):
    whole = np.random.default_rng(3).integers(0, 256, 3 * 2**20 + 5, dtype=np.uint8)
    write_file(tmp_path / "whole", {}, {"one": whole, "none": whole[:0], "two": whole[:7]})
    for sizes in ([len(whole)], [1, 2**20, 2**20 - 1, 0, 2**21], [2**19] * 7):
        ends = np.cumsum(sizes)
        pieces = Pieces(len(whole), lambda ends=ends: iter(np.split(whole, ends)))
        none = Pieces(0, lambda: iter([]))
        write_file(tmp_path / "pieces", {}, {"one": pieces, "none": none, "two": whole[:7]},
                   overwrite=True)  # fmt: skip
        assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()


def test_multimaps_are_saved_piece_by_piece(device, tmp_path, monkeypatch):
    keys = random_keys("uint64", 200_000, 1, distinct=70_000)
    keys[:3] = 2**64 - 1
    values = random_values("float32", len(keys), 1)
    table = MultiMap("uint64", "float32", device=device.name, seed=5)
    for part in range(0, len(keys), 50_000):
        rows = slice(part, part + 50_000)
        table.insert(device.array(keys[rows]), device.array(values[rows]))
    table.save(tmp_path / "whole")
    whole = table._lists.saved_lists()
    for at_once in (100, 2**11):
        monkeypatch.setattr(slot_order, "_SLICE", {"cpu": at_once, "cuda": at_once})
        made = table._lists.saved_lists()
        assert made.keys() == whole.keys()
        for name in ("keys", "offsets", "values"):
            sizes = [piece.nbytes for piece in made[name].make()]
            assert sum(sizes) == made[name].nbytes == whole[name].nbytes
            assert max(sizes) < sum(sizes) / 4
        table.save(tmp_path / "pieces", overwrite=True)
        assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()
    loaded = MultiMap.load(tmp_path / "pieces", device=device.name)
    for one, other in zip(loaded.lists(), table.lists(), strict=True):
        np.testing.assert_array_equal(*map(table._lists.backend.to_host, (one, other)))


@pytest.mark.parametrize("mebibytes", [1, 2, 16])
def test_damage_of_any_mebibyte_is_found(tmp_path, monkeypatch, mebibytes):
    """Whatever a thread takes at a time."""
    path, array = tmp_path / "large", np.zeros(3 * 2**20 + 5, np.uint8)
    sums = np.array([zlib.crc32(array[at : at + 2**20]) for at in range(0, len(array), 2**20)])
    monkeypatch.setattr(checksums, "_SPAN", mebibytes * 2**20)
    write_file(path, {}, {"one": array})
    whole = path.read_bytes()
    assert digest_of(sums.astype("<u4").tobytes()).hex().encode() in whole
    for place in (-1, -5, -6, -(2**20) - 6, -3 * 2**20):
        data = bytearray(whole)
        data[place] ^= 16
        path.write_bytes(data)
        with pytest.raises(FormatError, match="checksum of buffer 'one'"):
            read_file(path)


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
    write_file(tmp_path / "table", header, buffers, overwrite=True)
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
        table.save(tmp_path / "table", overwrite=True)
        header, buffers = read_file(tmp_path / "table")
        buffers["keys"] = np.array([7, 7])
        write_file(tmp_path / "table", header, buffers, overwrite=True)
        with pytest.raises(FormatError, match="distinct"):
            dgpuhash.tables.load(tmp_path / "table")


def test_an_error_while_writing_keeps_the_old_file(saved, monkeypatch):
    old = saved.read_bytes()

    def full(file_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(serialization.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        HashSet.from_keys([1]).save(saved, overwrite=True)
    assert saved.read_bytes() == old
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("kind", ["set", "frame"])
def test_what_is_there_is_not_replaced_without_a_word(saved, tmp_path, monkeypatch, kind):
    """It is refused before the work, and a directory always."""
    table = HashSet.from_keys([1])
    if kind == "frame":
        table = FrameIndex.build(pd.DataFrame({"k": [1]}), "k")
    (tmp_path / "link").symlink_to("nowhere")
    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(HashSet, "_saved_buffers", None)
        patch.setattr(FrameIndex, "frame", None)
        for place in (saved, str(saved), f"file://{saved}", tmp_path / "link"):
            with pytest.raises(FileExistsError, match=r"exists already; .*overwrite=True"):
                table.save(place)
        for overwrite in (False, True):
            with pytest.raises(FileExistsError, match="is a directory"):
                table.save(tmp_path, overwrite=overwrite)
    assert saved.read_bytes() == before
    table.save(saved, overwrite=True)
    assert len(type(table).load(saved)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", saved.name]


@pytest.mark.parametrize("links", [True, False])
def test_what_comes_while_a_table_is_saved_is_not_replaced(tmp_path, monkeypatch, links):
    """Also on file systems without links."""
    table, path, sync = HashSet.from_keys([1]), tmp_path / "table", serialization.os.fsync

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    def meanwhile(file_descriptor):
        sync(file_descriptor)
        path.write_text("mine")

    if not links:
        monkeypatch.setattr(serialization.os, "link", refuse)
    with monkeypatch.context() as patch:
        patch.setattr(serialization.os, "fsync", meanwhile)
        with pytest.raises(ExistsError, match="exists already"):
            table.save(path)
    assert path.read_text() == "mine"
    path.unlink()
    table.save(path)
    assert len(HashSet.load(path)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_of_many_who_save_to_one_place_one_does(tmp_path):
    table = HashSet.from_keys(np.arange(100))

    def save(_):
        try:
            table.save(tmp_path / "table")
        except ExistsError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(save, range(32))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


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
