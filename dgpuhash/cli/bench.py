"""`dgpuhash bench`: one subcommand for each benchmark, and the report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from dgpuhash.cli.group import Commands
from dgpuhash.typing import Device

Command = Callable[..., None]
Option = Callable[[Command], Command]


class _Number(click.FloatRange):
    """Range of finite numbers."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class _Counts(click.IntRange):
    """Whole numbers from 1 to a bound beyond the memory of any machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        number = int(super().convert(value, param, ctx))
        if number > _MOST:
            self.fail(f"{value} is more than {_MOST:,}", param, ctx)
        return number


_MOST = 2**40
_MAPS = ("32/32", "64/64", "32/64", "64/32")
_SHARE = _Number(0.01, 1, max_open=True)
_COUNT = _Counts(1)
_POSITIVE = _Number(0, min_open=True)
_JOINS = ("j1", "j2", "j3", "j4", "j5", "j5n", "j5outer", "j5right", "j5semi", "j5anti")
_GROUPINGS = (
    *(f"q{number}" for number in range(1, 11)),
    *("nunique", "distinct", "counts", "transform", "updates"),
)
_ENGINES = ("pandas", "polars", "duckdb", "dgpuhash", "standing", "dask", "dgpuhash-dask")
_VERBS = ("sum + count", "nunique", "median")
_AGGREGATES = ("sum + count", "sum of floats", "var", "first", "median", "nunique")
_PEERS = ("dgpuhash", "dask", "cudf-polars")
_KMERS = (
    *("count", "build-kraken2", "classify-kraken2", "build-metacache", "classify-metacache"),
    *("construction-kraken2", "construction-metacache", "scaling-kraken2", "scaling-metacache"),
)
_LYING = ("auto", "distributed", "independent", "replicated")
_KEYS_OF_CPU = ("arange", "shuffled", "random")
_MODES = click.Choice(["weak", "strong"])
_MATCHING = _Number(0, 1, min_open=True)
_SPREAD = "unique|uniform:MULTIPLICITY|zipf:EXPONENT"


@click.group(cls=Commands)
def bench() -> None:
    """Measure this machine's limits, and dgpuhash relative to them."""


def _several(*names: str, said: str, **settings: Any) -> Option:
    """Return an option that may be given several times."""
    return click.option(*names, multiple=True, help=f"{said}; several times.", **settings)


_DEVICE: Option = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Default: a GPU if any."
)
_JSON: Option = click.option("--json", "json_path", metavar="FILE", help="File for the figures.")
_FORCE: Option = click.option("--force", "overwrite", is_flag=True, help="Replace existing files.")
_REPEATS: Option = click.option("--repeats", type=_COUNT, help="Measurements of each figure.")
_COMPARE: Option = click.option("--compare", is_flag=True, help="Run other installed libraries.")
_N = _several("--n", type=_COUNT, said="Rows")
_KEYS: Option = click.option("--distribution", metavar=_SPREAD, help="Rows per key.")
_SPREADS = _several("--distribution", "distributions", metavar=_SPREAD, said="Rows per key")
_RUNS: Option = click.option("--runs", "repeats", type=_COUNT, help="Runs; the median is taken.")
_CLUSTER: tuple[Option, ...] = (
    click.option(
        "-p",
        "--protocol",
        type=click.Choice(["tcp", "ucx", "ucxx"]),
        help="Protocol of the cluster.",
    ),
    click.option("-d", "--devs", metavar="0,1,…", help="GPUs to use."),
    click.option("--rmm-pool-size", metavar="BYTES", help="RMM pool of each GPU, e.g. 40GB."),
)
_METHOD: tuple[Option, ...] = (
    click.option("--method", help="How tables store keys, as dgpuhash.methods() lists."),
    _several("--setting", "settings", metavar="NAME=VALUE", said="Setting of the method"),
)
_HIT_RATE = _several(
    "--hit-rate", "hit_rates", type=_Number(0, 1), said="Share of keys that are stored"
)


def _benchmark(
    name: str, *options: Option, repeats: Option | None = _REPEATS
) -> Callable[[Command], None]:
    """Return a decorator that registers the benchmark `name` as a command.

    The command passes the given `options` to the benchmark.
    """

    def declare(described: Command) -> None:
        def command(
            device: Device | None, json_path: str | None, overwrite: bool, **given: Any
        ) -> None:
            from dgpuhash.bench import run

            # Options that were not given keep the benchmark's defaults.
            chosen = {option: each for option, each in given.items() if each not in (None, ())}
            run(name, device=device, json_path=json_path, overwrite=overwrite, **chosen)

        command.__doc__ = described.__doc__
        made: Command = command
        for option in reversed((*options, *filter(None, [repeats]), _DEVICE, _JSON, _FORCE)):
            made = option(made)
        bench.command(name)(made)

    return declare


@_benchmark(
    "limits",
    click.option("--n", type=_COUNT, help="Random accesses in one launch."),
    _several("--footprint", "footprints", type=_COUNT, said="Bytes accessed, a power of two"),
)
def _limits() -> None:
    """Measure random and streaming memory access, the reference for tables."""


@_benchmark(
    "tables",
    _N,
    _several("--load", "loads", type=_SHARE, said="Load factor"),
    _several("--dtypes", type=click.Choice([*_MAPS, "set32", "set64"]), said="Bits of key/value"),
    _KEYS,
    _HIT_RATE,
    _several("--batch", "batches", type=_COUNT, said="Keys of a batch timed for latency"),
    *_METHOD,
)
def _tables() -> None:
    """Measure sets and maps: each verb, memory, latency of small batches.

    The verbs are insert, build, find, find of absent keys, and erase.
    """


@_benchmark(
    "multi",
    _N,
    click.option("--load", type=_SHARE, help="Load factor of the key slots."),
    _several("--dtypes", type=click.Choice(_MAPS), said="Bits of key/value"),
    _SPREADS,
    *_METHOD,
)
def _multi() -> None:
    """Measure multimaps: build, reads of all values, memory, by rows per key."""


@_benchmark(
    "group",
    _N,
    _several("--groups", type=_COUNT, said="Number of groups"),
    _SPREADS,
    _COMPARE,
)
def _group() -> None:
    """Measure group-by of int64 keys: sum and count, factorize, and others.

    The others are value_counts and unique.
    """


@_benchmark(
    "join",
    _N,
    _several("--build", "builds", type=_COUNT, said="Rows of the build side"),
    _KEYS,
    _HIT_RATE,
    _COMPARE,
)
def _join() -> None:
    """Measure joins of int64 columns, and joins against an existing table."""


@_benchmark("close", _N)
def _close() -> None:
    """Compare keys in another table's order with keys in random order."""


@_benchmark("growth", _N, _several("--batch", type=_COUNT, said="Rows of a slice"))
def _growth() -> None:
    """Measure growing and ageing tables, and tables of adversarial keys."""


@_benchmark(
    "cpu",
    _several("--n", type=_COUNT, said="Rows; default: 100 to 10 million"),
    _several("--keys", type=click.Choice(_KEYS_OF_CPU), said="Kind of keys; default: all"),
    _several("--verb", "verbs", metavar="VERB", said="Verb, e.g. build or merge; default: all"),
    click.option("--quick", is_flag=True, help="100 and 10,000 rows and one turn."),
    repeats=click.option(
        "--repeat", "repeats", type=_COUNT, help="Turns, of which the best counts; default: 5."
    ),
)
def _cpu() -> None:
    """Measure batches of 100 to 10 million rows, beside pandas, Polars, DuckDB and NumPy."""


@_benchmark(
    "papers",
    _several(
        "--only",
        metavar="FIGURE",
        said="Figure, e.g. cops or thesis-3.2, or a paper, e.g. thesis; default: all",
    ),
    click.option(
        "--folder", metavar="FOLDER", help="Folder for a JSON file a figure; goes on there."
    ),
    click.option("--divisor", type=_COUNT, help="Divides the rows of each figure."),
    click.option("--seconds", type=_POSITIVE, help="Time of a figure; then it is cut short."),
)
def _papers() -> None:
    """Measure the papers' tables by their workloads, beside what they reach."""


@_benchmark(
    "frames",
    click.option(
        "--rows",
        type=_COUNT,
        help="Rows of the left or grouped frame, of --compare at most; default: 10 million.",
    ),
    _several(
        "--question",
        "questions",
        type=click.Choice((*_JOINS, *_GROUPINGS)),
        said="Join or groupby; default: all",
    ),
    _several(
        "--engine", "engines", type=click.Choice(_ENGINES), said="Library; default: all installed"
    ),
    click.option("--workers", type=_COUNT, help="Processes of a Dask cluster; default: none."),
    click.option("--compare", is_flag=True, help="Merges and groupbys beside cuDF or pandas."),
    _several("--only", metavar="TEXT", said="With --compare: cases whose name has it"),
    click.option("--quick", is_flag=True, help="100,000 rows and one turn."),
    repeats=click.option(
        "--repeat",
        "repeats",
        type=_COUNT,
        help="Turns, of which the best counts; default: 2, with --compare 5.",
    ),
)
def _frames() -> None:
    """Measure joins and groupbys of dataframes, beside pandas, Polars, DuckDB and Dask.

    The frames and questions are those of the db-benchmark of h2o.ai and DuckDB. With --compare,
    also on a GPU, the cases are merges and groupbys of few and many rows, beside cuDF, or pandas
    and Polars.
    """


@_benchmark(
    "aggregates",
    _N,
    _several("--groups", type=_COUNT, said="Keys are below that"),
    _several("--verb", "verbs", type=click.Choice(_AGGREGATES), said="Aggregate; default: all"),
    _COMPARE,
)
def _aggregates() -> None:
    """Measure aggregates by group of one frame: of cuDF on a GPU, else of pandas."""


@_benchmark(
    "groupbys",
    click.option("--workers", type=_COUNT, help="Workers; default: 2."),
    click.option("-c", "--chunk-size", type=_COUNT, help="Rows of a worker."),
    _several("--groups", type=_COUNT, said="Keys are below that"),
    _several("--verb", "verbs", type=click.Choice(_VERBS), said="Verb; default: all"),
    _several(
        "--engine", "engines", type=click.Choice(_PEERS), said="Library; default: all installed"
    ),
    click.option("--quick", is_flag=True, help="20,000 rows and one run."),
    *_CLUSTER,
    repeats=_RUNS,
)
def _groupbys() -> None:
    """Measure groupbys on workers with a GPU each, beside cudf-polars and Dask-cuDF.

    On a CPU the workers are processes with pandas frames, beside Dask.
    """


@_benchmark(
    "refresh", click.option("--scale", type=_POSITIVE, help="Scale of TPC-H's tables; default: 1."),
    _several("--fraction", "fractions", type=_MATCHING, said="Share of orders in a round"),
    click.option("--folder", metavar="FOLDER", help="Folder of the tables, made if absent."),
    click.option("--workers", type=_COUNT, help="Dask workers for ours; default: this process."),
    click.option("--quick", is_flag=True, help="Scale 0.01 and one round of two fractions."),
    repeats=click.option("--rounds", "repeats", type=_COUNT, help="Of a fraction; default: 3."),
)  # fmt: skip
def _refresh() -> None:
    """Measure answers of TPC-H that are kept while orders come and go.

    Beside them, DuckDB and Polars, on a GPU also cuDF, change their tables and compute them anew.
    """


@_benchmark(
    "kmer",
    _several(
        "--question",
        "questions",
        type=click.Choice(_KMERS),
        said="Question; default: all but constructions and scalings",
    ),
    _several(
        "--input",
        "kinds",
        type=click.Choice(["plain", "gz", "letters"]),
        said="Kind of files, or letters on the device; default: all",
    ),
    click.option("--pairs", type=_COUNT, help="Pairs of reads to classify; default: 500,000."),
    click.option(
        "--letters",
        type=_COUNT,
        help="Letters to construct of, or of a worker; default: 2,200,000,000, or all genomes.",
    ),
    click.option("--quick", is_flag=True, help="50,000 pairs and one turn."),
    _COMPARE,
    click.option("--metacache", metavar="PATH", help="MetaCache's program, to compare with."),
    click.option("--threads", type=_COUNT, help="Threads of each program; default: 2."),
    _several("--workers", type=_COUNT, said="Workers of a scaling; default: 1, 2, 4 and so on"),
    _several(
        "--mode",
        "modes",
        type=click.Choice(_LYING),
        said="How a scaling's index lies on workers; default: distributed",
    ),
    *_CLUSTER,
    repeats=click.option(
        "--repeat", "repeats", type=_COUNT, help="Turns; the median is taken; default: 5."
    ),
)
def _kmer() -> None:
    """Measure counts of k-mers, builds and calls, beside KMC, Jellyfish and Kraken 2.

    DGPUHASH_KMER_DATA names the folder of genomes; 'make peers' installs the other programs.
    """


@_benchmark(
    "exchange",
    _several("--workers", type=_COUNT, said="Workers; default: one for each GPU, or CPU"),
    _several("--bytes", "leaving", type=_COUNT, said="Bytes that leave each worker"),
    _several("--exchange", "ways", type=click.Choice(["comm", "nccl", "peer"]), said="Transport"),
    *_CLUSTER,
    repeats=_RUNS,
)
def _exchange() -> None:
    """Measure the all-to-all exchange of columns between workers."""


@_benchmark(
    "scaling",
    _several("--workers", type=_COUNT, said="Workers; default: 1, 2, 4 and so on"),
    _several(
        "--mode",
        "modes",
        type=_MODES,
        said="weak: fixed rows per worker; strong: fixed rows in all",
    ),
    click.option("-c", "--chunk-size", type=_COUNT, help="Rows of a worker, or in all."),
    click.option("--frac-match", type=_MATCHING, help="Share of rows of the merge that match."),
    click.option("--multiplicity", type=_COUNT, help="Rows of a key that has several."),
    _several(
        "--verb", "verbs", metavar="VERB", said="Verb to measure, e.g. build or merge; default: all"
    ),
    _several("--partitions", type=_COUNT, said="Left partitions of a further merge, in all"),
    *_CLUSTER,
    _COMPARE,
    *_METHOD,
    repeats=_RUNS,
)
def _scaling() -> None:
    """Measure weak and strong scaling of the distributed index."""


@_benchmark(
    "model",
    click.option("--measured", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
                 help="File from 'bench scaling --json FILE': figures, and points to compare."),
    _several("--workers", type=_COUNT, said="Workers; default: 8, 16 … 1,024"),
    _several("--mode", "modes", type=_MODES, said="weak: fixed rows per worker; strong: in all"),
    click.option("-c", "--chunk-size", type=_COUNT, help="Rows of a worker, or in all."),
    click.option("--partition-rate", type=_POSITIVE, help="G/s of a worker."),
    click.option("--insert-rate", type=_POSITIVE, help="G/s of a worker."),
    click.option("--find-rate", type=_POSITIVE, help="G/s of a worker."),
    click.option("--link", type=_POSITIVE, help="GB/s that leave a GPU within a host."),
    click.option("--infiniband", type=_POSITIVE, help="GB/s that leave a GPU to other hosts."),
    click.option("--gpus-per-host", type=_COUNT, help="GPUs of a host; default: 8."),
    click.option("--latency", type=_Number(0), help="Milliseconds of a single message."),
    click.option("--message", type=_Number(0), help="Milliseconds of each of many messages."),
    click.option("--reduce-rate", type=_POSITIVE, help="G/s of a worker, for groupbys."),
    click.option("--simulate", is_flag=True, help="Simulate each transport by discrete events."),
    repeats=None,
)  # fmt: skip
def _model() -> None:
    """Predict times for 8 to 1,024 GPUs over NVLink and InfiniBand.

    This is a model, not a measurement.
    """


@bench.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", "folder", default="bench-report", show_default=True,
              help="Folder for the report.")  # fmt: skip
@click.option("--plots/--no-plots", default=True, help="Draw PNG files; needs matplotlib.")
@_FORCE
def _report(files: tuple[str, ...], folder: str, plots: bool, overwrite: bool) -> None:
    """Write tables and plots of FILES that other commands wrote with --json."""
    from dgpuhash.bench import report

    for path in report.write(files, folder, plots=plots, overwrite=overwrite):
        click.echo(path)
