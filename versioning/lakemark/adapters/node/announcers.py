"""Whether whoever announced a save may read it himself: it is taken with this service's rights, and shown to others."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lakemark.errors import quoted


@dataclass(frozen=True, slots=True)
class _Account:
    uid: int
    groups: frozenset[int]

    def may(self, found: os.stat_result, *, owner: int, group: int, other: int) -> bool:
        """As the kernel decides it by modes: the first of the three that applies counts alone."""
        if found.st_uid == self.uid:
            return bool(found.st_mode & owner)
        if found.st_gid in self.groups:
            return bool(found.st_mode & group)
        return bool(found.st_mode & other)


def why_not(announcement: Path, paths: Sequence[Path], *, inside: Sequence[Path]) -> str | None:
    """Why what `announcement` names is not taken; None where it is.

    paths: what it names: files, or directories with all that is in them. inside: directories of its run, if there are any:
    there it has to lie, links resolved. Its files are the announcer's own, or may be read by him by their modes.
    """
    roots = [os.path.realpath(root) for root in inside]
    real = [os.path.realpath(path) for path in paths]
    for path, place in zip(paths, real, strict=True):
        if roots and not any(place == root or place.startswith(f"{root}{os.sep}") for root in roots):
            return (
                f"{quoted(str(path))} lies outside the directories of its run, which are {', '.join(map(str, inside))}"
            )
    try:
        wrote = os.lstat(announcement)
    except FileNotFoundError:
        return None  # somebody else was faster
    # Root may read everything: there is nothing that it could have shown to itself this way.
    if wrote.st_uid == 0:
        return None
    account = _Account(wrote.st_uid, _groups(wrote.st_uid, wrote.st_gid))
    for place in real:
        closed = _closed_to(account, Path(place))
        if closed is not None:
            return f"{quoted(str(closed))} may not be read by the user {account.uid}, who announced it"
    return None


def _groups(uid: int, gid: int) -> frozenset[int]:
    with suppress(KeyError):
        known = pwd.getpwuid(uid)
        return frozenset({gid, *os.getgrouplist(known.pw_name, known.pw_gid)})
    return frozenset({gid})


def _closed_to(account: _Account, place: Path) -> Path | None:
    """The first thing on the way to it, or in it, that the account may not enter or read."""
    with suppress(FileNotFoundError):  # it vanished: whoever takes it says so
        for parent in reversed(place.parents):
            if not account.may(os.stat(parent), owner=stat.S_IXUSR, group=stat.S_IXGRP, other=stat.S_IXOTH):
                return parent
        for path, found in _all(place):
            mine = found.st_uid == account.uid
            if not mine and not account.may(found, owner=stat.S_IRUSR, group=stat.S_IRGRP, other=stat.S_IROTH):
                return path
    return None


def _all(place: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Files and directories; links are taken as links, and one that leads out of the save is refused where it is landed."""
    found = os.lstat(place)
    yield place, found
    if not stat.S_ISDIR(found.st_mode):
        return
    for folder, folders, names in os.walk(place):
        for name in (*folders, *names):
            path = Path(folder, name)
            with suppress(FileNotFoundError):
                seen = os.lstat(path)
                if not stat.S_ISLNK(seen.st_mode):
                    yield path, seen
