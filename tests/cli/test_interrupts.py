"""Ctrl-C ends a command within two seconds, whatever it is doing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from kmer.tiers import TINY

from dgpuhash.cli.interrupts import end_soon_after_interrupt

# Two on a machine that does nothing else; what went on would take a minute.
SECONDS = 20.0
COMMANDS = """
import threading, time
import click
from dgpuhash.cli import main

@click.command()
def swallow():
    "As an import in an extension module does."
    while True:
        try:
            print("begun", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass

@click.command()
def thread():
    "Whose end Python waits for."
    threading.Thread(target=time.sleep, args=(60,)).start()
    print("begun", flush=True)
    time.sleep(60)

for command in (swallow, thread):
    main.add_command(command)
main(prog_name="dgpuhash")
"""


def started(*command, **options):
    # Shells let what runs in the background ignore it.
    return subprocess.Popen(
        [sys.executable, *map(str, command)], stderr=subprocess.PIPE, text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL), **options,
    )  # fmt: skip


def seconds_to_end(program):
    """Return the seconds from Ctrl-C to the end, and what was said."""
    begun = time.monotonic()
    program.send_signal(signal.SIGINT)
    try:
        said = program.communicate(timeout=30)[1]
    except subprocess.TimeoutExpired:
        program.kill()
        said = program.communicate()[1]
        raise AssertionError(f"it goes on: {said}") from None
    return time.monotonic() - begun, said


@pytest.mark.parametrize("command", ["swallow", "thread"])
def test_a_command_that_goes_on_is_ended(command):
    program = started("-c", COMMANDS, command, stdout=subprocess.PIPE)
    assert program.stdout.readline() == "begun\n"
    seconds, said = seconds_to_end(program)
    assert seconds < SECONDS
    assert program.returncode == 1
    assert said.strip() == "Aborted!"


def test_who_handles_ctrl_c_goes_on_doing_so(monkeypatch):
    received = []
    before = signal.signal(signal.SIGINT, lambda *_: received.append(1))
    try:
        with end_soon_after_interrupt():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [1]


def test_a_build_ends_at_any_moment(tmp_path):
    """Also while libraries are imported, and while threads read."""
    fasta = tmp_path / "x.fa"
    fasta.write_text(">x taxid|562\n" + "".join(random.Random(1).choices("ACGT", k=3000)) + "\n")
    command = (
        "-m", "dgpuhash", "kmer", "build", fasta, "--rule", "kraken2",
        "--taxonomy", TINY.taxonomy_folder, "-o", tmp_path / "x.dgki", "--force",
    )  # fmt: skip
    begun = time.monotonic()
    assert started(*command).wait(60) == 0
    whole = time.monotonic() - begun
    for at in range(8):
        program = started(*command)
        time.sleep(whole * (at + 0.5) / 8)
        assert program.poll() in (None, 0)
        seconds, _ = seconds_to_end(program)
        assert seconds < SECONDS
