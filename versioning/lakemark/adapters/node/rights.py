"""Owners, groups and modes of what lies on a disk, in the machine's own names, and what an account may do there."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakemark.errors import Denied
from lakemark.model.tiers.access import Account, Rights

_RIGHTS: Final = {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """An account as its next login has it. groups: the numbers of all of its groups, the main one first."""

    name: str
    uid: int
    groups: tuple[int, ...]
    home: str

    @property
    def account(self) -> Account:
        return Account(name=self.name, groups=frozenset(map(group_name, self.groups)))

    def become(self) -> None:
        """Makes this process the account's for good; nothing is done where it is already. Raises Denied."""
        if os.geteuid() == self.uid:
            return
        if os.geteuid() != 0:
            raise Denied(
                f"only root may look as {self.name}; this is {user_name(os.geteuid())}",
                advice=f"Give the command as {self.name}, or by sudo.",
            )
        # In this order: once it is nobody's superuser, it may change no groups.
        os.setgroups(self.groups)
        os.setresgid(*[self.groups[0]] * 3)
        os.setresuid(*[self.uid] * 3)

    @staticmethod
    def closed(path: Path, need: str) -> tuple[Rights, str] | None:
        """What keeps this process from using `path`, and the rights that it lacks there; None where nothing does.

        need: of the letters r, w, x. What is not there yet may be made, where `need` has a w; else there is nothing to lack.
        """
        place = Path(os.path.realpath(path))
        for folder in reversed(place.parents):
            if not os.access(folder, os.F_OK):
                break
            if not os.access(folder, os.X_OK):
                return rights_at(folder), "x"
        if not os.path.lexists(place):
            return Login.closed(place.parent, "wx") if "w" in need and place != place.parent else None
        lacking = "".join(letter for letter in need if not os.access(place, _RIGHTS[letter]))
        return (rights_at(place), lacking) if lacking else None

    def distrusts(self, repository: Path) -> bool:
        """Whether Git, run by it, refuses a repository for being another's. This process is the account's already."""
        # Its own home: there Git finds which repositories of others the account trusts.
        environ = {"HOME": self.home, "LOGNAME": self.name, "PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        try:
            done = subprocess.run(
                ["git", "-C", str(repository), "rev-parse", "--git-dir"],
                env=environ,
                cwd="/",
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            return False
        return "dubious ownership" in done.stderr


def login_of(name: str) -> Login | None:
    """None where the machine has no such account."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None
    more = (one for one in os.getgrouplist(name, found.pw_gid) if one != found.pw_gid)
    return Login(name=name, uid=found.pw_uid, groups=(found.pw_gid, *more), home=found.pw_dir)
