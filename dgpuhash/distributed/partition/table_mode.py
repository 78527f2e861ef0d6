"""Mode of a distributed table: the place of each row, and the workers to query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dgpuhash.distributed.partition.conflict import Conflict, parse_conflict
from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.errors import SpecError

_MODES = (Placement.DISTRIBUTED, Placement.INDEPENDENT)


@dataclass(frozen=True, slots=True)
class TableMode:
    """Placement of a table's rows, and the rule for a key on several workers.

    Attributes
    ----------
    placement : Placement
        Not replicated.
    conflict : Conflict
        For maps whose rows stay where they are; else `Conflict.ERROR`.
    independent : bool
        Whether rows stay on their workers, and queries go to all workers.

    Examples
    --------
    >>> TableMode.of("independent", "sum", np.dtype("int64")).independent
    True
    """

    placement: Placement = Placement.DISTRIBUTED
    conflict: Conflict = Conflict.ERROR
    independent: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "independent", self.placement is Placement.INDEPENDENT)

    @classmethod
    def of(
        cls, mode: str, conflict: str = Conflict.ERROR.value, value: np.dtype[Any] | None = None
    ) -> TableMode:
        """Return the mode for a table's options; `value` is the dtype of a map's values.

        Raises
        ------
        SpecError
            When an option is unknown, or does not suit the values.
        """
        modes = {each.value: each for each in _MODES}
        if mode not in modes:
            named = " or ".join(map(repr, modes))
            raise SpecError(f"mode={mode!r}; use {named}")
        rule = parse_conflict(conflict)
        if rule is not Conflict.ERROR and modes[mode] is not Placement.INDEPENDENT:
            raise SpecError(
                f"conflict={conflict!r} with mode={mode!r}: only workers of independent tables "
                "store a key twice; leave it out, or use mode='independent'"
            )
        if value is not None:
            rule.check_values(value)
        return cls(modes[mode], rule)

    def to_json(self) -> dict[str, str]:
        """Return both options, as `of` takes them."""
        return {"mode": self.placement.value, "conflict": self.conflict.value}


DISTRIBUTED = TableMode()
