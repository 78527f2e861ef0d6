"""`dgpuhash bench`: run benchmarks, one subcommand each, and write their report."""

from __future__ import annotations

import math
from typing import Any

import click

from dgpuhash.cli.group import Commands, Later

# Help of each command; its options are those of the benchmark, whose module is imported for them.
_HELP = {
    "limits": "Measure random and streaming memory access, the reference for tables.",
    "tables": "Measure sets and maps: each verb, memory, latency of small batches.\n\n"
    "The verbs are insert, build, find, find of absent keys, and erase.",
    "multi": "Measure multimaps: build, reads of all values, memory, by rows per key.",
    "group": "Measure group-by of int64 keys: sum and count, factorize, and others.\n\n"
    "The others are value_counts and unique.",
    "join": "Measure joins of int64 columns, and joins against an existing table.",
    "close": "Compare keys in another table's order with keys in random order.",
    "growth": "Measure growing and ageing tables, and tables of adversarial keys.",
    "cpu": "Measure batches of 100 to 10 million rows, beside pandas, Polars, DuckDB and NumPy.",
    "papers": "Measure the papers' tables by their workloads, beside what they reach.",
    "frames": "Measure joins and groupbys of dataframes, beside pandas, Polars, DuckDB and Dask."
    "\n\nThe frames and questions are those of the db-benchmark of h2o.ai and DuckDB. With "
    "--compare, also on a GPU, the cases are merges and groupbys of few and many rows, beside "
    "cuDF, or pandas and Polars.",
    "aggregates": "Measure aggregates by group of one frame: of cuDF on a GPU, else of pandas.",
    "groupbys": "Measure groupbys on workers with a GPU each, beside cudf-polars and Dask-cuDF."
    "\n\nOn a CPU the workers are processes with pandas frames, beside Dask.",
    "refresh": "Measure answers of TPC-H that are kept while orders come and go.\n\nBeside them, "
    "DuckDB and Polars, on a GPU also cuDF, change their tables and compute them anew.",
    "kmer": "Measure counts of k-mers, builds and calls, beside KMC, Jellyfish and Kraken 2.\n\n"
    "DGPUHASH_KMER_DATA names the folder of genomes; 'make peers' installs the other programs.",
    "exchange": "Measure the all-to-all exchange of columns between workers.",
    "scaling": "Measure weak and strong scaling of the distributed index.",
    "model": "Predict times for 8 to 1,024 GPUs over NVLink and InfiniBand.\n\n"
    "This is a model, not a measurement.",
    "report": "Write tables and plots of FILES that other commands wrote with --json.",
}
_MOST = 2**40
_FORCE = click.option("--force", "overwrite", is_flag=True, help="Replace existing files.")


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


class _Benchmarks(Later):
    """Command group whose subcommands are derived from the benchmarks' signatures at first use."""

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command | None = self._found[name]
        if command is None:
            command = self._found[name] = _command(name)
        return command


def _command(name: str) -> click.Command:
    from dgpuhash.bench import parameters

    @click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: a GPU if any.")
    @click.option("--json", "json_path", metavar="FILE", help="File for the figures.")
    @_FORCE
    def run(**given: Any) -> None:
        from dgpuhash.bench import run

        # Options that were not given keep the benchmark's defaults.
        run(name, **{option: each for option, each in given.items() if each not in (None, ())})

    for parameter in reversed(parameters(name)):
        run = _option(parameter)(run)
    return click.command(name, help=_HELP[name])(run)


def _option(parameter: Any) -> Any:
    """Return the option of a command line for a benchmark's parameter."""
    option, kind = parameter.option, parameter.kind
    types: dict[type, Any] = {
        int: _Counts(1),
        float: _Number(
            option.least, option.most, min_open=not option.from_least, max_open=option.below_most
        ),
        str: click.Choice(option.choices) if option.choices and not option.metavar else str,
    }
    if option.file:
        types[str] = click.Path(exists=True, dir_okay=False)
    more = {"is_flag": True} if kind is bool else {"type": types[kind]}
    return click.option(
        *parameter.names, parameter.name, metavar=option.metavar or None,
        multiple=parameter.several, help=parameter.help, **more,
    )  # fmt: skip


@click.group(
    cls=Commands,
    commands=_Benchmarks("", {name: _HELP[name].partition("\n")[0] for name in sorted(_HELP)}),
)
def bench() -> None:
    """Measure this machine's limits, and dgpuhash relative to them."""


@bench.command("report", help=_HELP["report"])
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", "folder", default="bench-report", show_default=True,
              help="Folder for the report.")  # fmt: skip
@click.option("--plots/--no-plots", default=True, help="Draw PNG files; needs matplotlib.")
@_FORCE
def _report(files: tuple[str, ...], folder: str, plots: bool, overwrite: bool) -> None:
    from dgpuhash.bench import report

    for path in report.write(files, folder, plots=plots, overwrite=overwrite):
        click.echo(path)
