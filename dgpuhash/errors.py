"""The tree of dgpuhash's exceptions.

::

    DgpuhashError
    ├── KeyTypeError      (TypeError)     a dtype that a table cannot take, or an unsafe cast
    ├── ShapeError        (ValueError)    dimensions or lengths that do not fit, or nulls
    ├── SpecError         (ValueError)    a table was described with impossible settings
    ├── UnsupportedError  (ValueError)    a request that is understood and refused
    ├── IdError           (IndexError)    ids that no key has
    ├── ColumnError       (ValueError)    a column that is missing, duplicated or of the wrong type
    ├── CapacityError     (MemoryError)   a table that cannot hold the requested number of entries
    ├── CountOverflowError (OverflowError) a count that would not fit into 64 bits
    ├── OutOfMemoryError  (MemoryError)   the host or the device has not enough memory
    ├── DeviceError       (RuntimeError)  no such device, too old, or arrays on different ones
    │   └── CompileError                  a kernel or the extension could not be built
    ├── SequenceError     (ValueError)    a file that is not sequences, or is damaged
    ├── TaxonomyError     (ValueError)    a taxonomy that is wrong, or references without a taxon
    ├── FormatError       (ValueError)    a saved file that is not dgpuhash's, truncated or damaged
    ├── ExistsError       (FileExistsError)  a file or folder to write that already exists
    ├── ClosedError       (RuntimeError)  an index that was closed
    ├── ReentranceError   (RuntimeError)  a re-entrant use of a table that would deadlock
    ├── TableBroken       (RuntimeError)  a table in which a change was interrupted midway
    └── IndexLost         (RuntimeError)  an index whose shards are lost or of another epoch
        ├── IndexChanged                  an index that is newer than the handle
        └── IndexNotFound                 an unknown index name, or a handle of a closed index

Each message says what happened, to what, and what to do next.
"""

from __future__ import annotations

__all__ = [
    "CapacityError",
    "ClosedError",
    "ColumnError",
    "CompileError",
    "CountOverflowError",
    "DeviceError",
    "DgpuhashError",
    "ExistsError",
    "FormatError",
    "IdError",
    "IndexChanged",
    "IndexLost",
    "IndexNotFound",
    "KeyTypeError",
    "OutOfMemoryError",
    "ReentranceError",
    "SequenceError",
    "ShapeError",
    "SpecError",
    "TableBroken",
    "TaxonomyError",
    "UnsupportedError",
]


def install_command(extra: str) -> str:
    """Return the command that installs an optional dependency, from a checkout or a wheel.

    Examples
    --------
    >>> install_command("demo")
    "pip install '.[demo]' in a checkout, or pip install 'FILE.whl[demo]'"
    """
    return f"pip install '.[{extra}]' in a checkout, or pip install 'FILE.whl[{extra}]'"


class DgpuhashError(Exception):
    """Base class of all dgpuhash errors."""


class KeyTypeError(DgpuhashError, TypeError):
    """A dtype that a table cannot take, or a cast that would change values."""


class ShapeError(DgpuhashError, ValueError):
    """Wrong number of dimensions, unequal lengths, or forbidden nulls."""


class SpecError(DgpuhashError, ValueError):
    """Settings of a table that contradict each other or are out of range."""


class UnsupportedError(DgpuhashError, ValueError):
    """A valid request that this library does not support.

    The message tells how to get the result another way.
    """


class IdError(DgpuhashError, IndexError):
    """Ids that belong to no key."""


class ColumnError(DgpuhashError, ValueError):
    """A column that is missing, duplicated or of the wrong type."""


# MemoryError comes first: unpickling an error that a worker sent needs MemoryError's own `__new__`.
class CapacityError(MemoryError, DgpuhashError):
    """A table that cannot hold the requested number of entries."""


class CountOverflowError(OverflowError, DgpuhashError):
    """A count that would not fit into 64 bits."""


class OutOfMemoryError(MemoryError, DgpuhashError):
    """Not enough memory on the host or on the device.

    The message tells the bytes needed and free.
    """


class DeviceError(DgpuhashError, RuntimeError):
    """No such device, a device too old, or arrays on different devices."""


class CompileError(DeviceError):
    """A kernel or the extension could not be built."""


class SequenceError(DgpuhashError, ValueError):
    """A malformed or truncated sequence file, or mates that do not pair up.

    The message tells file, record and line.
    """


class TaxonomyError(DgpuhashError, ValueError):
    """A malformed taxonomy file, an unknown taxon, or references without a taxon.

    The message tells file and line where there are any.
    """


class FormatError(DgpuhashError, ValueError):
    """A saved file that is not dgpuhash's, truncated or damaged."""


# FileExistsError comes first for the same reason as MemoryError.
class ExistsError(FileExistsError, DgpuhashError):
    """A file or folder to write that already exists."""


class ClosedError(DgpuhashError, RuntimeError):
    """An index that was closed."""


class ReentranceError(DgpuhashError, RuntimeError):
    """A re-entrant use of a table by one thread that would deadlock."""


class TableBroken(DgpuhashError, RuntimeError):
    """A table in which a change was interrupted or failed midway.

    Load it from a save, build it anew, or clear it.
    """


class IndexLost(DgpuhashError, RuntimeError):
    """A distributed index whose shards are lost or of another epoch.

    The epoch differs from the one that the caller asked for.
    """


class IndexChanged(IndexLost):
    """A distributed index that is newer than the handle.

    Or it is newer than an object made with the handle.
    """


class IndexNotFound(IndexLost):
    """An index name that the cluster does not know.

    Or a handle whose index was closed elsewhere.
    """
