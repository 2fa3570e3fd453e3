"""Who may enter and read what lies on a disk, by owner, group and modes; and what gives an account a right that it lacks."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_SHARED: Final = stat.S_ISGID | stat.S_IWGRP
_GROUP_READS: Final = stat.S_IRGRP | stat.S_IXGRP
_OTHERS_READ: Final = stat.S_IROTH | stat.S_IXOTH


def is_shared(mode: int) -> bool:
    """Whether several accounts keep a folder of this mode together: it is set-group-ID, and its group may write there."""
    return mode & _SHARED == _SHARED


def for_group(mode: int) -> int:
    """The rights of what was made in a shared folder: the group may what the owner may. mode: with the type of the file."""
    rights = stat.S_IMODE(mode)
    return rights | (rights & stat.S_IRWXU) >> 3 | (stat.S_ISGID if stat.S_ISDIR(mode) else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What a place's owner, group and mode are. listed: an access list names more than these; the mode is only its outline."""

    path: str
    mode: int
    owner: str
    group: str
    listed: bool = False

    def __str__(self) -> str:
        return f"{self.owner}:{self.group} {stat.S_IMODE(self.mode):04o}"


class Reach(IntEnum):
    """Who may read what lies below a place, besides root."""

    OWNER = 0
    GROUP = 1
    ALL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """reach: who gets there. kept_out: the parent that keeps out others whom the place's own mode would let in."""

    reach: Reach
    kept_out: Rights | None = None


def readers(way: Sequence[Rights]) -> Readers:
    """Who may read what lies in the last of `way`, whose parents come before it, from the root on."""
    *parents, place = way
    # To enter is enough: who knows a name can open it.
    reach = Reach.ALL if place.mode & _OTHERS_READ else Reach.GROUP if place.mode & _GROUP_READS else Reach.OWNER
    closed = None
    for folder in parents:
        # Each parent can only take away: whoever can't pass one of them is out.
        most = _passing(folder, place)
        if most < reach:
            reach, closed = most, folder
    return Readers(reach=reach, kept_out=closed)


def _passing(folder: Rights, place: Rights) -> Reach:
    """Who of those that `place` may let in gets through a parent: of its group, whoever is neither is one of the others."""
    others = bool(folder.mode & stat.S_IXOTH)
    group = bool(folder.mode & stat.S_IXGRP) if folder.group == place.group else others
    return Reach.ALL if others else Reach.GROUP if group else Reach.OWNER


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account of the machine, with the names of all groups that it is in."""

    name: str
    groups: frozenset[str]


def remedies(closed: Rights, lacking: str, account: Account, *, team: str | None, inside: bool) -> tuple[str, ...]:
    """What gives the account `lacking` (of the letters r, w, x) there: commands that its path is put behind, in order.

    team: the group that shares the site, where one does. inside: whether the place is the site's own; what lies above it may
    be anybody's, and is opened for this account alone.
    """
    # Of an owner only the owner's bits count, whatever the group may do.
    if closed.owner == account.name:
        return (f"chmod u+{lacking}",)
    # Before the modes: with the group alone it may be right already.
    if inside and team is not None and team not in account.groups:
        return (JOIN.format(team=team, name=account.name),)
    if closed.group in account.groups:
        return (f"chmod g+{lacking}",)
    if inside and team is not None:
        return (f"chgrp {team}", f"chmod g+{lacking}")
    # Above the site nothing is opened to a group: others' folders are not ours to share.
    return (f"setfacl -m u:{account.name}:{lacking}",)


JOIN: Final = "usermod -aG {team} {name}"
"""Takes no path, and counts from the account's next login on."""
