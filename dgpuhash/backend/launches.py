"""Launch kernels: at once, prepared for later, or several in one call of C."""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.layout import Layout

# Calling a step runs no Python code: it is a `prepare`d launch, or a `functools.partial` of a
# function written in C.
Step = Callable[[], object]


class Launches(ABC):
    """The part of a backend that runs kernels."""

    @abstractmethod
    def launch(self, kernel: Kernel, args: bytes, n: int) -> None:
        """Run `kernel` over `n` rows with a struct passed by value.

        `args` are the bytes of that struct. On a GPU the launch is asynchronous on CuPy's current
        stream; the arrays whose pointers `args` hold must live until the caller's next work on
        that stream.

        Raises
        ------
        CompileError
            When the kernel cannot be built or does not exist.
        """

    @abstractmethod
    def prepare(self, kernel: Kernel, args: bytes, n: int) -> functools.partial[Any]:
        """Return a callable that launches as `launch` does, in one call of C.

        The callable raises what that C call raises.
        """

    def prepared(self, kernel: Kernel, n: int, **fields: Any) -> Step:
        """Return a callable to repeat the launches of `run`.

        The step holds a reference to every array among `fields`.
        """
        fields["n"] = n
        step = self.prepare(kernel, kernel.args.packer.pack(fields, self._pointer), n)
        step.fields = fields  # type: ignore[attr-defined]
        return step

    def in_one_call(self, steps: Iterable[Step]) -> None:
        """Run all `steps` in order within one call of C.

        Python handles signals, and exceptions that other threads raise in this one, only between
        its own instructions. An interrupt therefore finds all steps done or none of them, unless a
        step fails.

        Examples
        --------
        >>> import functools
        >>> from dgpuhash import backend
        >>> done = []
        >>> backend.get("cpu").in_one_call([functools.partial(done.append, n) for n in range(3)])
        >>> done
        [0, 1, 2]
        """
        deque(map(operator.call, steps), maxlen=0)

    @abstractmethod
    def pointer(self, data: Any) -> int:
        """Return the address of the first element; 0 for None or empty arrays."""

    @property
    def _pointer(self) -> Callable[[Any], int] | None:
        """`pointer`, which structs are packed with; None where their arrays are NumPy's."""
        return self.pointer

    def run(self, kernel: Kernel, n: int, **fields: Any) -> None:
        """Launch `kernel` over `n` rows, with its struct's other `fields`.

        Arrays are passed as pointers, numbers as they are. A nested struct is given as bytes, or
        as a tuple of arrays and numbers if it has only words; an array of words as a tuple.
        Omitted fields are 0.

        Examples
        --------
        >>> import numpy as np
        >>> from dgpuhash import backend
        >>> cpu, rows = backend.get("cpu"), np.zeros(3, np.int64)
        >>> cpu.run(backend.kernel_named("all_rows"), 3, rows=rows)
        >>> rows.tolist()
        [0, 1, 2]
        """
        fields["n"] = n
        self.launch(kernel, kernel.args.packer.pack(fields, self._pointer), n)

    def pack(self, struct: Layout, **fields: Any) -> bytes:
        """Return the bytes of a `struct` of `fields`, given as to `run`."""
        made: bytes = struct.packer.pack(fields, self._pointer)
        return made

    def bound(self, kernel: Kernel, *structs: bytes) -> Callable[..., None]:
        """Return a callable that launches `kernel` with fixed nested `structs`.

        The callable takes the number of rows, then every word of the struct in order, each an
        array or a number. It does what `run` does, with less overhead per call.

        Examples
        --------
        >>> import numpy as np
        >>> from dgpuhash import backend
        >>> cpu, owners = backend.get("cpu"), np.zeros(2, np.uint32)
        >>> owner_of = cpu.bound(backend.kernel_named("owner_of"))
        >>> owner_of(2, np.array([1, 2**63], np.uint64), owners, 2, 2)
        >>> owners.tolist()
        [0, 1]
        """
        launch, pack, pointer = self.launch, kernel.args.packer.pack_in_order, self._pointer

        def run(n: int, *words: Any) -> None:
            launch(kernel, pack(structs, words, pointer), n)

        return run
