"""Folders of saves: what killed saves left beside them, and in them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dgpuhash.distributed import DistributedIndex, DistributedSet
from dgpuhash.tables.arguments.temporary import locked_part, sweep_parts


def left_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{'a' * 32}.part")


@pytest.mark.cluster
@pytest.mark.parametrize("verb", ["save", "load"])
@pytest.mark.parametrize("kind", [DistributedIndex, DistributedSet])
def test_folders_that_killed_saves_left_go_too(threads, tmp_path, kind, verb):
    folder = tmp_path / "saved"
    made = (
        DistributedSet.from_keys(np.arange(9))
        if kind is DistributedSet
        else DistributedIndex.build(pd.DataFrame({"k": [1, 2]}), on="k")
    )
    with made:
        made.save(str(folder))
        before = {each.name for each in folder.iterdir()}
        left_beside(folder).mkdir()
        (left_beside(folder) / "rows.arrow").touch()
        left_beside(folder / "manifest.json").touch()
        with locked_part(str(folder), os.mkdir) as held:
            made.save(str(folder)) if verb == "save" else kind.load(str(folder)).close()
            assert {each.name for each in tmp_path.iterdir()} == {"saved", Path(held).name}
        assert verb == "save" or {each.name for each in folder.iterdir()} == before
        assert not list(folder.glob("*.part"))
        sweep_parts(str(folder))
        assert [each.name for each in tmp_path.iterdir()] == ["saved"]
