"""Standard input and output as files: `-` for CSV, `-.jsonl` and so on for other formats."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import click

from dgpuhash.errors import UnsupportedError

_STREAM = re.compile(r"-(\.[a-z]+)*")
_KEY = "dgpuhash.cli.files.streams"
# Formats of input by their first bytes; the rest is CSV.
_BEGINNINGS = {b"{": ".jsonl", b"ARROW1": ".arrow", b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz"}
_LONGEST = 6


def is_stream(name: str) -> bool:
    """Return whether a name means standard input or output.

    Examples
    --------
    >>> is_stream("-"), is_stream("-.jsonl"), is_stream("-flights.csv"), is_stream("./-")
    (True, True, False, False)
    """
    return _STREAM.fullmatch(name) is not None


def with_ending(name: str) -> str:
    """Return the name of a stream with its format's suffix; CSV by default."""
    return "-.csv" if name == "-" else name


def stored_input() -> str:
    """Copy standard input to a temporary file and return its path; it goes when the command ends.

    Its format is that of its first bytes: JSON lines, Arrow, Parquet, else CSV.

    Raises
    ------
    UnsupportedError
        When the command runs on another cluster, whose workers do not see the file.
    """
    context = click.get_current_context()
    if context.params.get("scheduler") is not None:
        raise UnsupportedError(
            "- is this program's standard input, which the workers of --scheduler cannot read; "
            "write it to a file that they can"
        )
    if _KEY not in context.meta:
        folder = tempfile.TemporaryDirectory(prefix="dgpuhash-")
        context.call_on_close(folder.cleanup)
        beginning = sys.stdin.buffer.read(_LONGEST)
        found = [ending for first, ending in _BEGINNINGS.items() if beginning.startswith(first)]
        path = Path(folder.name) / f"input{(found or ['.csv'])[0]}"
        with path.open("wb") as file:
            file.write(beginning)
            shutil.copyfileobj(sys.stdin.buffer, file)
        context.meta[_KEY] = str(path)
    return str(context.meta[_KEY])
