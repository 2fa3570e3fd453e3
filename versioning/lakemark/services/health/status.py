"""Status: what is wrong, what waits, and what to do next, from the ledger and what was seen of places and servers.

Decides; looks at nothing itself. Red is what loses work, or soon does; amber is what waits for somebody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakemark.model.ledger.entry import Means
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.lives import newest_of_lives
from lakemark.model.runs.timeline import latest
from lakemark.model.values.instants import later
from lakemark.model.values.wording import ago
from lakemark.model.views import safe_at
from lakemark.services.data.note import DataNote
from lakemark.services.ledger import expiring
from lakemark.services.recovery.check import MANIFEST, LedgerNote
from lakemark.services.saves.waiting import ROOM, WaitingSave
from lakemark.services.tiers.store_note import StoreNote

RED = "red"
AMBER = "amber"
_STALE = timedelta(minutes=1)
_BUSY = timedelta(hours=1)
_STUCK = (
    "A large copy may take so long. A disk or mount that does not answer keeps it as well: look at it (dmesg, df); all other "
    "work goes on meanwhile, and a service that is started anew tries it again."
)
_TROUBLES = 5
_EITHER = 2
_PLACE = "Mount it, or mend where lakemark.yaml says it is; `lakemark doctor` says more."


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """since: when it began, where that is known. next: what to do, as typed where it is a command."""

    colour: str
    what: str
    next: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSeen:
    """A tier's place as it was found. state: `present`, or why it is not. full: that nothing more lands there.

    misnamed: what to do, where the ledger knows the place under another name: everything there is refused meanwhile.
    broken: what to do, where it is there and can't be read. claim: what claims a place that is new.
    """

    name: str
    state: str
    misnamed: str | None = None
    broken: str | None = None
    claim: str | None = None
    removable: bool = False
    full: str | None = None

    @property
    def ok(self) -> bool:
        return self.state == "present"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A tier of the ledger that the configuration does not name. records: with a replica there. alone: with no other one."""

    name: str
    id: str
    tier_class: str
    kind: str
    records: int
    alone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSeen:
    """A server the configuration needs. ok: it answered what a pass would ask of it.

    detail: what is wrong, a phrase that its name goes before. advice: what to do then. pid: where the sandbox started it.
    """

    name: str
    url: str
    ok: bool
    detail: str = ""
    advice: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSeen:
    """The node's service. pid: of the process that runs; None: none does. stopped: it ended as it should.

    alive_at: when it last said so. troubles: (what, why, since) of what it finds wrong. busy: its rounds that are at work,
    and since when.
    """

    node: str
    pid: int | None
    stopped: bool = False
    alive_at: datetime | None = None
    troubles: tuple[tuple[str, str, datetime], ...] = ()
    busy: tuple[tuple[str, datetime], ...] = ()
    readable: bool = True

    def stale(self, now: datetime) -> bool:
        """Whether it has not been heard of for a minute; it says so every few seconds, whatever it does."""
        return self.alive_at is not None and now - self.alive_at > _STALE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """domains: failure domain of each shared tier. data: whether the site versions its data.

    approval: whether it asks for a second person. directories: run -> its watched directory on this node. written_at: run ->
    when anything there was written last; runs whose directory is not there have none.
    """

    now: datetime
    rpo: timedelta
    idle_after: timedelta
    domains: Mapping[str, str]
    copies: int
    data: bool
    approval: bool = True
    directories: Mapping[str, str] = field(default_factory=dict)
    written_at: Mapping[str, datetime] = field(default_factory=dict)


def problems_of(state: RunState, rules: Rules) -> Iterator[Problem]:
    """What a run's entries say is wrong, or waits."""
    if state.blocked is not Means.IGNORE:
        kinds = ", ".join(sorted(set(state.unknown)))
        what = f"{state.run} has entries of a newer version ({kinds}): {state.blocked.value}"
        yield Problem(colour=RED, what=what, next="Update lakemark on this node.")
    # What was superseded, or is in conflict, is nobody's next start: it may be alone, or of unknown data.
    standing = [found for found in state.live() if found.stands]
    yield from _recovery_point(state, rules)
    yield from _directory(state, rules)
    yield from _lives(state, rules)
    yield from _replicas(state, list(state.live()))
    yield from _refused(state)
    yield from _unsafe(state, standing, rules)
    if rules.data:
        yield from _unbound(state, standing)
    yield from _rollbacks(state, rules)


def problems_around(
    *,
    places: Iterable[PlaceSeen],
    servers: Iterable[ServerSeen],
    disks: Iterable[tuple[str, str]],
    waiting: Sequence[str],
    unused: Sequence[str] = (),
) -> Iterator[Problem]:
    """What is wrong with tiers, servers, disks, the configuration and the ledger itself.

    disks: (what can't be written, why). waiting: announced saves that should have been committed by now. unused: keys of the
    configuration that have no effect.
    """
    if unused:
        what = f"lakemark.yaml sets {', '.join(unused)}, which this version does not act on"
        yield Problem(colour=AMBER, what=what, next="Take it out: nobody should count on it.")
    for name, why in disks:
        what = f"{name} can't be written: {why}"
        yield Problem(colour=RED, what=what, next="Make room or mend the disk: no save can be committed meanwhile.")
    for place in places:
        if not place.ok:
            if place.misnamed is not None:
                yield Problem(colour=RED, what=f"nothing is committed: {place.state}", next=place.misnamed)
                continue
            if place.broken is not None:
                yield Problem(colour=RED, what=f"the tier {place.name} can't be read: {place.state}", next=place.broken)
                continue
            # A disk that may be carried away, or a place that nobody claimed yet, waits for somebody.
            new = place.state.startswith("not registered")
            colour = AMBER if new or (place.removable and not place.state.startswith("another")) else RED
            what = f"the tier {place.name} is {place.state}"
            # One that the ledger knows is never claimed anew: `tier init` would be refused.
            advice = (place.claim or f"lakemark tier init {place.name}") if new else _PLACE
            yield Problem(colour=colour, what=what, next=advice)
        if place.full is not None:
            what = f"nothing new lands in {place.name}: {place.full}"
            yield Problem(colour=RED, what=what, next="lakemark sweep releases what it may; else make room.")
    for server in servers:
        if not server.ok:
            what = f"{server.name} at {server.url} {server.detail}"
            yield Problem(colour=RED, what=what, next=server.advice)
    if waiting:
        what = f"{len(waiting)} announced save(s) wait to be committed, the first {waiting[0]}"
        yield Problem(colour=AMBER, what=what, next="lakemark sweep")


def problems_of_left_out(tiers: Iterable[LeftOut]) -> Iterator[Problem]:
    """Tiers of the ledger that lakemark.yaml does not name: no pass looks there, and no command reads from there."""
    for one in tiers:
        seen = f"`{one.name}: {{class: {one.tier_class}, kind: {one.kind}, …}}`, the tier {one.id[:8]}"
        advice = (
            f"Name it again under `tiers:` in lakemark.yaml: {seen}; "
            f"if it is called otherwise now: lakemark tier rename {one.name} NEW."
        )
        if one.alone:
            what = f"{one.alone} record(s) lie only in {one.name}, which lakemark.yaml does not name"
            yield Problem(colour=RED, what=what, next=advice)
        elif one.records:
            what = f"{one.records} record(s) have a replica in {one.name}, which lakemark.yaml does not name"
            yield Problem(colour=AMBER, what=what, next=advice)


def problems_of_ledger(note: LedgerNote) -> Iterator[Problem]:
    """Entries that the last looks could not read: by the record whose they are, with what brings them back."""
    for one in note.broken[:_TROUBLES]:
        what = f"in the ledger {one.shown} can't be read"
        advice = "lakemark ledger recover --dry-run says which tier's copy has it."
        if one.entry.file == MANIFEST:
            advice = (
                "Mount or start a tier that keeps it: the next sweep takes the manifest from there, proven by its id."
            )
        yield Problem(colour=RED, what=what, since=one.since, next=advice)
    if len(note.broken) > _TROUBLES:
        what = f"in the ledger {len(note.broken) - _TROUBLES} more can't be read"
        yield Problem(colour=RED, what=what, next="lakemark ledger recover --dry-run")


def problems_of_room(run: str, waiting: Sequence[WaitingSave], *, now: datetime) -> Iterator[Problem]:
    """Whole saves of a run that are nowhere but where the trainer left them."""
    waiting = [one for one in waiting if one.sort == ROOM]
    if waiting:
        first = min(waiting, key=lambda one: one.since)
        span = ago(now - first.since)
        what = f"{len(waiting)} whole save(s) of {run} wait for room, the first for {span}: {first.why}"
        advice = "lakemark sweep releases what it may, and takes them; else make room."
        yield Problem(colour=RED, what=what, since=first.since, next=advice)


def problems_of_data(note: DataNote) -> Iterator[Problem]:
    """What the last look at data versions found wrong: each of it may cost the data that checkpoints were trained with.

    What nobody answered is one problem, amber: whether anything is wrong is not known then.
    """
    for one in note.wrong:
        if not one.unknown:
            yield Problem(colour=RED, what=f"{one.what}: {one.why}", since=one.since, next=one.next)
    unknown = sorted((one for one in note.wrong if one.unknown), key=lambda one: one.since)
    if unknown:
        first = unknown[0]
        others = f", and so {len(unknown) - 1} more" if len(unknown) > 1 else ""
        what = f"{first.what} could not be looked at{others}: {first.why}"
        yield Problem(colour=AMBER, what=what, since=first.since, next=first.next)


def problems_of_stores(note: StoreNote, *, assured: Mapping[str, bool], now: datetime) -> Iterator[Problem]:
    """Stores that the last pass saw removing things by themselves (red), or could not ask whether they do (amber).

    And tiers that took nothing of it (amber).

    assured: the site's tiers: whether its own word is that nothing expires there. A rule that was seen outweighs it.
    """
    for name, one in note.expiring.items():
        # Whoever says that nothing expires there is believed, until a rule is seen.
        if name not in assured or (assured[name] and not one.expiry.known):
            continue
        what, advice = expiring(name, one.expiry)
        seen = f"{what}; seen {ago(now - one.at)} ago"
        yield Problem(colour=RED if one.expiry.known else AMBER, what=seen, since=one.since, next=advice)
    for name, shut in note.refusing.items():
        if name in assured:
            what = f"the tier {name} took nothing {ago(now - shut.at)} ago: {shut.why}"
            advice = "It is tried again by each pass; the other tiers get the records meanwhile. Look at it and the way there."
            yield Problem(colour=AMBER, what=what, since=shut.since, next=advice)


def problems_of_watch(watch: WatchSeen, *, now: datetime, watched: Sequence[str] = ()) -> Iterator[Problem]:
    """What is wrong with the node's service, and what it finds wrong itself. watched: open runs that count on it."""
    again = "Start it: `systemctl --user restart lakemark-watch`, or `lakemark watch`; it goes on where it stopped."
    # A process that was killed could not say that it stopped: silence is the sign.
    if watch.pid is None:
        if not watch.stopped:
            what = f"the service of {watch.node} ended without a word"
            yield Problem(colour=RED if watched else AMBER, what=what, since=watch.alive_at, next=again)
        elif watched:
            what = (
                f"the service of {watch.node} was stopped; nothing finds the saves of {', '.join(watched[:_TROUBLES])}"
            )
            yield Problem(colour=AMBER, what=what, since=watch.alive_at, next=again)
        return
    if not watch.readable:
        yield Problem(colour=AMBER, what=f"the service of {watch.node} leaves no state that can be read", next=again)
    elif watch.stale(now):
        what = f"the service of {watch.node}, process {watch.pid}, gives no sign of life"
        yield Problem(colour=AMBER, what=what, since=watch.alive_at, next=again)
    for name, since in watch.busy:
        if now - since > _BUSY:
            what = f"the service of {watch.node} is at work on {name!r} for {ago(now - since)}"
            yield Problem(colour=AMBER, what=what, since=since, next=_STUCK)
    for what, why, since in watch.troubles[:_TROUBLES]:
        yield Problem(
            colour=AMBER, what=f"{what}: {why}", since=since, next="lakemark doctor; it is tried again by itself"
        )
    if len(watch.troubles) > _TROUBLES:
        what = f"the service of {watch.node} finds {len(watch.troubles) - _TROUBLES} more wrong"
        yield Problem(colour=AMBER, what=what, next="lakemark sweep lists all")


def _recovery_point(state: RunState, rules: Rules) -> Iterator[Problem]:
    """Red where a trainer that is alive does not save; one that fell silent may be done, and only a person knows."""
    newest = latest(state)
    # Of a run without a record its waiting saves say more (`health/saves.py`).
    if state.closed or newest is None or rules.now - newest.instant <= rules.rpo:
        return
    over = later(newest.instant, rules.rpo)
    saved = f"{state.run} was last saved {ago(rules.now - newest.instant)} ago, at step {newest.record.step}"
    written = rules.written_at.get(state.run)
    # Files that change tell that training lives, and by them alone: a scheduler is not asked.
    if written is not None and written > over and rules.now - written <= rules.rpo:
        what = f"{saved}; its trainer still writes there, and at most {ago(rules.rpo)} may be lost"
        advice = "Look at the trainer: why does it not save? `lakemark sweep` says what was found and passed over."
        yield Problem(colour=RED, what=what, since=over, next=advice)
        return
    advice = f"Is it over? Then `lakemark run close {state.run} --reason …`. Did it die? Start it again, from `lakemark resume`."
    yield Problem(colour=AMBER, what=f"{saved}, and is silent", since=over, next=advice)


def _directory(state: RunState, rules: Rules) -> Iterator[Problem]:
    """A watched directory that is not there: no save of it can be found."""
    where = rules.directories.get(state.run)
    if state.closed or where is None or state.run in rules.written_at:
        return
    # Before the first save the trainer may just not have made it yet.
    colour = RED if state.records else AMBER
    what = f"the directory of {state.run}, {where}, is not there, or can't be read: its saves can't be found"
    advice = f"Mount it, or say where they go now: `lakemark run open {state.run} --watch DIR`."
    yield Problem(colour=colour, what=what, next=advice)


def _lives(state: RunState, rules: Rules) -> Iterator[Problem]:
    """Timelines that were only inferred, until somebody says which one goes on; saves of which nobody can tell whose they are."""
    if state.closed:
        return
    where = rules.directories.get(state.run, "DIR")
    current = state.timelines.get(state.timeline)
    lives = newest_of_lives(state)
    choices = ", or ".join(
        f"lakemark resume {state.run} --to {where} --record id:{found.record.id[:12]}"
        for _, found in sorted(lives.items())
    )
    for one in (*state.in_doubt, *((current,) if current is not None and current.inferred else ())):
        found = lives.get(one.number)
        step = f", at step {found.record.step}" if found is not None else ""
        goes_on = "it goes on" if one is current else f"timeline {state.timeline} stays current"
        what = f"a process of {state.run} seems to have gone back by itself: timeline {one.number}{step} is inferred; {goes_on}"
        advice = f"If it is right, leave it; to say which one goes on, before the next start: {choices}"
        yield Problem(colour=AMBER, what=what, since=one.opened_at, next=advice)
    ambiguous = [found for found in state.live() if found.ambiguous and found.sequence > state.decided]
    if ambiguous:
        steps = ", ".join(str(found.record.step) for found in ambiguous[-_TROUBLES:])
        what = f"nobody can tell which life of {state.run} saved step {steps}: later steps of another one lay there"
        advice = f"Stop the trainer, then: lakemark resume {state.run} --to {where}; it names what it moves aside."
        yield Problem(colour=AMBER, what=what, since=ambiguous[0].recorded_at, next=advice)


def _replicas(state: RunState, records: Iterable[RecordState]) -> Iterator[Problem]:
    """Also of those that are nobody's latest: whoever was told that a record is kept can ask for it."""
    for found in records:
        bad = [replica for replica in found.replicas.values() if not replica.sound]
        # None at all is as bad as only damaged ones.
        if not bad and found.replicas:
            continue
        shown = f"{state.run}@{found.record.step} ({found.record.id[:12]})"
        since = max((replica.verified_at for replica in bad), default=None)
        if len(bad) == len(found.replicas):
            advice = f"lakemark verify {found.record.id[:12]}"
            yield Problem(colour=RED, what=f"{shown} has no sound replica", since=since, next=advice)
        else:
            tiers = ", ".join(sorted(replica.place.tier for replica in bad))
            advice = f"lakemark verify {found.record.id[:12]} --repair"
            yield Problem(colour=AMBER, what=f"{shown} is damaged in {tiers}", since=since, next=advice)


def _refused(state: RunState) -> Iterator[Problem]:
    """Tiers that can't hold a record: it has fewer copies than its rules say, and no pass will change that."""
    for found in state.live():
        for place, why in found.refused.items():
            what = f"{state.run}@{found.record.step} ({found.record.id[:12]}) can't be kept in {place.tier}: {why}"
            advice = (
                f"Keep another copy of it; to try again: lakemark replicate {found.record.id[:12]} --to {place.tier}"
            )
            yield Problem(colour=RED, what=what, next=advice)


def _unsafe(state: RunState, standing: Iterable[RecordState], rules: Rules) -> Iterator[Problem]:
    """Saves that are only in hot yet."""
    # Without any slower tier hot's copies are meant to be the only ones.
    if not rules.domains:
        return
    alone = [found for found in standing if safe_at(found, rules.domains, copies=rules.copies) is None]
    if alone:
        oldest = min(found.known_at for found in alone)
        what = f"{len(alone)} record(s) of {state.run} have fewer than {rules.copies} replica(s) beyond their node"
        yield Problem(colour=AMBER, what=what, since=oldest, next="lakemark sweep, or Prefect's deployment demote")


def _unbound(state: RunState, standing: Iterable[RecordState]) -> Iterator[Problem]:
    unknown = [found for found in standing if not found.record.bound]
    if unknown:
        first = unknown[0].record
        what = f"of {len(unknown)} record(s) of {state.run} it is not known what data they were trained with"
        one = first.id[:12] if len(unknown) == 1 else state.run
        maybe = sorted(
            {f"{ref.repository}/{ref.commit}" for found in unknown for ref in found.record.data if ref.commit}
        )
        # By hand nobody finds the full ids at night; of more than two a list says nothing.
        either = " or ".join(maybe) if 0 < len(maybe) <= _EITHER else "REPOSITORY/COMMIT"
        advice = f"lakemark bind {one} --data {either} --reason …; the run's log says what it read"
        yield Problem(colour=AMBER, what=what, since=unknown[0].known_at, next=advice)


def _rollbacks(state: RunState, rules: Rules) -> Iterator[Problem]:
    for request in state.rollbacks.values():
        if not request.open:
            continue
        # By the time, not by its state: maybe nobody has noted yet that it ended.
        if rules.now >= request.expires_at:
            advice = "Request it again, if it is still wanted."
            what = f"the rollback {request.id} of {state.run} expired while it was {request.state}"
            yield Problem(colour=AMBER, what=what, since=request.expires_at, next=advice)
        elif request.state == "requested" and rules.approval:
            advice = f"lakemark rollback approve {request.id} --digest {request.digest[:12]}"
            what = f"the rollback {request.id} of {state.run} waits for approval"
            yield Problem(colour=AMBER, what=what, since=request.requested_at, next=advice)
        else:
            what = f"the rollback {request.id} of {state.run} is {request.state} and not applied"
            yield Problem(
                colour=AMBER, what=what, since=request.requested_at, next=f"lakemark rollback apply {request.id}"
            )
