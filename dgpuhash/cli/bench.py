"""`dgpuhash bench`: one command for each question, and the report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

__all__ = ["bench"]

Command = Callable[..., None]
Option = Callable[[Command], Command]


class _Number(click.FloatRange):
    """A range whose numbers are finite."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class _Counts(click.IntRange):
    """Whole numbers from 1 on, up to more rows than any machine has memory for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        number = int(super().convert(value, param, ctx))
        if number > _MOST:
            self.fail(f"{value} is more than {_MOST:,}", param, ctx)
        return number


_MOST = 2**40
_MAPS = ("32/32", "64/64", "32/64", "64/32")
_SHARE = _Number(0.01, 1, max_open=True)
_COUNT = _Counts(1)
_POSITIVE = _Number(0, min_open=True)
_MODES = click.Choice(["weak", "strong"])
_MATCHING = _Number(0, 1, min_open=True)
_SPREAD = "unique|uniform:MULTIPLICITY|zipf:EXPONENT"


@click.group()
def bench() -> None:
    """Measure this machine's limits, or what dgpuhash reaches beside them."""


def _several(*names: str, said: str, **settings: Any) -> Option:
    """An option that may be given several times."""
    return click.option(*names, multiple=True, help=f"{said}; several times.", **settings)


_DEVICE: Option = click.option("--device", type=click.Choice(["cpu", "cuda"]), help="A GPU if any.")
_JSON: Option = click.option("--json", "json_path", metavar="FILE", help="For the figures.")
_FORCE: Option = click.option(
    "--force", "overwrite", is_flag=True, help="Replace files that are there."
)
_REPEATS: Option = click.option("--repeats", type=_COUNT, help="Measurements of each figure.")
_COMPARE: Option = click.option("--compare", is_flag=True, help="Run installed peers, too.")
_N = _several("--n", type=_COUNT, said="Rows")
_KEYS: Option = click.option("--distribution", metavar=_SPREAD, help="How often a key comes.")
_SPREADS = _several(
    "--distribution", "distributions", metavar=_SPREAD, said="How often a key comes"
)
_RUNS: Option = click.option("--runs", "repeats", type=_COUNT, help="Runs whose median counts.")
_CLUSTER: tuple[Option, ...] = (
    click.option(
        "-p", "--protocol", type=click.Choice(["tcp", "ucx", "ucxx"]), help="Of the cluster."
    ),
    click.option("-d", "--devs", metavar="0,1,…", help="GPUs to use."),
    click.option("--rmm-pool-size", metavar="BYTES", help="Of each GPU's memory pool, as 40GB."),
)
_HIT_RATE = _several(
    "--hit-rate", "hit_rates", type=_Number(0, 1), said="Share of keys that are stored"
)


def _question(
    name: str, *options: Option, repeats: Option | None = _REPEATS
) -> Callable[[Command], None]:
    """A command that runs the benchmark `name` with what is given of `options`."""

    def declare(described: Command) -> None:
        def command(
            device: str | None, json_path: str | None, overwrite: bool, **given: Any
        ) -> None:
            from dgpuhash.bench import run

            # What was not given is left to the benchmark.
            chosen = {option: each for option, each in given.items() if each not in (None, ())}
            run(name, device=device, json_path=json_path, overwrite=overwrite, **chosen)

        command.__doc__ = described.__doc__
        made: Command = command
        for option in reversed((*options, *filter(None, [repeats]), _DEVICE, _JSON, _FORCE)):
            made = option(made)
        bench.command(name)(made)

    return declare


@_question(
    "limits",
    click.option("--n", type=_COUNT, help="Random accesses in one launch."),
    _several("--footprint", "footprints", type=_COUNT, said="Bytes that they span, a power of two"),
)
def _limits() -> None:
    """Random and streaming access to memory: the floors that tables are compared with."""


@_question(
    "tables",
    _N,
    _several("--load", "loads", type=_SHARE, said="Share of slots in use"),
    _several("--dtypes", type=click.Choice([*_MAPS, "set32", "set64"]), said="Bits of key/value"),
    _KEYS,
    _HIT_RATE,
    _several("--batch", "batches", type=_COUNT, said="Keys of a small batch, for its latency"),
)
def _tables() -> None:
    """Sets and maps: insert, build, find, absent keys, erase, memory, latency of small batches."""


@_question(
    "multi",
    _N,
    click.option("--load", type=_SHARE, help="Share of the key slots in use."),
    _several("--dtypes", type=click.Choice(_MAPS), said="Bits of key/value"),
    _SPREADS,
)
def _multi() -> None:
    """Multimaps: build, read all values, memory, by how often a key comes."""


@_question(
    "group",
    _N,
    _several("--groups", type=_COUNT, said="Keys that each row has any of"),
    _SPREADS,
    _COMPARE,
)
def _group() -> None:
    """Grouping of int64 keys: sum and count, factorize, value_counts, unique."""


@_question(
    "join",
    _N,
    _several("--build", "builds", type=_COUNT, said="Rows that a table is made of"),
    _KEYS,
    _HIT_RATE,
    _COMPARE,
)
def _join() -> None:
    """Joins of int64 columns to row numbers, and against a table that stands."""


@_question("close", _N)
def _close() -> None:
    """Keys in the order of another table, beside random ones: tables and column functions."""


@_question("cpu", click.option("--n", type=_COUNT, help="Distinct keys."), _COMPARE)
def _cpu() -> None:
    """The CPU alone: build, probe, join, sums by key, of sizes that pandas is used for."""


@_question(
    "exchange",
    _several("--workers", type=_COUNT, said="How many; default: one for each GPU, or CPU"),
    _several("--bytes", "leaving", type=_COUNT, said="That leave each worker"),
    _several("--exchange", "ways", type=click.Choice(["comm", "nccl", "peer"]), said="By what"),
    *_CLUSTER,
    repeats=_RUNS,
)
def _exchange() -> None:
    """From all workers to all workers: columns exchanged in lockstep."""


@_question(
    "scaling",
    _several("--workers", type=_COUNT, said="How many; default: 1, 2, 4 and so on"),
    _several(
        "--mode",
        "modes",
        type=_MODES,
        said="As many rows for each worker, or as many in all",
    ),
    click.option("-c", "--chunk-size", type=_COUNT, help="Rows of a worker, or in all."),
    click.option("--frac-match", type=_MATCHING, help="Share of rows of the merge that match."),
    click.option("--multiplicity", type=_COUNT, help="Rows of a key, where it has several."),
    _several(
        "--verb", "verbs", metavar="VERB", said="What to measure; default: all, as build, merge"
    ),
    _several("--partitions", type=_COUNT, said="Of a further merge's left frame, in all"),
    *_CLUSTER,
    _COMPARE,
    repeats=_RUNS,
)
def _scaling() -> None:
    """The distributed index with 1, 2, 4 … workers: weak and strong scaling."""


@_question(
    "model",
    click.option("--measured", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
                 help="What 'bench scaling --json FILE' wrote: figures, and points to compare."),
    _several("--workers", type=_COUNT, said="How many; default: 8, 16 … 1,024"),
    _several("--mode", "modes", type=_MODES, said="As many rows for each worker, or in all"),
    click.option("-c", "--chunk-size", type=_COUNT, help="Rows of a worker, or in all."),
    click.option("--partition-rate", type=_POSITIVE, help="G/s of a worker."),
    click.option("--insert-rate", type=_POSITIVE, help="G/s of a worker."),
    click.option("--find-rate", type=_POSITIVE, help="G/s of a worker."),
    click.option("--link", type=_POSITIVE, help="GB/s that leave a GPU within a host."),
    click.option("--infiniband", type=_POSITIVE, help="GB/s that leave a GPU to other hosts."),
    click.option("--gpus-per-host", type=_COUNT, help="Default: 8."),
    click.option("--latency", type=_Number(0), help="Milliseconds of a message alone."),
    click.option("--message", type=_Number(0), help="Milliseconds of each of many."),
    repeats=None,
)  # fmt: skip
def _model() -> None:
    """A model, no measurement: 8 to 1,024 GPUs over NVLink and InfiniBand."""


@bench.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o", "--output", "folder", default="bench-report", show_default=True, help="Folder to fill."
)
@click.option("--plots/--no-plots", default=True, help="Draw PNG files, which takes matplotlib.")
@_FORCE
def _report(files: tuple[str, ...], folder: str, plots: bool, overwrite: bool) -> None:
    """Tables and plots of FILES that the other commands wrote with --json."""
    from dgpuhash.bench import report

    for path in report.write(files, folder, plots=plots, overwrite=overwrite):
        click.echo(path)
