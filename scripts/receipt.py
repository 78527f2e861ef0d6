"""The GPU proof: what ran on a GPU machine, on which code, and what it measured.

receipt.py check [--strict]      says when a receipt is older than the code (--strict: exits 1)
receipt.py write NAME FOLDER     makes FOLDER/NAME.json from what scripts/gpu.sh left in FOLDER
receipt.py accept FILE           puts a receipt that came from a GPU machine into receipts/; of
                                 several GPUs with their number in its name, beside other numbers
                                 (--remark TEXT: what a reader must know of its failures)
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from dgpuhash.backend.compiler import folder_digest
from dgpuhash.bench.report.document import markdown_table
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.reading import by_bench

ROOT = Path(__file__).resolve().parents[1]
RECEIPTS = ROOT / "receipts"
# What a receipt vouches for: a change below one of these folders makes it stale.
_OF_ONE = ("kernels", "dgpuhash/backend", "dgpuhash/tables")
_OF_SEVERAL = (*_OF_ONE, "dgpuhash/frames", "dgpuhash/distributed")
SEVERAL = {"multigpu": _OF_SEVERAL, "scaling": (*_OF_SEVERAL, "dgpuhash/kmer")}
COVERED = {
    "gpu": _OF_ONE,
    "figures": _OF_ONE,
    "papers": _OF_ONE,
    "dataframes": (*_OF_ONE, "dgpuhash/frames"),
    "letters": (*_OF_ONE, "dgpuhash/kmer"),
    **SEVERAL,
}
WHAT = {
    "gpu": "GPU proof",
    "figures": "run of the GPU's figures",
    "papers": "run of the papers' figures",
    "dataframes": "run of the dataframes' figures",
    "letters": "run of the k-mers' figures",
    "multigpu": "multi-GPU proof",
    "scaling": "run of several GPUs' figures",
}
PACKAGES = (
    "cuda-bindings",
    "cuda-core",
    "cudf-cu13",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "dask",
    "dask-cuda",
    "distributed",
    "distributed-ucxx-cu13",
    "numpy",
    "nvidia-cuda-nvrtc",
    "pandas",
    "pyarrow",
    "rmm-cu13",
)


def digests(name: str) -> dict[str, str]:
    return {folder: folder_digest(ROOT / folder) for folder in COVERED[name]}


def check(strict: bool) -> int:
    stale = 0
    for name, what in WHAT.items():
        kept = [*RECEIPTS.glob(f"{name}.json"), *sorted(RECEIPTS.glob(f"{name}-*.json"))]
        if not kept:
            print(f"{what} is missing: run scripts/gpu.sh {name} on a GPU machine")
        # Of several numbers of GPUs one shows what the code does.
        found = [fresh(name, path) for path in kept]
        stale += not any(found)
    return 1 if strict and stale else 0


def fresh(name: str, path: Path) -> bool:
    """Whether a receipt is of this code and without failures; says so."""
    receipt, now = json.loads(path.read_text()), digests(name)
    what, gpu = WHAT[name], receipt["machine"]["gpu"]
    changed = [folder for folder in now if receipt["digests"].get(folder) != now[folder]]
    failed = [step["name"] for step in receipt["steps"] if step["status"] == "failed"]
    if changed:
        print(
            f"{what} is older than the code: {', '.join(changed)} changed since commit "
            f"{receipt['commit'][:12]} ({receipt['date']}, {gpu}); run scripts/gpu.sh {name} on a "
            "GPU machine"
        )
    if failed:
        print(f"{what} has failures: {', '.join(failed)} in {path.relative_to(ROOT)}")
    if not (changed or failed):
        print(f"{what} is fresh: {receipt['date']}, {gpu}")
    return not (changed or failed)


def write(name: str, folder: Path) -> int:
    steps = read_steps(folder)
    receipt = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "digests": digests(name),
        "machine": machine(),
        "versions": versions(),
        "steps": steps,
        "tests": read_tests(folder),
        "figures": read_figures(folder),
    }
    target = folder / f"{name}.json"
    target.write_text(text(receipt))
    for step in steps:
        print(f"{step['name']:<12} {step['status']:<10} {step['seconds']:>4} s  {step['note']}")
    for file, counts in receipt["tests"].items():
        print(f"{file}: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    for bench, rows in by_bench(receipt["figures"]).items():
        for grid in grids(bench, rows):
            print(f"{bench}: {grid.title}", *markdown_table(grid), sep="\n")
    print(f"receipt: {target}")
    return 1 if any(step["status"] == "failed" for step in steps) else 0


def accept(file: Path, remark: str = "") -> int:
    receipt = json.loads(file.read_text())
    name = file.stem.partition("-")[0]
    now = digests(name)
    differing = [folder for folder in now if receipt["digests"][folder] != now[folder]]
    if differing:
        print(f"{file} was made from other code: {', '.join(differing)} differ", file=sys.stderr)
        return 1
    if receipt["commit"] == "unknown":
        receipt["commit"] = commit()
    if remark:
        receipt["remark"] = remark
    RECEIPTS.mkdir(exist_ok=True)
    gpus = receipt["machine"]["gpu"].partition(" ")[0]
    kept = RECEIPTS / (f"{name}-{gpus}.json" if name in SEVERAL else file.name)
    kept.write_text(text(receipt))
    print(f"accepted as {kept.relative_to(ROOT)}")
    return 0


def text(receipt: dict[str, Any]) -> str:
    """The receipt as JSON with a line for each figure."""
    figures = [json.dumps(row) for row in receipt["figures"]]
    whole = json.dumps({**receipt, "figures": []}, indent=1)
    if figures:
        whole = whole.replace('"figures": []', '"figures": [\n  ' + ",\n  ".join(figures) + "\n ]")
    return whole + "\n"


def read_steps(folder: Path) -> list[dict[str, Any]]:
    """The steps that scripts/gpu.sh noted: name, status, seconds and a remark, tab-separated.

    Of one that ran again, the last, which left what the folder has.
    """
    fields = ("name", "status", "seconds", "note")
    steps: dict[str, dict[str, Any]] = {}
    for line in (folder / "steps.tsv").read_text().splitlines():
        step: dict[str, Any] = dict(zip(fields, line.split("\t"), strict=True))
        step["seconds"] = int(step["seconds"])
        steps.pop(step["name"], None)
        steps[step["name"]] = step
    return list(steps.values())


def read_tests(folder: Path) -> dict[str, dict[str, int]]:
    """What became of the tests in each of pytest's files, and in each folder of such files."""
    counts = {}
    for name, paths in report_files(folder):
        total: dict[str, int] = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        for path in paths:
            for suite in ElementTree.parse(path).getroot().iter("testsuite"):
                for what in total:
                    total[what] += int(suite.get(what, "0"))
        bad = total["failures"] + total["errors"]
        counts[name] = {
            "passed": total["tests"] - bad - total["skipped"],
            "failed": bad,
            "skipped": total["skipped"],
        }
    return counts


def report_files(folder: Path) -> list[tuple[str, list[Path]]]:
    alone = [(path.stem, [path]) for path in sorted(folder.glob("*.xml"))]
    parts = [(part.name, sorted(part.glob("*.xml"))) for part in sorted(folder.iterdir())]
    return alone + [(name, paths) for name, paths in parts if paths]


def read_figures(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            row.pop("machine", None)
            rows.append({"bench": path.stem, **row})
    return rows


def machine() -> dict[str, str]:
    query = "name,driver_version,memory.total"
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    which = [f"--id={chosen}"] if chosen else []
    answer = output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", *which)
    gpus = [line.split(", ") for line in answer.splitlines()]
    names = [gpu[0] for gpu in gpus]
    return {
        "gpu": f"{len(names)} x {names[0]}" if names else "none",
        "driver": gpus[0][1] if gpus else "none",
        "memory": gpus[0][2] if gpus else "none",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    given = os.environ.get("COMMIT")
    if given:
        return given
    head = output("git", "-C", str(ROOT), "rev-parse", "HEAD").strip()
    if not head:
        return "unknown"
    dirty = output("git", "-C", str(ROOT), "status", "--porcelain", "--", "kernels", "dgpuhash")
    return f"{head} with local changes" if dirty.strip() else head


def output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check").add_argument("--strict", action="store_true")
    writing = verbs.add_parser("write")
    writing.add_argument("name", choices=sorted(COVERED))
    writing.add_argument("folder", type=Path)
    accepting = verbs.add_parser("accept")
    accepting.add_argument("file", type=Path)
    accepting.add_argument("--remark", default="")
    options = parser.parse_args()
    if options.verb == "check":
        return check(options.strict)
    if options.verb == "write":
        return write(options.name, options.folder)
    return accept(options.file, options.remark)


if __name__ == "__main__":
    sys.exit(main())
