"""Fixtures of tests of bad input: references, and saved indexes of them."""

from __future__ import annotations

import pytest
from kmer.bad_input.inputs import RULES, WORLD


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return WORLD.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def indexes(folder):
    """Return the path of a saved index of each rule."""
    taxonomy, paths = folder / "taxonomy", {}
    for rule, kind in RULES.items():
        paths[rule] = folder / f"{rule}.dgki"
        kind.build(sorted(folder.glob("*.fa")), taxonomy=taxonomy).save(paths[rule])
    return paths
