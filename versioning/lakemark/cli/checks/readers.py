"""What `doctor` says of who can read each tier that lies on this machine's disks, and whether `access:` says so."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakemark.cli.options import is_directory
from lakemark.errors import Denied
from lakemark.model.tiers.access import Reach, Readers, Rights, readers
from lakemark.services.health.doctor import Examination, Noted

if TYPE_CHECKING:
    from lakemark.cli.session import Session

_REACH: Final = {"owner": Reach.OWNER, "group": Reach.GROUP, "all": Reach.ALL}
_CLOSE: Final = {Reach.OWNER: "chmod go=", Reach.GROUP: "chmod o="}
_OPEN: Final = {Reach.GROUP: "chmod g+rx", Reach.ALL: "chmod go+rx"}


def examinations(here: Session) -> Iterator[Examination]:
    """One for each tier that is a directory of this machine and is there."""
    for name, tier in here.settings.tiers.items():
        path = getattr(tier, "path", None)
        if path is None or (tier.tier_class == "hot" and here.parts.reads_only):
            continue
        if not is_directory(path):  # that it can't be looked at is said by the tier's own checks
            continue
        # hot takes files over by link, with the rights that the trainer gave them.
        access = None if tier.tier_class == "hot" else _REACH[getattr(tier, "access", "owner")]
        yield Examination(name=f"who reads {name}", run=partial(_readers, path, access))


def _readers(path: Path, access: Reach | None) -> str:
    """access: whom the configuration lets in; None where it says nothing: files in hot keep the rights they were saved with."""
    from lakemark.accounts import rights_on_the_way

    way = rights_on_the_way(path)
    found, place = readers(way), way[-1]
    said = f"{path} is {place}: {_in_words(found, place)}"
    # The group bits of a place with an access list are its mask: names in the list may do more or less.
    if any(one.listed for one in way):
        said += f"; access lists name more: getfacl {shlex.quote(str(path))}"
    if access is None:
        return said
    wanted = f"`access: {access.name.lower()}`"
    # Only wider than said is a fault: narrower may be meant, as whoever is kept out will say.
    if found.reach > access:
        raise Denied(
            f"{said}, and the tier says {wanted}: objects are readable to whoever may enter",
            advice=f"{_CLOSE[access]} {shlex.quote(str(path))}",
        )
    if found.reach < access:
        closed = found.kept_out.path if found.kept_out is not None else str(path)
        return Noted(f"{said}, and the tier says {wanted}; if they are to: {_OPEN[access]} {shlex.quote(closed)}")
    return said


def _in_words(found: Readers, place: Rights) -> str:
    who = {
        Reach.OWNER: f"{place.owner} alone can read it",
        Reach.GROUP: f"{place.owner} and the group {place.group} can read it",
        Reach.ALL: "every account can read it",
    }[found.reach]
    return who if found.kept_out is None else f"{who}, as {found.kept_out.path} ({found.kept_out}) keeps others out"
