"""Receipt of a GPU run: its contents, and whether the code is newer."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "receipt.py"
JUNIT = """<testsuites><testsuite tests="7" failures="1" errors="1" skipped="2"/></testsuites>"""

ROW = {"n": 1024, "library": "dgpuhash", "verb": "inner", "time": 12.5, "unit": "ms", "ratio": 0.5}


@pytest.fixture
def receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module that covers a small tree."""
    spec = importlib.util.spec_from_file_location("receipt", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for folder in {folder for covered in module.COVERED.values() for folder in covered}:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file.py").write_text("one\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RECEIPTS", tmp_path / "receipts")
    return module


def run_folder(tmp_path: Path, tests_status: str) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "steps.tsv").write_text(
        f"tests\t{tests_status}\t12\t\nracecheck\trefused\t1\tno sanitizer here\n"
    )
    (folder / "tests.xml").write_text(JUNIT)
    (folder / "join.jsonl").write_text(json.dumps({**ROW, "machine": {"device": "x"}}) + "\n")
    return folder


def test_missing(receipt: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert receipt.check(strict=False) == 0
    assert receipt.check(strict=True) == 1
    assert "GPU proof is missing" in capsys.readouterr().out


def test_write_accept_and_grow_old(
    receipt: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path, "passed")
    assert receipt.write("gpu", folder) == 0
    made = json.loads((folder / "gpu.json").read_text())
    assert made["tests"] == {"tests": {"passed": 3, "failed": 2, "skipped": 2}}
    assert made["figures"] == [{"bench": "join", **ROW}]
    assert (
        len((folder / "gpu.json").read_text().splitlines())
        == len(json.dumps(made, indent=1).splitlines()) - len(ROW) - 2
    )
    assert "| 1,024 | dgpuhash | 12.5 (50%) |" in capsys.readouterr().out
    assert [step["status"] for step in made["steps"]] == ["passed", "refused"]

    assert receipt.accept(folder / "gpu.json") == 0
    capsys.readouterr()
    receipt.check(strict=True)
    assert "GPU proof is fresh" in capsys.readouterr().out

    (tmp_path / "kernels" / "file.py").write_text("two\n")
    assert receipt.check(strict=False) == 0
    assert receipt.check(strict=True) == 1
    assert (
        "GPU proof is older than the code: kernels changed since commit" in capsys.readouterr().out
    )
    assert receipt.accept(folder / "gpu.json") == 1
    assert "made from other code" in capsys.readouterr().err


def test_receipts_of_other_numbers_of_gpus_stay(
    receipt: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = run_folder(tmp_path, "passed")
    for text, gpus in (("one\n", 4), ("two\n", 2)):
        (tmp_path / "dgpuhash/frames/file.py").write_text(text)
        machine = {"gpu": f"{gpus} x G", "driver": "1", "memory": "1 MiB"}
        monkeypatch.setattr(receipt, "machine", lambda machine=machine: machine)
        for name in receipt.WHAT:
            assert receipt.write(name, folder) == 0
            assert receipt.accept(folder / f"{name}.json") == 0
    names = {path.name for path in receipt.RECEIPTS.iterdir()}
    several = {f"{name}-{gpus}.json" for name in ("multigpu", "scaling") for gpus in (2, 4)}
    of_one = {"gpu", "figures", "papers", "dataframes", "letters"}
    assert names == {f"{name}.json" for name in of_one} | several
    capsys.readouterr()
    assert receipt.check(strict=True) == 0
    said = capsys.readouterr().out
    assert "multi-GPU proof is older than the code: dgpuhash/frames changed since" in said
    assert "4 x G); run scripts/gpu.sh multigpu" in said
    assert "multi-GPU proof is fresh" in said
    (tmp_path / "dgpuhash/frames/file.py").write_text("three\n")
    assert receipt.check(strict=True) == 1


def test_the_last_run_of_a_step_counts(receipt: ModuleType, tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "failed")
    with (folder / "steps.tsv").open("a") as steps:
        steps.write("tests\tpassed\t9\t\n")
    found = [(step["name"], step["status"], step["seconds"]) for step in receipt.read_steps(folder)]
    assert found == [("racecheck", "refused", 1), ("tests", "passed", 9)]


def test_failures_are_not_hidden(
    receipt: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path, "failed")
    assert receipt.write("gpu", folder) == 1
    receipt.accept(folder / "gpu.json", "one test wrote out of bounds")
    assert receipt.check(strict=True) == 1
    assert "GPU proof has failures: tests" in capsys.readouterr().out
    kept = json.loads((receipt.RECEIPTS / "gpu.json").read_text())
    assert kept["remark"] == "one test wrote out of bounds"
