"""Partial aggregation: partial states of each partition, and their merge."""

from dgpuhash.frames.groupby.partial.cudf.plan import CudfPlan
from dgpuhash.frames.groupby.partial.plan import GroupPlan
from dgpuhash.frames.groupby.partial.verbs import GroupByCall

__all__ = ["CudfPlan", "GroupByCall", "GroupPlan"]
