"""Which directories can't be one that a trainer saves into: those that hold the site's own places, or a whole home."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakemark.cli.options import is_directory
from lakemark.errors import Refused, Usage, quoted

if TYPE_CHECKING:
    from lakemark.cli.session import Session

_HOMES: Final = Path("/home")


def require_watchable(here: Session, path: Path, *, option: str = "--watch") -> None:
    """Raises Usage, also for what is there and is no directory. Links are followed."""
    # Links are followed: what would be sealed are the files behind them.
    real = Path(os.path.realpath(path))
    why = next((why for what, place in _places(here) if (why := _overlap(real, place, what=what))), None)
    # A home of anybody, also one that is not this user's: /home/NAME.
    if why is None and (real.parent == _HOMES or any(home.is_relative_to(real) for home in _homes(here))):
        why = "is a home directory, or holds one"
    # What is not there yet may be made by the trainer later; a broken link is there, and is no directory.
    if why is None and os.path.lexists(path) and not is_directory(path):
        why = "is not a directory"
    if why is not None:
        raise Usage(
            f"{option} {quoted(str(path))}: it {why}",
            advice="Name the one directory that this run's trainer saves into.",
        )


def require_alone(here: Session, run: str, path: Path) -> None:
    """Raises Usage where `path` lies in a directory of another open run, or holds one, Refused where it is that very one.

    Its finds would be both runs'.
    """
    from lakemark.services.directories import directories

    real = Path(os.path.realpath(path))
    for other in here.history.runs():
        state = here.history.structure(other)
        # A closed run takes no more saves, so its directory is free for another.
        if other == run or state.closed:
            continue
        for place in directories(here.site, state):
            theirs = Path(os.path.realpath(place))
            if theirs == real:
                raise Refused(
                    f"--watch {quoted(str(path))}: the open run {other} saves there",
                    advice=f"Let {run} save elsewhere, or close that one first: lakemark run close {other} --reason …",
                )
            if real.is_relative_to(theirs) or theirs.is_relative_to(real):
                how = "lies in" if real.is_relative_to(theirs) else "holds"
                raise Usage(
                    f"--watch {quoted(str(path))}: it {how} {quoted(str(place))}, where the open run {other} saves",
                    advice=f"Let each run save beside the others, or close that one: lakemark run close {other}",
                )


def _overlap(real: Path, place: Path, *, what: str) -> str | None:
    if place.is_relative_to(real):
        return f"{'is' if real == place else 'holds'} {what}"
    return f"lies in {what}" if real.is_relative_to(place) else None


def _places(here: Session) -> Iterator[tuple[str, Path]]:
    settings = here.settings
    yield "the ledger", Path(os.path.realpath(settings.ledger.path))
    for name, tier in settings.tiers.items():
        # Tiers behind a server have no path, and nothing can be saved into them by mistake.
        path = getattr(tier, "path", None)
        if path is not None:
            yield f"the tier {name}", Path(os.path.realpath(path))


def _homes(here: Session) -> Iterator[Path]:
    """Of this user, and the folder of lakemark.yaml with its spools and run files."""
    yield Path(os.path.realpath(here.parts.loaded.home))
    home = here.environ.get("HOME") or str(Path.home())
    yield Path(os.path.realpath(home))
