"""Commands import nothing heavy in threads, nor pandas, which Arrow would import from C++."""

from __future__ import annotations

import subprocess
import sys

from kmer.tiers import TINY

PROGRAM = """
import sys, threading
from click.testing import CliRunner

class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            print(threading.current_thread().name, "imports", name)
        if name == "pandas":
            print(running, "imports pandas")

running = ""
sys.meta_path.insert(0, Finder())
from dgpuhash.cli import main

tiny, taxonomy = sys.argv[1:]
reads = [f"{tiny}/reads_1.fq.gz", f"{tiny}/reads_2.fq.gz", "--paired"]
single = reads[:1]
build = ["build", f"{tiny}/genomes", "--taxonomy", taxonomy, "--rule"]
commands = [
    ["count", *single, "-k", "21", "-o", "c.dgkc"],
    *(["histogram", "c.dgkc"], ["dump", "c.dgkc"], ["stats", "c.dgkc"]),
    ["estimate", f"{tiny}/genomes", "--rule", "kraken2"],
    [*build, "kraken2", "-o", "k.dgki"],
    [*build, "metacache", "-o", "m.dgki"],
    *(
        ["classify", "k.dgki", *reads, "--format", form, "-o", f"c.{form}", "--report", f"r.{form}"]
        for form in ("tsv", "kraken", "parquet")
    ),
    ["classify", "m.dgki", *single, "--format", "metacache", "-o", "c.m", "--krona", "krona",
     "--cami", "cami", "--classified-out", "yes.fq.gz", "--unclassified-out", "no.fa"],
    *(
        ["extract", f"c.{form}", *reads, "--db", "k.dgki", "--taxa", "1+", "-o", f"{form}_#.fq"]
        for form in ("tsv", "parquet")
    ),
    ["report", "c.tsv", "--db", "k.dgki", "-o", "report"],
    *(["inspect", "m.dgki", each] for each in ("--targets", "--lineages", "--provenance")),
    ["inspect", "k.dgki", "--report"],
    ["run", *single, "--references", f"{tiny}/genomes", "--rule", "metacache",
     "--taxonomy", taxonomy],
]
for command in commands:
    running = command[0]
    found = CliRunner().invoke(main, ["kmer", *command])
    if found.exit_code:
        print(command, found.output, found.exception)
"""


def test_commands_import_nothing_heavy_in_threads_and_no_pandas(tmp_path):
    command = [sys.executable, "-c", PROGRAM, TINY.folder, TINY.taxonomy_folder]
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True
    )
    assert found.stdout == ""
