"""Who may enter and read what lies on a disk, by owner, group and modes; and what gives an account a right that it lacks."""

from __future__ import annotations

import stat
from typing import Final

_SHARED: Final = stat.S_ISGID | stat.S_IWGRP


def is_shared(mode: int) -> bool:
    """Whether several accounts keep a folder of this mode together: it is set-group-ID, and its group may write there."""
    return mode & _SHARED == _SHARED


def for_group(mode: int) -> int:
    """The rights of what was made in a shared folder: the group may what the owner may. mode: with the type of the file."""
    rights = stat.S_IMODE(mode)
    return rights | (rights & stat.S_IRWXU) >> 3 | (stat.S_ISGID if stat.S_ISDIR(mode) else 0)
