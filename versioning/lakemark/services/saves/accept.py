"""Take what a trainer saved into hot: is it whole, is it what it purports to be, is all of it of one save?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from lakemark.errors import Incomplete, LakemarkError, Unsteady, quoted
from lakemark.model.checkpoints.judging import EARLIER, Dated, Foreign, foreign, lost, no_more, resumes, weights_only
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Code, Record
from lakemark.model.ledger.run import RunState
from lakemark.model.runs.placing import Save, timeline_of
from lakemark.model.runs.timeline import lineage
from lakemark.model.tiers.sharing import names_step
from lakemark.model.values.canonical import JSON
from lakemark.model.values.names import printable
from lakemark.ports import Checkpoint, Directory, Found, KnownFile, Landed, OnDisk, Site, Spooled, Verdict
from lakemark.services.saves.known_files import are_known
from lakemark.services.saves.layout import committed

GENERIC: Final = "generic"
_SHOWN: Final = 3
_AGAIN: Final = "Let the trainer finish and commit it again; the next `lakemark sweep` does so too."


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What is asked for. spooled: the trainer announced it. found: a sweep saw it; nobody asked for this very commit.

    quiet_seconds: how long its files must not have changed; None: the site's rule (0 where it was announced or asked for).
    dropped: roles that the saves after it lack as well: the trainer no longer keeps them, so this one lost nothing.
    notes: what a person should know of it besides.
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
    notes: tuple[str, ...] = ()

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
class Taken:
    """landed: with the judgement in its manifest. notes: what a person should know of it, a sentence each.

    metrics: what its framework wrote of the step. landed_seconds: how long it took to come to hot, files' quiet included.
    """

    landed: Landed
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    landed_seconds: float = 0.0

    @property
    def identities(self) -> tuple[KnownFile, ...]:
        """Of the trainer's files as they were landed; what it writes afterwards is another save."""
        return self.landed.taken

    def checkpoint(self, record: Record) -> Checkpoint:
        return Checkpoint(record=record, manifest=self.landed.manifest)


def take(site: Site, asked: Commit, state: RunState) -> Taken:
    """Judges and lands what is asked for; the caller adopts or discards it.

    Raises what `commit` does. Nothing stays in hot then.
    """
    seen = _seen(site, asked.path)
    found = site.recogniser.judge(asked.path)
    _require_whole(asked, found)
    counted = found.counted and asked.step == found.step
    if counted and asked.found and asked.spooled is None:
        _require_counting(site, asked, state, found)
    if seen is None or found.members:
        seen = site.workspace.files(asked.path, found.members)
    if not (asked.found or found.members) and [one.path for one in seen] == [asked.path.name]:
        _require_all(site, asked)
    _require_every_rank(asked, seen)
    lies = _seen(site, asked.path) if found.members else seen
    _require_announced(site, asked, state, seen, lies=lies or seen)
    roles = dict(found.roles) | dict(asked.spooled.roles if asked.spooled else {})
    present, possible = _roles(asked, found, roles)
    earlier = _earlier(site, asked, state, found)
    notes = _require_nothing_lost(asked, (present, possible), _roles_before(site, asked, found, earlier))
    doubt = _doubt(site, asked, seen, roles, earlier=earlier)
    begun = site.seconds()
    landed = site.hot.land(
        asked.path,
        quiet_seconds=_quiet(site, asked),
        roles=roles,
        progress=site.progress,
        members=found.members,
        share=_may_share(site, asked, state, found),
    )
    seconds = site.seconds() - begun
    try:
        _require_same(asked, seen, landed)
        if doubt is not None and not _carried(site, doubt, landed.manifest, earlier=earlier):
            notes = (*notes, doubt.why)
            if asked.found:
                raise _suspect(asked, doubt)
        resumable, gaps = resumes(present, possible, needs_no=state.needs_no)
        manifest = landed.manifest.judged(framework=found.framework, roles=present, resumable=resumable, gaps=gaps)
    except Exception:  # any: what was landed and is nobody's would fill the disk
        with suppress(LakemarkError):
            site.hot.discard(landed)
        raise
    if possible or found.members or counted:
        more: dict[str, JSON] = {"possible": sorted(possible)} if possible else {}
        more |= {"members": _named(found)} if found.members else {}
        more |= {"counted": True} if counted else {}
        manifest = replace(manifest, extra={**manifest.extra, **more})
    if weights_only(present, possible):
        notes = (*notes, "weights only: not resumable")
    return Taken(
        landed=replace(landed, manifest=manifest),
        notes=tuple(dict.fromkeys((*asked.notes, *found.notes, *notes))),
        metrics=found.metrics,
        landed_seconds=seconds,
    )


def _may_share(site: Site, asked: Commit, state: RunState, found: Found) -> bool:
    """Whether the trainer's next save leaves these very files alone, as far as names and history tell."""
    if not names_step((path.name for path in found.paths), asked.step):
        return False
    same = [row[2] for rows in state.by_step.values() for row in rows if row[0] == asked.step]
    return all(committed(site, state.records[one]).get("source") != printable(asked.path) for one in same)


def held(found: Found) -> set[str]:
    """The roles it is known to hold."""
    return {str(role) for role in (*found.present, *found.roles.values())} - {"other"}


def bound_directory(site: Site, asked: Commit) -> tuple[Path, Directory | None]:
    """The nearest directory that somebody bound to this run and that it lies in; else where it was found."""
    for folder in asked.path.parents:
        bound = site.journal.directory(folder)
        if bound is not None and bound.run == asked.run:
            return folder, bound
    return asked.directory or asked.path.parent, None


def attempt_of(asked: Commit, bound: Directory | None, state: RunState) -> str | None:
    """The process that saved it, as far as is known."""
    said = asked.spooled.attempt if asked.spooled else None
    newest = state.attempt
    return said or (bound.attempt if bound else None) or (newest.id if newest else None)


def _seen(site: Site, path: Path) -> tuple[OnDisk, ...] | None:
    """Its files, looked at before they are judged; None where it is a name for several members."""
    return site.workspace.files(path) if site.workspace.exists(path) else None


def _named(found: Found) -> JSON:
    """True where a checkpoint's members are what its top names are; else their paths, as they lie in several folders."""
    names = [member.relative_to(found.path.parent).as_posix() for member in found.members]
    return sorted(names) if any("/" in name for name in names) else True


def _require_all(site: Site, asked: Commit) -> None:
    """One of several files of a checkpoint, as somebody named it, is not that checkpoint: it would keep the others out."""
    parent = asked.path.parent
    # Folders named by a rank alone are one checkpoint's; above others there may be a whole disk.
    for folder in (parent, parent.parent) if parent.name.isdigit() else (parent,):
        others = site.recogniser.find(folder, skip=lambda paths: asked.path not in paths)
        whole = next((one for one in others if asked.path in one.members and len(one.members) > 1), None)
        if whole is not None and whole.path != asked.path:
            raise Incomplete(
                f"{quoted(str(asked.path))} is one of {len(whole.members)} files of {quoted(str(whole.path))}",
                advice=f"Commit them together: lakemark commit {quoted(str(whole.path))} --run {asked.run} --step {asked.step}",
            )


def _require_whole(asked: Commit, found: Found) -> None:
    if found.verdict is not Verdict.COMPLETE and asked.spooled is None:
        raise Incomplete(
            f"{quoted(str(asked.path))} is {found.verdict}: {found.why}",
            advice="Commit it when the trainer has finished it.",
        )
    if asked.spooled is not None and not asked.finished and found.verdict is Verdict.INCOMPLETE:
        raise Incomplete(f"{quoted(str(asked.path))}: {found.why}", advice=_AGAIN)
    if asked.found and asked.spooled is None and found.step != asked.step:
        raise Incomplete(f"{quoted(str(asked.path))} was step {asked.step} and is {found.step} now", advice=_AGAIN)


def _require_counting(site: Site, asked: Commit, state: RunState, found: Found) -> None:
    """A number of saves is no step among steps that the trainer told."""
    newest = next((one.record for one in lineage(state) if one.record.framework == found.framework), None)
    if newest is not None and not site.ledger.manifest(asked.run, newest.id).extra.get("counted"):
        raise Incomplete(
            f"{quoted(str(asked.path))}: step unknown: {found.step} is a counter, and other steps of this run were told",
            advice=f"lakemark commit PATH --run {asked.run} --step N",
        )


def _require_every_rank(asked: Commit, seen: tuple[OnDisk, ...]) -> None:
    """One rank announced it; the files that the others leave have to be there too."""
    spooled = asked.spooled
    awaited = list(islice(spooled.awaited({one.path for one in seen}), _SHOWN + 1)) if spooled else []
    if awaited:
        names = ", ".join(map(quoted, awaited[:_SHOWN])) + (", …" if len(awaited) > _SHOWN else "")
        raise Incomplete(f"{quoted(str(asked.path))} waits for other ranks: no {names} yet", advice=_AGAIN)


def _require_announced(
    site: Site, asked: Commit, state: RunState, seen: tuple[OnDisk, ...], *, lies: tuple[OnDisk, ...]
) -> None:
    """What lies there is what was announced: neither written over since, nor still what an earlier step left.

    lies: at the path that was announced, which may name only one of the files.
    """
    spooled = asked.spooled
    if spooled is None or not spooled.identity:
        return
    why = spooled.written_over(lies)
    if why is not None:
        raise Incomplete(
            f"{quoted(str(asked.path))} was overwritten after step {spooled.step} was announced: {why}", advice=_AGAIN
        )
    if not are_known(site, [one.file for one in seen or ()]):
        return
    before = state.records.get(site.journal.known(seen[0].file) or "") if seen else None
    if before is None or before.record.step == asked.step:
        return
    if not site.ledger.manifest(asked.run, before.record.id).extra.get("counted"):
        still = f"is still step {before.record.step}: step {asked.step} was announced before it was written"
        raise Incomplete(f"{quoted(str(asked.path))} {still}", advice=_AGAIN)


def _roles(asked: Commit, found: Found, roles: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """What it holds, and what it may hold besides. Of a framework nobody knows, the trainer's own word is all there is."""
    said = asked.spooled.present if asked.spooled else ()
    present = held(found) | {str(role) for role in (*roles.values(), *said)} - {"other"}
    whole = asked.spooled is not None and bool(asked.spooled.roles) and found.framework == GENERIC
    return present, set() if whole else {str(role) for role in found.possible} - present


def _earlier(site: Site, asked: Commit, state: RunState, found: Found) -> list[Record]:
    """The nearest records of the lineage below its step that are of the same framework, the nearest first."""
    _, bound = bound_directory(site, asked)
    mine = Save(
        step=asked.step,
        content="",
        attempt=attempt_of(asked, bound, state),
        resumed_timeline=asked.spooled.timeline if asked.spooled else None,
        directory_timeline=bound.timeline if bound else None,
    )
    below = (one.record for one in lineage(state, timeline_of(state, mine)) if one.record.step < asked.step)
    return list(islice((record for record in below if record.framework == found.framework), EARLIER))


def _roles_before(site: Site, asked: Commit, found: Found, earlier: list[Record]) -> list[tuple[str, ...]]:
    """Of earlier saves; of those that lie beside it, where somebody asks for it before any of them is committed."""
    if earlier or asked.found or found.step is None or found.framework == GENERIC:
        return [record.roles for record in earlier]
    folder = found.path.parent
    beside = site.recogniser.find(folder, skip=lambda paths: paths[0].parent != folder)
    return [
        tuple(held(one))
        for one in beside
        if one.verdict is Verdict.COMPLETE
        and one.framework == found.framework
        and one.step is not None
        and one.step < found.step
    ][-EARLIER:]


def _require_nothing_lost(
    asked: Commit, roles: tuple[set[str], set[str]], earlier: list[tuple[str, ...]]
) -> tuple[str, ...]:
    """Raises Incomplete for a role that every earlier save had; what is lost on purpose is said in the notes.

    roles: present and possible.
    """
    gone = lost(*roles, earlier)
    meant = [role for role in gone if asked.claimed or role in asked.dropped]
    if len(meant) < len(gone):
        names = " and ".join(role for role in gone if role not in meant)
        raise Incomplete(
            f"{quoted(str(asked.path))} lost {names}, which every earlier step has",
            advice="If it was saved without it on purpose, let the trainer announce it with its roles.",
        )
    return tuple(map(no_more, meant))


def _doubt(
    site: Site, asked: Commit, seen: tuple[OnDisk, ...], roles: Mapping[str, str], *, earlier: list[Record]
) -> Foreign | None:
    """Files that seem to be another save's. Raises Incomplete at once where no earlier step can have had them."""
    dated = [
        Dated(
            path=one.path,
            role=str(roles.get(one.path, "")),
            size_bytes=one.file.size_bytes,
            written_at=datetime.fromtimestamp(one.file.mtime_ns / 1e9, UTC),
            names=one.names,
        )
        for one in seen
    ]
    doubt = foreign(dated, before=earlier[0].saved_at if earlier and not site.simulated_clock else None)
    if doubt is None or not asked.found:
        return doubt
    sizes = {one.path: one.file.size_bytes for one in seen}
    had = _files_of(site, earlier[0]) if earlier else {}
    if any(path not in had or had[path][0] != sizes[path] for path in doubt.paths):
        raise _suspect(asked, doubt)
    return doubt


def _carried(site: Site, doubt: Foreign, manifest: Manifest, *, earlier: list[Record]) -> bool:
    """Whether the step before holds these very files under these names: they are copied from step to step, as they are."""
    had = _files_of(site, earlier[0]) if earlier else {}
    mine = {file.path: (file.size_bytes, file.digest) for file in manifest.regular}
    return all(had.get(path) == mine.get(path) for path in doubt.paths)


def _files_of(site: Site, record: Record) -> dict[str, tuple[int, str | None]]:
    return {file.path: (file.size_bytes, file.digest) for file in site.ledger.manifest(record.run, record.id).regular}


def _suspect(asked: Commit, doubt: Foreign) -> Incomplete:
    return Incomplete(
        f"suspect: {doubt.why}",
        advice=f"Look at {quoted(str(asked.path))}; if it is right, commit it: lakemark commit.",
    )


def _quiet(site: Site, asked: Commit) -> float:
    if asked.quiet_seconds is not None:
        return asked.quiet_seconds
    return 0.0 if asked.finished else site.policies.quiet_seconds


def _require_same(asked: Commit, seen: tuple[OnDisk, ...], landed: Landed) -> None:
    """What was judged is what was landed: a directory may have been renamed and another put in its place."""
    if {one.file for one in seen} != set(landed.taken):
        raise Unsteady(f"{quoted(str(asked.path))} changed while it was landed", advice=_AGAIN)
