"""What is asked of a commit, and one save with all that is known of it: worked out once, before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from lakemark.model.checkpoints.record import Code, Record
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.placing import Save
from lakemark.model.runs.whose import Owner, Same, Whose
from lakemark.ports import Directory, Site, Spooled
from lakemark.services.directories import bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What is asked for. spooled: the trainer announced it. found: a sweep saw it; nobody asked for this very commit.

    quiet_seconds: how long its files must not have changed; None: the site's rule (0 where it was announced or asked for).
    dropped: roles that the saves after it lack as well: the trainer no longer keeps them, so this one lost nothing.
    later: where the next save that was found beside it lies; empty where none was. pass_began: the run's last entry when the
    pass that found it began. lying: ids of the records that lie in its directory.
    notes: what a person should know of it besides. whose: as it was told of a find, by its files and its directory; None: not
    asked. adopted: somebody said that it is the run's, though it is older.
    """

    path: Path
    run: str
    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    code: Code | None = None
    supersede: bool = False
    found: bool = False
    spooled: Spooled | None = None
    directory: Path | None = None
    quiet_seconds: float | None = None
    dropped: frozenset[str] = frozenset()
    later: tuple[Path, ...] = ()
    pass_began: int | None = None
    lying: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    whose: Whose | None = None
    adopted: bool = False

    @property
    def finished(self) -> bool:
        """Whether somebody who could know said that it is whole: not one rank of several, nor before anything lay there."""
        if self.spooled is None:
            return not self.found
        return self.spooled.world is None and self.spooled.identity != {}

    @property
    def claimed(self) -> bool:
        """Whether the trainer itself said which roles it saved."""
        return self.spooled is not None and bool(self.spooled.roles or self.spooled.present)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """new: False where this very content was a record already. notes: what a person should know of it.

    landed_again: the record was there, and had no sound replica any more; it has one now.
    pending: why it is sealed and has no entry yet. told: False where what its announcement says could not be added to the
    record, so that it stays. copy: it is not taken, as it has the bytes of this, another run's.
    """

    record: Record
    new: bool
    landed_again: bool = False
    pending: str | None = None
    told: bool = True
    copy: Same | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCommit:
    """One save that is to be committed. state: what the ledger knows of its run.

    directory: the nearest that somebody bound to this run and that it lies in, else where it was found.
    bound: what that directory is bound to. attempt: the process that saved it, as far as is known.
    """

    asked: Commit
    state: RunState
    directory: Path
    bound: Directory | None
    attempt: str | None

    def as_save(self) -> Save:
        """What tells whose it is before its bytes are read: of no content."""
        asked, spooled = self.asked, self.asked.spooled
        return Save(
            step=asked.step,
            content="",
            announced=spooled is not None,
            found=asked.found,
            attempt=self.attempt,
            resumed_timeline=spooled.timeline if spooled else None,
            directory_timeline=self.bound.timeline if self.bound else None,
            data=spooled.data if spooled else (),
            supersede=asked.supersede,
            adopted=asked.adopted,
            dated=asked.whose is None or asked.whose.dated,
            doubtful=self.doubtful,
            pass_began=asked.pass_began,
            lying=asked.lying,
        )

    def twin_of_another_attempt(self, content: str) -> RecordState | None:
        """The record of another step, of another process, that has the bytes of what nobody announced."""
        rows = self.state.live() if self.is_guess else ()
        others = (one for one in rows if one.record.content == content and one.record.step != self.asked.step)
        return next((one for one in others if one.record.attempt != self.attempt), None)

    def with_twin(self, same: Same) -> Self:
        """There is a record of these bytes that another process wrote: whether this one did, too, nobody can know."""
        told = self.asked.whose or Whose(owner=Owner.ATTEMPT, why="", attempt=self.attempt)
        return replace(self, asked=replace(self.asked, whose=told.like(same)))

    @property
    def is_guess(self) -> bool:
        """Whether nobody said whose it is: it was only found."""
        return self.asked.found and self.asked.spooled is None and not self.asked.adopted

    @property
    def doubtful(self) -> bool:
        """Whether nobody knows which timeline it is of."""
        return self.asked.spooled is None and self.asked.whose is not None and self.asked.whose.doubtful


def resolve(site: Site, asked: Commit, state: RunState) -> ToCommit:
    """The save, bound as its directory and the ledger say now."""
    directory, known = _bound_directory(site, asked)
    said = asked.spooled.attempt if asked.spooled else None
    newest = state.attempt
    # The process's own word goes before that of its directory, which may have been resumed into since it saved.
    attempt = said or (known.attempt if known else None) or (newest.id if newest else None)
    if asked.spooled is None and (asked.adopted or asked.whose is not None):
        # Of an older life, or of none: a directory's attempt is not that of all that lies in it.
        attempt = asked.whose.attempt if asked.whose is not None and not asked.adopted else None
    return ToCommit(asked=asked, state=state, directory=directory, bound=known, attempt=attempt)


def as_now(site: Site, save: ToCommit) -> ToCommit:
    """The same by the ledger of this moment; resolved anew where that moved on."""
    state = site.ledger.run(save.asked.run)
    # Who moved it on may have opened a timeline, and bound the directory to it.
    return replace(save, state=state) if state.sequence == save.state.sequence else resolve(site, save.asked, state)


def _bound_directory(site: Site, asked: Commit) -> tuple[Path, Directory | None]:
    for folder in asked.path.parents:
        known = site.journal.directory(folder)
        if known is not None and known.run == asked.run:
            return folder, known
    directory = asked.directory or asked.path.parent
    # The journal was lost, or never knew it: by its mark.
    known = bound(site, directory)
    return directory, known if known is not None and known.run == asked.run else None
