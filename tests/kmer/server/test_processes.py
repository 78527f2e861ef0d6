"""Servers and clients that are killed, stopped, or cannot write."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from clusters import cluster_of
from kmer.server.conftest import COMMAND, SECONDS, process, serving
from kmer.server.test_answers import until
from kmer.worlds import arrays, fastq

from dgpuhash.errors import ClosedError
from dgpuhash.kmer.server.client import ServedIndex
from dgpuhash.kmer.server.databases import Databases


def begun(*arguments, **options):
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def long_reads(site):
    """Reads that take a while."""
    path = site.folder / "long.fq"
    if not path.exists():
        path.write_text(fastq([f"r{n}" for n in range(200_000)], ["ACGTTGCATC" * 15] * 200_000))
    return path


def test_two_samples_and_a_clean_end(site):
    with process(*site.paths.values(), "--listen", "tcp://127.0.0.1:0") as (program, address):
        for rule in site.paths:
            done = begun("classify", rule, site.reads[0], "--server", address, "--format", "tsv")
            text, said = done.communicate(timeout=SECONDS)
            assert done.returncode == 0, said
            assert text.count("\n") == 240
        program.send_signal(signal.SIGHUP)
        told = {program.stderr.readline().strip() for _ in site.paths}
        assert told == {f"{rule}: the file is the same" for rule in site.paths}
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=SECONDS)
        assert program.returncode == 0
        assert said.splitlines()[-1] == "stopped"


def test_a_stop_while_reads_are_called(site, long_reads, tmp_path):
    with process(site.paths["kraken2"], "--listen", f"unix://{tmp_path}/s") as (program, address):
        out = tmp_path / "calls"
        client = begun("classify", "kraken2", long_reads, "--server", address, "-o", out)
        until(lambda: list(tmp_path.glob("calls*")), SECONDS)
        program.send_signal(signal.SIGTERM)
        assert program.wait(SECONDS) == 0
        _, said = client.communicate(timeout=SECONDS)
        assert not (tmp_path / "s").exists()
        if client.returncode:
            assert client.returncode == 2
            assert "the server stops; start it again" in said
            assert list(tmp_path.iterdir()) == []


def fails(served, failures):
    with pytest.raises(OSError) as told:
        served.call(*arrays(["ACGT"]))
    failures.append(told.value)


def test_a_second_signal(site, tmp_path):
    """It ends a server whose calls do not end."""
    program = tmp_path / "stuck.py"
    program.write_text(
        "import threading\n"
        "from dgpuhash.kmer.server.databases import Epoch\n"
        "Epoch.answer = lambda *_: (print('called', flush=True), threading.Event().wait())\n"
        "from dgpuhash.cli import main\n"
        f"main(['kmer', 'serve', {site.paths['kraken2']!r}, '--listen', 'unix://{tmp_path}/s'])\n"
    )
    failures = []
    stuck = subprocess.Popen(
        [COMMAND[0], str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert stuck.stdout.readline().startswith("serving")
        with ServedIndex(f"unix://{tmp_path}/s") as served:
            calls = threading.Thread(target=fails, args=(served, failures))
            calls.start()
            assert stuck.stdout.readline() == "called\n"
            stuck.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                stuck.wait(1)
            stuck.send_signal(signal.SIGINT)
            assert stuck.wait(SECONDS) == 1
            calls.join(SECONDS)
        assert "closed the connection" in str(failures[0])
    finally:
        stuck.kill()
        stuck.communicate(timeout=SECONDS)


def test_a_killed_server(site, long_reads, tmp_path):
    with process(site.paths["kraken2"], "--listen", f"unix://{tmp_path}/s") as (program, address):
        out = tmp_path / "calls"
        client = begun("classify", "kraken2", long_reads, "--server", address, "-o", out)
        until(lambda: list(tmp_path.glob("calls*")), SECONDS)
        os.kill(program.pid, signal.SIGSTOP)
        program.kill()
        _, said = client.communicate(timeout=SECONDS)
        assert client.returncode == 2
        assert "closed the connection; see the server's log, and repeat the command" in said
        assert not list(tmp_path.glob("calls*"))
        again = begun("classify", "kraken2", site.reads[0], "--server", address)
        assert "no server answers" in again.communicate(timeout=SECONDS)[1]
    # What it left behind is no obstacle.
    again = process(site.paths["kraken2"], "--listen", f"unix://{tmp_path}/s")
    with again as (_, address), ServedIndex(address) as served:
        assert served.database == "kraken2"


def answer(*arguments):
    """Return the command's calls."""
    done = begun("classify", *arguments, "--format", "tsv")
    text, said = done.communicate(timeout=SECONDS)
    assert done.returncode == 0, said
    return text


def test_a_killed_worker(site, long_reads):
    """Its part of the index is loaded again, and no call differs."""
    path = site.paths["kraken2"]
    expected = [answer(path, file) for file in (long_reads, site.reads[0])]
    assert len(set(re.findall(r"\t(\d+)", expected[1]))) > 2
    with cluster_of(2, processes=True) as client:
        databases = Databases({"db": path}, client=client, mode="distributed")
        with serving(databases) as (server, address):
            done = begun("classify", "db", long_reads, "--server", address, "--format", "tsv")
            until(lambda: server._budget.free < server._budget.nbytes, SECONDS)
            os.kill(client.run(os.getpid).popitem()[1], signal.SIGKILL)
            text, said = done.communicate(timeout=SECONDS)
            assert (done.returncode, text) == (0, expected[0]), said
            assert answer("db", site.reads[0], "--server", address) == expected[1]
            until(lambda: server._budget.free == server._budget.nbytes)


def test_a_killed_client(site, databases, long_reads):
    """Its memory is free again, and others go on meanwhile."""
    with serving(databases) as (server, address):
        clients = [begun("classify", "kraken2", long_reads, "--server", address) for _ in "ab"]
        until(lambda: server._budget.free < server._budget.nbytes, SECONDS)
        clients[0].kill()
        with ServedIndex(address, "kraken2") as served:
            assert len(served.call(*arrays(["ACGT"]))) == 1
        os.kill(clients[1].pid, signal.SIGSTOP)
        clients[1].kill()
        for client in clients:
            client.communicate(timeout=SECONDS)
        until(lambda: not server._clients, SECONDS)
        assert server._budget.free == server._budget.nbytes
        assert server._ready.empty() or not any(each.pieces for each in server._ready._queue)


def test_a_client_that_does_not_read_replies(site, databases):
    """It holds up nobody, and no more replies are made for it than fit its share."""
    with serving(databases, memory=2**24) as (server, address):
        with ServedIndex(address, "kraken2") as idle, ServedIndex(address, "kraken2") as other:
            idle._connection._loop.call_soon_threadsafe(time.sleep, 2)
            reads = arrays(["ACGTTGCATC" * 15] * 60_000)
            done = []
            thread = threading.Thread(target=lambda: done.append(idle.call(*reads, detail=True)))
            thread.start()
            for _ in range(20):
                assert len(other.call(*arrays(["ACGT"]))) == 1
            thread.join(SECONDS)
            assert len(done[0]) == 60_000
        until(lambda: server._budget.free == server._budget.nbytes)


def test_a_full_disk(site, databases, tmp_path):
    with serving(databases) as (server, address):
        failed = begun("classify", "kraken2", site.reads[0], "--server", address, "-o", "/dev/full")
        _, said = failed.communicate(timeout=SECONDS)
        assert failed.returncode == 2
        assert "/dev/full cannot be written: No space left on device" in said
        until(lambda: not server._clients)
        assert server._budget.free == server._budget.nbytes


def test_what_waits_is_refused_when_a_server_stops(site, databases, monkeypatch):
    gate, kind = threading.Event(), type(databases.epoch("kraken2"))
    answer = kind.answer

    def slow(self, request):
        gate.wait(30)
        return answer(self, request)

    monkeypatch.setattr(kind, "answer", slow)
    with serving(databases) as (server, address), ServedIndex(address, "kraken2") as served:
        reads = arrays(["ACGT"])
        connection = served._connection
        errors = []

        def work():
            try:
                served.call(np.full(2**23, ord("A"), np.uint8), np.arange(0, 2**23 + 1, 2**10))
            except ClosedError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: sum(len(client.pieces) for client in server._clients) > 1)
        server.stop()
        # What is called ends after what waits was refused.
        until(lambda: not any(client.pieces for client in server._clients))
        gate.set()
        thread.join(SECONDS)
        assert "the server stops" in str(errors[0])
        until(lambda: connection._failure is not None)
        with pytest.raises(ClosedError, match="the server stops"):
            served.call(*reads)
