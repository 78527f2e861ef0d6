"""How a kernel is launched: at once, bound to a table, or together with others."""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.packing import packing, words_of

__all__ = ["Launches", "Step"]

# Made so that its call runs no line of Python: a `prepare`d launch, a `functools.partial` of what
# is written in C.
Step = Callable[[], object]


class Launches(ABC):
    """The part of a backend that runs kernels."""

    @abstractmethod
    def launch(self, kernel: Kernel, args: bytes, n: int) -> None:
        """Run `kernel` over `n` rows with a struct passed by value, whose bytes `args` are.

        On a GPU this is asynchronous on CuPy's current stream; the arrays whose pointers they
        hold must live until the caller's next work on that stream.

        Raises
        ------
        CompileError
            When the kernel cannot be built or does not exist.
        """

    @abstractmethod
    def prepare(self, kernel: Kernel, args: bytes, n: int) -> functools.partial[Any]:
        """What does as `launch` when it is called, in one call of C; raises what that does."""

    def prepared(self, kernel: Kernel, struct: np.dtype[Any], n: int, **fields: Any) -> Step:
        """The step that does as `run` when it is called; has the arrays as long as it lives."""
        step = self.prepare(kernel, self.pack(struct, n=n, **fields), n)
        step.fields = fields  # type: ignore[attr-defined]
        return step

    def in_one_call(self, steps: Iterable[Step]) -> None:
        """Do all `steps` one after the other in one call of C.

        Python looks for signals, and for exceptions that other threads have raised here, between
        its own instructions only. So these find all steps done or none, unless one of them fails.

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
        """The address of the first element; 0 for None and for empty arrays."""

    def run(self, kernel: Kernel, struct: np.dtype[Any], n: int, **fields: Any) -> None:
        """Launch `kernel` with a `struct` of `fields`: arrays (as pointers) and numbers.

        A struct in it comes as bytes, or as a tuple of arrays and numbers where it only has words.
        Fields that are left out are 0.
        """
        self.launch(kernel, self.pack(struct, n=n, **fields), n)

    def pack(self, struct: np.dtype[Any], **fields: Any) -> bytes:
        """The bytes of a `struct` of `fields`, as `run` takes them."""
        nested, names, pack = packing(struct)
        structs = [self._struct(fields.pop(name), nbytes) for name, nbytes in nested.items()]
        take, word = fields.pop, self._word
        # Plain numbers take no call each.
        words = [it if type(it := take(name, 0)) is int else word(it) for name in names]
        if fields:
            raise TypeError(f"{', '.join(fields)}: no such fields, use {', '.join(names)}")
        return pack(*structs, *words)

    def bound(self, kernel: Kernel, struct: np.dtype[Any], *structs: bytes) -> Callable[..., None]:
        """`kernel` with the `structs` inside its struct; called with rows and all words.

        Those are arrays and numbers, in the order of the struct: what `run` does in less time.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> from dgpuhash.backend.structs import core
        >>> cpu, owners = backend.get("cpu"), np.zeros(2, np.uint32)
        >>> owner_of = cpu.bound(core.owner_of(), core.OWNER_OF)
        >>> owner_of(2, np.array([1, 2**63], np.uint64), owners, 2, 2)
        >>> owners.tolist()
        [0, 1]
        """
        launch, word = self.launch, self._word
        pack = functools.partial(packing(struct).pack, *structs)

        def run(n: int, *words: Any) -> None:
            launch(kernel, pack(*[it if type(it) is int else word(it) for it in words]), n)

        return run

    def _struct(self, field: Any, nbytes: int) -> bytes:
        if isinstance(field, tuple):
            field = words_of(*map(self._word, field))
        if len(field) != nbytes:
            raise TypeError(f"a struct of {nbytes} bytes was given {len(field)}")
        return field

    def _word(self, field: Any) -> Any:
        return field if isinstance(field, (int, np.integer)) else self.pointer(field)
