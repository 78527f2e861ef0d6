"""Folders on any file system, with atomic writes of files."""

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

from dgpuhash.errors import DgpuhashError, ExistsError, FormatError, SpecError, UnsupportedError
from dgpuhash.tables.arguments.temporary import locked_part, sweep_parts
from dgpuhash.tables.serialization import check_no_pattern, read_only_error


class Folder:
    """Folder at an fsspec URL, or at a path.

    On local file systems, written files are on disk when a method returns.

    Attributes
    ----------
    url : str
        Absolute, so that workers with other working directories can use it.
    system : fsspec.AbstractFileSystem
    path : str
        Path within that file system.
    local : bool

    Raises
    ------
    SpecError
        When fsspec knows no such URL, or a package for it is missing.
    FormatError
        When the folder is in an archive that cannot be read.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        try:
            with _saying(os.fsdecode(url), ImportError, ValueError, TypeError):
                self.system: Any
                self.path: Any
                self.system, self.path = fsspec.core.url_to_fs(os.fsdecode(url))
        except FormatError:
            # FormatError is a ValueError, too.
            raise
        except (ImportError, ValueError, TypeError) as error:
            raise SpecError(f"{url!r}: {error}; give a path, or a URL that fsspec knows") from error
        self.local: bool = isinstance(self.system, LocalFileSystem)
        if self.local and "::" in os.fsdecode(url):
            raise SpecError(
                f"{url!r}: fsspec takes what follows :: for another place; choose a name without"
            )
        whole = str(self.system.unstrip_protocol(self.path) if self.local else os.fsdecode(url))
        self.url: str = whole.rstrip("/")
        if self.url.endswith(":"):
            # The root of a file system.
            self.url += "///"

    def make(self) -> None:
        """Create the folder and its parents, unless they exist.

        Raises
        ------
        SpecError
            When the folder's name is a pattern.
        """
        check_no_pattern(self.url, self.system)
        path = Path(self.path)
        new = [each for each in (path, *path.parents) if self.local and not each.exists()]
        self.system.makedirs(self.path, exist_ok=True)
        for each in new:
            _sync(str(each.parent))

    def names(self) -> list[str]:
        """Return the names of the files and folders in it.

        Empty when the folder does not exist.
        """
        try:
            # Some file systems cache listings.
            self.system.invalidate_cache(self.path)
            with _saying(self.url):
                found = self.system.ls(self.path, detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)

    def exists(self) -> bool:
        """Return whether a file or folder exists under this name."""
        return bool(self.system.exists(self.path))

    def has(self, name: str) -> bool:
        """Return whether a file of this name exists."""
        self.system.invalidate_cache(self._at(name))
        return bool(self.system.isfile(self._at(name)))

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, or None when it does not exist."""
        if not self.has(name):
            return None
        found = self.system.size(self._at(name))
        # Not all servers report sizes.
        return len(self.read(name)) if found is None else int(found)

    def read(self, name: str) -> bytes:
        """Return the contents of a file.

        Raises
        ------
        FormatError
            When an archive is damaged, or a server does not send the file; also in a block of
            `reading`.
        """
        with _saying(f"{self.url}/{name}"):
            return bytes(self.system.cat_file(self._at(name)))

    def may_hold(self, name: str, data: bytes) -> bool:
        """Return whether a file has these contents, or cannot be read."""
        try:
            return self.read(name) == data
        except FileNotFoundError:
            return False
        except (OSError, FormatError):
            return True

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Open a file for reading.

        The folder is kept meanwhile, as the files of an archive are closed when it is freed.
        """
        with _saying(f"{self.url}/{name}"), self.system.open(self._at(name), "rb") as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Open a new file for writing, and remove it when the block fails.

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

    def replace(self, name: str, data: bytes) -> None:
        """Write a file under a temporary name, and rename it to `name`.

        An earlier file of that name is replaced.
        """
        if self.local:
            with locked_part(self._at(name), lambda part: Path(part).open("xb").close()) as part:
                with self.writing(part.rpartition("/")[2]) as file:
                    file.write(data)
                try:
                    Path(part).replace(self._at(name))
                    self.sync()
                except BaseException:
                    Path(part).unlink(missing_ok=True)
                    raise
            return
        part = f"{name}.{uuid.uuid4().hex}.part"
        with self.writing(part) as file:
            file.write(data)
        try:
            self.system.invalidate_cache(self._at(part))
            self.system.mv(self._at(part), self._at(name))
        except BaseException:
            self.remove([part])
            raise

    def create(self, name: str, data: bytes) -> None:
        """Create a file that must not exist.

        Of two writers at the same time only one succeeds, where the file system supports that; see
        `check_exclusive`. A process that is killed or interrupted meanwhile may leave the beginning
        of the file.

        Raises
        ------
        FileExistsError
            When the file exists.
        """
        file = self._exclusive(name)
        try:
            with file:
                file.write(data)
                self._flush(file)
            self.sync()
        except Exception:
            self.remove([name])
            raise

    def check_exclusive(self) -> None:
        """Raise UnsupportedError where `create` may let two writers succeed.

        File systems that are not local are tested, and the test's files are removed.
        """
        if self.local:
            return
        check_no_pattern(self.url, self.system)
        name, new, above = f"{uuid.uuid4().hex}.part", [], self.path
        while above and not self.system.exists(above):
            new.append(above)
            above = above.rpartition("/")[0]
        self.system.makedirs(self.path, exist_ok=True)
        try:
            if not self._is_exclusive(name):
                raise UnsupportedError(
                    f"{self.url} is on a file system ({type(self.system).__name__}) that cannot "
                    "create a file only where none is, so two writers of one log would not "
                    "notice each other; choose another place, such as a local disk, or pass "
                    "single_writer=True if no other program ever continues this log"
                )
        finally:
            self.remove([name])
            for each in new:
                # Object stores have no folders to remove.
                with suppress(OSError, NotImplementedError):
                    self.system.rmdir(each)

    def _is_exclusive(self, name: str) -> bool:
        try:
            with self.system.open(self._at(name), "xb") as file:
                file.write(b"first")
        except (ValueError, NotImplementedError):
            # Raises on a read-only file system.
            self._new(name).close()
            return False
        try:
            with self.system.open(self._at(name), "xb") as file:
                file.write(b"second")
        except OSError:
            return True
        return False

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that exist, where the file system can."""
        for name in names:
            with suppress(FileNotFoundError, NotImplementedError):
                self.system.rm_file(self._at(name))

    def fill(
        self, names: Sequence[str], last: str, write: Callable[[Folder], bytes], *, fresh: bool
    ) -> None:
        """Have `write` make the files `names`, and write its result to `last`.

        `fresh`: `last` does not exist. A local folder that does not exist either is then made under
        a temporary name, and renamed when it is complete. When `fill` fails, no file is left,
        unless `last` was written all the same.

        Raises
        ------
        ExistsError
            When a fresh `last` exists by now.
        """
        # A folder that exists may be a working directory, a link or a mount point: keep it.
        if not (self.local and fresh and not self.exists()):
            self._fill(self, names, last, write, fresh=fresh)
            return
        Folder(str(Path(self.path).parent)).make()
        with locked_part(self.path, lambda part: Folder(part).make()) as part:
            try:
                self._fill(Folder(part), names, last, write, fresh=True)
            except BaseException:
                _clear(part)
                raise

    def _fill(
        self,
        folder: Folder,
        names: Sequence[str],
        last: str,
        write: Callable[[Folder], bytes],
        *,
        fresh: bool,
    ) -> None:
        data = None
        folder.make()
        try:
            data = write(folder)
            try:
                if fresh and folder is self:
                    folder.create(last, data)
                else:
                    folder.replace(last, data)
                if folder is not self:
                    folder.rename(self)
            except OSError as error:
                if not fresh or not self.has(last) or self.may_hold(last, data):
                    raise
                raise ExistsError(
                    f"another program saved to {self.url} at the same time; choose another "
                    f"place, or "
                    "replace that with overwrite=True"
                ) from error
        except BaseException:
            if folder is self and (data is None or not folder.may_hold(last, data)):
                folder.remove(names)
            raise

    def sweep(self, last: str) -> None:
        """Remove what killed saves left beside a local folder, and beside `last` in it."""
        if self.local:
            sweep_parts(self.path)
            sweep_parts(self._at(last))

    def rename(self, new: Folder) -> None:
        """Rename a local folder to a name that is free."""
        # Fails when `new` was filled meanwhile.
        Path(self.path).rename(new.path)
        _sync(str(Path(new.path).parent))

    def sync(self) -> None:
        """Flush the names of new files to disk, on a local file system."""
        if self.local:
            _sync(self.path)

    def _exclusive(self, name: str) -> Any:
        try:
            return self.system.open(self._at(name), "xb")
        except (ValueError, NotImplementedError):
            # Not all file systems can create exclusively; see `check_exclusive`.
            if self.has(name):
                raise FileExistsError(name) from None
            return self._new(name)

    def _new(self, name: str) -> Any:
        try:
            return self.system.open(self._at(name), "wb")
        except NotImplementedError as error:
            raise read_only_error(self.url) from error

    def _flush(self, file: Any) -> None:
        file.flush()
        if self.local:
            os.fsync(file.fileno())

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"


@contextmanager
def _saying(what: str, *known: type[Exception]) -> Iterator[None]:
    """Turn errors of the block into FormatError: `what` cannot be read.

    Errors that are `known` pass unchanged, as do OSError, MemoryError and DgpuhashError. Archives
    and HTTP have errors of their own, which are no OSError.
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
    """Remove a folder and its contents, as far as possible."""
    # Workers that still run after another one was lost may write a file there meanwhile.
    for _ in range(3):
        shutil.rmtree(path, ignore_errors=True)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
