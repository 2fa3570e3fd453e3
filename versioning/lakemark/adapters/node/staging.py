"""The staging folder of a restore: beside its target, held by its process, and gone once the target is shown."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk import tier_file
from lakemark.adapters.disk.files import fsync_directory, remove_tree, try_lock, write_atomic
from lakemark.errors import Refused, quoted

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A file's name has at most 255 bytes.
_NAME_ROOM_BYTES: Final = 255 - len("..lakemark-restore")
_BLOCK_BYTES: Final = 512


def staging_of(target: Path) -> Path:
    """Beside `target`, so that the last step is a rename within one directory. Raises Refused for a path without a name."""
    name = target.name
    if not name:
        raise Refused(f"{quoted(str(target))} can't be a restore's target", advice="Name a directory below it.")
    if len(os.fsencode(name)) > _NAME_ROOM_BYTES:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return target.parent / f".{name}.lakemark-restore"


def refuse_inside_ours(target: Path) -> None:
    """A tier's place and a ledger are nobody's to restore into: a pass would take the files for its own, or fail on them."""
    for folder in target.parents:
        ledger = all(os.path.exists(folder / name) for name in ("HEAD", "objects", "refs"))
        if ledger or os.path.isfile(folder / tier_file.NAME):
            raise Refused(
                f"{quoted(str(target))} is inside {'the ledger' if ledger else 'the tier'} {quoted(str(folder))}",
                advice="Restore into a directory of your own.",
            )


def refuse_unless_free(target: Path, staging: Path) -> None:
    """Raises Refused unless `target`, its links followed, is absent, empty, or may be our own interrupted restore."""
    if target.is_symlink():
        raise Refused(
            f"{quoted(str(target))} is a symbolic link that leads back to itself", advice="Choose another directory."
        )
    if not target.exists():
        return
    if os.path.ismount(target):
        raise Refused(
            f"{quoted(str(target))} is a mount point: a checkpoint can't appear there in one step",
            advice="Restore into a directory below it.",
        )
    if not target.is_dir() or (any(target.iterdir()) and not staging.is_dir()):
        raise occupied(target)


def occupied(target: Path) -> Refused:
    """What is said of a target that is somebody else's."""
    return Refused(
        f"{quoted(str(target))} is not an empty directory, and no interrupted restore of this checkpoint",
        advice="Choose an absent or empty directory; nothing was changed.",
    )


@contextmanager
def claimed(staging: Path, tag: str) -> Iterator[tuple[Path, bool]]:
    """Holds the staging folder; yields its tree, and whether it was there for this `tag` before. Others' trees go first."""
    with suppress(FileExistsError):
        os.mkdir(staging, 0o700)
    descriptor = os.open(staging, DIRECTORY)
    try:
        # Where others may write, one of them could have prepared a tree that would be shown as restored.
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise Refused(
                f"{quoted(str(staging))} belongs to another user", advice="Let its owner finish or remove it."
            )
        # Held, and still the one of that name: who held it before may have removed it since it was opened here.
        if not try_lock(descriptor) or not _still(staging, descriptor):
            raise Refused(
                f"another restore into {quoted(str(staging.parent))} is running",
                advice="Wait for it, or choose another place.",
            )
        try:
            yield from _prepared(staging, tag)
        finally:
            _drop_if_empty(staging)
    finally:
        os.close(descriptor)


def _prepared(staging: Path, tag: str) -> Iterator[tuple[Path, bool]]:
    """The tree of this restore; the staging folder goes once the caller is done with it."""
    tree = staging / "tree"
    again = _read_tag(staging) == tag
    if not again:
        # Before the tag: a kill in between must not leave another restore's files under this one's.
        remove_tree(tree)
        write_atomic(staging / "tag", tag.encode())
    with suppress(FileExistsError):
        os.mkdir(tree)
    # What raises inside leaves it all for the next try, which compares it before it counts.
    yield tree, again
    remove_tree(staging)


def _still(staging: Path, descriptor: int) -> bool:
    """Whether the name still stands for the folder that is open."""
    try:
        return os.path.samestat(os.lstat(staging), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read_tag(staging: Path) -> str | None:
    try:
        return (staging / "tag").read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None


def _drop_if_empty(staging: Path) -> None:
    """A restore that was refused before it wrote anything leaves nothing behind."""
    tree = staging / "tree"
    with suppress(OSError):
        if not any(tree.iterdir()):
            remove_tree(staging)


def require_space(tree: Path, needed_bytes: int, *, sparse: Container[str] = ()) -> None:
    """Raises Refused unless the file system has room for what of `needed_bytes` is not in the tree yet.

    sparse: paths of which only what is allocated counts as there.
    """
    there = 0
    for entry in _files(tree):
        found = entry.stat(follow_symlinks=False)
        holes = os.path.relpath(entry.path, tree) in sparse
        there += min(found.st_size, found.st_blocks * _BLOCK_BYTES) if holes else found.st_size
    system = os.statvfs(tree)
    # What is set aside for root is not there for us.
    free = system.f_bavail * system.f_frsize
    more = needed_bytes - there
    if more > free:
        raise Refused(
            f"{quoted(str(tree.parent.parent))} has {free} bytes free; the checkpoint needs {more} more",
            advice="Make room there, or restore to another file system.",
        )


def _files(tree: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(tree) as listing:
        entries = list(listing)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            yield entry


def make_durable(tree: Path) -> None:
    """Fsyncs every folder; the files are fsynced already."""
    for folder, _, _ in os.walk(tree, topdown=False):
        fsync_directory(folder)
