"""Files that survive: fsync, atomic writes, renames that replace nothing, and the system's errors in our words.

Digests are in `digests`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakemark.errors import (
    Conflict,
    Corrupt,
    Denied,
    LakemarkError,
    NoRoom,
    NotFound,
    Refused,
    SourceDamaged,
    StoreUnavailable,
    quoted,
)
from lakemark.model.tiers import access

# RENAME_NOREPLACE, RENAME_EXCHANGE and AT_FDCWD of the kernel's headers: Python has no call that takes them.
_NO_REPLACE: Final = 1
_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_RIGHTS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_EMPTIED_AGAIN: Final = 20
_BAD_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENOTEMPTY})
# What a rename with flags meets where they are not known: NFS and some FUSE mounts answer EINVAL, old kernels ENOSYS.
_NO_RENAME_FLAGS: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_PRIVATE: Final = 0o077
_libc = ctypes.CDLL(None, use_errno=True)


def as_ours(error: OSError, what: object) -> LakemarkError:
    """`error` as a class of our tree; `what` names the file or place."""
    name = quoted(str(what))
    text = error.strerror or str(error)
    if error.errno in _FULL:
        return NoRoom(f"{name}: {text}", advice="Make room on that file system, or lower what is kept there.")
    if error.errno in _RIGHTS:
        return Denied(f"{name}: {text}", advice="Give lakemark's user the right to it, or run as its owner.")
    if error.errno in _GONE:
        return NotFound(f"{name}: {text}", advice="Check the path, and that the disk is mounted.")
    if error.errno == errno.EEXIST:
        return Conflict(f"{name}: {text}", advice="Look at what is there; nothing was overwritten.")
    if error.errno in _BAD_NAME:
        return Refused(f"{name}: {text}", advice="The file system can't take that; choose another place or name.")
    if error.errno == errno.EIO:
        return Corrupt(f"{name}: {text}", advice="The disk can't read or write it: check its health, verify the tier.")
    return StoreUnavailable(f"{name}: {text}", advice="Try again; if it stays, look at the disk or mount.")


def as_ours_of_place(error: OSError, what: object) -> LakemarkError:
    """The same of what is said of a place as a whole, its identity or a listing: EIO blames no file that lies there."""
    if error.errno == errno.EIO:
        return StoreUnavailable(
            f"{quoted(str(what))}: {error.strerror or error}",
            advice="The disk or mount fails: look at its health, mount it anew, then try again.",
        )
    return as_ours(error, what)


@contextmanager
def os_errors(what: object) -> Iterator[None]:
    """OSErrors inside come out as errors of our tree."""
    try:
        yield
    except OSError as error:
        raise as_ours(error, error.filename or what) from error


def open_regular(path: str | Path) -> int:
    """A descriptor to read a regular file by, never through a link, never waiting for a pipe's or device's other end.

    Raises SourceDamaged for anything else that has the name, OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SourceDamaged(
            f"{quoted(str(path))} is no regular file", advice="See who put it there; nothing of it is read."
        )
    return descriptor


def read_regular(path: str | Path) -> bytes:
    """All of it. Raises what `open_regular` does."""
    with os.fdopen(open_regular(path), "rb") as stream:
        return stream.read()


def fsync_directory(path: str | Path) -> None:
    """Makes the names in `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_shared(folder: str | Path | int) -> bool:
    """Whether several accounts keep `folder` together: it is set-group-ID, and its group may write there."""
    return access.is_shared(os.stat(folder).st_mode)


def share(made: str | Path | int, *, folder: str | Path | int) -> None:
    """Lets the group of a shared `folder` do with what was made in it what its owner may, whatever the maker's umask.

    One file that a single account made for itself, such as a lock, would keep all others out. Elsewhere nothing is changed,
    nor of what another account made.
    """
    if not is_shared(folder):
        return
    found = os.stat(made)
    wanted = access.for_group(found.st_mode)
    # Of another account's file the kernel would refuse it, and that account has done so itself.
    if wanted != stat.S_IMODE(found.st_mode) and found.st_uid == os.geteuid():
        # A service may be forbidden to set set-group-ID (RestrictSUIDSGID=): then its umask has to be right.
        with suppress(PermissionError):
            os.chmod(made, wanted)


def open_shared(path: str | Path, flags: int = 0) -> int:
    """A descriptor of the file, made if need be, to lock or write it: by any account of a shared folder's group."""
    folder = os.path.dirname(path) or "."
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o664 if is_shared(folder) else 0o644)
    try:
        share(descriptor, folder=folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_directory(path: str | Path, *, within: int | None = None) -> None:
    """Makes one, its group's as well where its parent is shared. within: an open directory that the name counts from.

    FileExistsError where it is there already.
    """
    parent = (os.path.dirname(path) or ".") if within is None else within
    if not is_shared(parent):
        os.mkdir(path, 0o755, dir_fd=within)
        return
    # It appears with its rights: whoever made something in it before it had them would keep that from the group.
    place = os.fspath(path) if within is None else f"/proc/self/fd/{within}/{path}"
    draft = os.path.join(os.path.dirname(place), f".{os.path.basename(place)[:100]}.{secrets.token_hex(8)}")
    os.mkdir(draft, 0o777)
    try:
        share(draft, folder=parent)
        rename_new(draft, place)
    except BaseException:
        with suppress(OSError):
            os.rmdir(draft)
        raise


def make_directories(path: Path) -> None:
    """Makes `path` and its missing parents, each durable in its parent, and of its group where that is shared."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for new in reversed(missing):
        # Whoever was first may be killed before he flushes the parent: so it is flushed here in either case.
        with suppress(FileExistsError):
            make_directory(new)
        fsync_directory(new.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """In steps that the page cache takes well."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[: 2**20]) :]


def write_new(path: str | Path, data: bytes, *, mode: int = 0o644) -> None:
    """A new file, fsynced; the caller fsyncs its directory. FileExistsError where it exists; leaves nothing on failure."""
    # Exclusive and through no link: a name that somebody laid there beforehand is never written to.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        if mode & _PRIVATE:  # else nobody but this account is to read it
            share(descriptor, folder=os.path.dirname(path) or ".")
        write_all(descriptor, data)
        os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes) -> None:
    """`path` holds the old bytes or these, whatever happens; durable on return."""
    draft = path.parent / f".{path.name[:100]}.{secrets.token_hex(8)}"
    write_new(draft, data)
    try:
        # Flushed before it has the name: after power loss a name must not stand on bytes that never came to the disk.
        os.rename(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    fsync_directory(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Creates `path` with these bytes, whole and durable; False, and nothing changed, where it is there already."""
    draft = path.parent / f".{path.name[:100]}.{secrets.token_hex(8)}"
    write_new(draft, data)
    try:
        rename_new(draft, path)
    except FileExistsError:
        os.unlink(draft)
        return False
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    fsync_directory(path.parent)
    return True


def rename_new(source: str | Path, target: str | Path, *, folder: int | None = None) -> None:
    """Renames, replacing nothing: FileExistsError where `target` exists. The caller fsyncs the directories.

    folder: an open directory that `target` counts from; by default this process's own.
    """
    source, target = os.fspath(source), os.fspath(target)
    into = _AT_FDCWD if folder is None else folder
    failed = _libc.renameat2(_AT_FDCWD, os.fsencode(source), into, os.fsencode(target), _NO_REPLACE)
    if not failed:
        return
    code = ctypes.get_errno()
    if code not in _NO_RENAME_FLAGS:
        raise OSError(code, os.strerror(code), source, None, target)
    _rename_new_without_flags(source, target, folder=folder)


def exchange(one: str | Path, other: str | Path) -> bool:
    """Swaps what two names stand for, in one step; False, and nothing changed, where the file system can't."""
    one, other = os.fspath(one), os.fspath(other)
    failed = _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _NO_RENAME_FLAGS:
        return False
    raise OSError(code, os.strerror(code), one, None, other)


def _rename_new_without_flags(source: str, target: str, *, folder: int | None = None) -> None:
    """Where renames know no flags: a hard link for a file; mkdir and a rename onto the empty one for a directory."""
    if stat.S_ISDIR(os.lstat(source).st_mode):
        # Of several only one can make it; a rename then replaces it while it is empty.
        os.mkdir(target, dir_fd=folder)
        os.rename(source, target, dst_dir_fd=folder)
    else:
        # A link replaces nothing; a kill before the unlink leaves one whole file with two names.
        os.link(source, target, dst_dir_fd=folder, follow_symlinks=False)
        os.unlink(source)


def remove_tree(path: Path) -> None:
    """Removes a tree of ours without following links; nothing happens where it is gone.

    Whoever looks whether the tree is dead may make its lock file anew meanwhile: then it is emptied again.
    """
    for _ in range(_EMPTIED_AGAIN):
        try:
            _remove_once(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        else:
            return
    _remove_once(path)


def _remove_once(path: Path) -> None:
    """Raises ENOTEMPTY where something was made in it meanwhile."""
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(Path(entry.path))
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
    with suppress(FileNotFoundError):
        os.rmdir(path)


def try_lock(descriptor: int) -> bool:
    """Takes the exclusive flock unless another open file has it. The kernel frees it with the process."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_lock(directory: str | Path) -> int:
    """The file whose flock stands for `directory`. Not the directory itself: NFS locks only what is open for writing."""
    return open_shared(os.path.join(directory, ".lock"))


@contextmanager
def locked(directory: str | Path, *, shared: bool = False) -> Iterator[None]:
    """Holds the flock that stands for `directory`."""
    descriptor = open_lock(directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def forget_pages(descriptor: int) -> None:
    """Drops the file's clean pages, so that the next read comes from the disk; some file systems ignore it."""
    with suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
