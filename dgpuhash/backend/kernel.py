"""Identity of one kernel instance."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Kernel"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One instance of a kernel template.

    Parameters
    ----------
    expression : str
        The C++ name expression, e.g. ``dg::open_insert<dg::u32,dg::u64,4>``.
    file : str
        The file below ``kernels/`` that defines the template, e.g. ``launch/open.cuh``.
    tile : int
        Lanes that serve one row on a GPU; on the CPU it is always one.
    threads : int
        Threads of a block on a GPU.
    in_order : bool
        Whether a GPU launches one small block per few rows, in order, so that rows processed at
        the same time are neighbours. Otherwise a grid-stride loop runs on as many blocks as fill
        the GPU, and these drift apart.
    """

    expression: str
    file: str
    tile: int = 1
    threads: int = 256
    in_order: bool = False
