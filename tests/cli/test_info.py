"""`dgpuhash info`, `dgpuhash cache`, `--version`, and the `dask` plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import LocalCluster

import dgpuhash
import dgpuhash.cli
from dgpuhash.cli import main

COMMANDS = [
    *("bench", "build", "cache", "cluster", "completion", "demo", "groupby", "info", "join"),
    *("kmer", "lookup"),
]
ROOT = Path(__file__).resolve().parents[2]


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


def test_the_list_of_commands_has_the_whole_first_sentence_of_each():
    for width in ("60", "100"):
        told = CliRunner().invoke(main, ["--help"], env={"COLUMNS": width}).output
        listed = told.partition("Commands:")[2]
        assert "..." not in listed
    for name in COMMANDS:
        said = main.commands[name].get_short_help_str(1000)
        assert f"  {name:{len('completion')}}  {said}" in listed
    assert (
        "..." not in CliRunner().invoke(main, ["kmer", "--help"]).output.partition("Commands:")[2]
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell):
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0
    assert f"_DGPUHASH_COMPLETE={shell}_complete" in script.output
    typed = {"COMP_WORDS": "dgpuhash l", "COMP_CWORD": "1"}
    if shell == "fish":
        typed["COMP_CWORD"] = "l"
    asked = {"_DGPUHASH_COMPLETE": f"{shell}_complete", **typed}
    found = CliRunner().invoke(main, [], env=asked, prog_name="dgpuhash").output
    assert "lookup" in found and "join" not in found
    deeper = {**asked, "COMP_WORDS": "dgpuhash lookup --f", "COMP_CWORD": "2"}
    if shell == "fish":
        deeper["COMP_CWORD"] = "--f"
    assert "--format" in CliRunner().invoke(main, [], env=deeper, prog_name="dgpuhash").output


def test_info_of_saves_reads_what_they_say_of_themselves(tmp_path):
    rows = pd.DataFrame({"k": np.arange(1200), "name": "x"})
    rows.to_parquet(tmp_path / "rows.parquet")
    made = ["build", str(tmp_path / "rows.parquet"), "--on", "k", "-o", str(tmp_path / "i.dgph")]
    assert CliRunner().invoke(main, made).exit_code == 0
    dgpuhash.HashMap.from_arrays(np.arange(5), np.arange(5.0)).save(tmp_path / "map.dgph")
    dgpuhash.FrameIndex.build(rows, on="k").save(tmp_path / "frame.dgph")

    def said(name, code=0):
        result = CliRunner().invoke(main, ["info", str(tmp_path / name)], env={"COLUMNS": "200"})
        assert result.exit_code == code, result.output
        return " ".join(result.output.replace("│", " ").split())

    index = said("i.dgph")
    for words in (
        "distributed index, form 3",
        "keys k",
        "k: int64, name: ",
        "rows 1,200 in 1 file",
    ):
        assert words in index
    for words in ("kind map", "key_dtype <i8", "size 5"):
        assert words in said("map.dgph")
    for words in ("frame index", "keys k", "rows 1,200"):
        assert words in said("frame.dgph")
    assert "no such save; check the path" in said("nothing.dgph", 2)
    assert "was not saved by dgpuhash" in said("rows.parquet", 2)
    (manifest,) = (tmp_path / "i.dgph").glob("manifest.json")
    manifest.write_text(manifest.read_text().replace('"unique": null', '"unique": true'))
    assert "its checksum is wrong" in said("i.dgph", 2)


def test_the_programs_of_clusters_are_shown_and_copied(tmp_path):
    shown = CliRunner().invoke(main, ["cluster", "show", "slurm"]).output
    assert shown == (ROOT / "cluster" / "slurm.sbatch").read_text()
    assert "slurm.sbatch: " in CliRunner().invoke(main, ["cluster", "list"]).output
    copied = CliRunner().invoke(main, ["cluster", "copy", str(tmp_path / "mine")])
    assert copied.exit_code == 0, copied.output
    files = {path.name for path in (ROOT / "cluster").iterdir() if path.is_file()}
    assert {path.name for path in (tmp_path / "mine").iterdir()} == files - {
        "Dockerfile.dockerignore"
    }
    assert os.access(tmp_path / "mine" / "worker.sh", os.X_OK)
    again = CliRunner().invoke(main, ["cluster", "copy", str(tmp_path / "mine")])
    assert again.exit_code == 2
    assert "is there already; choose another folder" in again.output


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
