"""Folders on any file system, and files that are there whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from dgpuhash.errors import (
    DgpuhashError,
    ExistsError,
    FormatError,
    SpecError,
    UnsupportedError,
)
from dgpuhash.tables.serialization import check_plain, only_reads

__all__ = ["Folder"]


class Folder:
    """A folder by its fsspec URL, or by a path.

    On local file systems what was written is on the disk when a method returns.

    Attributes
    ----------
    url : str
        As workers with other working folders understand it.
    system : fsspec.AbstractFileSystem
    path : str
        Within that file system.
    local : bool

    Raises
    ------
    SpecError
        When fsspec knows no such URL, or a package for it is missing.
    FormatError
        When it is in an archive that cannot be read.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        try:
            with _saying(os.fsdecode(url), ImportError, ValueError, TypeError):
                self.system, self.path = fsspec.core.url_to_fs(os.fsdecode(url))
        except FormatError:
            # It is a ValueError, too.
            raise
        except (ImportError, ValueError, TypeError) as error:
            raise SpecError(f"{url!r}: {error}; give a path, or a URL that fsspec knows") from error
        self.local = isinstance(self.system, LocalFileSystem)
        if self.local and "::" in os.fsdecode(url):
            raise SpecError(
                f"{url!r}: fsspec takes what follows :: for another place; choose a name without"
            )
        whole = str(self.system.unstrip_protocol(self.path) if self.local else os.fsdecode(url))
        self.url = whole.rstrip("/")
        if self.url.endswith(":"):
            # The root of a file system.
            self.url += "///"

    def make(self) -> None:
        """Make the folder, and those that it is in, unless they are there.

        Raises
        ------
        SpecError
            When its name is a pattern.
        """
        check_plain(self.url, self.system)
        path = Path(self.path)
        new = [each for each in (path, *path.parents) if self.local and not each.exists()]
        self.system.makedirs(self.path, exist_ok=True)
        for each in new:
            _sync(str(each.parent))

    def names(self) -> list[str]:
        """Of the files and folders that are there; none when the folder is not."""
        try:
            # Some file systems remember what they have listed once.
            self.system.invalidate_cache(self.path)
            with _saying(self.url):
                found = self.system.ls(self.path, detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)

    def exists(self) -> bool:
        """Whether anything is there under this name."""
        return bool(self.system.exists(self.path))

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        self.system.invalidate_cache(self._at(name))
        return bool(self.system.isfile(self._at(name)))

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when it is not there."""
        if not self.has(name):
            return None
        found = self.system.size(self._at(name))
        # Not all servers say so.
        return len(self.read(name)) if found is None else int(found)

    def read(self, name: str) -> bytes:
        """The bytes of a file.

        Raises
        ------
        FormatError
            When an archive is damaged, or a server does not send it; as in a block of `reading`.
        """
        with _saying(f"{self.url}/{name}"):
            return bytes(self.system.cat_file(self._at(name)))

    def may_hold(self, name: str, data: bytes) -> bool:
        """Whether a file has these bytes, or nobody can say so."""
        try:
            return self.read(name) == data
        except FileNotFoundError:
            return False
        except (OSError, FormatError):
            return True

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """A file to read from, while the folder, whose end closes those in archives, is kept."""
        with _saying(f"{self.url}/{name}"), self.system.open(self._at(name), "rb") as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """A new file to write to, which goes when the block fails.

        Raises
        ------
        UnsupportedError
            When the file system only reads.
        """
        try:
            with self._new(name) as file:
                yield file
                self._flush(file)
            self.sync()
        except BaseException:
            self.remove([name])
            raise

    def replace(self, name: str, data: bytes, mark: str = "") -> None:
        """Write a file under its name at once; what was there is replaced then.

        Until then it is a file whose name goes on with `mark`.
        """
        part = f"{name}.{mark}{uuid.uuid4().hex}.part"
        with self.writing(part) as file:
            file.write(data)
        try:
            if self.local:
                Path(self._at(part)).replace(self._at(name))
                self.sync()
            else:
                self.system.invalidate_cache(self._at(part))
                self.system.mv(self._at(part), self._at(name))
        except BaseException:
            self.remove([part])
            raise

    def create(self, name: str, data: bytes) -> None:
        """Write a file that must not be there; one who does so at once is first, where known.

        A process that is killed meanwhile may leave the beginning of the file.

        Raises
        ------
        FileExistsError
            When it is there.
        """
        with self._exclusive(name) as file:
            try:
                file.write(data)
                self._flush(file)
            except BaseException:
                self.remove([name])
                raise
        self.sync()

    def check_exclusive(self) -> None:
        """Raise UnsupportedError where `create` may let two writers at once both be first.

        Other than local file systems are tried, and what that makes is removed.
        """
        if self.local:
            return
        check_plain(self.url, self.system)
        name, new, above = f"{uuid.uuid4().hex}.part", [], self.path
        while above and not self.system.exists(above):
            new.append(above)
            above = above.rpartition("/")[0]
        self.system.makedirs(self.path, exist_ok=True)
        try:
            if not self._is_exclusive(name):
                raise UnsupportedError(
                    f"{self.url} is on a file system ({type(self.system).__name__}) that cannot "
                    "create a file only where none is, so that two who write one log at the same "
                    "time would not be told apart; choose another place, such as a local disk, or "
                    "pass single_writer=True if nobody else ever goes on with this log"
                )
        finally:
            self.remove([name])
            for each in new:
                # Where folders are but names of files, there is none any more.
                with suppress(OSError, NotImplementedError):
                    self.system.rmdir(each)

    def _is_exclusive(self, name: str) -> bool:
        try:
            with self.system.open(self._at(name), "xb") as file:
                file.write(b"first")
        except (ValueError, NotImplementedError):
            # One that only reads says so.
            self._new(name).close()
            return False
        try:
            with self.system.open(self._at(name), "xb") as file:
                file.write(b"second")
        except OSError:
            return True
        return False

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that are there, where the file system can."""
        for name in names:
            with suppress(FileNotFoundError, NotImplementedError):
                self.system.rm_file(self._at(name))

    def fill(
        self,
        names: Sequence[str],
        last: str,
        write: Callable[[Folder], bytes],
        *,
        fresh: bool,
        mark: str = "",
    ) -> None:
        """Have `write` make the files `names`, and then put what it returns into the file `last`.

        `fresh`: `last` is not there. Then a local folder that is not there either appears under its
        name when it is complete; until then that begins with its own and `mark`, as that of a
        `last` that replaces one. When this fails nothing is left, unless `last` was written all
        the same.

        Raises
        ------
        ExistsError
            When a fresh `last` is there by now.
        """
        # One that is there may be somebody's working folder, a link, or where a disk begins.
        apart = self.local and fresh and not self.exists()
        data = None
        folder = Folder(f"{self.url}.{mark}{uuid.uuid4().hex[:12]}.part") if apart else self
        folder.make()
        try:
            data = write(folder)
            try:
                if fresh and not apart:
                    folder.create(last, data)
                else:
                    folder.replace(last, data, mark)
                if apart:
                    folder.rename(self)
            except OSError as error:
                if not fresh or not self.has(last) or self.may_hold(last, data):
                    raise
                raise ExistsError(
                    f"somebody else saved to {self.url} at the same time; choose another place, or "
                    "replace that with overwrite=True"
                ) from error
        except BaseException:
            if apart:
                _clear(folder.path)
            elif data is None or not folder.may_hold(last, data):
                folder.remove(names)
            raise

    def clear_parts(self, mark: str) -> None:
        """Remove what `fill` has left beside a local folder, with this mark, when it was killed."""
        if self.local:
            path = Path(self.path)
            # Where the folder beside may not be listed, it stays.
            with suppress(OSError):
                for each in path.parent.iterdir():
                    if each.name.startswith(f"{path.name}.{mark}") and each.suffix == ".part":
                        _clear(str(each))

    def rename(self, new: Folder) -> None:
        """Give a local folder the name of none."""
        # Fails on one that was filled meanwhile.
        Path(self.path).rename(new.path)
        _sync(str(Path(new.path).parent))

    def sync(self) -> None:
        """On a local file system, have the names of new files on the disk."""
        if self.local:
            _sync(self.path)

    def _exclusive(self, name: str) -> Any:
        try:
            return self.system.open(self._at(name), "xb")
        except (ValueError, NotImplementedError):
            # Not all file systems can; `check_exclusive` tells of them.
            if self.has(name):
                raise FileExistsError(name) from None
            return self._new(name)

    def _new(self, name: str) -> Any:
        try:
            return self.system.open(self._at(name), "wb")
        except NotImplementedError as error:
            raise only_reads(self.url) from error

    def _flush(self, file: Any) -> None:
        file.flush()
        if self.local:
            os.fsync(file.fileno())

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"


@contextmanager
def _saying(what: str, *known: type[Exception]) -> Iterator[None]:
    """Say of what goes wrong in the block, unless it is `known`, that `what` cannot be read.

    Archives and HTTP have errors of their own, which are no OSError.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (OSError, MemoryError, DgpuhashError, *known)):
            raise
        raise FormatError(
            f"{what} cannot be read ({type(error).__name__}: {error}); check that you may read it, "
            "and that it is whole, or read a copy, as simplecache::URL makes one"
        ) from error


def _clear(path: str) -> None:
    """Remove a folder with all that is in it, as far as that can be."""
    # Workers that go on although another one was lost may put a file there meanwhile.
    for _ in range(3):
        shutil.rmtree(path, ignore_errors=True)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
