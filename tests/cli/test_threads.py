"""`--threads`, and the variable beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from dgpuhash.backend.native import native
from dgpuhash.cli import main
from dgpuhash.cli.cluster import client_for
from dgpuhash.cli.threads import VARIABLE, threads_of_process, threads_option

WORKING = ("build", "join", "groupby", "lookup")


def leaves():
    """Yield the commands that compute."""
    ctx = click.Context(main)
    for name in WORKING:
        yield name, main.get_command(ctx, name)
    kmer = main.get_command(ctx, "kmer")
    for name, command in kmer.commands.items():
        yield f"kmer {name}", command


@pytest.mark.parametrize(("name", "command"), list(leaves()), ids=lambda value: str(value))
def test_every_command_that_computes_has_the_option_once(name, command):
    assert [each.name for each in command.params].count("threads") == 1
    said = " ".join(CliRunner().invoke(main, [*name.split(), "--help"]).output.split())
    assert re.search(
        r"--threads INTEGER RANGE Threads that compute; .*\[env var: " + VARIABLE, said
    )


@click.command()
@threads_option
def count():
    """Print the threads of kernels, of a local worker, and what Arrow reads."""
    click.echo(f"{native().threads()} {threads_of_process()} {os.environ.get('OMP_NUM_THREADS')}")


@pytest.fixture
def clean(monkeypatch):
    for name in (VARIABLE, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    native().set_threads(0)


def test_the_option_goes_before_the_variable_and_ends_with_the_command(clean):
    native().set_threads(0)
    cpus = len(os.sched_getaffinity(0))
    assert CliRunner().invoke(count).output == f"{cpus} {cpus} None\n"
    assert CliRunner().invoke(count, ["--threads", "3"]).output == "3 3 3\n"
    assert (native().threads(), os.environ.get(VARIABLE)) == (cpus, None)
    clean.setenv(VARIABLE, "5")
    assert CliRunner().invoke(count).output == "5 5 5\n"
    assert CliRunner().invoke(count, ["--threads", "3"]).output == "3 3 3\n"
    assert (native().threads(), os.environ[VARIABLE]) == (5, "5")
    clean.setenv("OMP_NUM_THREADS", "2")
    assert CliRunner().invoke(count).output == "5 5 2\n"
    assert CliRunner().invoke(count, ["--threads", "3"]).output == "3 3 3\n"
    assert os.environ["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize("value", ["0", "-1", "1025", "two", "1.5"])
def test_no_number_of_threads_is_refused(clean, value):
    found = CliRunner().invoke(count, ["--threads", value])
    assert found.exit_code == 2
    assert "Invalid value for '--threads'" in found.stderr
    clean.setenv(VARIABLE, value)
    found = CliRunner().invoke(count)
    assert found.exit_code == 2
    assert VARIABLE in found.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["build", "none.csv", "--on", "k", "-o", "out.dgph"],
        ["join", "none.csv", "none.csv", "-o", "out.csv"],
        ["groupby", "none.csv", "--by", "k", "--agg", "count()"],
        ["kmer", "count", "none.fa", "-o", "out.dgkc"],
        ["kmer", "run", "none.fa", "--references", "none.fa", "--rule", "metacache"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_threads_of_a_cluster_are_its_own(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.csv").write_text("k\n1\n")
    (tmp_path / "none.fa").write_text(">one\nACGT\n")
    cluster = ["--scheduler", "tcp://localhost:1"]
    found = CliRunner().invoke(main, [*command, *cluster, "--threads", "2"])
    assert found.exit_code == 2
    assert "leave out --threads, and start workers with 'dask worker --nthreads'" in found.stderr


def test_a_local_worker_has_the_threads_of_the_variable(clean):
    clean.setenv(VARIABLE, "3")
    with client_for(None) as client:
        assert sum(client.nthreads().values()) == 3


def test_the_answer_is_that_of_any_number_of_threads(tmp_path):
    (tmp_path / "rows.csv").write_text("k,x\n" + "".join(f"{i % 7},{i}\n" for i in range(1000)))
    asked = ["groupby", "rows.csv", "--by", "k", "--agg", "sum(x)", "--threads"]
    answers = {
        subprocess.run(
            [sys.executable, "-m", "dgpuhash", *asked, threads],
            cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120,
        ).stdout
        for threads in "13"
    }  # fmt: skip
    assert len(answers) == 1
