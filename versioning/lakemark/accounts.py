"""Several accounts of one machine: what a site's folder is to them, and what each may do there; names adapters as `site` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakemark.errors import Usage, quoted

if TYPE_CHECKING:
    from lakemark.adapters.node.rights import Login
    from lakemark.model.tiers.access import Rights


def share_file(path: Path) -> None:
    """Lets the group of a folder that several accounts keep do with a file in it what its maker may; else nothing."""
    from lakemark.adapters.disk.files import share

    share(path, folder=path.parent)


def group_sharing(folder: Path) -> str | None:
    """The group whose accounts keep `folder` together; None where one account does."""
    from lakemark.adapters.disk.files import is_shared
    from lakemark.adapters.node.rights import group_name

    if not is_shared(folder):
        return None
    return group_name(folder.stat().st_gid)


def rights_on_the_way(path: Path) -> tuple[Rights, ...]:
    """Owner, group and mode of a place's parents, from the root on, and of itself. Raises OSError."""
    from lakemark.adapters.node.rights import way_to

    return way_to(path)


def account_named(name: str) -> Login:
    """An account of this machine, and what it may do here once this process `become`s it. Raises Usage for none."""
    from lakemark.adapters.node.rights import login_of

    found = login_of(name)
    if found is None:
        raise Usage(f"this machine has no account {quoted(name)}", advice="`getent passwd` lists them.")
    return found
