"""Tables as arguments of kernels that users write."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.tables.store import Lent


class DeviceView(np.ndarray):
    """A table as an argument of a user's kernel: a NumPy struct of no dimension.

    `device_view` of a table gives it. CuPy passes such a struct to a ``RawKernel`` by value. Its
    fields are the addresses of the table's arrays, and numbers.

    Attributes
    ----------
    type : str
        Type of the kernel's parameter, e.g. ``dg::device::View<dg::Slab<dg::u32,dg::u32>>``. Its
        members are in ``device/view.cuh``.
    include : str
        Lines that include the headers of the type.

    Examples
    --------
    >>> from dgpuhash.tables import HashMap
    >>> view = view_of(HashMap("int32", "float32", device="cpu")._opened().lend(write=False))
    >>> view.type, view.shape
    ('dg::device::View<dg::device::Auto<dg::u32,dg::u32>>', ())
    """

    type: str
    include: str

    def __array_finalize__(self, other: Any) -> None:
        self.type, self.include = getattr(other, "type", ""), getattr(other, "include", "")


def view_of(lent: Lent) -> DeviceView:
    """Return the view of a table that its store has lent."""
    struct = np.frombuffer(lent.storage, lent.layout.dtype).copy()
    view = struct.reshape(()).view(DeviceView)
    view.type = f"dg::device::View<{lent.table}>"
    files = ("device/view.cuh", *lent.files)
    view.include = "".join(f'#include "{file}"\n' for file in dict.fromkeys(files))
    return view
