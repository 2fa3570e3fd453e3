"""Folders that several accounts keep together: set-group-ID, and their group may write. As lakemark itself treats them."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Final

_SHARED: Final = stat.S_ISGID | stat.S_IWGRP


def share(path: str) -> None:
    """Lets the group of a shared folder do with what this process made in it what its owner may, whatever the umask."""
    if os.stat(os.path.dirname(path) or ".").st_mode & _SHARED != _SHARED:
        return
    found = os.stat(path)
    rights = stat.S_IMODE(found.st_mode)
    # The owner's three bits, moved to where the group's are.
    rights |= (rights & stat.S_IRWXU) >> 3 | (stat.S_ISGID if stat.S_ISDIR(found.st_mode) else 0)
    # Of another account's file the system would refuse it.
    if found.st_uid == os.geteuid():
        os.chmod(path, rights)


def make_folders(path: str) -> None:
    """Makes `path` and its missing parents, each shared where its own parent is."""
    if os.path.isdir(path):
        return
    make_folders(os.path.dirname(path))
    with suppress(FileExistsError):
        os.mkdir(path)
        share(path)
