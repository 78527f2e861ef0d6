"""Compiles the kernels for every GPU architecture with NVRTC; needs no GPU.

For sm_90 every instance, for the others the widest words of each template; `--every`, or ALL=1 in
the environment, takes every instance for all of them. QUICK=1 leaves out all but the oldest
architecture, the newest and sm_90.

Warnings, local memory (spills, stack frames), kernels over the register budget and blocks with more
shared memory than the architecture has for one are failures.
The table shows the registers of each kernel's instances, lowest to highest; it is left out where
something failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from dgpuhash.backend.compiler import ARCHITECTURES, compile_kernels, nvrtc_version
from dgpuhash.backend.constants import block_threads
from dgpuhash.backend.native import native
from dgpuhash.errors import CompileError

# 256 threads a block and 64 registers leave 1,024 resident threads on a multiprocessor.
REGISTER_BUDGET = 64
PROGRAM_INSTANCES = 24
# The architecture of which every instance is compiled.
FULL = 90
# Most that a block can have, as CUDA's programming guide says (compute capabilities).
SHARED_KIB = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
# Of each problem; a broken header breaks every instance that includes it, in the same words.
SHOWN_LINES = 8
SHOWN_PROBLEMS = 10

# What a quick run compiles: the oldest, the one of all instances, the newest.
QUICK = (min(ARCHITECTURES), FULL, max(ARCHITECTURES))

# Parameters whose instances differ little.
_ALIKE = re.compile(r"dg::u32|dg::u64|void|dg::Layout::\w+|dg::\w+Steps")
# Instances for blocks of so many threads.
_PARTITION = re.compile(r"dg::partition_.*,(\d+)>")
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One instance compiled for one architecture."""

    expression: str
    arch: int
    registers: int
    problem: str


def is_launched(expression: str, arch: int) -> bool:
    """Whether a GPU of the architecture has blocks of the instance's size."""
    sized = _PARTITION.fullmatch(expression)
    return sized is None or int(sized[1]) == block_threads(arch)


def covering(names: list[str]) -> list[str]:
    """Of each template, and each table and width of one, the instance of the widest words.

    One layout and one probe sequence stand for all. The other instances have fewer registers, or
    differ by the architecture as little as these do.
    """
    widest: dict[str, str] = {}
    for name in names:
        template = _ALIKE.sub("", name)
        held = widest.get(template, "")
        widest[template] = max(held, name, key=lambda each: (each.count("dg::u64"), each))
    return list(widest.values())


def compile_batch(files: tuple[str, ...], expressions: list[str], arch: int) -> list[Outcome]:
    """The instances as one program; one by one when that fails, to name the culprit."""
    try:
        cubin = compile_kernels(files, expressions, arch)
    except CompileError as error:
        if len(expressions) > 1:
            return [one for each in expressions for one in compile_batch(files, [each], arch)]
        return [Outcome(expressions[0], arch, 0, str(error))]
    warnings = [line for line in cubin.log.splitlines() if "warning" in line.lower()]
    resources = read_resources(cubin.log)
    outcomes = []
    for expression, symbol in cubin.names.items():
        registers, local_bytes, shared_bytes = resources.get(symbol, (0, 0, 0))
        shared_bytes += cubin.shared_nbytes[expression]
        problem = "; ".join(warnings)
        if symbol not in resources:
            problem = "ptxas reported no resources for it"
        elif local_bytes:
            problem = f"{local_bytes} bytes of local memory: spills or arrays indexed at run time"
        elif registers > REGISTER_BUDGET:
            problem = f"{registers} registers, budget {REGISTER_BUDGET}"
        elif shared_bytes > SHARED_KIB[arch] * 1024:
            problem = f"{shared_bytes} bytes of shared memory, {SHARED_KIB[arch]} KiB for a block"
        outcomes.append(Outcome(expression, arch, registers, problem))
    return outcomes


def read_resources(log: str) -> dict[str, tuple[int, int, int]]:
    """From ptxas' report: each entry function's registers, bytes of local and of shared memory."""
    found: dict[str, tuple[int, int, int]] = {}
    symbol, local_bytes = "", 0
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            symbol, local_bytes = entry[1], 0
        elif local := _LOCAL.search(line):
            local_bytes = max(map(int, local.groups()))
        elif (registers := _REGISTERS.search(line)) and symbol:
            shared = _SHARED.search(line)
            found[symbol] = int(registers[1]), local_bytes, int(shared[1]) if shared else 0
    return found


def print_table(outcomes: list[Outcome], architectures: list[int], every_instance: bool) -> None:
    rows: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for each in outcomes:
        row = each.expression if every_instance else each.expression.partition("<")[0]
        rows[row.replace("dg::", "")][each.arch].append(each.registers)
    width = max(map(len, rows), default=6)
    print("registers".ljust(width), *(f"sm_{arch}".rjust(8) for arch in architectures))
    for row, cells in sorted(rows.items()):
        spans = []
        for arch in architectures:
            low, high = min(cells[arch], default=0), max(cells[arch], default=0)
            spans.append((str(low) if low == high else f"{low}-{high}") if high else "")
        print(row.ljust(width), *(span.rjust(8) for span in spans))


def print_failures(failed: list[Outcome]) -> None:
    """Each problem once, with the instances that have it counted and one of them named."""
    having: dict[str, list[Outcome]] = defaultdict(list)
    for each in failed:
        having[shortened(each.problem)].append(each)
    for problem, outcomes in list(having.items())[:SHOWN_PROBLEMS]:
        first, others = outcomes[0], len(outcomes) - 1
        more = f" and {others:,} more" if others else ""
        print(f"FAILED sm_{first.arch} {first.expression}{more}: {problem}", file=sys.stderr)
    if len(having) > SHOWN_PROBLEMS:
        print(f"… {len(having) - SHOWN_PROBLEMS} more kinds of problems", file=sys.stderr)


def shortened(problem: str) -> str:
    """The lines of a compiler's log that name errors, or its first ones."""
    lines = problem.splitlines()
    telling = [line for line in lines if re.search(r"error|warning", line)] or lines
    hidden = len(telling) - SHOWN_LINES
    return "\n".join(telling[:SHOWN_LINES] + [f"… {hidden} more lines"] * (hidden > 0))


def is_set(variable: str) -> bool:
    """Whether the environment sets the variable to anything but 0."""
    return os.environ.get(variable, "") not in ("", "0")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    architectures = QUICK if is_set("QUICK") else ARCHITECTURES
    parser.add_argument("--arch", type=int, nargs="*", default=list(architectures))
    parser.add_argument("--match", default="", help="only instances whose name holds this text")
    parser.add_argument("--all", action="store_true", help="a row for every instance")
    parser.add_argument("--every", action="store_true", help="every instance for all of --arch")
    parser.add_argument("--processes", type=int, default=min(4, os.cpu_count() or 1))
    options = parser.parse_args()

    started = time.monotonic()
    programs = defaultdict(list)
    for expression, files, *_ in native().instances():
        if options.match in expression:
            programs[files].append(expression)
    every = options.every or is_set("ALL")
    batches = [
        (files, sorted(launched)[first : first + PROGRAM_INSTANCES], arch)
        for files, names in programs.items()
        for arch in options.arch
        for chosen in [names if every or arch == FULL else covering(names)]
        for launched in [[name for name in chosen if is_launched(name, arch)]]
        for first in range(0, len(launched), PROGRAM_INSTANCES)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        results = pool.map(compile_batch, *zip(*batches, strict=True)) if batches else []
        outcomes = [outcome for result in results for outcome in result]

    failed = [each for each in outcomes if each.problem]
    if failed:
        print_failures(failed)
    else:
        print_table(outcomes, options.arch, options.all)
    major, minor = nvrtc_version()
    print(f"NVRTC {major}.{minor}, {time.monotonic() - started:.1f} s")
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
