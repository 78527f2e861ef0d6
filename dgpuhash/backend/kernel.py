"""Look up kernel instances by name in the extension's list of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend.layout import Layout, struct_named
from dgpuhash.backend.native import REBUILD, native
from dgpuhash.errors import CompileError

WIDE_WORD = np.dtype(np.complex128)
"""Words of 16 bytes: no numbers, but no other dtype is as wide in NumPy and in CuPy."""
_NAMES = {np.dtype(np.uint32): "dg::u32", np.dtype(np.uint64): "dg::u64", WIDE_WORD: "dg::u128"}
_THREADS = 256


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instance of a kernel template.

    `kernel_named` and `verb_kernel` return it.

    Parameters
    ----------
    expression : str
        The C++ name expression, e.g. ``dg::open_insert<dg::u32,dg::u64,4>``.
    files : tuple of str
        The files below ``kernels/`` that define it, e.g. ``("launch/open.cuh",)``.
    tile : int
        Lanes that serve one row on a GPU; on the CPU it is always one.
    threads : int
        Threads of a block on a GPU.
    in_order : bool
        Whether a GPU launches one small block per few rows, in order, so that rows processed at
        the same time are neighbours. Otherwise a grid-stride loop runs on as many blocks as fill
        the GPU, and these drift apart.
    instance : str
        The expression of the same kernel on the CPU, where all widths are one; "" for
        `expression`.
    args_name : str
        C++ name of the struct of its arguments; see `args`.
    code : str
        C++ that is compiled behind the files.
    """

    expression: str
    files: tuple[str, ...]
    tile: int = 1
    threads: int = _THREADS
    in_order: bool = False
    instance: str = ""
    args_name: str = ""
    code: str = ""

    @property
    def args(self) -> Layout:
        """Layout of the struct of arguments."""
        return struct_named(self.args_name)


class _Row(NamedTuple):
    """A row of kernels/host/instances.inc."""

    expression: str
    files: tuple[str, ...]
    width: int
    taker: str
    args: str

    def kernel(self, width: int, in_order: bool) -> Kernel:
        """Return the kernel for tiles, or blocks, of `width` lanes."""
        tile = 1 if self.taker == "lane" else width
        threads = width if self.taker == "block" else _THREADS
        expression = self.expression.removesuffix(f"{self.width}>") + f"{width}>"
        if self.width == 0:
            expression = self.expression
        return Kernel(expression, self.files, tile, threads, in_order, self.expression, self.args)


@functools.cache
def kernel_named(
    name: str, *words: DTypeLike | None, width: int | None = None, in_order: bool = False
) -> Kernel:
    """Return the kernel `name` for keys and values of some dtypes.

    Parameters
    ----------
    name : str
        The C++ name without ``dg::``, e.g. ``"open_insert"``.
    *words : dtype or None
        uint32 or uint64, as many as the template takes; None is ``void``.
    width : int, optional
        Lanes of a tile, or threads of a block; by default the only one that the table has.
    in_order : bool
        See `Kernel`.

    Raises
    ------
    CompileError
        When there is no such kernel.

    Examples
    --------
    >>> kernel_named("open_find", np.uint32, None).expression
    'dg::open_find<dg::u32,void,32>'
    >>> kernel_named("partition_count", "u8", width=512).threads
    512
    """
    arguments = f"<{','.join(map(name_of_word, words))}" if words else ""
    key = f"dg::{name}{arguments}"
    rows = _rows_of(key)
    if width is None and len(rows) == 1:
        (width,) = rows
    if width not in rows:
        raise CompileError(f"{key} has the widths {', '.join(map(str, rows))}: pass width=")
    return rows[width].kernel(width, in_order)


@functools.cache
def verb_kernel(
    verb: str, table: str, width: int | None = None, *, in_order: bool = False
) -> Kernel:
    """Return the kernel of a method's verb.

    Parameters
    ----------
    verb : str
        A kernel of ``kernels/launch/verbs.cuh``, e.g. ``"insert"``, or one of the method's own.
    table : str
        The table's C++ type, e.g. ``"dg::Slab<dg::u32,dg::u32>"``.
    width : int, optional
        Lanes of a tile. Any width will do where the table of kernels has one: a GPU compiles it
        when it is first used, and on the CPU all are the same.
    in_order : bool
        See `Kernel`.

    Raises
    ------
    CompileError
        When the table has no such verb.
    """
    key = f"{verb}<{table.replace(' ', '')}"
    rows = _rows().get(f"dg::{key}") or _rows_of(f"dg::verb::{key}")
    row = next(iter(rows.values()))
    return row.kernel(row.width if width is None else width, in_order)


def name_of_word(dtype: DTypeLike | None) -> str:
    """Return the C++ type of uint32, uint64 or `WIDE_WORD` words; ``void`` for None.

    Raises
    ------
    CompileError
        For another dtype.

    Examples
    --------
    >>> name_of_word("u4"), name_of_word(None)
    ('dg::u32', 'void')
    """
    if dtype is None:
        return "void"
    made = np.dtype(dtype)
    if made not in _NAMES:
        raise CompileError(f"no kernel takes words of dtype {made}; view them as uint32 or uint64")
    return _NAMES[made]


def _rows_of(key: str) -> dict[int, _Row]:
    rows = _rows().get(key)
    if rows is None:
        raise CompileError(
            f"there is no kernel {key}: write a row into kernels/host/instances.inc, or "
            f"methods.inc, unless {REBUILD}"
        )
    return rows


@functools.cache
def _rows() -> dict[str, dict[int, _Row]]:
    """Return the rows by expression without the width, then by width."""
    made: dict[str, dict[int, _Row]] = {}
    instances: list[tuple[Any, ...]] = native().instances()
    for row in map(_Row._make, instances):
        end = f"{row.width}>" if row.width else ">"
        key = row.expression.replace(" ", "").removesuffix(end).rstrip(",<")
        made.setdefault(key, {})[row.width] = row
    return made
