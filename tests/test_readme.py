"""The README quotes the receipts, names what exists, and its example runs."""

from __future__ import annotations

import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from dgpuhash.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "MEASUREMENTS.md")


def load_script():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "scripts" / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = {"bench": "tables", "pairs": "32/32", "n": 1 << 24, "load": 0.8, "unit": "G/s"}


def receipt(gpu, passed, failed=0):
    return {
        "date": "2030-01-02 03:04 UTC",
        "commit": "0123456789ab",
        "machine": {"gpu": gpu, "driver": "1.2"},
        "versions": {"cupy-cuda13x": "14.1"},
        "tests": {"tests": {"passed": passed, "failed": failed, "skipped": 0}},
        "figures": [
            {"bench": "limits", "limit": "gather", "rate": 1.0},
            *(
                {**TABLE, "verb": verb, "rate": 2.0 * rate, "ratio": 0.1 * rate}
                for verb, rate in (("insert", 5), ("find", 7), ("absent", 6))
            ),
            {**TABLE, "verb": "memory", "at_rest": 1.0, "while_built": 0.27},
            {**TABLE, "load": 0.9, "verb": "memory", "at_rest": 1.05, "while_built": 0.3},
            *(
                {**TABLE, "verb": "find", "batch": batch, "time": 50.0 + batch, "launch": 17.5}
                | added
                for batch, added in ((10, {}), (1000, {"overhead": 13.0}))
            ),
            *(
                {"bench": "join", "n": 4096, "build": 1024, "library": library, "verb": "inner"}
                | {"time": time, "unit": "ms", "ratio": 0.5}
                for library, time in (("dgpuhash", 4.5), ("cuDF 26.10", 6.8))
            ),
        ],
    }


def test_readme_quotes_the_receipts():
    program = [sys.executable, ROOT / "scripts" / "figures.py", "--check"]
    found = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout


def test_figures_become_a_table():
    figures = load_script()
    proved = {"gpu": receipt("1 x G", 5), "multigpu-2": receipt("2 x G", 3)}
    proved["multigpu-4"] = receipt("4 x G", 3, 1)
    text = figures.section({"figures": receipt("4 x G", 0), **proved})
    assert "| 32/32 | 16,777,216 | 0.8 | 10 (50%) | 14 (70%) | 12 (60%) |" in text
    assert "1.00 to 1.05 times the bytes of their pairs" in text
    assert "0.27 to 0.30 times those of the batch" in text
    assert "10 keys 60 µs, of which 18 until the call returns; 1,000 keys" in text
    assert "the call returns and 13 more than an empty launch." in text
    assert "| 4,096 | 1,024 | cuDF 26.10 | 6.8 (50%) |" in text
    assert "gather" not in text.partition("|")[2]
    assert text.startswith("One of 4 x G, driver 1.2, cupy-cuda13x 14.1, 2030-01-02 03:04 UTC.")
    where = "1 x G at commit 0123456; 3 tests passed, 1 failed on 4 x G at commit 0123456; 3 tests"
    assert f"5 tests passed on {where} passed on" in text
    remarked = receipt("1 x G", 5, 1) | {"remark": "a wrong test"}
    text = figures.section({"figures": remarked, "gpu": remarked})
    assert "5 tests passed, 1 failed on 1 x G at commit 0123456 (a wrong test)." in text


def test_figures_of_several_gpus():
    where = {"mode": "weak", "workers": 4, "n": 1 << 20, "library": "dgpuhash", "bench": "scaling"}
    rows = [
        {**where, "verb": "bulk find", "rate": 60.0, "ratio": 0.5, "seconds": 0.012}
        | {"worker_seconds": 0.009, "efficiency": 0.75},
        {"bench": "exchange", "exchange": "peer", "workers": 4, "leaving": 1 << 28}
        | {"protocol": "ucxx", "rate": 285.0, "unit": "GB/s", "ratio": 0.8},
    ]
    several = {**receipt("4 x G", 0), "figures": rows, "remark": "slow links"}
    fewer = {**several, "machine": {"gpu": "2 x G", "driver": "1.3"}, "remark": "today's"}
    receipts = {"figures": receipt("1 x G", 0), "scaling-2": fewer, "scaling-4": several}
    text = load_script().section(receipts)
    first, second = text.index("at commit 0123456. (slow links)"), text.index("(today's)")
    assert first < text.index("\n2 x G, driver 1.3") < second
    assert "\n4 x G, driver 1.2, cupy-cuda13x 14.1, 2030-01-02 03:04 UTC. Pairs" in text
    assert "(slow links)" in text
    assert "| 4 | ucxx | 256 MiB | 285 (80%) |" in text
    assert "| weak | 4 | 1,048,576 | dgpuhash | 12 / 9 |" in text
    assert "| weak | 4 | 1,048,576 | dgpuhash | 0.75 |" in text


def test_without_receipts_no_figure_is_claimed():
    assert not re.search(r"\d", load_script().section({}))


def test_the_figures_stand_between_the_markers():
    figures = load_script()
    old = f"above\n{figures.START}old\n{figures.END}below\n"
    assert figures.rewritten(old, {}) == f"above\n{figures.START}{figures.NONE}{figures.END}below\n"


def test_commands_in_the_documents_exist():
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        for target in re.findall(r"`make ([a-z]+)", text):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
        for command in re.findall(r"\bdgpuhash (build|join|lookup|demo|info|bench|cache)\b", text):
            assert command in main.commands


def test_linked_files_and_sections_exist():
    for document in DOCUMENTS:
        links = re.findall(r"\]\(([^)#:]+)(?:#([^)]+))?\)", (ROOT / document).read_text())
        for target, section in links:
            assert (ROOT / target).exists(), f"{document} links to {target}"
            if section:
                headings = re.findall(r"^#+ (.+)", (ROOT / target).read_text(), flags=re.MULTILINE)
                assert section in {
                    re.sub(r"[^\w -]", "", each).replace(" ", "-").lower() for each in headings
                }


def test_files_that_the_architecture_shows_as_examples_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    shown = re.findall(r"\[`([\w/.]+)`\]", text)
    assert len(shown) > 4
    roots = (ROOT, ROOT / "kernels", ROOT / "dgpuhash")
    for name in shown:
        assert any((root / name).exists() for root in roots), name


def test_the_short_examples_give_what_they_show():
    text = README.replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, "README.md", "README.md", 0)
    outcome = doctest.DocTestRunner().run(examples)
    assert outcome.failed == 0
    assert outcome.attempted > 0


def test_the_example_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.+?)```", README, flags=re.DOTALL)
    assert len(example.strip().splitlines()) <= 20
    program = tmp_path / "example.py"
    program.write_text(example)
    found = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stderr
