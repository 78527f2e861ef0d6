"""Servers of small databases, in this process or in one of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clusters import cluster_of
from kmer.worlds import World, fastq

from dgpuhash.kmer import MinimizerIndex, SketchIndex
from dgpuhash.kmer.server.databases import Databases
from dgpuhash.kmer.server.server import Server

WORLD = World(11, pairs=240)
RULES = ("kraken2", "metacache")
SECONDS = 60


class Site:
    """A folder with an index of each rule, and reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        references = WORLD.write(folder / "references")
        taxonomy = references / "taxonomy"
        files = sorted(str(file) for file in references.glob("*.fa"))
        kinds = {"kraken2": MinimizerIndex, "metacache": SketchIndex}
        self.indexes: dict[str, Any] = {
            rule: kind.build(files, taxonomy=taxonomy) for rule, kind in kinds.items()
        }
        self.paths = {rule: str(folder / f"{rule}.dgki") for rule in kinds}
        for rule, index in self.indexes.items():
            index.save(self.paths[rule])
        self.reads = [folder / f"reads_{mate}.fq" for mate in (1, 2)]
        names = [f"read{number}" for number in range(len(WORLD.pairs))]
        for side, file in enumerate(self.reads):
            letters, qualities = (
                [pair[side] for pair in pairs] for pairs in (WORLD.pairs, WORLD.qualities)
            )
            file.write_text(fastq(names, letters, qualities))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


@contextmanager
def serving(
    databases: Databases, address: str = "tcp://127.0.0.1:0", **options: Any
) -> Iterator[tuple[Server, str]]:
    """Yield a server in this process, and its address."""
    server = Server(databases, address, **options)
    ready, addresses, errors = threading.Event(), [], []

    def tell(address: str) -> None:
        addresses.append(address)
        ready.set()

    def run() -> None:
        try:
            asyncio.run(server.run(tell))
        except BaseException as error:
            errors.append(error)
        ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(SECONDS)
    if errors:
        raise errors[0]
    try:
        yield server, addresses[0]
    finally:
        server.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()
    assert not errors, errors


@pytest.fixture(scope="session")
def databases(site: Site) -> Databases:
    return Databases(site.paths)


@pytest.fixture
def address(databases: Databases) -> Iterator[str]:
    with serving(databases) as (_, address):
        yield address


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[int, Any]]:
    """Yield a client of two workers in this process."""
    with cluster_of(2, processes=False, protocol="inproc") as client:
        yield {2: client}


COMMAND = (sys.executable, "-m", "dgpuhash", "kmer")


@contextmanager
def process(*arguments: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a server in a process of its own, and its address."""
    program = subprocess.Popen(
        [*COMMAND, "serve", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line.startswith("serving "), program.communicate(timeout=SECONDS)[1]
        yield program, line.split(" at ")[1].strip()
    finally:
        program.kill()
        program.communicate(timeout=SECONDS)
