"""Choose the strategy of a merge of lazy frames, once for all of its tasks, and say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from dgpuhash import config
from dgpuhash.distributed.cluster.dask_internals import Expr
from dgpuhash.distributed.ingest.mode import REPLICATED
from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames.merge.arguments import JoinArguments
from dgpuhash.frames.merge.keys import KeyPair
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.tables.stats import format_bytes

BUILDS = ("auto", "left", "right", "replicate")


@dataclass(frozen=True, slots=True)
class Strategy:
    """Strategy of a merge of two lazy frames.

    Attributes
    ----------
    kind : {"aligned", "local", "broadcast", "shuffle"}
        Partitions of equal divisions meet; one task merges both sides; each task gets all stored
        rows; or stored rows go to owners of hash ranges, which tasks ask.
    probing : {"left", "right"}
        The side whose partitions ask; rows of the other one are stored.
    indexed : str
        Why the other one is stored.
    why : str
        Why this kind, or until when.
    ranges : int
        The number of hash ranges of a shuffle.
    late_nbytes : int
        Stored rows of at most so many bytes are broadcast once they are there, and not shuffled.
    """

    kind: Literal["aligned", "local", "broadcast", "shuffle"]
    probing: str
    indexed: str
    why: str
    ranges: int = 1
    late_nbytes: int = 0


def late_broadcast_nbytes() -> int:
    """Return the limit in bytes of build-side rows for a late broadcast."""
    return config.nbytes(REPLICATED)


def choose_strategy(
    left: Expr, right: Expr, plan: PartitionPlan, *, unique: tuple[bool, bool], build: str,
    npartitions: int | None, ranges: int, own_nbytes: int | None,
) -> Strategy:  # fmt: skip
    """Return the strategy of a merge.

    Parameters
    ----------
    left, right : Expr
    plan : PartitionPlan
        Of the side that `probing_side` returns.
    unique : pair of bool
        Whether the keys of each side are to be unique.
    build, npartitions
        As in `dgpuhash.merge`.
    ranges : int
        The number of hash ranges, where there are some.
    own_nbytes : int or None
        Bytes of the stored side where the client has it.
    """
    asking, stored = (left, right) if plan.probing == "left" else (right, left)
    one = stored.npartitions == 1
    is_alone = plan.arguments.joined != "outer" and one and asking.npartitions > 1
    chosen = partial(Strategy, probing=plan.probing, indexed=_why_stored(plan, left, right))
    if build == "auto" and npartitions is None and not is_alone and _is_aligned(left, right, plan):
        return chosen("aligned", why="both sides have divisions, and partitions of one range meet")
    if build in ("auto", "replicate") and npartitions is None and one and asking.npartitions == 1:
        return chosen("local", why="each side is one partition, and one task merges both")
    if plan.arguments.how == "cross":
        return chosen("broadcast", why="as each row meets all")
    # Owners alone know the stored rows that nothing matches, and keys of two rows.
    late = 0 if plan.has_tail or unique[plan.probing == "left"] else late_broadcast_nbytes()
    if not (plan.has_tail or any(unique)):
        few = is_alone if own_nbytes is None else own_nbytes <= config.nbytes(REPLICATED)
        if build == "replicate" or (build == "auto" and few):
            why = "as it is one partition" if one else "by build='replicate'"
            return chosen("broadcast", why=why)
    why = f"unless its rows turn out to have at most {format_bytes(late)}" if late else ""
    return chosen("shuffle", why=why, ranges=ranges, late_nbytes=late)


def probing_side(build: str, arguments: JoinArguments, partitions: Sequence[int]) -> str:
    """Return the probe side, for the numbers of partitions of both sides.

    Raises
    ------
    SpecError
        When `build` is not known.
    UnsupportedError
        When the join also returns unmatched rows of the requested build side.
    """
    if build not in BUILDS:
        raise SpecError(f"build={build!r}; use one of {', '.join(map(repr, BUILDS))}")
    joined = arguments.joined
    if build == "left" and (joined == "left" or arguments.how in ("semi", "anti")):
        raise UnsupportedError(
            f"build='left' with how={arguments.how!r}: the result has left rows without a match, "
            "so the right side must be the build side; leave build= out"
        )
    if build == "right" and joined == "right":
        raise UnsupportedError(
            f"build='right' with how={arguments.how!r}: the result has right rows without a match, "
            "so the left side must be the build side; leave build= out"
        )
    if build == "left" or joined == "right":
        return "right"
    # One task would ask for all rows of a side of many partitions.
    few_ask = build == "auto" and arguments.how == "inner" and partitions[0] == 1 < partitions[1]
    return "right" if few_ask else "left"


def _why_stored(plan: PartitionPlan, left: Expr, right: Expr) -> str:
    """Return in words why the build side is not the probe side."""
    how = plan.arguments.how
    if plan.is_filter:
        return f"as how={how!r} tells of each row of the left side"
    if plan.keeps_unmatched and plan.arguments.joined != "outer":
        return f"as how={how!r} keeps each row of the {plan.probing} side"
    if plan.probing == "left":
        return "as rows come in the order of the left side"
    if left.npartitions == 1 < right.npartitions:
        return "as it has one partition, and the other side many"
    return "by build='left'"


def _is_aligned(left: Expr, right: Expr, plan: PartitionPlan) -> bool:
    """Return whether both sides can be joined partition by partition, by their divisions."""
    sides, metas = (left, right), (plan.left, plan.right)
    if not all(isinstance(meta, pd.DataFrame) and meta.index.nlevels == 1 for meta in metas):
        return False
    dtypes = [meta.index.dtype for meta in metas]
    if dtypes[0] != dtypes[1] or not _is_ordered(dtypes[0]):
        return False
    if not all(side.known_divisions and _are_ordered(side.divisions, dtypes[0]) for side in sides):
        return False
    return any(_is_of_indexes(pair, plan) for pair in plan.keys.pairs)


def _is_of_indexes(pair: KeyPair, plan: PartitionPlan) -> bool:
    """Return whether both sides are joined by their index."""
    return all(
        label is None or label not in side.columns
        for label, side in ((pair.left_label, plan.left), (pair.right_label, plan.right))
    )


def _is_ordered(dtype: Any) -> bool:
    """Return whether labels of a dtype can be compared with divisions."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "iufmMO"
    return isinstance(dtype, pd.DatetimeTZDtype | pd.StringDtype)


def _are_ordered(divisions: Sequence[Any], dtype: Any) -> bool:
    if any(pd.isna(each) for each in divisions):
        return False
    return dtype.kind != "O" or all(isinstance(each, str) for each in divisions)
