"""Layouts of the C++ structs of kernel arguments, and packing of values into them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dgpuhash.backend.native import REBUILD, native
from dgpuhash.errors import CompileError


class Layout:
    """Layout of a C++ struct, as the extension was compiled with it.

    `struct_named` returns it; ``layout["field"]`` is the layout of a struct within.

    Attributes
    ----------
    name : str
        The C++ name without ``dg::``.
    nbytes : int
        Size.
    fields : list of (str, int, int, str)
        Name, offset, number of elements, and letter of a word, as in module `struct`, or name of
        a struct.

    Examples
    --------
    >>> struct_named("OpenInsertArgs")["table"]
    <OpenStorage of 56 bytes: keys, values, state, overflow, buckets, segment_shift, seed>
    """

    def __init__(self, name: str, nbytes: int, fields: list[tuple[str, int, int, str]]) -> None:
        self.name: str = name
        self.nbytes: int = nbytes
        self.fields: list[tuple[str, int, int, str]] = fields

    def __repr__(self) -> str:
        names = ", ".join(name for name, *_ in self.fields)
        return f"<{self.name} of {self.nbytes} bytes: {names}>"

    def __getitem__(self, field: str) -> Layout:
        (kind,) = (kind for name, _, _, kind in self.fields if name == field)
        return struct_named(kind)

    @functools.cached_property
    def dtype(self) -> np.dtype[Any]:
        """The struct as a NumPy dtype, for arrays of it in memory.

        Examples
        --------
        >>> np.zeros(1, struct_named("OpenState").dtype)["side_value"].shape
        (1, 2)
        """
        formats: list[Any] = []
        for _, _, count, kind in self.fields:
            each = np.dtype(f"={kind}") if _is_letter(kind) else struct_named(kind).dtype
            formats.append((each, (count,)) if count > 1 else each)
        names, offsets = [it[0] for it in self.fields], [it[1] for it in self.fields]
        described: Any = {"names": names, "formats": formats, "offsets": offsets}
        described["itemsize"] = self.nbytes
        return np.dtype(described)

    @functools.cached_property
    def packer(self) -> Any:
        """Function that packs Python values into the bytes of the struct.

        Examples
        --------
        >>> packer = struct_named("OpenEraseArgs").packer
        >>> table = bytes(struct_named("OpenStorage").nbytes)
        >>> packer.pack({"table": table, "n": 3}, None)[-8:] == (3).to_bytes(8, "little")
        True
        """
        described = [
            (name, offset, count, kind if _is_letter(kind) else "", self._within(kind))
            for name, offset, count, kind in self.fields
        ]
        return native().Packer(self.name, self.nbytes, described)

    @staticmethod
    def _within(kind: str) -> Any:
        return None if _is_letter(kind) else struct_named(kind).packer


def _is_letter(kind: str) -> bool:
    return len(kind) == 1


@functools.cache
def struct_named(name: str) -> Layout:
    """Return the layout of a struct by its C++ name without ``dg::``.

    Known are the structs of arguments of all kernels, those within them, and those of device
    memory that ``kernels/host/instances.inc`` names.

    Raises
    ------
    CompileError
        When the extension knows no such struct.

    Examples
    --------
    >>> struct_named("RowSet")
    <RowSet of 8 bytes: words>
    """
    try:
        return Layout(name, *native().struct_layout(name))
    except KeyError as error:
        raise CompileError(
            f"the extension knows no struct {name}: write DG_STRUCT({name}) into "
            f"kernels/host/instances.inc, unless {REBUILD}"
        ) from error
