"""`dgpuhash info`, `dgpuhash cache`, `--version`, and the `dask` plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from distributed import LocalCluster

import dgpuhash.cli
from dgpuhash.cli import main

COMMANDS = ["bench", "build", "cache", "demo", "groupby", "info", "join", "kmer", "lookup"]


def test_info_names_versions_backends_and_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("DGPUHASH_CACHE_DIR", str(tmp_path))
    result = CliRunner().invoke(main, ["info"])
    assert result.exit_code == 0
    for word in (
        "dask",
        "pandas",
        "cpu",
        "cuda",
        "kernel cache: 0 compiled kernels",
        str(tmp_path),
    ):
        assert word in result.output


@pytest.mark.cluster
def test_info_tells_by_what_workers_can_talk(monkeypatch, tmp_path):
    monkeypatch.setenv("DGPUHASH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    told = "# resource 0 : md 0 dev 0 flags -- tcp/eth0\n# resource 1 : md 1 dev 1 flags -- "
    asked = []

    class Context:
        def __init__(self, settings):
            asked.append(settings)
            self.info = told + ("cma/memory\n" if len(asked) == 1 else "rc_mlx5/mlx5_0:1\n")

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None,
        protocol="tcp://",
    ) as cluster:  # fmt: skip
        said = []
        for _ in range(4):
            result = CliRunner().invoke(main, ["info", "--scheduler", cluster.scheduler_address])
            assert result.exit_code == 0, result.output
            said.append(" ".join(result.output.partition("Workers")[2].split()))
            if len(said) == 3:
                monkeypatch.delattr(sys.modules["ucxx._lib.libucxx"], "UCXContext")
                continue
            monkeypatch.setitem(sys.modules, "ucxx", SimpleNamespace())
            monkeypatch.setitem(sys.modules, "ucxx.core", SimpleNamespace(_ctx=None))
            library = SimpleNamespace(UCXContext=Context)
            monkeypatch.setitem(sys.modules, "ucxx._lib.libucxx", library)
        worker = cluster.workers[0].address
    assert all(worker in each for each in said)
    assert "no UCXX" in said[0] or "tcp" in said[0]
    assert "tcp (eth0), cma; no InfiniBand" in said[1]
    assert "tcp (eth0), rc_mlx5 (mlx5_0:1)" in said[2]
    assert "InfiniBand" not in said[2]
    assert "UCX does not start" in said[3]


def test_cache_clear_empties_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("DGPUHASH_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernel.cubin").write_bytes(b"x")
    (tmp_path / "notes.txt").touch()
    result = CliRunner().invoke(main, ["cache", "clear"])
    assert "removed 1 compiled kernels" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_commands_are_those_of_the_readme():
    assert sorted(main.commands) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert main.commands[command].help


def test_dask_finds_the_commands():
    (entry,) = entry_points(group="dask_cli", name="dgpuhash")
    assert entry.load() is dgpuhash.cli.main


@pytest.mark.parametrize(
    "command",
    [["-m", "dgpuhash"], [str(Path(sys.executable).with_name("dask")), "dgpuhash"]],
    ids=["python -m dgpuhash", "dask dgpuhash"],
)
def test_other_ways_in(command):
    found = subprocess.run(
        [sys.executable, *command, "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert "lookup" in found.stdout
