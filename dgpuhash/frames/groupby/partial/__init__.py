"""Groupbys of frames in parts: states of each part, which are folded to those of all."""

from dgpuhash.frames.groupby.partial.cudf.plan import CudfPlan
from dgpuhash.frames.groupby.partial.plan import GroupPlan
from dgpuhash.frames.groupby.partial.verbs import Verb

__all__ = ["CudfPlan", "GroupPlan", "Verb"]
