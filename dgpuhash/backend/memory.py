"""Recognize exceptions for exhausted host or device memory."""

from __future__ import annotations


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` reports exhausted host or device memory.

    CuPy's pool and RMM raise a MemoryError; without a pool, CuPy raises the CUDA runtime's error.
    Python raises a RuntimeError if a new thread's stack does not fit into memory.

    Examples
    --------
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError())
    (True, False)
    """
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return True
    return isinstance(error, MemoryError) or "cudaErrorMemoryAllocation" in str(error)
