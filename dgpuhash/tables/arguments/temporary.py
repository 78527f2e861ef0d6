"""Temporary files and folders of saves, ``NAME.<hex>.part``, locked while being written."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked_part(name: str, make: Callable[[str], object]) -> Iterator[str]:
    """Yield the path of a new locked file or folder beside `name`, created by `make`.

    It is locked until the block ends: others do not sweep it. The block renames it to `name`, or
    removes it.

    Examples
    --------
    >>> import tempfile
    >>> name = f"{tempfile.mkdtemp()}/rows"
    >>> with locked_part(name, os.mkdir) as part:
    ...     sweep_parts(name)
    ...     os.rename(part, name)
    >>> os.listdir(os.path.dirname(name))
    ['rows']
    """
    sweep_parts(name)
    part, lock = _create(name, make)
    while lock is None:
        part, lock = _create(name, make)
    try:
        yield part
    finally:
        os.close(lock)


def sweep_parts(name: str) -> None:
    """Remove parts left by killed saves to `name`: those that nobody locks.

    Parts stay where the file system has no locks, or they cannot be removed.
    """
    path = Path(name)
    left = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{32}}\.part")
    with suppress(OSError):
        for each in [each for each in path.parent.iterdir() if left.fullmatch(each.name)]:
            with suppress(OSError):
                _sweep(each)


def _create(name: str, make: Callable[[str], object]) -> tuple[str, int | None]:
    """Return a new part and its lock's descriptor, or None if it was swept already."""
    part = f"{name}.{uuid.uuid4().hex}.part"
    make(part)
    try:
        lock = os.open(part, os.O_RDONLY)
    except FileNotFoundError:
        return part, None
    # Where there are no locks, nobody sweeps.
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
    if Path(part).exists():
        return part, lock
    os.close(lock)
    return part, None


def _sweep(part: Path) -> None:
    lock = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
    finally:
        os.close(lock)
