"""Looks at directories of saves: one in which nothing changed since a look that found nothing to commit is not read again.

Only a service remembers its looks: whoever sweeps once reads everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lakemark.model.checkpoints.survey import Survey
from lakemark.ports import Found, Site, Verdict
from lakemark.services.whose import Left

SETTLED_SECONDS: Final = 2.0
"""No file system that counts has coarser times: what is changed so long after it was seen has another time."""
FULL_SECONDS: Final = 600.0
"""How often everything is read all the same: for what no time tells."""


@dataclass(slots=True, kw_only=True)
class Looked:
    """What a look through a directory came to. passed_over: (path, record) of each save that is known, its paths in `known`.

    left: what is not taken because of whose it is; its paths are in `known`, too.
    """

    found: list[Found] = field(default_factory=list)
    passed_over: list[tuple[Path, str]] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    known: list[Path] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def quiet(self) -> bool:
        """Whether the same look would come to the same, as long as nothing changes there."""
        return not self.unreadable and all(one.verdict is not Verdict.COMPLETE for one in self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quiet:
    """since: when the directory was first seen as `chosen` tells; at: when it was last read, by the site's stopwatch."""

    looked: Looked
    lost: frozenset[str]
    chosen: Survey
    since: float
    at: float


class Looks:
    """Of one process. Used by one thread at a time for each run and directory."""

    def __init__(self) -> None:
        self._quiet: dict[tuple[str, Path], _Quiet] = {}
        self._in_place: dict[tuple[str, Path], set[str]] = {}

    def through(
        self, site: Site, directory: Path, *, run: str, lost: Collection[str], read: Callable[[], Looked]
    ) -> Looked:
        """What `read` answers, or answered when the directory was as it is now.

        It is read until two such looks were so far apart that times tell, and anew every ten minutes. lost: records whose
        files don't count as known; where these are others, it is read.
        """
        key, now = (run, directory), site.seconds()
        before = self._quiet.get(key)
        if before is not None and _tells(before, now) and before.lost == lost and site.files.same(before.chosen):
            return before.looked
        # First: what changes while it is read must make a difference to the next look.
        survey = site.files.survey(directory)
        looked = read()
        # Whatever it answered before was of another moment.
        self._quiet.pop(key, None)
        if survey is None:
            return looked
        in_place = self._in_place.setdefault(key, set())
        if before is not None:
            in_place.update(before.chosen.written_in_place(survey))
        if looked.quiet:
            unsettled = {str(path) for one in looked.found for path in one.paths}
            chosen = survey.chosen({str(path) for path in looked.known}, whole=in_place | unsettled)
            same = before is not None and before.chosen == chosen
            since = before.since if before is not None and same else now
            self._quiet[key] = _Quiet(looked=looked, lost=frozenset(lost), chosen=chosen, since=since, at=now)
        return looked


def _tells(before: _Quiet, now: float) -> bool:
    return before.at - before.since >= SETTLED_SECONDS and 0 <= now - before.at < FULL_SECONDS
