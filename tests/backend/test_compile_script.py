"""`make compile`: its failures, and one small run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dgpuhash.backend.compiler import Cubin

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "compile.py"
LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Zfast' for 'sm_90'
ptxas info    : Function properties for _Zfast
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
ptxas info    : Compiling entry function '_Zspilling' for 'sm_90'
ptxas info    : Function properties for _Zspilling
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers
ptxas info    : Compiling entry function '_Zgreedy' for 'sm_90'
ptxas info    : Function properties for _Zgreedy
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 96 registers, used 0 barriers
ptxas info    : Compiling entry function '_Zsharing' for 'sm_90'
ptxas info    : Function properties for _Zsharing
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 1024 bytes smem
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("compile_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_resources(script: ModuleType) -> None:
    assert script.read_resources(LOG) == {
        "_Zfast": (32, 0, 0),
        "_Zspilling": (40, 12, 0),
        "_Zgreedy": (96, 0, 0),
        "_Zsharing": (30, 0, 1024),
    }


@pytest.mark.parametrize("warning", ["", "a.cuh(3): warning #177-D: unused\n"])
def test_failures(script: ModuleType, monkeypatch: pytest.MonkeyPatch, warning: str) -> None:
    names = {"fast": "_Zfast", "spilling": "_Zspilling", "greedy": "_Zgreedy", "gone": "_Zgone"}
    names["sharing"] = "_Zsharing"
    shared = dict.fromkeys(names, 64 * 1024)
    made = Cubin(b"", names, shared, warning + LOG)
    monkeypatch.setattr(script, "compile_kernels", lambda *_: made)
    outcomes = {each.expression: each for each in script.compile_batch("x.cuh", list(names), 75)}
    assert ("warning" in outcomes["fast"].problem) == bool(warning)
    assert bool(outcomes["fast"].problem) == bool(warning)
    assert "local memory" in outcomes["spilling"].problem
    assert "96 registers" in outcomes["greedy"].problem
    assert "no resources" in outcomes["gone"].problem
    assert "66560 bytes of shared memory, 64 KiB" in outcomes["sharing"].problem


def test_architectures_have_blocks_of_one_size(script: ModuleType) -> None:
    small, large = (f"dg::partition_strew<dg::u32,void,{threads}>" for threads in (512, 1024))
    launched = {arch: script.is_launched(large, arch) for arch in script.ARCHITECTURES}
    assert launched == {75: False, 80: True, 86: False, 89: False, 90: True, 100: True, 120: False}
    assert all(script.is_launched(small, arch) != large for arch, large in launched.items())
    assert all(script.is_launched("dg::deal_move<dg::u32,128>", arch) for arch in launched)


def test_failures_are_told_once_each(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    log = "did not compile:\n" + "a.cuh(3): error: no such name\n    at line 3\n" * 50
    broken = [script.Outcome(f"k<{i}>", arch, 0, log) for i in range(99) for arch in (75, 90)]
    spilling = [script.Outcome("s<1>", 90, 40, "12 bytes of local memory")]
    script.print_failures(broken + spilling)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "FAILED sm_75 k<0> and 197 more: a.cuh(3): error: no such name"
    assert told[-1] == "FAILED sm_90 s<1>: 12 bytes of local memory"
    assert len(told) <= script.SHOWN_LINES + 2


def test_small_run() -> None:
    command = [sys.executable, str(SCRIPT), "--arch", "75", "90", "--match", "limit_"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].endswith(" passed, 0 failed")


def test_nothing_selected_is_a_failure() -> None:
    command = [sys.executable, str(SCRIPT), "--arch", "90", "--match", "no such kernel"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 1
