"""Surveys a directory of saves: its directories and files as they are; and tells whether these still are so, listing none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lakemark.model.checkpoints.survey import FileStamp, Survey

_MOST: Final = 1_000_000
_TRUSTED: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "overlay"}
    | {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "wekafs"}
)
"""Those whose directories get another time with every name that comes or goes. Mounts of object stores do as they like."""
_MOUNTS: Final = "/proc/self/mounts"


def survey(root: Path) -> Survey | None:
    """See `ports.Files.survey`."""
    if not _trusted(root):
        return None
    folders: dict[str, FileStamp] = {}
    files: dict[str, FileStamp] = {}
    pending = [os.fspath(root)]
    try:
        while pending:
            at = pending.pop()
            # Before it is listed: what changes meanwhile then makes a difference.
            folders[at] = _of_folder(at, top=not folders)
            with os.scandir(at) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        files[entry.path] = _stamp(entry.stat(follow_symlinks=False))
            if len(folders) + len(files) > _MOST:
                return None
    except OSError:
        return None
    return Survey(folders, files)


def same(before: Survey) -> bool:
    """See `ports.Files.same`."""
    top = next(iter(before.folders), None)
    try:
        return all(_of_folder(at, top=at == top) == stamp for at, stamp in before.folders.items()) and all(
            _stamp(os.lstat(at)) == stamp for at, stamp in before.files.items()
        )
    except OSError:
        return False


def _of_folder(at: str, *, top: bool) -> FileStamp:
    """Opened for it, since NFS asks its server then, and else answers what it was told up to a minute ago."""
    descriptor = os.open(at, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if top else os.O_NOFOLLOW))
    try:
        return _stamp(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _stamp(found: os.stat_result) -> FileStamp:
    return FileStamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _trusted(root: Path) -> bool:
    """By the mount it lies on; False where that can't be told."""
    try:
        place = os.path.realpath(root)
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            rows = [line.split(" ") for line in lines]
    except OSError:
        return False
    # Of several mounts at one place the last one is seen. Blanks are written as octal there.
    above = [(_unescaped(row[1]), row[2]) for row in rows]
    holding = [(at, kind) for at, kind in above if place == at or place.startswith(f"{at.rstrip('/')}/")]
    return bool(holding) and max(enumerate(holding), key=lambda one: (len(one[1][0]), one[0]))[1][1] in _TRUSTED


def _unescaped(written: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        written = written.replace(code, sign)
    return written
