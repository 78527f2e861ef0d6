"""What every backend offers: arrays, one way to launch a kernel, batch operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["Backend", "Kernel"]

Shape = int | tuple[int, ...]


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
    """

    expression: str
    file: str
    tile: int = 1


class Backend(ABC):
    """Arrays and kernels of one device.

    Attributes
    ----------
    name : str
        ``"cpu"`` or ``"cuda"``.
    """

    name: str

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """The array module: NumPy or CuPy."""

    @abstractmethod
    def launch(self, kernel: Kernel, args: np.ndarray | np.void, n: int) -> None:
        """Run `kernel` over `n` rows with the struct `args` passed by value.

        On a GPU this is asynchronous on CuPy's current stream; the arrays whose pointers `args`
        holds must live until the caller's next work on that stream.

        Raises
        ------
        CompileError
            When the kernel cannot be built or does not exist.
        """

    @abstractmethod
    def empty(self, shape: Shape, dtype: DTypeLike) -> Any:
        """An uninitialised array, aligned to 64 bytes.

        Raises
        ------
        OutOfMemoryError
            With the bytes needed and free.
        """

    @abstractmethod
    def asarray(self, data: Any, dtype: DTypeLike | None = None) -> Any:
        """`data` (array, Series, DLPack or Arrow array, list) as this device's C-contiguous array.

        Host data is never moved to a GPU, nor back, except for lists and scalars.

        Raises
        ------
        DeviceError
            When `data` lives on another kind of device.
        ShapeError
            When `data` is masked or has nulls.
        """

    @abstractmethod
    def from_host(self, data: Any) -> Any:
        """A host array copied to this device (no copy on the CPU)."""

    @abstractmethod
    def to_host(self, data: Any) -> np.ndarray:
        """This device's array as a NumPy array; waits for the work that fills it."""

    @abstractmethod
    def pointer(self, data: Any) -> int:
        """The address of the first element; 0 for None and for empty arrays."""

    @abstractmethod
    def stable_order(self, keys: Any) -> Any:
        """The int64 row order that sorts `keys`, equal keys in input order."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the work launched on the current stream is done."""

    @abstractmethod
    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the device's memory."""

    @abstractmethod
    def device_name(self) -> str:
        """The device in words."""

    def zeros(self, shape: Shape, dtype: DTypeLike) -> Any:
        """As `empty`, all elements zero."""
        return self.full(shape, 0, dtype)

    def full(self, shape: Shape, value: Any, dtype: DTypeLike) -> Any:
        """As `empty`, all elements `value`."""
        made = self.empty(shape, dtype)
        made.fill(value)
        return made
