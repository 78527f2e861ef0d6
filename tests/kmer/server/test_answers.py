"""Calls and reports through a server are those of the index, byte for byte."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import dask
import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Security
from kmer.server.conftest import RULES, WORLD, serving
from kmer.workers.pairs import fields_of
from kmer.worlds import arrays

from dgpuhash.cli import main
from dgpuhash.errors import SequenceError, SpecError, UnsupportedError
from dgpuhash.kmer.server.client import ServedIndex
from dgpuhash.kmer.server.databases import Databases, named_paths
from dgpuhash.kmer.server.server import Budget

OPTIONS = {
    "kraken2": [
        ["--confidence", "0.1", "--report-minimizer-data"],
        ["--minimum-base-quality", "20", "--minimum-hit-groups", "1"],
        ["--quick", "--use-names"],
    ],
    "metacache": [
        ["--lowest", "species", "--format", "metacache"],
        ["--cov-percentile", "30", "--maxcand", "4", "--format", "kraken"],
        ["--hitmin", "2", "--use-names"],
    ],
}
AUTHORITY = "distributed.comm.tls.ca-file"
CASES = [(rule, options) for rule in RULES for options in OPTIONS[rule]]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def written(folder, database, reads, *options):
    """Return all that a command writes."""
    folder.mkdir()
    names = ("calls", "report", "abundances", "yes_#", "no_#")
    calls, report, abundances, yes, no = (folder / name for name in names)
    run(
        "classify", database, *reads, "--paired", *options, "-o", calls, "--report", report,
        "--abundance", "species", "--abundance-output", abundances, "--classified-out", yes,
        "--unclassified-out", no,
    )  # fmt: skip
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("letters", [40, 2**20])
@pytest.mark.parametrize(("rule", "options"), CASES)
def test_all_that_is_written(site, databases, tmp_path, monkeypatch, rule, options, letters):
    expected = written(tmp_path / "here", site.paths[rule], site.reads, *options)
    assert len(expected) == 7
    monkeypatch.setattr(Databases, "piece_letters", letters)
    with serving(databases) as (_, address):
        found = written(tmp_path / "there", rule, site.reads, *options, "--server", address)
    assert found == expected


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("paired", [False, True])
def test_arrays(site, address, rule, paired):
    index = site.indexes[rule]
    firsts, seconds = zip(*WORLD.pairs, strict=True)
    sides = [*arrays(firsts), *(arrays(seconds) if paired else ())]
    none = [np.empty(0, np.uint8), np.zeros(1, np.int64)] * (len(sides) // 2)
    with ServedIndex(address, rule) as served:
        for batch in (sides, none):
            for detail in (False, True):
                expected = index.call(*batch, detail=detail)
                assert fields_of(served.call(*batch, detail=detail)) == fields_of(expected)
        assert served.targets.names == index.targets.names
        assert served.taxonomy.taxids.tolist() == index.taxonomy.taxids.tolist()
        # Where the server has its files is none of a client's business.
        assert set(served.targets.files) == {""}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ((0, [1, 4]), "offsets do not divide"),
        ((0, [0, 3]), "offsets do not divide"),
        ((0, [0, 3, 2, 4]), "offsets do not divide"),
        ((0, []), "offsets do not divide"),
        ((0, [0, 4], 0, [0, 2, 4]), "pass"),
    ],
)
def test_arrays_that_are_no_reads(site, address, rule, batch, said):
    """The index and its server refuse the same."""
    letters = np.frombuffer(b"ACGT", np.uint8)
    sides = [letters if at % 2 == 0 else np.array(each) for at, each in enumerate(batch)]
    with ServedIndex(address, rule) as served:
        for each in (site.indexes[rule], served):
            with pytest.raises(SequenceError, match=said):
                each.call(*sides)


@pytest.mark.parametrize("rule", RULES)
def test_an_option_that_cannot_be_sent_harms_no_later_call(site, address, rule):
    batch = arrays(WORLD.pairs[0])
    name = "hitdiff" if rule == "metacache" else "confidence"
    with ServedIndex(address, rule) as served:
        for _ in range(2):
            with pytest.raises((SpecError, TypeError)):
                served.call(*batch, **{name: Fraction(1, 2)})
            assert fields_of(served.call(*batch)) == fields_of(site.indexes[rule].call(*batch))
        with pytest.raises((SpecError, SequenceError)):
            served.call(*batch, qualities=np.zeros(1, np.uint8))
    with pytest.raises(SpecError, match="cannot be sent"):
        ServedIndex(address, Path(rule))


@pytest.mark.parametrize("rule", RULES)
def test_single_and_interleaved_reads_and_python(site, address, rule):
    index = site.indexes[rule]
    with ServedIndex(address, rule) as served:
        for settings in ({}, {"interleaved": True, "name_check": False}):
            ours, theirs = (
                each.classify(site.reads, batch_letters=700, **settings) for each in (served, index)
            )
            assert ours.to_pandas().equals(theirs.to_pandas())
            assert list(ours.report_lines()) == list(theirs.report_lines())


def test_many_clients_at_once(site, databases):
    """Of two databases, each with its own batches; some come and go meanwhile."""
    with serving(databases) as (server, address):
        expected = {rule: site.indexes[rule].classify(*site.reads).to_pandas() for rule in RULES}

        def work(number):
            rule = RULES[number % 2]
            for turn in range(3):
                with ServedIndex(address, rule) as served:
                    calls = served.classify(*site.reads, batch_letters=200 * (number + turn + 1))
                    assert calls.to_pandas().equals(expected[rule])
            return True

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(work, range(8)))
        until(lambda: not server._clients)
        assert server._budget.free == server._budget.nbytes


def until(is_so, seconds=30.0):
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_waits_for_memory_that_are_cancelled_together():
    async def cancel_both():
        budget = Budget(4)
        await budget.take(3)
        waiting = [asyncio.create_task(budget.take(2)) for _ in range(2)]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        budget.give(3)
        return [type(each) for each in ended], budget.free

    assert asyncio.run(cancel_both()) == ([asyncio.CancelledError] * 2, 4)


def test_requests_wait_for_memory(site, databases):
    """A share of less than a batch slows a client, and changes nothing."""
    with serving(databases, memory=2**24) as (server, address):
        taken = []
        budget = server._budget
        take = budget.take

        async def counted(nbytes):
            await take(nbytes)
            taken.append(budget.nbytes - budget.free)

        budget.take = counted
        firsts, _ = arrays([pair[0] * 600 for pair in WORLD.pairs])
        batch = firsts[: 3 * 2**20], np.arange(0, 3 * 2**20 + 1, 2**12)
        expected = fields_of(site.indexes["kraken2"].call(*batch))

        def work(_):
            with ServedIndex(address, "kraken2") as served:
                return fields_of(served.call(*batch))

        with ThreadPoolExecutor(8) as threads:
            assert all(found == expected for found in threads.map(work, range(8)))
        assert max(taken) <= 2**24
        until(lambda: budget.free == budget.nbytes)


def test_a_read_that_is_longer_than_the_memory(databases):
    with serving(databases, memory=2**24) as (_, address):
        refused = pytest.raises(UnsupportedError, match="more than the 16,777,216 that")
        with ServedIndex(address, "kraken2") as served, refused:
            served.call(np.full(2**24 + 1, ord("A"), np.uint8), [0, 2**24 + 1])
        with ServedIndex(address, "kraken2") as served:
            # Longer than a client's share.
            assert len(served.call(np.full(2**22, ord("A"), np.uint8), [0, 2**22])) == 1


def test_clients_take_turns(site, databases, monkeypatch):
    """One with many pieces waits for one with few, and as many of each have been called."""
    monkeypatch.setattr(Databases, "piece_letters", 100)
    order, lock, gate = [], threading.Lock(), threading.Event()
    epoch = databases.epoch("kraken2")
    answer = type(epoch).answer

    def noted(self, request):
        gate.wait(30)
        with lock:
            order.append(request.fields["options"]["confidence"])
        return answer(self, request)

    monkeypatch.setattr(type(epoch), "answer", noted)
    many, few = (arrays(["ACGT" * 25] * n) for n in (200, 10))
    with serving(databases) as (server, address), ThreadPoolExecutor(4) as threads:

        def work(batch, confidence):
            with ServedIndex(address, "kraken2") as served:
                return len(served.call(*batch, confidence=confidence))

        large = threads.submit(work, many, 0.0)
        until(lambda: sum(len(client.pieces) for client in server._clients) > 190)
        small = [threads.submit(work, few, share) for share in (0.25, 0.5)]
        until(lambda: sum(len(client.pieces) for client in server._clients) > 210)
        gate.set()
        assert [each.result(60) for each in (large, *small)] == [200, 10, 10]
    # Two threads had a piece each when the others came.
    assert sorted(order[3:27])[-16:] == [0.25] * 8 + [0.5] * 8


def test_databases_by_name(site, address):
    with pytest.raises(SpecError, match="no database 'plants'; name one of kraken2, metacache"):
        ServedIndex(address, "plants")
    with pytest.raises(SpecError, match="name one of"):
        ServedIndex(address)
    with serving(Databases({"only": site.paths["kraken2"]})) as (_, other):
        assert ServedIndex(other).database == "only"
    for texts in (["a=x", "a=y"], ["=x"], ["a="]):
        with pytest.raises(SpecError, match="NAME=PATH"):
            named_paths(texts)
    assert named_paths(["/a=b/c.dgki"]) == {"c": "/a=b/c.dgki"}


def test_options_that_do_not_fit(site, address):
    with ServedIndex(address, "kraken2") as served, pytest.raises(SpecError, match="confidence"):
        served.call(*arrays(["ACGT"]), confidence=2.0)
    reads = site.reads[0]
    for options, said in (
        (("--device", "cuda"), "are the server's"),
        (("--scheduler", "tcp://127.0.0.1:1"), "are the server's"),
        (("--rule", "metacache"), "was built by --rule kraken2"),
        (("--hitmin", "3"), "is an option of the rule of MetaCache"),
    ):
        assert said in run("classify", "kraken2", reads, "--server", address, *options, code=2)


def test_a_socket_of_the_user_alone(site, databases, tmp_path):
    path = tmp_path / "kmer.socket"
    with serving(databases, f"unix://{path}") as (_, address):
        assert path.stat().st_mode & 0o777 == 0o600
        with ServedIndex(address, "kraken2") as served:
            assert len(served.call(*arrays(["ACGT"]))) == 1
        with (
            pytest.raises(FileExistsError, match="another server listens"),
            serving(databases, f"unix://{path}"),
        ):
            pass
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="not a socket"), serving(databases, f"unix://{path}"):
        pass
    assert path.read_text() == "mine"


def configured(security):
    """Return the settings of Dask that have certificates."""
    return {
        AUTHORITY: security.tls_ca_file,
        **{
            f"distributed.comm.tls.{role}.{part}": getattr(security, f"tls_{role}_{part}")
            for role in ("scheduler", "client")
            for part in ("cert", "key")
        },
    }


def test_tls_refuses_foreign_certificates(site, databases):
    settings, foreign = (configured(Security.temporary()) for _ in range(2))
    # The client takes the server's certificate, which does not take the client's.
    half_foreign = {**foreign, AUTHORITY: settings[AUTHORITY]}
    with dask.config.set(settings), serving(databases, "tls://127.0.0.1:0") as (server, address):
        with ServedIndex(address, "kraken2") as served:
            found = served.classify(*site.reads).to_pandas()
        assert found.equals(site.indexes["kraken2"].classify(*site.reads).to_pandas())
        for other in (foreign, half_foreign):
            refused = pytest.raises(OSError, match="certificates of one authority")
            with dask.config.set(other), refused:
                ServedIndex(address, "kraken2")
        with pytest.raises(OSError, match=r"check what listens there|says nothing"):
            ServedIndex(address.replace("tls", "tcp"), "kraken2")
        until(lambda: not server._clients)
    with pytest.raises(SpecError, match=r"set ca-file, client\.cert and client\.key"):
        ServedIndex("tls://127.0.0.1:1", "kraken2")
    refused = pytest.raises(SpecError, match="use tls:// or unix://")
    with dask.config.set({"distributed.comm.require-encryption": True}), refused:
        ServedIndex("tcp://127.0.0.1:1", "kraken2")


def test_more_clients_than_allowed(databases):
    with serving(databases, clients=1) as (server, address):
        refused = pytest.raises(UnsupportedError, match="has 1 clients already; connect later")
        with ServedIndex(address, "kraken2"), refused:
            ServedIndex(address, "kraken2")
        until(lambda: not server._clients)
        with ServedIndex(address, "kraken2") as served:
            assert served.rule == "kraken2"


def test_a_new_epoch(site, tmp_path, monkeypatch):
    """Who is connected goes on with the old one; who connects gets the new one."""
    path, said = tmp_path / "db.dgki", []
    site.indexes["kraken2"].save(path)
    databases = Databases({"db": str(path)})
    reads = arrays(["ACGT" * 40])
    with serving(databases, say=said.append) as (_, address), ServedIndex(address) as old:
        expected = fields_of(old.call(*reads, detail=True))
        databases.renew(said.append)
        assert said == ["db: the file is the same"]
        site.indexes["metacache"].save(tmp_path / "new")
        (tmp_path / "new").replace(path)
        monkeypatch.setattr("dgpuhash.kmer.server.databases._nbytes_in_memory", lambda path: 2**60)
        databases.renew(said.append)
        assert "db: stays as it is" in said[-1] and "stop the server" in said[-1]
        monkeypatch.undo()
        databases.renew(said.append)
        assert "loaded anew" in said[-1]
        assert fields_of(old.call(*reads, detail=True)) == expected
        with ServedIndex(address) as new:
            assert new.rule == "metacache"
        (tmp_path / "new").write_bytes(b"damaged")
        (tmp_path / "new").replace(path)
        databases.renew(said.append)
        assert "db: stays as it is" in said[-1]
        path.unlink()
        databases.renew(said.append)
        assert "No such file" in said[-1]
        with ServedIndex(address) as new:
            assert new.rule == "metacache"


def test_an_address_that_is_none(databases):
    for text in ("host:1", "http://host:1", "tcp://host", "tcp://host:x", "unix://path", ""):
        with pytest.raises(SpecError, match="is not an address; write tcp://host"):
            ServedIndex(text)
    with pytest.raises(OSError, match="no server answers at tcp://"):
        ServedIndex("tcp://127.0.0.1:1")
    with pytest.raises(SpecError, match="requests need"), serving(databases, memory=1000):
        pass


@pytest.mark.parametrize("mode", ["replicated", "distributed", "independent"])
@pytest.mark.parametrize("rule", RULES)
def test_an_index_on_workers(site, tmp_path, clients, rule, mode):
    options = OPTIONS[rule][1 if rule == "metacache" else 0]
    expected = written(tmp_path / "here", site.paths[rule], site.reads, *options)
    databases = Databases({"db": site.paths[rule]}, client=clients[2], mode=mode)
    with serving(databases) as (_, address):
        found = written(tmp_path / "there", "db", site.reads, *options, "--server", address)
    assert found == expected
