"""Launch a user's C++ function on a table's entries, in one kernel."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, Kernel
from dgpuhash.errors import SpecError
from dgpuhash.tables.store import Lent

# Arguments behind the row: as many as `VisitArgs` of kernels/device/view.cuh has.
MOST_EXTRA = 8
_WIDTH = 8
_TYPES = {
    "b1": "bool", "i1": "signed char", "i2": "short", "i4": "int", "i8": "long long",
    "u1": "dg::u8", "u2": "unsigned short", "u4": "dg::u32", "u8": "dg::u64",
    "f4": "float", "f8": "double", "m8": "long long", "M8": "long long", "f2": "unsigned short",
}  # fmt: skip


def launch_fused(
    backend: Backend,
    lent: Lent,
    dtypes: tuple[np.dtype[Any], np.dtype[Any] | None],
    text: str,
    extra: Sequence[Any],
    keys: Any = None,
) -> None:
    """Call a C++ function for the stored ones of `keys`, or for all entries, in one launch.

    Parameters
    ----------
    backend : Backend
    lent : Lent
    dtypes : (dtype, dtype or None)
        Of the table's keys and values.
    text : str
        A lambda of key, value (of maps), row (of `keys`), and one parameter for each of `extra`.
    extra : sequence
        Arrays, which become pointers, and numbers.
    keys : array, optional
        Key words as the table stores them.

    Raises
    ------
    SpecError
        For too many, or other, arguments.
    CompileError
        With the compiler's log, when the text does not compile.
    """
    kernel = fused_kernel(lent, dtypes, text, extra, found=keys is not None)
    words = [_word(backend, each) for each in extra]
    words += [b"\0" * 8] * (MOST_EXTRA - len(words))
    rows = lent.places + 2 if keys is None else len(keys)
    args = lent.storage + struct.pack("=Q", backend.pointer(keys)) + b"".join(words)
    backend.launch(kernel, args + struct.pack("=Q", rows), rows)


def fused_kernel(
    lent: Lent,
    dtypes: tuple[np.dtype[Any], np.dtype[Any] | None],
    text: str,
    extra: Sequence[Any],
    *,
    found: bool,
) -> Kernel:
    """Return the kernel that calls a C++ function, for `launch_fused`."""
    if len(extra) > MOST_EXTRA:
        raise SpecError(
            f"{len(extra)} arguments were given for a C++ function; give at most {MOST_EXTRA}"
        )
    key, value = dtypes
    taken = [f"dg::device::as<{_type(key)}>(key)"]
    if value is not None:
        taken.append(f"dg::device::as<{_type(value)}>(value)")
    if found:
        taken.append("row")
    for number, each in enumerate(extra):
        kind = _type(_dtype(each))
        word = f"extra[{number}]"
        pointer = hasattr(each, "shape") and each.shape != ()
        taken.append(f"({kind}*){word}" if pointer else f"dg::device::as<{kind}>({word})")
    body = f"    const auto each = {text.strip()};\n    each({', '.join(taken)});\n"
    name = f"Each_{hashlib.blake2b(body.encode(), digest_size=12).hexdigest()}"
    code = (
        f"struct {name} {{\n  template <class Key, class Value>\n  __device__ void operator()"
        "([[maybe_unused]] Key key, [[maybe_unused]] Value value, [[maybe_unused]] dg::u64 row,\n"
        "                             [[maybe_unused]] const dg::u64* extra) const {\n"
        f"{body}  }}\n}};\n"
    )
    verb = "visit_found" if found else "visit_all"
    width = _WIDTH if found else 1
    expression = f"dg::device::{verb}<{lent.table},{name},{width}>"
    files = tuple(dict.fromkeys((*lent.files, "device/view.cuh")))
    return Kernel(expression, files, code=code)


def _dtype(argument: Any) -> np.dtype[Any]:
    """Return the dtype of an argument; Python numbers take 8 bytes."""
    if hasattr(argument, "dtype"):
        return np.dtype(argument.dtype)
    if type(argument) in (bool, int, float):
        return np.dtype(type(argument))
    raise SpecError(f"an argument is a {type(argument).__name__}; give arrays and numbers")


def _type(dtype: np.dtype[Any]) -> str:
    name = f"{dtype.kind}{dtype.itemsize}"
    if name not in _TYPES:
        raise SpecError(f"C++ functions do not accept {dtype} arguments; give a Python function")
    return _TYPES[name]


def _word(backend: Backend, argument: Any) -> bytes:
    if hasattr(argument, "shape") and argument.shape != ():
        return struct.pack("=Q", backend.pointer(argument))
    return np.array(argument, _dtype(argument)).tobytes().ljust(8, b"\0")
