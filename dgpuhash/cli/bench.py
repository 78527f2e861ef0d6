"""`dgpuhash bench`: one command for each question, and the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["bench"]

Command = Callable[..., None]
_DTYPES = ("32/32", "64/64", "32/64", "64/32", "set32", "set64")


@click.group()
def bench() -> None:
    """Measure this machine's limits, or what dgpuhash reaches beside them."""


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    return click.option(*names, **settings)


_N = _option("--n", type=click.IntRange(1), multiple=True, help="Rows of a batch; several times.")
_LOAD = _option(
    "--load", "loads", type=click.FloatRange(0.01, 1, max_open=True), multiple=True,
    help="Share of slots in use; several times.",
)  # fmt: skip
_DTYPE = _option(
    "--dtypes", type=click.Choice(_DTYPES), multiple=True, help="Bits of key/value; several times."
)
_DISTRIBUTION = _option(
    "--distribution", metavar="unique|uniform:MULTIPLICITY|zipf:EXPONENT",
    help="How often each key comes.",
)  # fmt: skip


def _question(name: str, *options: Callable[[Command], Command]) -> Callable[[Command], None]:
    """A command that runs the benchmark `name` with what is given of `options`."""

    def declare(described: Command) -> None:
        def command(device: str | None, json_path: str | None, **given: Any) -> None:
            from dgpuhash.bench import run

            # Options that were not given are left to the benchmark.
            chosen = {
                option: each for option, each in given.items() if each not in (None, (), False)
            }
            run(name, device=device, json_path=json_path, **chosen)

        made: Command = command
        made.__doc__ = described.__doc__
        for option in reversed((*options, *_EVERYWHERE)):
            made = option(made)
        bench.command(name)(made)

    return declare


_EVERYWHERE = (
    _option("--device", type=click.Choice(["cpu", "cuda"]), help="A GPU where there is one."),
    _option("--json", "json_path", metavar="FILE", help="Write the figures there, one a line."),
    _option("--repeats", type=click.IntRange(1), help="Measurements of each figure."),
)


@_question(
    "limits",
    _option("--n", type=click.IntRange(1), help="Random accesses in one launch."),
    _option(
        "--footprint", "footprints", type=click.IntRange(1), multiple=True,
        help="Bytes that they span, a power of two; several times.",
    ),
)  # fmt: skip
def _limits() -> None:
    """Random and streaming access to memory: the floors that tables are compared with."""


@_question(
    "tables",
    _N,
    _LOAD,
    _DTYPE,
    _DISTRIBUTION,
    _option(
        "--hit-rate", "hit_rates", type=click.FloatRange(0, 1), multiple=True,
        help="Share of the keys looked up that are stored; several times.",
    ),
    _option(
        "--batch", "batches", type=click.IntRange(1), multiple=True,
        help="Keys of the small batches whose latency is measured; several times.",
    ),
)  # fmt: skip
def _tables() -> None:
    """Sets and maps: insert, build, find, absent keys, erase, memory, latency of small batches."""
