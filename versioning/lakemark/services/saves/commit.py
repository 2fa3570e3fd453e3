"""Commit a checkpoint: recognise it, seal it in hot, and append the one entry that binds it to its data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from lakemark.errors import Conflict, InDistress, LakemarkError, NotFound, Refused, RunClosed
from lakemark.model.checkpoints.record import Code, Record, record_for
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.ledger.measures import took
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.placing import Placement, Save, place, standing
from lakemark.model.tiers.moves import SKEW
from lakemark.model.values.canonical import JSON
from lakemark.model.values.names import printable
from lakemark.ports import Checkpoint, Directory, Landed, Site
from lakemark.services.ledger import Settled, left_out, opened, recorded, require_writable
from lakemark.services.saves.accept import Commit, Taken, attempt_of, bound_directory, take
from lakemark.services.saves.announcements import told
from lakemark.services.saves.known_files import records_of
from lakemark.services.saves.land_again import land_again, sound_replica, stands_wrong
from lakemark.services.saves.layout import committed
from lakemark.services.saves.lost_ledger import for_saving_of
from lakemark.services.saves.metric import add_metrics, require_numbers
from lakemark.services.saves.sealed import WAITS, waiting_placement
from lakemark.services.tiers.register import ready

__all__ = ["Commit", "Committed", "commit"]

_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """new: False where this very content was a record already. notes: what a person should know of it.

    landed_again: the record was there, and had no sound replica any more; it has one now.
    """

    record: Record
    new: bool
    landed_again: bool = False
    pending: str | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


def commit(site: Site, asked: Commit) -> Committed:
    """Commits one checkpoint, durably.

    While the ledger is in distress, or can't be read, it is sealed, as durably, and waits: `pending` says why.
    Raises NotFound (run, path), Incomplete (not a finished checkpoint, or still changing), Conflict (other bytes at this
    step), Refused (names, links, made after the run was closed, another tier in hot's place), NoRoom, Denied. Whatever it
    raises, nothing of it stays in hot or ledger.
    """
    site, why = for_saving_of(site, asked.run)
    state = _opened(site, asked.run, distressed=why is not None)
    require_writable(state)
    require_numbers(asked.metrics)
    if why is None:
        ready(site, site.hot)
    else:
        _require_this_ledger_s(site)
    asked = told(site, asked)
    taken = _with_gaps_said(take(site, asked, state), state)
    try:
        if why is None:  # else it may have been opened again, by an entry that is missing
            _require_open(state, _made_at(site, asked, taken))
    except LakemarkError:
        site.hot.discard(taken.landed)
        raise
    site.progress.step("commit.landed")
    named = _Named()
    try:
        made = _sealed(site, asked, taken, state, why=why, named=named)
    except Exception:  # any: our own mistake, too, must leave no tree that nobody recorded
        # What can't be undone now the next sweep settles; the first error is what happened.
        with suppress(LakemarkError):
            _undo_named(site, named)
        raise
    _undo_named(site, named)
    return made


@dataclass(slots=True)
class _Named:
    """mine: ids of records whose trees this commit named, none standing there. left: of these, what came to no entry."""

    mine: set[str] = field(default_factory=set)
    left: list[Checkpoint] = field(default_factory=list)


def _sealed(site: Site, asked: Commit, taken: Taken, state: RunState, *, why: str | None, named: _Named) -> Committed:
    with site.hot.naming():
        if why is None:
            try:
                return _recorded(site, asked, taken, named)
            except InDistress as error:  # found out just now; what was landed is undone
                why = str(error)
                taken = take(site, asked, state)
        return _waits(site, asked, taken, why=why)


def _with_gaps_said(taken: Taken, state: RunState) -> Taken:
    """A trainer that has no scheduler lacks it at each step: that is said of the first, with how to say that it is meant."""
    gaps = taken.landed.manifest.gaps
    if not gaps or any(found.record.gaps == gaps for found in state.records.values()):
        return taken
    roles = " ".join(gap.removeprefix("no ") for gap in gaps if gap.startswith("no "))
    if not roles or "weights" in roles:
        return taken
    command = f"lakemark run open {state.run} --needs-no {roles}"
    note = f"training can't go on from it: {', '.join(gaps)}; if its trainer has none: {command}"
    return replace(taken, notes=(*taken.notes, note))


def _opened(site: Site, run: str, *, distressed: bool) -> RunState:
    """The run's state; an empty one where the ledger lacks entries, among which may be that of its opening."""
    try:
        return opened(site, run)
    except NotFound:
        if not distressed:
            raise
        return RunState(run=run)


def _require_this_ledger_s(site: Site) -> None:
    """Raises Refused where hot is not of this ledger. What the tier is called there may be among the entries that are missing."""
    found = site.hot.identity()
    if found is None or found.ledger != site.ledger.id:
        raise Refused(
            f"the place of {site.hot.name} {'has no identity file' if found is None else 'is a tier of another ledger'}",
            advice="Is its disk mounted, and is it the right one? Then bring the ledger back: lakemark ledger recover.",
        )


def _recorded(site: Site, asked: Commit, taken: Taken, named: _Named) -> Committed:
    adopted: Record | None = None
    try:
        for _ in range(_TRIES):
            placement = _placement(site, asked, taken)
            record = _record(site, asked, placement, taken)
            if placement.known is not None:
                known = _known(site, asked, placement, taken=taken, named=named, adopted=adopted)
                return _done(site, asked, known, taken)
            said = _said(site, asked, placement, taken)
            if adopted is None or adopted.id != record.id:
                adopted = _adopt(site, taken, record, said, named=named, instead_of=adopted)
            site.progress.step("commit.adopted")
            new = _append(site, asked, placement, record, taken=taken, said=said)
            if new is not None:
                site.progress.step("commit.recorded")
                return _done(
                    site, asked, Committed(record=record, new=new, why=placement.why, notes=taken.notes), taken
                )
    except Exception:  # any, as above
        with suppress(LakemarkError):
            _undo(site, taken, adopted, named)
        raise
    _undo(site, taken, adopted, named)
    raise Conflict(
        f"the ledger of {asked.run} moved {_TRIES} times while step {asked.step} was being committed",
        advice="Commit it again; it is still where the trainer saved it.",
    )


def _waits(site: Site, asked: Commit, taken: Taken, *, why: str) -> Committed:
    """Seals the save without an entry: the ledger lacks entries, so nothing is appended and what it says may be old.

    The tree's marker holds what the entry would have said; the recovery appends it, and nobody undoes the tree before.
    """
    placement = waiting_placement(site, _save(site, asked, taken), asked.run)
    found = site.ledger.run(asked.run).records.get(placement.known or "")
    if found is not None and sound_replica(site, found) is not None:
        return _done(site, asked, _known(site, asked, placement, taken=taken, named=_Named(), adopted=None), taken)
    record = _record(site, asked, placement, taken) if found is None else found.record
    recorded = record.id in site.hot.recorded()
    said = {**_said(site, asked, placement, taken), WAITS: True}
    site.hot.adopt(taken.landed, record, entry=said, instead=True)
    if recorded:
        site.hot.note_recorded([record.id])
    site.progress.step("commit.waits")
    return _done(site, asked, Committed(record=record, new=True, pending=why, notes=taken.notes), taken)


def _known(
    site: Site, asked: Commit, placement: Placement, *, taken: Taken, named: _Named, adopted: Record | None
) -> Committed:
    """These bytes are a record. What landed goes, unless it is all that there is of it by now.

    What retention or a full disk removed comes back where somebody asks for it, not because its files still lie there.
    """
    found = recorded(site.ledger.run(asked.run), placement.known or "")
    record, unkept = _with_metrics(site, found.record, asked)
    made = Committed(record=record, new=False, why=placement.why, notes=unkept)
    sound = None if found.pruned is not None and asked.found else sound_replica(site, found)
    if sound is not None or (found.pruned is not None and asked.found):
        _undo(site, taken, adopted, named)
        read = "" if sound is None else f"; its replica in {sound.tier} was read just now, and is right"
        return replace(made, why=f"{placement.why}{read}")
    if adopted is not None:
        _undo(site, taken, adopted, named)
        raise Conflict(
            f"{asked.run}@{asked.step} became a record while it was committed, and has no sound replica",
            advice="Commit it again; it is still where the trainer saved it.",
        )
    land_again(site, found, taken.landed)
    why = f"it was a record already, {_without_bytes(site, found)}: its bytes were taken into hot again"
    return replace(made, why=why, landed_again=True, notes=(why, *unkept))


def _without_bytes(site: Site, found: RecordState) -> str:
    """Why nobody can restore it now, as far as this node can see."""
    missing = sorted({place.tier for place in left_out(site, found)})
    if missing:
        return f"and lies in {', '.join(missing)}, which lakemark.yaml does not name"
    return "of which no sound replica was left"


def _with_metrics(site: Site, record: Record, asked: Commit) -> tuple[Record, tuple[str, ...]]:
    """What is given beside a record that is there is added to it; the record, and what of it is not kept.

    A value that somebody gives by hand takes the place of one that stands; an announcement that comes again does not.
    """
    told = asked.spooled.metrics if asked.spooled is not None else {}
    given = {**{name: value for name, value in told.items() if name not in record.metrics}, **asked.metrics}
    if all(record.metrics.get(name) == value for name, value in given.items()):
        return record, ()
    try:
        return add_metrics(site, record.run, record.id, given, reason="given when it was committed again"), ()
    except (InDistress, Refused) as error:  # the bytes are safe, and nobody commits them again for a number
        return record, tuple(f"the metric {name}={value:g} is not kept: {error}" for name, value in given.items())


def _require_open(state: RunState, made_at: datetime | None) -> None:
    """What was made while the run was open is its own, whenever it is found: a run is closed while its last save is written."""
    if not state.takes(made_at):
        raise RunClosed(
            f"the run {state.run} is closed, and this was saved after that",
            advice=f"If it goes on: lakemark run reopen {state.run} --reason …",
        )


def _made_at(site: Site, asked: Commit, taken: Taken) -> datetime | None:
    return asked.spooled.saved_at if asked.spooled is not None else _written_at(site, taken.landed)


def _placement(site: Site, asked: Commit, taken: Taken) -> Placement:
    save = _save(site, asked, taken)
    placement = place(site.ledger.run(asked.run), save)
    if placement.collides is not None:
        raise Conflict(
            f"{asked.run}@{asked.step} is {placement.collides[:12]} in timeline {placement.timeline}, with other bytes",
            advice="If these are the right ones, commit them with --supersede; the old record stays listed.",
        )
    if placement.fork is not None:
        _open_inferred(site, asked, save, placement)
        return place(site.ledger.run(asked.run), replace(save, resumed_timeline=placement.timeline))
    return placement


def _save(site: Site, asked: Commit, taken: Taken) -> Save:
    spooled = asked.spooled
    _, directory = bound_directory(site, asked)
    known = {site.journal.known(file) for file in taken.identities}
    return Save(
        step=asked.step,
        content=taken.landed.manifest.content,
        announced=spooled is not None,
        found=asked.found,
        attempt=attempt_of(asked, directory, site.ledger.run(asked.run)),
        resumed_timeline=spooled.timeline if spooled else None,
        directory_timeline=directory.timeline if directory else None,
        data=spooled.data if spooled else (),
        newest_mtime=_written_at(site, taken.landed),
        sealed_again=frozenset(identity for identity in known if identity),
        beside=_beside(site, asked),
        supersede=asked.supersede,
    )


def _written_at(site: Site, landed: Landed) -> datetime | None:
    """None where its files can't tell: also where they claim to be of the future."""
    return None if site.simulated_clock or landed.newest_mtime > site.now() + SKEW else landed.newest_mtime


def _beside(site: Site, asked: Commit) -> frozenset[str]:
    """Records of the same step whose source is another path of this node that still holds their files."""
    if not asked.found:
        return frozenset()
    state = site.ledger.run(asked.run)
    same = [standing(state, timeline, asked.step) for timeline in state.timelines]
    return frozenset(one.record.id for one in same if one is not None and _lies(site, asked, one))


def _lies(site: Site, asked: Commit, found: RecordState) -> bool:
    body = committed(site, found)
    source = body.get("source")
    node = body.get("node")
    if not isinstance(node, str) or site.ledger.site().node_now(node) != site.node:
        return False
    if not isinstance(source, str) or Path(source) == asked.path:
        return False
    if not site.workspace.exists(Path(source)):
        return False
    return set(records_of(site, [Path(source)]) or ()) == {found.record.id}


def _record(site: Site, asked: Commit, placement: Placement, taken: Taken) -> Record:
    spooled = asked.spooled
    base = record_for(
        taken.landed.manifest,
        run=asked.run,
        timeline=placement.timeline,
        step=asked.step,
        saved_at=_saved_at(site, asked, taken.landed, parent=placement.parent),
        node=site.node,
    )
    code = asked.code or (Code.from_json(dict(spooled.code)) if spooled and spooled.code else None)
    attempt = attempt_of(asked, bound_directory(site, asked)[1], site.ledger.run(asked.run))
    data = placement.data
    if spooled is None and attempt is not None:
        data = site.workspace.with_reads(site.spool(asked.run), attempt, data)
    return replace(
        base,
        data=data,
        code=code,
        metrics={**taken.metrics, **asked.metrics, **(spooled.metrics if spooled else {})},
        parent=placement.parent,
        attempt=attempt,
        supersedes=placement.supersedes,
    )


def _saved_at(site: Site, asked: Commit, landed: Landed, *, parent: str | None) -> datetime:
    """As announced; else by its files. Not before the step that it came from, nor after now: files are copied, clocks are off."""
    if asked.spooled is not None:
        saved_at = asked.spooled.saved_at
    else:
        saved_at = site.now() if site.simulated_clock else landed.newest_mtime
    before = site.ledger.run(asked.run).records.get(parent or "")
    return min(saved_at if before is None else max(saved_at, before.instant), site.now())


def _said(site: Site, asked: Commit, placement: Placement, taken: Taken) -> dict[str, JSON]:
    """Of the entry, what the record does not say: hot keeps it as well, for whoever finishes what a crash left."""
    said: dict[str, JSON] = {
        "conflicts_with": placement.conflicts,
        "linked": taken.landed.linked,
        "source": printable(asked.path),
        "directory": printable(bound_directory(site, asked)[0]),
    }
    said |= took("landed", taken.landed_seconds, size_bytes=taken.landed.manifest.size_bytes)
    return said | ({"notes": list(taken.notes)} if taken.notes else {})


def _adopt(
    site: Site, taken: Taken, record: Record, said: Mapping[str, JSON], *, named: _Named, instead_of: Record | None
) -> Record:
    """Names the landed tree; where it has the name of a record it did not become, from there."""
    if instead_of is None:
        wrong = stands_wrong(site, taken.checkpoint(record))
        # What stood there, right or wrong, somebody may have been told of: it is not ours to take away.
        if site.hot.adopt(taken.landed, record, entry=said, instead=wrong) and not wrong:
            named.mine.add(record.id)
        return record
    old = taken.checkpoint(instead_of)
    new = replace(taken.checkpoint(record), entry=said)
    if not site.hot.holds(new):
        named.mine.add(record.id)
    site.hot.put(new, lambda file: site.hot.open(old, file), now=site.now(), progress=site.progress)
    _undo(site, taken, instead_of, named)
    return record


def _append(
    site: Site, asked: Commit, placement: Placement, record: Record, *, taken: Taken, said: Mapping[str, JSON]
) -> bool | None:
    """True: appended. False: it was there. None: the ledger moved so that the save would be placed elsewhere now."""
    contents = Attachments(record=record, manifest=taken.landed.manifest)
    body: dict[str, JSON] = {
        "attempt": record.attempt,
        "supersedes": record.supersedes,
        "tier": site.hot.name,
        "node": site.node,
        **said,
    }
    wanted = (placement.timeline, placement.supersedes, placement.conflicts)

    def decide(state: RunState) -> Draft:
        require_writable(state)
        if record.id in state.records:
            raise Settled(True)  # noqa: FBT003 - whether the record is there
        _require_open(state, _made_at(site, asked, taken))
        again = place(state, _again(asked, placement, record))
        if (again.timeline, again.supersedes, again.collides) != wanted:
            raise Settled(False)  # noqa: FBT003
        return Draft(kind="committed", timeline=record.timeline, body=body, contents=contents, saved_at=record.saved_at)

    try:
        site.ledger.append(asked.run, decide, site.stamp(f"commit:{record.id}"))
    except Settled as settled:
        return False if settled.answer else None
    return True


def _again(asked: Commit, placement: Placement, record: Record) -> Save:
    """Only what may have changed since: whether the step is still free, or still held by the record to be superseded."""
    return Save(
        step=record.step,
        content=record.content,
        announced=True,
        attempt=record.attempt,
        resumed_timeline=placement.timeline,
        data=placement.data,
        supersede=asked.supersede or placement.supersedes is not None,
    )


def _open_inferred(site: Site, asked: Commit, save: Save, placement: Placement) -> None:
    fork = placement.fork
    if fork is None:
        return
    directory, _ = bound_directory(site, asked)
    body = {
        "record": fork.record or None,
        "attempt": save.attempt,
        "fork": fork.as_json(),
        "inferred": True,
        "directory": printable(directory),
    }

    def decide(state: RunState) -> Draft:
        if place(state, save).timeline != placement.timeline:
            raise Settled(None)
        return Draft(kind="resumed", timeline=placement.timeline, body=body, reason=placement.why)

    try:
        site.ledger.append(asked.run, decide, site.stamp(f"inferred:{asked.run}:{placement.timeline}:{save.content}"))
    except Settled:
        return
    sequence = site.ledger.run(asked.run).sequence
    bound = Directory(run=asked.run, timeline=placement.timeline, attempt=save.attempt or "", sequence=sequence)
    site.journal.bind_directory(directory, bound)
    site.progress.step("commit.timeline")


def _done(site: Site, asked: Commit, made: Committed, taken: Taken) -> Committed:
    site.journal.remember(taken.identities, record=made.record.id, why="committed")
    site.progress.step("commit.remembered")
    if made.pending is None:
        site.hot.note_recorded([made.record.id])
    if asked.spooled is not None:
        site.workspace.unspool(asked.spooled)
    site.progress.step("commit.acknowledged")
    return made


def _undo(site: Site, taken: Taken, adopted: Record | None, named: _Named) -> None:
    """Of a named tree only notes that it is left over: while trees are being named, somebody else may count on it."""
    if adopted is None:
        site.hot.discard(taken.landed)
    elif adopted.id in named.mine:
        named.left.append(taken.checkpoint(adopted))


def _undo_named(site: Site, named: _Named) -> None:
    """Drops trees that this very commit named and nobody recorded or was told of, if nobody names one just now.

    Else they stay: the next pass makes entries of them, or undoes them.
    """
    for held in named.left:
        record = held.record
        with site.hot.settled() as settled:
            claimed = record.id in site.ledger.run(record.run).records or record.id in site.hot.recorded()
            if settled and not claimed and not _acknowledged(site, record):
                site.hot.drop(held, now=site.now())


def _acknowledged(site: Site, record: Record) -> bool:
    """Whether what lies there waits for the ledger: its commit was acknowledged, and there is no entry to say so."""
    try:
        return bool(site.hot.load(record.id).entry.get(WAITS))
    except NotFound:
        return False
