"""References, reads and commands that tests of bad input share."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from kmer.worlds import World

from dgpuhash.cli import main
from dgpuhash.kmer import MinimizerIndex, SketchIndex

WORLD = World(5, pairs=40)
NAMES = [f"read{at}" for at in range(len(WORLD.pairs))]
FIRSTS, SECONDS = ([pair[at] for pair in WORLD.pairs] for at in (0, 1))
RULES = {"metacache": SketchIndex, "kraken2": MinimizerIndex}
by_rule = pytest.mark.parametrize("rule", RULES)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["kmer", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def written(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
