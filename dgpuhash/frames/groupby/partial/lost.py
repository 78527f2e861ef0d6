"""Bounds of what sums and deviations lost where rows were taken off their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.groupby.partial.kinds import total_of

__all__ = ["LostDigitsError", "check_digits", "whole_digits"]

# The most that may be lost, and half of what tells a float from the next one.
_MOST, _HALF_STEP = 1e-6, 2.0**-53
_NAMED = 5
_WERE = {False: "lay much further apart", True: "were much larger"}


class LostDigitsError(UnsupportedError):
    """Sums or deviations whose digits went with rows that were taken off."""


def check_digits(
    how: str, groups: Groups, fields: Mapping[str, Any], read: Sequence[str]
) -> None:  # fmt: skip
    """Raise LostDigitsError where more than 10⁻⁶ of a field may be lost.

    Less than the digits of the values that are left is none.

    Parameters
    ----------
    how : str
        The aggregate.
    groups : Groups
    fields : mapping
        Arrays by name, an element for each group.
    read : sequence of str
        The fields that the aggregate follows from.
    """
    bad = np.zeros(len(groups), bool)
    for field in read:
        lost = fields.get(f"{field} lost")
        if lost is None or not lost.any():
            continue
        if field == "real":
            bad |= _bad_sums(fields)
            continue
        steps = [_HALF_STEP * np.abs(mean) for mean in _means(field, fields)]
        with np.errstate(invalid="ignore", over="ignore"):
            bad |= lost > _MOST * np.maximum(_size(field, fields), steps[0] * steps[-1])
    if bad.any():
        rows = np.flatnonzero(bad)
        named = ", ".join(map(repr, groups.index.take(rows[:_NAMED]).tolist()))
        raise LostDigitsError(
            f"{how} of {len(rows):,} group{'' if len(rows) == 1 else 's'}, as {named}, is not "
            f"known to 6 digits: rows that were retracted {_WERE[read[0] == 'real']} than those "
            "that are left; build the groups anew, or ask for the other aggregates alone"
        )


def _bad_sums(fields: Mapping[str, Any]) -> Any:
    """Return a mask of the groups whose sum of floats may lack more than 10⁻⁶.

    Of values whose sum is about 0, what lies below the digits of a float is nothing.
    """
    lost = fields["real lost"]
    with np.errstate(invalid="ignore", over="ignore"):
        # What is lost of the sizes is less than `lost` in digits of floats.
        digits = _HALF_STEP * fields["magnitude"] - lost
        bad = (lost > _MOST * np.abs(fields["real"])) & (lost > digits)
    # The sum of a NaN that is no null is none.
    return bad & (fields["stray"] == 0) if "stray" in fields else bad


def whole_digits(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of whole numbers, with all digits of deviations that lost few of them.

    Products of the deviations of n whole numbers add up to a multiple of 1/n.

    Parameters
    ----------
    fields : mapping
        Arrays by name, an element for each group.
    """
    made, count = dict(fields), fields["count"]
    for label, lost in fields.items():
        field = label.removesuffix(" lost")
        if field != label and lost.any():
            known = (lost > 0) & (lost * count < 0.25)
            near = np.rint(fields[field] * count) / np.maximum(count, 1)
            made[field] = np.where(known, near, fields[field])
            made[label] = np.where(known, 0.0, lost)
    return made


def _size(field: str, fields: Mapping[str, Any]) -> Any:
    """Return what the loss of a field is a share of: of products those of the deviations."""
    if field == "mixed":
        return np.sqrt(fields["squares"]) * np.sqrt(fields["others"])
    return fields[field]


def _means(field: str, fields: Mapping[str, Any]) -> list[Any]:
    """Return the means of the values that a field is of."""
    count = fields["count"]
    if field == "moment":
        return [numbers.mean_of(total_of(dict(fields)), count)[0]]
    sides = {"mixed": ("left", "right"), "squares": ("left",), "others": ("right",)}[field]
    totals = [(fields[side], fields[f"{side} rest"]) for side in sides]
    return [numbers.mean_of(total, count)[0] for total in totals]
