"""The pages of benchmarks and of the papers' figures: receipts as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plots import DRAWN

from dgpuhash.bench.papers.drawn.claims import sentences
from dgpuhash.bench.papers.drawn.table import DRAWN as FIGURES_OF_PAPERS
from dgpuhash.bench.papers.drawn.table import as_asked
from dgpuhash.bench.report.document import markdown_table
from dgpuhash.bench.report.grids import grids
from dgpuhash.bench.report.of_papers import AXES, grids_of_papers

Receipt = dict[str, Any]

HEAD = """<!-- written by scripts/figures.py from receipts/; do not edit -->
# Benchmarks

Every table here is written from a file in `receipts/`, which `make gpu` or a command named beside
the table wrote. Each names its machine, commit and date; commits differ between receipts. Answers
are checked on the timed data, and times are medians. [When not to use it](guide/when-not-to-use.md)
lists the cases in which another library is faster.

**Bare accesses** are a reference: what the same run measured on the same GPU for memory accesses
without a table. They are random gathers of as many bytes for lookups, random compare-and-swaps for
inserts, and streamed bytes for builds and groupings. The percentage in brackets is the rate as a
share of that reference. It is a reference and not a bound: a large batch is inserted in the order
of the table and touches memory less than once per key, so an insert may show more than 100 %.
GPUs of one model differ by up to a tenth, so compare these shares rather than rates.

`dgpuhash bench` measures the same on your machine, and `dgpuhash bench report` draws it.

```{toctree}
:maxdepth: 1

dataframes
papers
suites
```
"""
NONE = "None are published yet: `make gpu` on a machine with a GPU measures them.\n"
HEAD_OF_PAPERS = """<!-- written by scripts/figures.py from receipts/; do not edit -->
# Figures of the papers

`dgpuhash bench papers` measures the figures of the papers whose tables are
[methods](tables.md#methods) here, on this machine:

```sh
dgpuhash bench papers --only thesis-3.3 --only slabhash --folder figures --json figures.jsonl
dgpuhash bench report figures.jsonl -o report
```

`--only` takes the name of a figure, or `thesis`, `slabhash`, `dachash` or `warpcore` for all of a
paper; without it all are measured. `--folder` keeps each figure in a file of its own, so that a
run that was stopped goes on. `--divisor` divides the rows, and a CPU has 1/128 of them besides:
enough for the shape. The report has a plot of each figure, with the numbers that the paper's text
states as hollow marks.

WarpCore's Fig. 6, weak scaling of inserts over GPUs, on a cluster of yours, whose scheduler has
this address (without it, on the GPUs of this host):

```sh
python examples/weak_scaling.py --device cuda --scheduler tcp://scheduler:8786
```

How it is measured: keys are random and distinct, of 4 bytes, as are values; they are shuffled
before each run; allocation is not timed; `memory` in the rows is the table's bytes in multiples
of those of the pairs. Where `attempts` stands beside a build of cuckoo hashing, the rate is the
median of five seeds; a seed whose functions leave a key without a place builds further tables, and
the cell shows the fewest and the most of them. All answers are checked on the timed data, and rates
stand beside bare accesses of the same run. The sorted array is the array library's sort and binary
search, which do not end early; its queries are shuffled unless a line says that they are sorted.
Of a chained table of a size, the buckets follow from it: an end of 4 bytes each, beside pairs of 8.

A claim holds where the same side is ahead here as in the paper. Beside it stands the ratio here:
the mean over the places of the axis where it is about several, or the least favourable where the
paper says "always".
"""
HEAD_OF_DATAFRAMES = """<!-- written by scripts/figures.py from receipts/; do not edit -->
# Dataframes beside cuDF

`dgpuhash bench frames --device cuda --compare` merges and groups cuDF frames of few and of many
rows, by integers and texts, of unique and of repeated keys, beside cuDF. On a CPU,
`--device cpu`, the frames are pandas', and the others pandas and Polars. `--only TEXT` measures
the cases whose name has the text, `--rows` shrinks all to that many rows at most.

All libraries allocate from one memory pool, and get the same frames, which are made on the
device. They take turns, and the least time of each counts, from an idle device until the answer
lies in its memory. The answers are compared: rows, sums, and which values stand beside each other
and beside a key. In brackets stand the speed beside the best other library's, over 1.00 where
dgpuhash is faster, and the share of what the same keys and columns take without frames:
`join_indices` of the keys, or of their hashes, and a gather of each column of the result.
"""
SANITIZERS = ("memcheck", "racecheck")
# What the page shows of one GPU, and what a rate or a time is of.
SHOWN = {
    "tables": "Sets and maps of random keys",
    "multi": "Multimaps",
    "group": "Grouping of int64 keys and values",
    "aggregates": "Aggregates by group of frames of int64 keys, integers and floats",
    "join": "Joins of int64 columns to row numbers",
    "close": "Keys in the order of another table",
    "growth": "Maps that grow, age and meet keys chosen for their seed",
}


def page(receipts: dict[str, Receipt]) -> str:
    """The text of docs/benchmarks.md."""
    if "figures" not in receipts:
        return f"{HEAD}\n{NONE}"
    return "\n".join([HEAD, "## Plots", "", *plots_of("benchmarks"), section(receipts)])


def plots_of(page: str) -> list[str]:
    """The lines that show a page's plots."""
    drawn = (plot for plot in DRAWN if plot.page == page)
    return [line for plot in drawn for line in (f"![{plot.title}](figures/{plot.name}.svg)", "")]


def page_of_dataframes(receipts: dict[str, Receipt]) -> str:
    """The text of docs/dataframes.md."""
    if "dataframes" not in receipts:
        return f"{HEAD_OF_DATAFRAMES}\n{NONE.replace('make gpu', 'make gpu MODE=dataframes')}"
    receipt = receipts["dataframes"]
    gpu = receipt["machine"]["gpu"]
    lines = [HEAD_OF_DATAFRAMES, *plots_of("dataframes"), f"## {gpu}", ""]
    lines += [f"{measured_on(receipt, gpu)}{remark(receipt)}", ""]
    for grid in grids("frames", receipt["figures"]):
        lines += [f"{grid.title[0].upper()}{grid.title[1:]}:", "", *markdown_table(grid), ""]
    return "\n".join(lines).rstrip() + "\n"


def section(receipts: dict[str, Receipt]) -> str:
    """The tables of the page."""
    lines = []
    for number, receipt in enumerate(reversed(of_all("figures", receipts))):
        gpu = one_of(receipt["machine"]["gpu"])
        lines += [f"## {gpu if number else 'One GPU'}", "", measured_on(receipt, gpu)]
        lines += ["In brackets: the share of the bare accesses.", ""]
        for bench, title in SHOWN.items():
            rows = [row for row in receipt["figures"] if row["bench"] == bench]
            lines += shown(title, bench, [row for row in rows if "batch" not in row])
            lines += in_words(rows)
    for receipt in of_all("papers", receipts):
        lines += of_papers(receipt)
    for receipt in of_all("letters", receipts):
        lines += of_letters(receipt)
    for receipt in of_all("scaling", receipts):
        lines += [f"## {receipt['machine']['gpu']}", "", *of_several(receipt)]
    for receipt in of_all("cpu", receipts):
        lines += of_cpus(receipt)
    for receipt in of_all("batches", receipts):
        lines += of_cpus(receipt, "cpu", "Batches of every size on ")
    for receipt in of_all("frames", receipts):
        lines += of_cpus(receipt, "frames", "Joins and groupbys of dataframes on ")
    for receipt in of_all("refresh", receipts):
        lines += of_cpus(receipt, "refresh", "Joins under change on ")
    for receipt in of_all("kmer", receipts):
        lines += of_cpus(receipt, "kmer", "K-mers on ")
    for receipt in of_all("peers", receipts):
        lines += beside_peers(receipt)
    for receipt in of_all("simulation", receipts):
        lines += of_cpus(receipt, "model", "Simulated from the figures of ")
    lines += proofs(receipts)
    return "\n".join(lines).rstrip() + "\n"


def measured_on(receipt: dict[str, Any], gpu: str) -> str:
    """A sentence of the machine, the software, the time and the commit of a run."""
    machine, versions = receipt["machine"], receipt["versions"]
    names = ("cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc")
    software = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    when = f"{receipt['date']}, commit {receipt['commit'][:7]}"
    return f"{gpu}, driver {machine['driver']}, {software}, {when}."


def of_all(part: str, receipts: dict[str, Receipt]) -> list[dict[str, Any]]:
    """The receipts of a part, of more GPUs first."""
    names = [name for name in receipts if name.partition("-")[0] == part]
    names.sort(key=lambda name: int(name.partition("-")[2] or 1), reverse=True)
    return [receipts[name] for name in names]


def of_several(receipt: dict[str, Any]) -> list[str]:
    """The exchange, the distributed tables, merges, groupbys and k-mers on several GPUs."""
    lines = [
        f"{measured_on(receipt, receipt['machine']['gpu'])} Pairs of 8 + 8 bytes, "
        f"`make gpu MODE=scaling`.{remark(receipt)}",
        "",
    ]
    for bench in ("exchange", "scaling", "groupbys", "kmer"):
        for grid in grids(bench, [row for row in receipt["figures"] if row["bench"] == bench]):
            lines += [f"{grid.title[0].upper()}{grid.title[1:]}:", "", *markdown_table(grid), ""]
    return lines


def of_papers(receipt: dict[str, Any]) -> list[str]:
    """The papers' workloads on their tables."""
    gpu = one_of(receipt["machine"]["gpu"])
    lines = ["## The papers' tables", "", measured_on(receipt, gpu)]
    lines += [
        "The methods of [Tables](tables.md) at their papers' workloads, `dgpuhash bench papers`; "
        "[the figures of the papers](papers.md) have a page. "
        "What others reach was measured on an H200, which reads random lines faster than an H100.",
        "",
    ]
    workloads = [row for row in receipt["figures"] if row["figure"] not in FIGURES_OF_PAPERS]
    for grid in grids("papers", workloads):
        lines += [f"{grid.title[0].upper()}{grid.title[1:]}:", "", *markdown_table(grid), ""]
    return lines


def of_letters(receipt: dict[str, Any]) -> list[str]:
    """K-mers of letters in the memory of a GPU."""
    lines = [f"## K-mers on {receipt['machine']['gpu']}", ""]
    lines += [measured_on(receipt, receipt["machine"]["gpu"]), ""]
    for grid in grids("kmer", receipt["figures"]):
        lines += [f"{grid.title[0].upper()}{grid.title[1:]}:", "", *markdown_table(grid), ""]
    return lines


def of_cpus(receipt: Receipt, bench: str = "scaling", what: str = "") -> list[str]:
    """Merges on CPUs, or another benchmark, whose heading says what it is of."""
    machine = receipt["machine"]["gpu"]
    software = ", ".join(f"{name} {version}" for name, version in receipt["versions"].items())
    when = f"{receipt['date']}, commit {receipt['commit'][:7]}"
    lines = [f"## {what}{machine}", "", f"{machine}, {software}, {when}: {receipt['remark']}.", ""]
    for grid in grids(bench, receipt["figures"]):
        lines += [f"{grid.title[0].upper()}{grid.title[1:]}:", "", *markdown_table(grid), ""]
    return lines


def one_of(gpus: str) -> str:
    """Where several are, each benchmark has one to itself."""
    return gpus if gpus.startswith("1 x ") else f"One of {gpus}"


def shown(title: str, bench: str, rows: list[dict[str, Any]]) -> list[str]:
    """A table of one benchmark's rates or times, with what they are of above it."""
    made = grids(bench, [row for row in rows if row["verb"] != "memory"])
    lines = []
    for grid in made:
        unit = "ms" if any("time" in row for row in rows) else "billions of rows a second"
        lines += [f"{title}, {unit}:", "", *markdown_table(grid), ""]
    return lines


def in_words(rows: list[dict[str, Any]]) -> list[str]:
    """Sentences of what tables take in memory and of what small batches take in time."""
    said = []
    memory = [row for row in rows if row["verb"] == "memory"]
    if memory:
        said.append(
            f"They take {span(memory, 'at_rest')} times the bytes of their pairs divided by the "
            f"load, and while they are built {span(memory, 'while_built')} times those of the "
            "batch besides."
        )
    batches = [row for row in rows if "batch" in row and row["verb"] == "find"]
    if batches:
        calls = "; ".join(
            f"{row['batch']:,} keys {row['time']:,.0f} µs, of which {row['launch']:,.0f} until the "
            f"call returns{added(row)}"
            for row in batches
            if row["pairs"] == batches[0]["pairs"]
        )
        said.append(f"One call of `find` on {batches[0]['n']:,} pairs: {calls}.")
    return [*said, ""] if said else []


def added(row: dict[str, Any]) -> str:
    """What of a call is this package's doing; receipts of old do not tell."""
    return f" and {row['overhead']:,.0f} more than an empty launch" if "overhead" in row else ""


def span(rows: list[dict[str, Any]], figure: str) -> str:
    """The least and the largest of a figure, once where they are the same."""
    ends = (f"{end(row[figure] for row in rows):.2f}" for end in (min, max))
    return " to ".join(dict.fromkeys(ends))


def proofs(receipts: dict[str, Receipt]) -> list[str]:
    """The table of the test runs that `make gpu` recorded, one line a receipt."""
    lines = []
    for receipt in of_all("gpu", receipts) + of_all("multigpu", receipts):
        tests = receipt["tests"]
        # Under compute-sanitizer the same tests run again.
        counted = [tests[each] for each in ("tests", "multigpu") if each in tests]
        passed, failed = (
            f"{sum(counts[outcome] for counts in counted):,}" if counted else ""
            for outcome in ("passed", "failed")
        )
        sanitized = [f"{tests[tool]['passed']:,}" if tool in tests else "" for tool in SANITIZERS]
        run = (receipt["machine"]["gpu"], receipt["date"][:10], receipt["commit"][:7])
        cells = (*run, passed, failed, *sanitized, receipt.get("remark", ""))
        lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return []
    head = f"| machine | date | commit | passed | failed | {' | '.join(SANITIZERS)} | remark |"
    what = "Tests that `make gpu` ran on GPUs, and those that ran again under compute-sanitizer:"
    return ["## Proof", "", what, "", head, "|---|---|---|---:|---:|---:|---:|---|", *lines]


def remark(receipt: dict[str, Any]) -> str:
    return f" ({receipt['remark']})" if "remark" in receipt else ""


def beside_peers(receipt: Receipt) -> list[str]:
    """What other libraries reached in one run beside this one."""
    gpu = receipt["machine"]["gpu"]
    lines = [
        f"## Other libraries on {gpu}",
        "",
        f"{gpu}, {receipt['date']}: {receipt['remark']}.",
        "",
    ]
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for row in receipt["figures"]:
        what, of, unit = described(row)
        theirs = rows.setdefault((what, of, row["verb"], unit), {})
        if "time" in row or "seconds" in row:
            figure = f"{row['time'] if 'time' in row else 1e3 * row['seconds']:.3g}"
        else:
            figure = f"{row['rate']:.3g}"
        named = row.get("which", row["library"])
        whose = "ours" if row["library"] == "dgpuhash" else "theirs"
        said = figure if whose == "ours" or named == "best peer" else f"{figure} ({named})"
        theirs.setdefault(whose, []).append(said)
    lines += [
        "| | data | verb | unit | dgpuhash | best of the others |",
        "|---|---|---|---|---:|---:|",
    ]
    for key, found in rows.items():
        figures = (", ".join(found.get(whose, [])) for whose in ("ours", "theirs"))
        lines.append(f"| {' | '.join((*key, *figures))} |")
    return [*lines, ""]


def described(row: dict[str, Any]) -> tuple[str, str, str]:
    """What a row was measured on, and its unit."""
    if row["bench"] == "tables":
        return "map", f"{row['pairs']} bits, {row['n']:,} pairs, load {row['load']}", "G rows/s"
    if row["bench"] == "multi":
        return "multimap", f"{row['n']:,} pairs, {row['multiplicity']} of a key", "G rows/s"
    if row["bench"] == "frames":
        return "frame", f"{row['n']:,} rows with {row['build']:,}", "ms"
    return "distributed", f"{row['rows']:,} rows on {row['workers']} workers", "ms"


def page_of_papers(receipts: dict[str, dict[str, Any]]) -> str:
    """The text of docs/papers.md."""
    rows = as_asked([
        row
        for row in receipts.get("papers", {}).get("figures", [])
        if row["bench"] == "papers" and row["figure"] in FIGURES_OF_PAPERS
    ])  # fmt: skip
    lines = [HEAD_OF_PAPERS, *_table_of_papers()]
    lines += ["", "## What holds", ""]
    if not rows:
        return "\n".join([*lines, NONE.replace("make gpu", "make gpu MODE=papers")])
    receipt = receipts["papers"]
    lines += [f"On {receipt['machine']['gpu']}, commit {receipt['commit'][:7]}:", ""]
    lines += [f"- {sentence}" for _, sentence in sentences(rows)]
    lines += ["", "## Plots", "", *plots_of("papers")[:-1]]
    return "\n".join([*lines, "", "## Tables", "", *_measured_of_papers(rows)]).rstrip() + "\n"


def _table_of_papers() -> list[str]:
    lines = ["## The figures", "", "| name | paper | number | what | over | lines |"]
    lines.append("|---|---|---|---|---|---|")
    for name, figure in FIGURES_OF_PAPERS.items():
        over = AXES[figure.axis] if figure.axis else ""
        compared = "; ".join(line.name for line in figure.lines) or figure.absent
        cells = (f"`{name}`", figure.paper, figure.number, figure.title, over, compared)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _measured_of_papers(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for name in FIGURES_OF_PAPERS:
        own = [row for row in rows if row["figure"] == name]
        # The claims stand above.
        for grid in (each for each in grids_of_papers(own) if each.header[-1] != "claim"):
            lines += [f"{grid.title}:", "", *markdown_table(grid), ""]
    return lines
