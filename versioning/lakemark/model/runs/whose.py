"""Whose save is it that lies in a directory: one decision, with its reasons, for whoever finds, lists, opens and resumes.

By who said so, then by what is known of its bytes, then by its files' times and who was open there. Where nobody could know,
it says so (`ambiguous`). It touches nothing: what is known is worked out by `services.whose`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self

from lakemark.model.ledger.run import Attempt
from lakemark.model.values.wording import instant

_TICK: Final = timedelta(milliseconds=20)
"""A kernel stamps files by its last tick: a file may seem that much older than an attempt that began before it."""


class Owner(StrEnum):
    """Whose it is."""

    ATTEMPT = "this attempt"
    EARLIER = "an earlier life"
    COPY = "a copy"
    RESTORED = "ours"
    OLDER = "older than the run"
    AMBIGUOUS = "ambiguous"


class Known(StrEnum):
    """How files come to be of a record. The values are in nodes' journals: they stay as they are."""

    COMMITTED = "committed"
    RESTORED = "restored"
    POINTER = "pointer"
    COPY = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """A record that what lies there is, or has the bytes of. known: how its very files are; None: by their bytes alone."""

    record: str
    run: str
    timeline: int
    step: int
    attempt: str | None = None
    known: Known | None = None

    def named(self, run: str) -> str:
        """As people write it who speak of `run`."""
        return f"step {self.step}" if self.run == run else f"{self.run}@{self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lying:
    """What is known of a save that lies in a directory.

    written_at: of its newest heavy file; None where that says nothing, as on a simulated clock. came_at: when the last of
    these came to lie there as it is: a copy may keep the time that it was written at. listed: an open of the run saw it
    there before. announced: the attempt whose process said that it saved it. same: the record that it is, or has the bytes
    of; None: its bytes are new, or not read yet.
    """

    step: int | None
    written_at: datetime | None
    came_at: datetime | None = None
    listed: bool = False
    announced: str | None = None
    same: Same | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Whose saves are looked for in a directory. attempt, timeline: of the process that saves there now, by what is known.

    since: when the run was first opened on it; None: nobody knows. watched: a `watch:` entry alone says that the run saves
    there, and finds its directories by itself. sure: somebody noted that it is this attempt's; else it is the run's newest.
    """

    run: str
    attempt: str | None = None
    timeline: int | None = None
    since: datetime | None = None
    watched: bool = False
    sure: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """The answer. of: the record that it is, or is a copy of. attempt: whose it is, where that is one.

    taken: a pass commits it. dated: it was written while its attempt was open, as far as that can be told; else its data is
    ambiguous. doubtful: nobody knows which timeline it is of, so it is never the newest of the current one.
    """

    owner: Owner
    why: str
    of: Same | None = None
    attempt: str | None = None
    taken: bool = True
    dated: bool = True
    doubtful: bool = False
    run: str = ""

    def like(self, same: Same) -> Self:
        """The same, where another process has a record of its bytes: which of the two wrote them, nobody can know."""
        why = f"it has the bytes of {same.run}@{same.step} ({same.record[:12]}): nobody knows what data it was trained with"
        return replace(self, owner=Owner.AMBIGUOUS, why=why, dated=False)

    def __str__(self) -> str:
        if self.owner is Owner.COPY and self.of is not None:
            return f"a copy of {self.of.run}@{self.of.step}"
        return str(self.owner)


def whose(found: Lying, attempts: Sequence[Attempt], lineage: Sequence[int], directory: Seat) -> Whose:
    """Whose save `found` is.

    attempts: those that were open in `directory`, the oldest first. lineage: the current timeline, then those it came from.
    """
    said = _said(found, attempts, lineage) or _of_record(found, directory)
    if said is not None:
        return said
    mine = _sits(attempts, directory)
    if found.written_at is None:
        return _seated(attempts, lineage, directory, "the times of its files say nothing here")
    if directory.since is not None and found.written_at < directory.since - _TICK:
        return _older(found, found.written_at, directory.since, directory)
    # By its files' time: whoever was open there then wrote it. The one that sits there now may not have begun yet.
    began = [one for one in attempts if one.started_at - _TICK <= found.written_at]
    written = f"written at {instant(found.written_at)}"
    if mine is None or mine in began or not began:
        return _seated(attempts, lineage, directory, f"{written}, while it was open there")
    before = max(began, key=lambda one: one.sequence)
    return Whose(
        owner=Owner.EARLIER,
        attempt=before.id,
        why=f"{written}, while attempt {before.id} was open there, before {mine.id} began",
        run=directory.run,
    )


def _said(found: Lying, attempts: Sequence[Attempt], lineage: Sequence[int]) -> Whose | None:
    if found.announced is None:
        return None
    said = next((one for one in attempts if one.id == found.announced), None)
    newest = max(attempts, key=lambda one: one.sequence, default=None)
    here = said is None or (said == newest and said.timeline in lineage[:1])
    owner = Owner.ATTEMPT if here else Owner.EARLIER
    return Whose(owner=owner, attempt=found.announced, why="its process announced it")


def _of_record(found: Lying, directory: Seat) -> Whose | None:
    """What it is where it is of a record, or has its bytes; None where that is no answer."""
    same = found.same
    if same is None:
        return None
    named, short = same.named(directory.run), same.record[:12]
    if same.known in (Known.RESTORED, Known.POINTER):
        why = f"lakemark brought its files there, of {named} ({short})"
        return Whose(owner=Owner.RESTORED, of=same, why=why, taken=False, run=directory.run)
    if same.run != directory.run:
        how = "its files are those of" if same.known is Known.COMMITTED else "it has the bytes of"
        return Whose(owner=Owner.COPY, of=same, why=f"{how} {named} ({short})", taken=False, run=directory.run)
    if found.step is None or same.known is Known.COPY:
        return Whose(owner=Owner.COPY, of=same, why=f"it has the bytes of {named} ({short})", taken=False)
    # The same run, at another step: a trainer that links what did not change, or somebody's copy. Both are saves.
    return None


def _older(found: Lying, written_at: datetime, since: datetime, directory: Seat) -> Whose:
    spans = f"written at {instant(written_at)}, and {directory.run} was first"
    came = found.came_at is not None and found.came_at >= since - _TICK and not found.listed
    if came or directory.watched:
        # Of what came later the time may be a copy's, or one that some tool set. It is kept, and vouches for nothing.
        how = (
            f"seen there at {instant(since)}"
            if directory.watched
            else f"opened there at {instant(since)}; it came later"
        )
        return Whose(
            owner=Owner.AMBIGUOUS,
            attempt=directory.attempt,
            why=f"{spans} {how}: nobody knows what data it was trained with",
            dated=False,
            run=directory.run,
        )
    why = f"{spans} opened there at {instant(since)}"
    return Whose(owner=Owner.OLDER, why=why, taken=False, dated=False, run=directory.run)


def _seated(attempts: Sequence[Attempt], lineage: Sequence[int], directory: Seat, why: str) -> Whose:
    """Of the process that saves there now."""
    mine = _sits(attempts, directory)
    if not directory.sure and len({*(one.timeline for one in attempts), *lineage[:1]}) > 1:
        return Whose(
            owner=Owner.AMBIGUOUS,
            why="nobody knows any more which life of the run saves there: neither this node's journal nor a mark says it",
            dated=False,
            doubtful=True,
            run=directory.run,
        )
    timeline = mine.timeline if mine is not None else directory.timeline
    # A timeline that the current one came from was left, too: what its process saves now is beyond the fork.
    owner = Owner.ATTEMPT if timeline is None or timeline in lineage[:1] else Owner.EARLIER
    left = "" if owner is Owner.ATTEMPT else f"; timeline {timeline} was left"
    return Whose(owner=owner, attempt=directory.attempt, why=f"{why}{left}", run=directory.run)


def _sits(attempts: Sequence[Attempt], directory: Seat) -> Attempt | None:
    return next((one for one in attempts if one.id == directory.attempt), None)
