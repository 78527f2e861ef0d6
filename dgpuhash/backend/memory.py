"""Which errors say that memory ran out."""

from __future__ import annotations

__all__ = ["ran_out"]


def ran_out(error: BaseException) -> bool:
    """Whether `error` says that host or device memory ran out.

    CuPy's pool and RMM raise a MemoryError; with no pool, the CUDA runtime's own error arrives. A
    thread whose stack has no room is a RuntimeError to Python.

    Examples
    --------
    >>> ran_out(MemoryError()), ran_out(ValueError())
    (True, False)
    """
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return True
    return isinstance(error, MemoryError) or "cudaErrorMemoryAllocation" in str(error)
