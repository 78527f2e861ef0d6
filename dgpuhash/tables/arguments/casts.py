"""Cast arrays only if no value changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.errors import KeyTypeError
from dgpuhash.spec import native_dtype

# float32: the least normal number, and the least subnormal one, of which subnormals are multiples.
_LEAST_NORMAL, _LEAST = 2.0**-126, 2.0**-149
_SIGN = np.uint32(2**31)


def keeps_values(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether `target` represents every value of `source` exactly.

    The values also mean the same in both dtypes.

    Stricter than `numpy.can_cast(..., 'safe')`, which takes int64 to float64 and bool to dates.

    Examples
    --------
    >>> keeps_values(np.dtype("int32"), np.dtype("int64"))
    True
    >>> keeps_values(np.dtype("int64"), np.dtype("float64"))
    False
    """
    if native_dtype(source) == target:
        return True
    if source.kind in "biu" and target.kind in "biufc":
        exact = target.kind in "biu" or source.itemsize < 8
        return exact and np.can_cast(source, target, "safe")
    if source.kind in "fc" and target.kind in "fc":
        return np.can_cast(source, target, "safe")
    return source.kind == target.kind and source.kind in "mMSU" and np.can_cast(source, target)


def dtype_code(dtype: np.dtype[Any]) -> str:
    """Return the kernels' code of a NumPy dtype.

    Examples
    --------
    >>> print(dtype_code(np.dtype("M8[s]")), dtype_code(np.dtype([("a", "i4"), ("b", "f8")])))
    'datetime64[s]' [('a', '<i4'), ('b', '<f8')]
    """
    return f"'{dtype}'" if dtype.names is None and dtype.subdtype is None else str(dtype)


def cast(array: Any, target: np.dtype[Any], what: str, *, by_value: bool = False) -> Any:
    """Return `array` as `target`, or raise if a value would change.

    With `by_value` the values decide whether they fit, otherwise the dtype does.

    Raises
    ------
    KeyTypeError
        When a value would change or, unless `by_value`, could change.
    """
    source = array.dtype
    if source == target:
        return array
    if by_value and (array.size == 0 or _fits(array, target)):
        return array.astype(target)
    if not keeps_values(source, target):
        own = dtype_code(source)
        remedy = f"make the table with dtype {own}" if source.kind in "biufmM" else ""
        if _keeps_these(array, target):
            code = f"convert them yourself (.astype({dtype_code(target)}))"
            remedy = f"{code}, or {remedy}" if remedy else code
        else:
            remedy = remedy or "use dgpuhash.FrameIndex, which has keys and columns of any dtype"
            remedy += " (.astype would change or refuse them)"
        if target.names is not None:
            remedy += ", which takes fields by position and not by name"
        raise KeyTypeError(
            f"{what} of dtype {source} cannot become the table's {target} without changing values; "
            f"{remedy}"
        )
    try:
        made = as_float(array, target) if target.kind == "f" else array.astype(target)
        kept = target.kind not in "mM" or bool((made.astype(source) == array)[array == array].all())
    except OverflowError:  # NumPy 2.5 and newer
        kept = False
    if not kept:
        raise KeyTypeError(
            f"{what} of dtype {source} are outside the range of {target}; "
            f"make the table with dtype {dtype_code(source)}"
        )
    return made


def _keeps_these(array: Any, target: np.dtype[Any]) -> bool:
    """Return whether a cast by NumPy or CuPy keeps the values of an array."""
    if target.names is not None:
        return True
    if array.dtype.kind == "c" and target.kind != "c":
        return False
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            made = array.astype(target)
            back = made.real if target.kind == "c" != array.dtype.kind else made
            return bool((back.astype(array.dtype) == array).all())
    except (TypeError, ValueError, OverflowError):
        return False


def as_float(array: Any, target: np.dtype[Any]) -> Any:
    """Return numbers as floats of `target`, rounded as IEEE 754 requires.

    CuPy's own casts flush float32's subnormal numbers (below 1.18e-38) to zero.

    Examples
    --------
    >>> as_float(np.array([1e-45], np.float32), np.dtype("float64"))
    array([1.40129846e-45])
    """
    source = array.dtype
    with np.errstate(over="ignore"):
        made = array.astype(target, copy=False)
    if isinstance(array, np.ndarray) or source == target or not len(array):
        return made
    xp = backends.get(None, array).xp
    if source == np.float32 and target == np.float64:
        bits = array.view(np.uint32)
        magnitude = bits & ~_SIGN
        exact = magnitude.astype(np.float64) * _LEAST
        small, negative = magnitude < 2**23, bits >= _SIGN
        return xp.where(small, xp.where(negative, -exact, exact), made)
    if source == np.float64 and target == np.float32:
        magnitude = abs(array)
        small = magnitude < _LEAST_NORMAL
        bits = xp.rint(xp.where(small, magnitude, 0.0) / _LEAST).astype(np.uint32)
        bits |= xp.signbit(array) * _SIGN
        return xp.where(small, bits, made.view(np.uint32)).view(np.float32)
    return made


def _fits(array: np.ndarray[Any, Any], target: np.dtype[Any]) -> bool:
    """Return whether all Python values, as NumPy read them, fit `target`."""
    source = array.dtype
    if source.kind in "fc" and target.kind in ("fc" if source.kind == "f" else "c"):
        # 0.1 for a float32 may be rounded, but no finite number may become infinite.
        parts = array if source.kind == "f" else np.concatenate([array.real, array.imag])
        finite = parts[np.isfinite(parts)]
        return finite.size == 0 or bool(np.abs(finite).max() <= np.finfo(target).max)
    if source.kind == "b" or source.kind not in "iu" or target.kind not in "iufc":
        return False
    if target.kind in "fc":
        most = 2 ** (np.finfo(target).nmant + 1)
        least = -most
    else:
        least, most = np.iinfo(target).min, np.iinfo(target).max
    return least <= int(array.min()) and int(array.max()) <= most
