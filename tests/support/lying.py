"""Manifests of saves that lie: JSON values changed at random, with right checksums."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dgpuhash.tables.arguments.checksums import digest_of, to_checked_json
from dgpuhash.tables.arguments.file_layout import ALIGNMENT, MAGIC, PREFIX

__all__ = ["lies_of_file", "lies_of_folder"]

PLAIN: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**64, 10**30, 1.5, -1e300, "", "x", "a b", "\0",
    "int64", [], [None], [1, 2], ["a"], {}, {"a": 1}, [[]],
]  # fmt: skip


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a JSON value with each of its keys or positions."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in list(keys):
        yield value, key
        yield from places_in(value[key])


def change(body: Any, rng: random.Random) -> str:
    """Change a value somewhere; return what was done."""
    container, key = rng.choice(list(places_in(body)))
    old = container[key]
    if isinstance(old, str) and old[:1] == "{":
        inner = json.loads(old)
        done = change(inner, rng)
        container[key] = json.dumps(inner)
        return f"{key}: {done}"
    how = rng.choice(["plain", "plain", "other", "drop", "double", "near"])
    if how == "drop":
        del container[key]
    elif how == "double" and isinstance(container, list):
        container.insert(key, old)
    elif how == "double":
        container["surprise"] = old
    elif how == "near" and type(old) is int:
        container[key] = old + rng.choice([-1, 1, 2**20])
    elif how == "near" and isinstance(old, str) and old:
        at = rng.randrange(len(old))
        container[key] = old[:at] + rng.choice(["", "x", "é"]) + old[at + 1 :]
    elif how == "other":
        there, its = rng.choice(list(places_in(body)))
        container[key] = json.loads(json.dumps(there[its]))
    else:
        container[key] = rng.choice(PLAIN)
    return (
        f"{how} {key!r}: {str(old)[:60]!r} -> {str(container[key] if how != 'drop' else '')[:60]!r}"
    )


def lies_of_file(path: Path, number: int, seed: int) -> Iterator[str]:
    """Rewrite the header of a saved file in so many ways, one after the other; yield each."""
    whole = path.read_bytes()
    _, version, length, _ = PREFIX.unpack_from(whole)
    start = PREFIX.size + length
    body = whole[start + -start % ALIGNMENT :]
    text = whole[PREFIX.size : start]

    def write(header: Any, done: str) -> None:
        given = json.loads(text)
        made = json.dumps(given | {"header": header}).encode()
        begin = PREFIX.size + len(made)
        prefix = PREFIX.pack(MAGIC, version, len(made), digest_of(made))
        path.write_bytes(prefix + made + bytes(-begin % ALIGNMENT) + body)

    yield from _lies(json.loads(text)["header"], number, seed, write)


def lies_of_folder(path: Path, number: int, seed: int) -> Iterator[str]:
    """Rewrite the manifest in a folder as `lies_of_file` does."""
    whole = json.loads(path.read_bytes())
    what = whole["format"].removeprefix("dgpuhash ")

    def write(body: Any, done: str) -> None:
        path.write_bytes(to_checked_json(what, whole["version"], body))

    yield from _lies(whole[what], number, seed, write)


def _lies(
    body: Any, number: int, seed: int, write: Callable[[Any, str], None]
) -> Iterator[str]:  # fmt: skip
    for each in range(number):
        rng, lied = random.Random(f"{seed} {each}"), json.loads(json.dumps(body))
        done = f"{each}: {change(lied, rng)}"
        write(lied, done)
        yield done
