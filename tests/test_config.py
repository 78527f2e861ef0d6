"""Settings in Dask's configuration: defaults, schema, page, environment, and what each one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
import yaml

import dgpuhash
from dgpuhash import config
from dgpuhash.backend.cache import cache_folder
from dgpuhash.backend.cpu import ThreadQuota
from dgpuhash.backend.native import native
from dgpuhash.distributed.runs.kept import Keeping, KeptBuilds
from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames.row_store import SpilledRowStore

# GPU machines may lack it.
Draft202012Validator = pytest.importorskip("jsonschema").Draft202012Validator

ROOT = Path(__file__).resolve().parent.parent
DEFAULTS = yaml.safe_load((ROOT / "dgpuhash" / "dgpuhash.yaml").read_text())
SCHEMA = yaml.safe_load((ROOT / "dgpuhash" / "dgpuhash-schema.yaml").read_text())


def leaves(group: dict[str, Any], schema: dict[str, Any], before: str = "") -> Iterator[tuple]:
    """Yield the name, default and schema of each setting."""
    assert set(group) == set(schema["properties"])
    for name, value in group.items():
        part = schema["properties"][name]
        assert part["description"].endswith(".")
        if isinstance(value, dict):
            yield from leaves(value, part, f"{before}{name}.")
        else:
            yield f"{before}{name}", value, part


SETTINGS = list(leaves(DEFAULTS["dgpuhash"], SCHEMA["properties"]["dgpuhash"]))
NAMES = [name for name, _, _ in SETTINGS]


def row(name: str, value: Any, schema: dict[str, Any]) -> str:
    """Return the row of a setting in docs/configuration.md."""
    shown = "none" if value is None else f"`{value}`"
    return f"| `{name}` | {shown} | {' '.join(schema['description'].split())} |"


def test_the_defaults_follow_the_schema():
    Draft202012Validator.check_schema(SCHEMA)
    assert not list(Draft202012Validator(SCHEMA).iter_errors(DEFAULTS))
    wrong = {"dgpuhash": {"liveness": {"heartbeat": "soon"}, "thread": 2, "pruning": {"memory": 3}}}
    found = {error.json_path for error in Draft202012Validator(SCHEMA).iter_errors(wrong)}
    assert found == {"$.dgpuhash", "$.dgpuhash.liveness.heartbeat", "$.dgpuhash.pruning.memory"}


def test_the_page_shows_each_setting():
    page = (ROOT / "docs" / "configuration.md").read_text().splitlines()
    assert [line for line in page if line.startswith("| `")] == [row(*each) for each in SETTINGS]


@pytest.mark.parametrize("name", NAMES)
def test_each_setting_is_read(name):
    quoted = f'"{name}"'
    sources = (path.read_text() for path in (ROOT / "dgpuhash").rglob("*.py"))
    assert any(quoted in text for text in sources)


@pytest.mark.parametrize(
    ("read", "name", "value", "made"),
    [
        (config.seconds, "liveness.timeout", "1m", 60.0),
        (config.seconds, "liveness.timeout", 0.5, 0.5),
        (config.nbytes, "exchange.message", "1 kiB", 1024),
        (config.nbytes, "exchange.message", 77, 77),
        (config.count, "retries.read", 3, 3),
        (config.share, "pruning.memory", 1, 1.0),
    ],
)
def test_values(read, name, value, made):
    with dask.config.set({f"dgpuhash.{name}": value}):
        assert read(name) == made


@pytest.mark.parametrize(
    ("read", "name", "value"),
    [
        (config.seconds, "liveness.timeout", "soon"),
        (config.seconds, "liveness.timeout", 0),
        (config.nbytes, "exchange.message", "much"),
        (config.nbytes, "exchange.message", -1),
        (config.count, "retries.read", 0),
        (config.count, "retries.read", "16"),
        (config.count, "retries.read", True),
        (config.share, "pruning.memory", 1.5),
        (config.share, "pruning.memory", None),
    ],
)
def test_wrong_values_are_named(read, name, value):
    variable = f"DASK_DGPUHASH__{name.replace('.', '__').upper()}"
    with (
        dask.config.set({f"dgpuhash.{name}": value}),
        pytest.raises(SpecError, match=rf"dgpuhash\.{name} is {value!r}; give .*{variable}"),
    ):
        read(name)


PROGRAM = """
import json, sys
import numpy as np
import dgpuhash
from dgpuhash import config
from dgpuhash.backend.cache import cache_folder
from dgpuhash.backend.native import native
len(dgpuhash.HashSet.from_keys(np.arange(3)))
before = "dask" in sys.modules
found = [native().threads(), str(cache_folder()), config.seconds("liveness.lost-client")]
print(json.dumps([before, *found]))
"""


def told(**variables: str) -> list[Any]:
    """Return what a program finds, in an environment without others' settings."""
    taken = ("DGPUHASH_NUM_THREADS", "DGPUHASH_CACHE_DIR", "DASK_CONFIG")
    clean = {name: text for name, text in os.environ.items() if name not in taken}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=clean | variables,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_file_and_the_environment(tmp_path):
    settings = {"threads": 3, "liveness": {"lost-client": "7 s"}, "cache-folder": "/nowhere"}
    (tmp_path / "ours.yaml").write_text(yaml.safe_dump({"dgpuhash": settings}))
    folder = str(tmp_path)
    assert told(DASK_CONFIG=folder) == [True, 3, "/nowhere", 7.0]
    assert told(
        DASK_CONFIG=folder,
        DASK_DGPUHASH__THREADS="2",
        DASK_DGPUHASH__LIVENESS__LOST_CLIENT="1m",
        DGPUHASH_CACHE_DIR="/elsewhere",
    ) == [True, 2, "/elsewhere", 60.0]


def test_tables_do_without_dask_where_nothing_is_set(tmp_path):
    before, *_, seconds = told(DASK_CONFIG=str(tmp_path), DASK_ROOT_CONFIG="/nowhere", HOME="/none")
    assert not before
    assert seconds == 10.0


def test_a_setting_around_the_first_read():
    code = (
        "import dask; from dgpuhash import config\n"
        "with dask.config.set({'dgpuhash.placement.replicate': '1 KiB'}):\n"
        "    assert config.nbytes('placement.replicate') == 1024\n"
        "with dask.config.set({'dgpuhash.placement.replicate': '2 KiB'}):\n"
        "    assert config.nbytes('placement.replicate') == 2048\n"
        "    assert config.nbytes('exchange.message') > 2048\n"
        "assert config.nbytes('placement.replicate') == 16 << 20"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_threads_of_workers():
    shares, usual = ThreadQuota(), native().threads()
    with dask.config.set({"dgpuhash.threads": 5}):
        shares.take("a worker", 1)
        assert native().threads() == 5
    shares.give_back("a worker")
    native().set_threads(usual)


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("DGPUHASH_CACHE_DIR", raising=False)
    with dask.config.set({"dgpuhash.cache-folder": str(tmp_path)}):
        assert cache_folder() == tmp_path
    assert cache_folder() != tmp_path


def test_bounds_of_frames():
    page = SpilledRowStore.page_nbytes.fget
    assert page(None) == 16 << 20
    with dask.config.set({"dgpuhash.frames.spilled-page": "1 MiB"}):
        assert page(None) == 1 << 20
    keys = pd.Series(pd.Categorical([0, 1], range(4)))
    frame = pd.DataFrame({"a": keys, "b": keys, "v": [1, 2]})
    with (
        dask.config.set({"dgpuhash.frames.most-groups": 15}),
        pytest.raises(UnsupportedError, match=r"16 groups .* more than 15"),
    ):
        dgpuhash.groupby(frame, ["a", "b"], observed=False)


class WorkerLimits:
    """A scheduler that knows the memory of its workers."""

    def __init__(self, *limits: int) -> None:
        made = (type("Worker", (), {"memory_limit": limit}) for limit in limits)
        self.workers = dict(enumerate(made))


def test_what_kept_builds_may_take():
    kept = KeptBuilds.__new__(KeptBuilds)
    kept._scheduler = WorkerLimits(1000, 100 << 30)
    keeping = Keeping(None)
    assert kept._limit(keeping) == 100 + (1 << 30)
    with dask.config.set({"dgpuhash.kept-builds": {"memory": 0.5, "most": 800}}):
        assert kept._limit(keeping) == 500 + 800


def test_a_filter_with_fewer_false_positives_is_larger():
    from dgpuhash.tables.bloom.blocks import blocks_for

    usual = blocks_for(10**6, config.share("pruning.false-positives"))
    with dask.config.set({"dgpuhash.pruning.false-positives": 0.001}):
        assert blocks_for(10**6, config.share("pruning.false-positives")) > 1.2 * usual
    assert np.isclose(config.share("pruning.memory"), 1 / 8)
