"""Benchmarks of this library, with figures beside a hardware limit and peer libraries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from dgpuhash import backend
from dgpuhash.bench import machine
from dgpuhash.bench.options import Parameter, parameters_of
from dgpuhash.errors import DgpuhashError, SpecError
from dgpuhash.tables.memory_errors import memory_errors_of
from dgpuhash.tables.serialization import exists_error
from dgpuhash.typing import Device

__all__ = ["BENCHES", "parameters", "run"]

#: The module of each benchmark, whose `run` yields the rows of its figures.
BENCHES = {
    "limits": "limits",
    "tables": "tables.open_tables",
    **{name: f"tables.{name}" for name in ("multi", "group", "join", "close", "growth")},
    "cpu": "cpu",
    "frames": "frames.run",
    "aggregates": "frames.aggregates",
    "groupbys": "frames.on_workers",
    **{name: f"{name}.run" for name in ("refresh", "kmer", "papers")},
    **{name: f"workers.{name}" for name in ("exchange", "scaling")},
    "model": "model.run",
}


def parameters(name: str) -> list[Parameter]:
    """Return the parameters of a benchmark.

    Examples
    --------
    >>> [each.names[-1] for each in parameters("limits")]
    ['--footprint', '--n', '--repeats']
    """
    return parameters_of(_run_of(name))


def _run_of(name: str) -> Callable[..., Iterator[dict[str, Any]]]:
    run: Callable[..., Iterator[dict[str, Any]]] = import_module(f"{__name__}.{BENCHES[name]}").run
    return run


def run(
    name: str,
    *,
    device: Device | None = None,
    json_path: str | Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Run a benchmark, print its tables and return its rows as dictionaries.

    Parameters
    ----------
    name : str
        Which benchmark: one of `BENCHES`.
    device : {"cpu", "cuda", None}
        None: a GPU where one exists, except for ``cpu``, ``frames``, ``refresh`` and ``kmer``.
    json_path : path, optional
        Where to write the figures, one JSON object a line, as they are measured.
    overwrite : bool
        Whether to replace an existing file; it is kept until the first figure is measured.
    quiet : bool
        Print nothing.
    **options
        Arguments of the benchmark's own `run`.

    Raises
    ------
    SpecError
        When no benchmark has this name, it has no such option, or `json_path` is the file that it
        reads as ``measured``.
    ExistsError
        When the file exists and `overwrite` is false.
    OSError
        When the file cannot be written.
    DeviceError
        When the machine has no such device.
    OutOfMemoryError
        When there is not enough memory for so many rows.
    DgpuhashError
        When an answer was wrong.

    Examples
    --------
    >>> rows = run("limits", device="cpu", footprints=[2**16], n=1000, repeats=1, quiet=True)
    >>> rows[0]["limit"], rows[0]["unit"]
    ('streaming copy', 'TB/s')
    """
    if name not in BENCHES:
        raise SpecError(f"no benchmark is called {name!r}; use one of {', '.join(BENCHES)}")
    known = {each.name: each for each in parameters(name)}
    if foreign := sorted(options.keys() - known.keys()):
        raise SpecError(f"{name!r} has no option {foreign[0]!r}; it has {', '.join(known)}")
    for option, value in options.items():
        known[option].check(value)
    # Tables and plots know all benchmarks.
    from dgpuhash.bench import report

    here = "cpu" if name in ("cpu", "frames", "refresh", "kmer") else backend.default_device()
    used = backend.get(device or here)
    described = machine.describe(used)
    target = None if json_path is None else Path(json_path)
    if target is not None:
        _check_target(target, options.get("measured"), overwrite)
    # If there was no file, one that another process writes meanwhile is not replaced.
    fresh = target is not None and not target.exists()
    measured = _run_of(name)(used, **options)
    rows = []
    with memory_errors_of(f"the benchmark {name!r}"):
        for row in measured if quiet else report.show_progress(name, measured):
            rows.append({"bench": name, **row})
            if target is not None:
                mode = "a" if len(rows) > 1 else "x" if fresh else "w"
                with _written(target, mode) as stream:
                    stream.write(json.dumps({"machine": described, **rows[-1]}) + "\n")
    if not quiet:
        report.summary(name, rows[0].get("machine", described) if rows else described, rows)
    if failed := [row for row in rows if "problem" in row]:
        raise DgpuhashError(
            f"{failed[0]['library']} failed at {failed[0]['verb']!r}: {failed[0]['problem']} "
            f"({len(failed)} of {len(rows)} figures are missing); the others are in the tables"
        )
    return rows


def _check_target(target: Path, measured: str | Path | None, overwrite: bool) -> None:
    """Raise if the target cannot be written, or is the benchmark's input.

    The contents of the target stay as they are.
    """
    if measured is not None and target.resolve() == Path(measured).resolve():
        raise SpecError(f"{target} is the benchmark's input; give --json another file")
    if target.is_file() and not overwrite:
        raise exists_error(target)
    fresh = not target.exists()
    with _written(target, "x" if fresh else "a"):
        pass
    if fresh:
        target.resolve().unlink()


@contextmanager
def _written(target: Path, mode: str) -> Iterator[IO[str]]:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open(mode) as stream:
            yield stream
    except FileExistsError:
        raise exists_error(target) from None
    except OSError as error:
        raise OSError(
            f"{target} cannot be written: {error.strerror}; give --json a file that can be"
        ) from error
