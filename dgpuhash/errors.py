"""Every error that dgpuhash raises on purpose.

::

    DgpuhashError
    ├── KeyTypeError      (TypeError)     a dtype that a table cannot take, or an unsafe cast
    ├── ShapeError        (ValueError)    dimensions or lengths that do not fit, or nulls
    ├── SpecError         (ValueError)    a table was described with impossible settings
    ├── UnsupportedError  (ValueError)    a request that is understood and refused
    ├── ColumnError       (ValueError)    a column that is missing, doubled or of the wrong type
    ├── CapacityError     (MemoryError)   a table that cannot hold what it was asked to hold
    ├── OutOfMemoryError  (MemoryError)   the host or the device has not enough memory
    ├── DeviceError       (RuntimeError)  no such device, too old, or arrays on different ones
    │   └── CompileError                  a kernel or the extension could not be built
    ├── FormatError       (ValueError)    a saved file that is foreign, truncated or damaged
    ├── ExistsError       (FileExistsError)  a place for a file that is taken
    ├── ClosedError       (RuntimeError)  an index that was closed
    ├── ReentranceError   (RuntimeError)  a table that its own thread is in the middle of using
    ├── TableBroken       (RuntimeError)  a table in which a change was cut off half-way
    └── IndexLost         (RuntimeError)  shards that are gone, or of another epoch than was asked
        ├── IndexChanged                  newer than the handle, or than what was made with it
        └── IndexNotFound                 a name, or the index of a handle, that is not known

Each message says what happened, to what, and what to do next.
"""

from __future__ import annotations

__all__ = [
    "CapacityError",
    "ClosedError",
    "ColumnError",
    "CompileError",
    "DeviceError",
    "DgpuhashError",
    "ExistsError",
    "FormatError",
    "IndexChanged",
    "IndexLost",
    "IndexNotFound",
    "KeyTypeError",
    "OutOfMemoryError",
    "ReentranceError",
    "ShapeError",
    "SpecError",
    "TableBroken",
    "UnsupportedError",
]


class DgpuhashError(Exception):
    """The base of every error that dgpuhash raises on purpose."""


class KeyTypeError(DgpuhashError, TypeError):
    """A dtype that a table cannot take, or a cast that would change values."""


class ShapeError(DgpuhashError, ValueError):
    """Wrong number of dimensions, lengths that differ, or nulls where none may be."""


class SpecError(DgpuhashError, ValueError):
    """A table described with impossible settings."""


class UnsupportedError(DgpuhashError, ValueError):
    """A request that is understood and refused; the message says how to get it."""


class ColumnError(DgpuhashError, ValueError):
    """A column that is missing, doubled or of the wrong type."""


# MemoryError comes first: it makes its instances in a way of its own, which must be that of the
# class for an error that travels from a worker to be made anew.
class CapacityError(MemoryError, DgpuhashError):
    """A table that cannot hold what it was asked to hold."""


class OutOfMemoryError(MemoryError, DgpuhashError):
    """The host or the device has not enough memory; the message says needed and free bytes."""


class DeviceError(DgpuhashError, RuntimeError):
    """No such device, a device too old, or arrays on different devices."""


class CompileError(DeviceError):
    """A kernel or the extension could not be built."""


class FormatError(DgpuhashError, ValueError):
    """A saved file that is foreign, truncated or damaged."""


# FileExistsError comes first for the same reason as MemoryError.
class ExistsError(FileExistsError, DgpuhashError):
    """Something is where a file, or a folder, was to be written, and would be replaced."""


class ClosedError(DgpuhashError, RuntimeError):
    """An index that was closed."""


class ReentranceError(DgpuhashError, RuntimeError):
    """A table used by a thread that is in the middle of using it, which would wait for itself."""


class TableBroken(DgpuhashError, RuntimeError):
    """A table in which a change was interrupted or failed half-way.

    Load it from a save, build it anew, or clear it.
    """


class IndexLost(DgpuhashError, RuntimeError):
    """A distributed index whose shards are gone, or of another epoch than was asked for."""


class IndexChanged(IndexLost):
    """A distributed index that is newer than the handle, or than what was made with it."""


class IndexNotFound(IndexLost):
    """A name that no index of the cluster has, or a handle whose index was closed elsewhere."""
