"""`dgpuhash join`: join files with files, or with a saved index."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import click
import numpy as np

from dgpuhash.cli.cluster import Scheduler, client_for
from dgpuhash.cli.columns import ColumnNames, Columns, JoinKind, Types
from dgpuhash.cli.signature import command, option
from dgpuhash.cli.threads import threads_option
from dgpuhash.errors import ColumnError, FormatError
from dgpuhash.typing import MergeHow, Validate

if TYPE_CHECKING:
    from dgpuhash.cli.progress import RowProgress

# Joins that keep rows of LEFT as they are.
_FILTERS = ("semi", "anti")
# Joins after which the rows of a side may be absent, and its integers null.
_LACKING = {"left": ("right", "outer"), "right": ("left", "outer")}
# Sides whose rows are in the result also where they match none; of filters the other one's are not.
_KEPT = {
    "left": ("left",), "right": ("right",), "outer": ("left", "right"), "semi": ("right",),
    "anti": ("left", "right"), "left_anti": ("left", "right"), "right_anti": ("left", "right"),
}  # fmt: skip


@threads_option
@command
def join(
    left: str,
    right: str,
    *,
    on: Columns = None,
    left_on: Columns = None,
    right_on: Columns = None,
    how: Annotated[MergeHow, option(type=JoinKind())] = "inner",
    output: Annotated[str, option("-o", "--output")],
    validate: Annotated[
        Validate | None, option(type=click.Choice(["1:1", "1:m", "m:1", "m:m"]))
    ] = None,
    indicator: Annotated[
        str | None, option(metavar="[NAME]", is_flag=False, flag_value="_merge")
    ] = None,
    nulls_equal: bool = False,
    suffixes: Annotated[
        list[str], option(type=ColumnNames(), default="_x,_y", show_default=True, required=False)
    ],
    overwrite: Annotated[bool, option("--force")] = False,
    dtypes: Types = (),
    scheduler: Scheduler = None,
) -> None:
    """Join the rows of LEFT with those of RIGHT.

    Each side is files, Parquet, CSV, JSON lines or Arrow (a path, a quoted glob or a URL), or a
    saved index. One of them is held by the workers, RIGHT if possible, for right joins LEFT; the
    other passes by in partitions, and rows come in its order.

    Parameters
    ----------
    on : list of str, optional
        Key columns of both sides; of LEFT alone where a saved index has others. Default: those
        of the saved index, else all that both sides have.
    left_on : list of str, optional
        Key columns of LEFT, where the names differ.
    right_on : list of str, optional
        Key columns of RIGHT, in the same order.
    how : str
        Which rows without a partner are kept. semi and anti keep the rows of LEFT that have,
        or have no, partner. Names of Dask, cuDF and SQL, as leftsemi and full, are known too.
    output : str
        A .parquet, .csv, .csv.gz, .jsonl or .arrow file, a directory of them such as
        out.parquet/ (out/ has Parquet), or - for standard output (CSV; -.jsonl and -.arrow say
        otherwise).
    validate : str, optional
        Insist that the keys of the side with a 1 are unique.
    indicator : str, optional
        Add a column with the side of each row: left_only, right_only or both. It is called
        _merge, or by --indicator=NAME otherwise.
    nulls_equal : bool
        Match null keys with null keys, as pandas does; by default they match none, as in SQL.
    suffixes : list of str
        Endings for columns that both sides have.
    overwrite : bool
        Replace a file that is there; no directory.
    """
    import pandas as pd

    import dgpuhash
    from dgpuhash.cli.files import saved_index, write
    from dgpuhash.cli.files.streams import is_stream
    from dgpuhash.cli.progress import RowProgress

    _check_options(how, on, left_on, right_on, indicator, suffixes)
    files = [path for path in (left, right) if not saved_index.is_saved(path)]
    write.check_target(output, files, overwrite=overwrite)
    start = time.perf_counter()
    with client_for(scheduler) as client:
        sides = _sides((left, right), dict(dtypes), client)
        keys = _keys(sides, on, left_on, right_on) if how != "cross" else None
        with RowProgress(client) as progress:
            left_frame, right_frame = _frames(sides, keys, how, progress)
            merged = dgpuhash.merge(
                left_frame,
                right_frame,
                how,
                left_on=keys and keys[0],
                right_on=keys and keys[1],
                suffixes=(suffixes[0], suffixes[1]),
                indicator=indicator or False,
                validate=validate,
                nulls_equal=nulls_equal,
                client=client,
            )
            written = progress.writing(merged.npartitions)
            try:
                rows = write.write(merged, output, client, overwrite=overwrite, written=written)
            except pd.errors.MergeError as error:
                # What else the error tells is about the index of this join.
                told = str(error).partition(": ")[0]
                remedy = "drop rows there until each key has one, or use another --validate"
                raise ColumnError(f"{told}; {remedy}") from error
            read, nulls = progress.rows, progress.null_keys
    beside = is_stream(output)
    click.echo(f"{output}: {rows:,} rows in {time.perf_counter() - start:.1f} s", err=beside)
    click.echo(
        f"  {how} join of {read['left']:,} rows of {left} with {read['right']:,} rows of {right}"
        f"{_in_words(keys)}",
        err=beside,
    )
    left_out = [
        f"{nulls[name]:,} of {path}"
        for name, path in (("left", left), ("right", right))
        if nulls[name] and name not in _KEPT.get(how, ())
    ]
    if left_out and not nulls_equal and how != "cross":
        click.echo(
            f"rows with null keys, which match none, were left out: {' and '.join(left_out)}; "
            "--nulls-equal matches them with each other",
            err=True,
        )


def _check_options(
    how: str,
    on: list[str] | None,
    left_on: list[str] | None,
    right_on: list[str] | None,
    indicator: str | None,
    suffixes: Sequence[str],
) -> None:
    """Refuse options that exclude each other."""
    if len(suffixes) != 2 or suffixes[0] == suffixes[1]:
        raise click.BadParameter(
            "give two endings that differ, e.g. _left,_right", param_hint="--suffixes"
        )
    if on and (left_on or right_on):
        raise click.BadParameter(
            "names the keys of both sides; give it alone, or --left-on and --right-on",
            param_hint="--on",
        )
    if how == "cross" and (on or left_on or right_on):
        raise click.BadParameter("cross compares no keys; leave them out", param_hint="--how")
    if how in _FILTERS and indicator:
        raise click.BadParameter(
            f"{how} keeps rows of one side; leave it out, or use --how left",
            param_hint="--indicator",
        )


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a join: the path of its rows, and its key columns if it is a saved index."""

    name: str
    path: str
    frame: Any
    on: list[Any] | None


def _sides(paths: tuple[str, str], dtypes: dict[str, str], client: Any) -> list[_Side]:
    """Return both sides; files are read with the dtypes given for their columns."""
    from dgpuhash.cli.files import read, saved_index

    found = []
    for name, path in zip(("left", "right"), paths, strict=True):
        if saved_index.is_saved(path):
            found.append(_Side(name, path, *saved_index.read_saved(path, client)))
        else:
            found.append(_Side(name, path, read.read(path, dtypes, all_there=False), None))
    files = [side for side in found if side.on is None]
    unknown = [name for name in dtypes if not any(name in side.frame.columns for side in files)]
    if unknown:
        told = "; ".join(f"{side.path} has {list(side.frame.columns)!r}" for side in files)
        raise FormatError(f"no columns {unknown!r} for these types in the files; {told}")
    return found


def _keys(
    sides: Sequence[_Side],
    on: list[str] | None,
    left_on: list[str] | None,
    right_on: list[str] | None,
) -> tuple[list[Any], list[Any]]:
    """Return the key columns of both sides.

    Raises
    ------
    ColumnError
        When a side lacks one, one is given twice, the sides have no column in common, or their
        numbers differ.
    """
    from dgpuhash.frames import key_names

    left, right = sides
    ours, theirs = left_on or left.on, right_on or right.on
    if on is not None:
        ours = on
        theirs = on if right.on is None or set(on) == set(right.on) else right.on
    if ours is None and theirs is None:
        ours = [name for name in left.frame.columns if name in right.frame.columns]
        if not ours:
            raise ColumnError(
                f"{left.path} and {right.path} have no column in common; name the keys with "
                "--left-on and --right-on"
            )
    keys = ours or theirs or [], theirs or ours or []
    for side, names in zip(sides, keys, strict=True):
        try:
            key_names(side.frame._meta, names)
        except ColumnError as error:
            raise ColumnError(
                f"{side.name.upper()}, {side.path}: {error}; name its keys with --{side.name}-on"
            ) from error
    if len(keys[0]) != len(keys[1]):
        raise ColumnError(
            f"{left.path} has the keys {keys[0]!r} and {right.path} {keys[1]!r}; give as many of "
            "each with --left-on and --right-on"
        )
    return keys


def _frames(
    sides: Sequence[_Side],
    keys: tuple[list[Any], list[Any]] | None,
    how: str,
    progress: RowProgress,
) -> list[Any]:
    """Return the frames of both sides, ready to be merged.

    Rows are counted when they are read. Integers and truths that may be null get nullable dtypes,
    as floats would round them.
    """
    same = {ours for ours, theirs in zip(*(keys or ((), ())), strict=True) if ours == theirs}
    found = []
    for place, side in enumerate(sides):
        frame = side.frame
        if how in _FILTERS and side.name == "right" and keys:
            frame = frame[keys[place]]
        nullable = {}
        if how.removesuffix("_anti") in _LACKING[side.name]:
            nullable = {
                label: _nullable(dtype)
                for label, dtype in frame.dtypes.items()
                if label not in same and isinstance(dtype, np.dtype) and dtype.kind in "biu"
            }
        found.append(progress.counted(frame, side.name, nullable, keys[place] if keys else ()))
    return found


def _nullable(dtype: np.dtype[Any]) -> str:
    return "boolean" if dtype.kind == "b" else dtype.name.replace("i", "I").replace("u", "U")


def _in_words(keys: tuple[list[Any], list[Any]] | None) -> str:
    if keys is None:
        return ""
    pairs = zip(*keys, strict=True)
    return " on " + ", ".join(
        f"{ours}" if ours == theirs else f"{ours} = {theirs}" for ours, theirs in pairs
    )
