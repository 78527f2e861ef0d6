"""Errors of a worker keep their type at the client."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from distributed.protocol.pickle import dumps, loads

from dgpuhash import errors

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_travel_between_processes(name):
    kind = getattr(errors, name)
    with pytest.raises(kind) as raised:
        raise kind("what happened; what to do")
    arrived = loads(dumps(raised.value))
    assert type(arrived) is kind
    assert str(arrived) == "what happened; what to do"


def test_every_extra_that_a_message_or_a_page_names_is_there():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [
        path
        for folder in ("dgpuhash", "cluster", "docs", "scripts", "conda", ".github")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".sh", ".sbatch", ".yaml", ".yml", ".cuh"}
    ]
    named = {}
    for path in [*texts, ROOT / "README.md"]:
        for extras in re.findall(
            r"(?:dgpuhash\[|'\.\[|install_command\(['\"])([\w, -]+)", path.read_text()
        ):
            named |= {extra.strip(): path for extra in extras.split(",")}
    assert {"cu13", "cudf-cu13", "ucx", "kmer", "demo"} <= set(named)
    assert not {name: str(path) for name, path in named.items() if name not in told}


def test_the_notice_names_what_is_compiled_into_the_extension():
    notice = (ROOT / "NOTICE").read_text()
    for name in ("nanobind", "robin_map", "libc++", "compiler_rt"):
        assert name in notice
