"""Accept what a trainer saved: is it whole, what it purports to be, all of one save? Then its bytes are landed in hot."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from lakemark.errors import Incomplete, LakemarkError, Unsteady, quoted
from lakemark.model.checkpoints.judging import EARLIER, Dated, Foreign, foreign, lost, no_more, resumes, weights_only
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.checkpoints.whole import kinds_of, lacking, lacks_too, told
from lakemark.model.ledger.run import RunState
from lakemark.model.runs.placing import timeline_of
from lakemark.model.runs.timeline import lineage
from lakemark.model.tiers.moves import SKEW
from lakemark.model.tiers.sharing import names_step
from lakemark.model.values.canonical import JSON
from lakemark.model.values.names import printable
from lakemark.ports import Checkpoint, Found, KnownFile, Landed, OnDisk, Site, Verdict
from lakemark.services.ledger import committed
from lakemark.services.saves.known_files import are_known
from lakemark.services.saves.to_commit import Commit, ToCommit

GENERIC: Final = "generic"
_SHOWN: Final = 3
# A file is heavy that has at least the tenth part of the largest one's bytes.
_HEAVY: Final = 10
_AGAIN: Final = "Let the trainer finish and commit it again; the next `lakemark sweep` does so too."


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A save that is whole, as far as names and headers tell. seen: its files, as they were when it was judged.

    roles: of its files, by path. present, possible: the roles that it holds, and may hold besides. counted: its step is a
    number of saves. earlier: the nearest records below it. doubt: files of it that seem to be another save's.
    """

    found: Found
    seen: tuple[OnDisk, ...]
    roles: Mapping[str, str]
    present: frozenset[str]
    possible: frozenset[str]
    counted: bool
    earlier: tuple[Record, ...]
    doubt: Foreign | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """landed: with the judgement in its manifest. notes: what a person should know of it, a sentence each.

    metrics: what its framework wrote of the step. landed_seconds: how long it took to come to hot, files' quiet included.
    written_at: by its files; None where they can't tell: also where they claim to be of the future. begun_at: the same, by the
    oldest of its heavy files: small ones are copied along from elsewhere.
    made_at: as its trainer announced, else by its files. pointed: links and lines beside it that name a step, by form.
    members: as it was found.
    """

    landed: Landed
    notes: tuple[str, ...]
    metrics: Mapping[str, float]
    landed_seconds: float
    written_at: datetime | None
    begun_at: datetime | None
    made_at: datetime | None
    pointed: Mapping[str, str]
    members: tuple[Path, ...]

    @property
    def identities(self) -> tuple[KnownFile, ...]:
        """Of the trainer's files as they were landed; what it writes afterwards is another save."""
        return self.landed.taken

    def checkpoint(self, record: Record) -> Checkpoint:
        return Checkpoint(record=record, manifest=self.landed.manifest)


def judge(site: Site, save: ToCommit) -> Judged:
    """Whether it is a finished save, all there and of one moment. No byte is copied yet. Raises Incomplete, NotFound, Denied."""
    asked = save.asked
    # Its files are looked at before they are judged: what changes after that is told by what is landed.
    seen = _seen(site, asked.path)
    found = _meant(site, asked, site.recogniser.judge(asked.path))
    _require_all_parts(asked, found)
    _require_whole(asked, found)
    counted = found.counted and asked.step == found.step
    if counted and asked.found and asked.spooled is None:
        _require_counting(site, save, found)
    if seen is None or found.members:
        seen = site.files.regular(asked.path, found.members)
    if not (asked.found or found.members) and [one.path for one in seen] == [asked.path.name]:
        _require_all(site, asked)
    _require_every_rank(asked, seen)
    lies = _seen(site, asked.path) if found.members else seen
    _require_announced(site, save, seen, lies=lies or seen)
    roles = dict(found.roles) | dict(asked.spooled.roles if asked.spooled else {})
    present, possible = _roles(asked, found, roles)
    earlier = _earlier(save, found)
    notes = _require_nothing_lost(asked, (present, possible), _roles_before(site, asked, found, earlier))
    # First: that it holds another save's files says more than that it lacks some.
    doubt = _doubt(site, asked, seen, roles, earlier=earlier)
    if found.unlisted:
        notes += _require_as_many(site, save, seen, earlier=earlier)
    return Judged(
        found=found,
        seen=seen,
        roles=roles,
        present=frozenset(present),
        possible=frozenset(possible),
        counted=counted,
        earlier=tuple(earlier),
        doubt=doubt,
        notes=notes,
    )


def land(site: Site, save: ToCommit, judged: Judged) -> Taken:
    """Takes its bytes into hot, durable and hashed, under no name yet; the caller names or discards them.

    Raises Incomplete (it changed meanwhile, or holds another save's files), Refused, NoRoom, Denied. Nothing stays in hot then.
    """
    asked, found = save.asked, judged.found
    begun = site.seconds()
    landed = site.hot.land(
        asked.path,
        quiet_seconds=_quiet(site, asked),
        roles=judged.roles,
        progress=site.progress,
        members=found.members,
        share=_may_share(site, save, found),
    )
    seconds = site.seconds() - begun
    notes = judged.notes
    try:
        _require_same(asked, judged.seen, landed)
        # Only the digests, which nobody knew before, tell a file that is carried from step to step from one left behind.
        if judged.doubt is not None and not _carried(site, judged.doubt, landed.manifest, earlier=judged.earlier):
            notes = (*notes, judged.doubt.why)
            if asked.found:
                raise _suspect(asked, judged.doubt)
        manifest = _judged_manifest(save, judged, landed.manifest)
    except Exception:  # any: what was landed and is nobody's would fill the disk
        with suppress(LakemarkError):
            site.hot.discard(landed)
        raise
    if weights_only(judged.present, judged.possible):
        notes = (*notes, "weights only: not resumable")
    notes = tuple(dict.fromkeys((*asked.notes, *found.notes, *notes)))
    untold = site.simulated_clock or landed.newest_mtime > site.now() + SKEW
    written_at = None if untold else landed.newest_mtime
    return Taken(
        landed=replace(landed, manifest=manifest),
        notes=(*notes, *_gaps_said(save.state, manifest.gaps)),
        metrics=found.metrics,
        landed_seconds=seconds,
        written_at=written_at,
        begun_at=None if written_at is None else _begun(landed),
        made_at=asked.spooled.saved_at if asked.spooled is not None else written_at,
        pointed=found.pointed,
        members=found.members,
    )


def _begun(landed: Landed) -> datetime:
    """When the oldest of its heavy files was last written."""
    largest = max((one.size_bytes for one in landed.taken), default=0)
    heavy = (one.mtime_ns for one in landed.taken if one.size_bytes * _HEAVY >= largest)
    return datetime.fromtimestamp(min(heavy, default=0) / 1e9, UTC) if landed.taken else landed.newest_mtime


def _judged_manifest(save: ToCommit, judged: Judged, manifest: Manifest) -> Manifest:
    found, possible = judged.found, judged.possible
    resumable, gaps = resumes(judged.present, possible, needs_no=save.state.needs_no)
    manifest = manifest.judged(framework=found.framework, roles=judged.present, resumable=resumable, gaps=gaps)
    more: dict[str, JSON] = {"possible": sorted(possible)} if possible else {}
    more |= {"members": _named(found)} if found.members else {}
    more |= {"counted": True} if judged.counted else {}
    return replace(manifest, extra={**manifest.extra, **more}) if more else manifest


def _gaps_said(state: RunState, gaps: tuple[str, ...]) -> tuple[str, ...]:
    """A trainer that has no scheduler lacks it at each step: that is said of the first, with how to say that it is meant."""
    if not gaps or any(found.record.gaps == gaps for found in state.records.values()):
        return ()
    roles = " ".join(gap.removeprefix("no ") for gap in gaps if gap.startswith("no "))
    if not roles or "weights" in roles:
        return ()
    command = f"lakemark run open {state.run} --needs-no {roles}"
    return (f"training can't go on from it: {', '.join(gaps)}; if its trainer has none: {command}",)


def _may_share(site: Site, save: ToCommit, found: Found) -> bool:
    """Whether the trainer's next save leaves these very files alone, as far as names and history tell."""
    asked, state = save.asked, save.state
    if not names_step((path.name for path in found.paths), asked.step):
        return False
    same = [row[2] for rows in state.by_step.values() for row in rows if row[0] == asked.step]
    return all(committed(site, state.records[one]).source != printable(asked.path) for one in same)


def held(found: Found) -> set[str]:
    """The roles it is known to hold."""
    return {str(role) for role in (*found.present, *found.roles.values())} - {"other"}


def _seen(site: Site, path: Path) -> tuple[OnDisk, ...] | None:
    """Its files, looked at before they are judged; None where it is a name for several members."""
    return site.files.regular(path) if site.files.exists(path) else None


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


def _meant(site: Site, asked: Commit, found: Found) -> Found:
    """Who names a file and a step means it, also where its name is one of whatever is newest. Not a link, nor a text.

    Nor does it wait then that files of ranks are fewer than beside it, where nothing else tells how many there should be.
    """
    if asked.found or asked.spooled is not None:
        return found
    if found.fewer and found.framework == GENERIC:
        return replace(found, verdict=Verdict.COMPLETE)
    named = found.verdict is Verdict.POINTER and not found.target
    if not named or not (found.present or found.possible) or not site.files.identities(asked.path):
        return found
    return replace(found, verdict=Verdict.COMPLETE, why="named by whoever commits it")


def _require_all_parts(asked: Commit, found: Found) -> None:
    """What a trainer saves of one step into several folders is one save: half of it is none."""
    if found.part_of is not None:
        whole = quoted(str(found.part_of))
        raise Incomplete(
            f"{quoted(str(asked.path))} is a part of {whole}: other folders beside its own hold the rest",
            advice=f"Commit them together: lakemark commit {whole} --run {asked.run} --step {asked.step}",
        )


def _require_whole(asked: Commit, found: Found) -> None:
    """Raises Incomplete. What a trainer announced as whole is whole, whatever it looks like."""
    if found.verdict is not Verdict.COMPLETE and asked.spooled is None:
        raise Incomplete(
            f"{quoted(str(asked.path))} is {found.verdict}: {found.why}",
            advice=_what_it_names(asked, found) or "Commit it when the trainer has finished it.",
        )
    if asked.spooled is not None and not asked.finished and found.verdict is Verdict.INCOMPLETE:
        raise Incomplete(f"{quoted(str(asked.path))}: {found.why}", advice=_AGAIN)
    if asked.found and asked.spooled is None and found.step != asked.step:
        raise Incomplete(f"{quoted(str(asked.path))} was step {asked.step} and is {found.step} now", advice=_AGAIN)


def _what_it_names(asked: Commit, found: Found) -> str | None:
    """What to commit instead of a link or a text that names a checkpoint: no trainer will ever finish that one."""
    if found.verdict is not Verdict.POINTER or not found.target:
        return None
    target = os.path.normpath(asked.path.parent / found.target)
    return f"Commit what it names: lakemark commit {quoted(target)} --run {asked.run} --step {asked.step}"


def _require_counting(site: Site, save: ToCommit, found: Found) -> None:
    """A number of saves is no step among steps that the trainer told."""
    asked = save.asked
    newest = next((one.record for one in lineage(save.state) if one.record.framework == found.framework), None)
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


def _require_announced(site: Site, save: ToCommit, seen: tuple[OnDisk, ...], *, lies: tuple[OnDisk, ...]) -> None:
    """What lies there is what was announced: neither written over since, nor still what an earlier step left.

    lies: at the path that was announced, which may name only one of the files.
    """
    asked, spooled = save.asked, save.asked.spooled
    if spooled is None or not spooled.identity:
        return
    why = spooled.written_over(lies)
    if why is not None:
        raise Incomplete(
            f"{quoted(str(asked.path))} was overwritten after step {spooled.step} was announced: {why}", advice=_AGAIN
        )
    if not are_known(site, [one.file for one in seen or ()]):
        return
    before = save.state.records.get(site.journal.known(seen[0].file) or "") if seen else None
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


def _earlier(save: ToCommit, found: Found) -> list[Record]:
    """The nearest records of the lineage below its step that are of the same framework, the nearest first."""
    timeline = timeline_of(save.state, save.as_save())
    below = (one.record for one in lineage(save.state, timeline) if one.record.step < save.asked.step)
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


def _require_as_many(
    site: Site, save: ToCommit, seen: tuple[OnDisk, ...], *, earlier: Sequence[Record]
) -> tuple[str, ...]:
    """Raises Incomplete for a find without files of tensors that every earlier save of its attempt had when first sealed.

    Not where the next save lacks them too: then the trainer writes them no more. A person's own commit is told of it, and an
    announcement is the trainer's word.
    """
    asked, names = save.asked, [one.path for one in seen]
    if asked.spooled is not None:
        return ()
    mine = (record for record in earlier if record.attempt == save.attempt)
    short = lacking(names, (_kinds(site, save.state, record) for record in mine))
    # Each file is looked up for that: only where something lacks.
    if not short or _is_recorded(site, save, seen):
        return ()
    why = f"it lacks {told(short)}, which every earlier save of this attempt has"
    if asked.found and not any(lacks_too(short, names, later) for later in _later(site, save, earlier[0].framework)):
        raise Incomplete(
            f"{quoted(str(asked.path))}: {why}",
            advice=f"It is taken when the next save lacks it too; if it is whole: lakemark commit {quoted(str(asked.path))} "
            f"--run {asked.run} --step {asked.step}",
        )
    return (why,)


def _is_recorded(site: Site, save: ToCommit, seen: tuple[OnDisk, ...]) -> bool:
    """Whether it is what is left of a save that was recorded at this step: that one counts, whatever this one lacks."""
    known = {identity for one in seen if (identity := site.journal.known(one.file)) is not None}
    return any(save.state.records[one].record.step == save.asked.step for one in known & save.state.records.keys())


def _kinds(site: Site, state: RunState, record: Record) -> Counter[str]:
    """Of a save as it was first sealed: what grew beside it later, as an evaluation's results, is no part of a save."""
    while record.supersedes is not None and record.supersedes in state.records:
        record = state.records[record.supersedes].record
    return kinds_of(file.path for file in site.ledger.manifest(state.run, record.id).regular)


def _later(site: Site, save: ToCommit, framework: str) -> Iterator[list[str]]:
    """Names of files in the next save: as it was found in the same look, then as it is recorded."""
    asked = save.asked
    if asked.later:
        # Where it has members, they lie beneath the parent of the first, and are named from there.
        members = asked.later if len(asked.later) > 1 else ()
        with suppress(LakemarkError):  # it may go while it is looked at
            yield [one.path for one in site.files.regular(asked.later[0], members)]
    newest_first = lineage(save.state, timeline_of(save.state, save.as_save()))
    above = [
        one.record
        for one in takewhile(lambda one: one.record.step > asked.step, newest_first)
        if one.record.framework == framework
    ]
    if above:
        # The last of these is the nearest.
        yield [file.path for file in site.ledger.manifest(asked.run, above[-1].id).regular]


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


def _carried(site: Site, doubt: Foreign, manifest: Manifest, *, earlier: Sequence[Record]) -> bool:
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
