"""Owners, groups and modes of what lies on a disk, with the names that the machine has for them."""

from __future__ import annotations

import grp
import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakemark.model.access import Rights

_LIST: Final = "system.posix_acl_access"


def rights_at(path: str | Path) -> Rights:
    """Raises OSError."""
    found = os.stat(path)
    return Rights(
        path=os.fspath(path),
        mode=found.st_mode,
        owner=user_name(found.st_uid),
        group=group_name(found.st_gid),
        listed=_has_list(path),
    )


def way_to(path: Path) -> tuple[Rights, ...]:
    """Its parents from the root on, and itself; links are followed. Raises OSError."""
    place = Path(os.path.realpath(path))
    return tuple(rights_at(one) for one in (*reversed(place.parents), place))


def user_name(number: int) -> str:
    """The account's name, or its number where it has none here."""
    with suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return str(number)


def group_name(number: int) -> str:
    """The group's name, or its number where it has none here."""
    with suppress(KeyError):
        return grp.getgrgid(number).gr_name
    return str(number)


def _has_list(path: str | Path) -> bool:
    try:
        return _LIST in os.listxattr(path)
    except OSError:  # a file system that has none
        return False
