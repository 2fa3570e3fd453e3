"""Recover the ledger: what it lacks is merged from the tiers' copies of it, their records of checkpoints, and hot's trees.

Each step may be repeated, and a recovery that was killed is finished by the next one: a copy's entries are known by their
requests, records by their ids, and the copy becomes part of the branch's history only with the entry that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lakemark.errors import AnswerDamaged, Corrupt, LakemarkError, NotFound, Refused
from lakemark.model.checkpoints.record import Record
from lakemark.model.entries.attempts import RESUMED, ResumedBody
from lakemark.model.entries.committed import COMMITTED, CommittedBody
from lakemark.model.entries.founded import LEDGER_RECOVERED, LedgerRecoveredBody
from lakemark.model.entries.opened import OPENED, OpenedBody
from lakemark.model.entries.replicas import REPLICATED, ReplicatedBody
from lakemark.model.ledger.entry import SITE, Attachments, Draft, Entry, Stamp
from lakemark.model.ledger.run import Fork, RecordState, RunState
from lakemark.model.ledger.site import SiteState
from lakemark.model.ledger.soundness import HERE
from lakemark.model.runs.placing import standing
from lakemark.ports import Checkpoint, CheckpointStore, Replicas, Site
from lakemark.ports.ledger import LedgerExchange, LedgerMending, LedgerReader, LedgerWriter
from lakemark.services.data import pins
from lakemark.services.ledger import require_name
from lakemark.services.recovery.orphans import Orphan, settle_orphan
from lakemark.services.recovery.unclaim import absent, has_copy, holding, in_words, unclaim
from lakemark.services.site_facts import found_site
from lakemark.services.soundness import known_lacks, look, unguarded
from lakemark.services.tiers.register import register_tier
from lakemark.services.tiers.witness import is_transient, read_back


@dataclass(slots=True, kw_only=True)
class Recovered:
    """entries, records: how many the ledger has more. sources: where they came from. missing: what is known and nowhere.

    away: tiers that could not be asked; while there are any, nothing is given up, and the ledger stays in distress.
    would: with a dry run, what would be done.
    """

    entries: int = 0
    records: int = 0
    sources: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    would: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A copy of this ledger in a tier. heads: branch -> revision. needs: what it goes on from; none where it is whole."""

    store: CheckpointStore
    slot: str | None
    heads: Mapping[str, str]
    needs: tuple[str, ...]

    @property
    def shown(self) -> str:
        return f"the copy in {self.store.name}" + (f" of {self.slot}" if self.slot else "")


def recover(site: Site, *, dry_run: bool = False) -> Recovered:
    """Brings back what the ledger lacks; with `dry_run` says what that would be.

    Afterwards the ledger holds every entry and record that somebody reachable knows, and is in distress only while a tier is
    away. Nothing that it had is changed. Raises Refused where this node or its hot is called otherwise than the ledger
    knows it, Denied, NoRoom, Corrupt where the ledger itself can't be written or read.
    """
    ledger = unguarded(site.ledger)
    # The guard refuses entries while the ledger lacks some, which is what this mends.
    bare = replace(site, ledger=ledger)
    result = Recovered()
    # What goes on from another copy comes after it.
    copies = sorted(_copies(bare, result), key=lambda copy: bool(copy.needs))
    if dry_run:
        if not any(SITE in _lacking(ledger, copy) for copy in copies):
            _require_named(bare)
        _plan(bare, copies, result)
        return result
    whole = ledger.is_whole()
    for copy in copies:
        # Where objects are damaged here, a copy that has nothing more is taken, too: it has them whole.
        if not whole or _lacking(ledger, copy):
            _take(ledger, copy, result)
            site.progress.step("recover.taken")
    for branch, tip in _broken_twice(ledger).items():
        if ledger.set_aside(branch, tip):
            result.missing.append(f"{branch}: its newest entries, up to {tip[:12]}, can't be read any more")
    # After what can't be read was set aside: only now can every branch be counted.
    before = _sizes(ledger)
    for copy in copies:
        for branch, head in copy.heads.items():
            if _bring(bare, branch, head, copy=copy, result=result):
                result.sources.append(copy.shown)
    _require_named(bare)  # not before: that it was renamed may be among the entries that came back just now
    # Entries first, then places, then what lies in them: an entry says more of a record than its bytes do.
    _tiers(bare, result)
    _records(bare, result)
    _pins(bare, result)
    after = _sizes(ledger)
    _count(before, after, result)
    given_up = _given_up(bare, result)
    _say(bare, before, after, result, given_up=given_up)
    if after != before and not result.away:
        _found(bare)
    _settle(bare, result)
    result.sources, result.away = list(dict.fromkeys(result.sources)), list(dict.fromkeys(result.away))
    return result


def _require_named(site: Site) -> None:
    """Hot's trees would else become replicas of a node or tier that is not there, which nobody could reach."""
    try:
        require_name(site, site.hot, site.hot.identity())
    except Refused:
        raise
    except LakemarkError:
        return  # hot is away, and nothing of it is brought back; or the names can't be read until they are


def _broken_twice(ledger: LedgerMending) -> dict[str, str]:
    """Branches that two readings in a row find broken at the same tip: one reading is no statement, it may have failed."""
    first = ledger.broken_branches()
    second = ledger.broken_branches() if first else {}
    return {branch: tip for branch, tip in first.items() if second.get(branch) == tip}


# Copies of the ledger


def _copies(site: Site, result: Recovered) -> Iterator[_Copy]:
    """Every copy of this very ledger, each tier's newest first."""
    for store in site.tiers.values():
        try:
            identity = store.identity()
            if identity is None or identity.ledger != site.ledger.id:
                why = "has no identity file" if identity is None else "is another ledger's"
                result.away.append(f"{store.name} {why}")
                continue
            # Those of the days, too: the newest may be damaged, or written by a ledger that had lost entries already.
            slots = (None, *store.ledger_slots())
        except LakemarkError as error:
            result.away.append(f"{store.name}: {error}")
            continue
        for slot in slots:
            try:
                with store.open_ledger(slot) as stream:
                    heads = site.ledger.heads_of(stream)
                with store.open_ledger(slot) as stream:
                    yield _Copy(store=store, slot=slot, heads=heads, needs=site.ledger.needs_of(stream))
            except NotFound:
                continue
            except LakemarkError as error:
                _note(result, error, f"a copy of the ledger in {store.name} can't be read: {error}")


def _take(ledger: LedgerExchange, copy: _Copy, result: Recovered) -> None:
    """One copy that is no whole one must not keep the others from being taken."""
    try:
        with copy.store.open_ledger(copy.slot) as stream:
            ledger.take(stream)
    except Corrupt as error:
        _note(result, error, f"{copy.shown} is damaged: {error}")


def _note(result: Recovered, error: LakemarkError, said: str) -> None:
    """What can't be read now may be there: only what was read, and is nothing right, is missing."""
    nothing_right = isinstance(error, Corrupt) and not isinstance(error, AnswerDamaged)
    (result.missing if nothing_right else result.away).append(said)


def _lacking(ledger: LedgerExchange, copy: _Copy) -> list[str]:
    """Branches of which the copy has what the ledger has not."""
    return [branch for branch, head in copy.heads.items() if not _contains(ledger, branch, head)]


def _contains(ledger: LedgerExchange, branch: str, revision: str) -> bool:
    """False also where it can't be told: what can't be read here is taken from the copy."""
    try:
        return ledger.contains(branch, revision)
    except LakemarkError:
        return False


def _bring(site: Site, branch: str, head: str, *, copy: _Copy, result: Recovered) -> bool:
    """False where the branch has all that the copy has of it. Else it goes on to it, or takes its entries in and joins it."""
    ledger = site.ledger
    if _contains(ledger, branch, head):
        return False
    # Where ours is its beginning nothing needs to be joined, and its history stays one line.
    if ledger.forward(branch, head):
        site.progress.step("recover.forwarded")
        return True
    try:
        for entry, contents in ledger.beyond(branch, head):
            _replay(ledger, entry, contents)
            site.progress.step("recover.replayed")
    except LakemarkError as error:
        result.missing.append(f"{branch}: what {copy.shown} has beyond it can't be taken in: {error}")
        return False
    # After its entries: a recovery that is killed before finds them again by their requests, and ends here.
    _append(
        site, branch, LEDGER_RECOVERED.draft(LedgerRecoveredBody(from_=(copy.shown,)), joins=(head,)), f"joined:{head}"
    )
    site.progress.step("recover.joined")
    return True


def _replay(ledger: LedgerWriter, entry: Entry, contents: Attachments) -> None:
    """Appends another copy's entry, as it was: under its own time and request, which makes the second time the first."""
    draft = Draft(
        kind=entry.kind,
        timeline=entry.timeline,
        body=entry.body,
        record=entry.record,
        contents=contents,
        saved_at=entry.saved_at,
        reason=entry.reason,
        unknown_means=entry.unknown_means,
        signer=entry.signer,
        extra=entry.extra,
    )
    stamp = Stamp(
        at=entry.recorded_at,
        node=entry.node,
        actor=entry.actor,
        request=entry.request,
        clock=entry.clock,
        replayed=True,
    )
    if entry.branch == SITE:
        ledger.append_site(lambda state: _again_of_site(state, draft), stamp)
    else:
        ledger.append(entry.branch, lambda state: _again(state, draft), stamp)


def _again(state: RunState, draft: Draft) -> Draft | None:
    """A record whose step is taken here by another one stays beside it, and is nobody's newest."""
    record = draft.contents.record if draft.contents else None
    if draft.kind != "committed" or record is None:
        return draft
    if record.id in state.records:
        return None
    other = standing(state, record.timeline, record.step)
    if other is None or other.record.id in (record.supersedes, draft.body.get("conflicts_with")):
        return draft
    return replace(draft, body={**draft.body, "conflicts_with": other.record.id})


def _again_of_site(state: SiteState, draft: Draft) -> Draft | None:
    known = state.tiers.get(str(draft.body.get("tier")))
    # What this ledger knows of the place is what lies there now; the copy's word is older, or another's.
    if draft.kind == "tier_registered" and known is not None and not known.retired:
        return None
    return draft


# What lies in the tiers


def _tiers(site: Site, result: Recovered) -> None:
    """Places that carry this ledger's id are its tiers, whether it knows them or not."""
    for store in site.tiers.values():
        try:
            identity = store.identity()
            if identity is not None and identity.ledger == site.ledger.id:
                register_tier(site, store)
        except LakemarkError as error:
            result.missing.append(f"the tier {store.name}: {error}")


def _records(site: Site, result: Recovered) -> None:
    """Hot's trees first: they say more of their entry than a tier's record of a checkpoint does."""
    for store in sorted(site.tiers.values(), key=lambda one: one.place != site.hot.place):
        found = _unknown(site, store, result)
        for held in sorted(found, key=lambda one: (one.record.run, one.record.timeline, one.record.step)):
            try:
                if _readopted(site, store, held, result):
                    result.sources.append(f"what lies in {store.name}")
            except LakemarkError as error:
                said = f"{_shown(held.record)} in {store.name}: {error}"
                (result.away if is_transient(error) else result.missing).append(said)
            site.progress.step("recover.record")


def _unknown(site: Site, store: CheckpointStore, result: Recovered) -> list[Checkpoint]:
    """What the place keeps a record of and the ledger has none of, or one whose sound replicas are all not where it says."""
    try:
        identity = store.identity()
        if identity is None or identity.ledger != site.ledger.id:
            return []
        require_name(site, store, identity)
        listing = store.claimed()
    except LakemarkError as error:
        result.away.append(f"{store.name}: {error}")
        return []
    if not listing.complete:
        result.away.append(f"{store.name}: its listing did not end complete")
    wanted = set(listing.records)
    there = holding(site) if wanted else {}
    for run in site.ledger.runs() if wanted else ():
        records = site.ledger.run(run).records
        known = wanted & records.keys()
        wanted -= {one for one in known if has_copy(records[one], there) or records[one].pruned is not None}
    found: list[Checkpoint] = []
    for record in sorted(wanted):
        try:
            held = store.load(record)
        except LakemarkError as error:
            _note(result, error, f"the record of {record[:12]} in {store.name} can't be read: {error}")
            continue
        # The id is made of the contents: whatever lies under that name and is of others is no such record.
        if held.record.id != record or held.manifest.content != held.record.content:
            result.missing.append(f"the record of {record[:12]} in {store.name} is of other contents")
            continue
        found.append(held)
    return found


def _readopted(site: Site, store: Replicas, held: Checkpoint, result: Recovered) -> bool:
    record = held.record
    _run_and_timeline(site, record)
    state = site.ledger.run(record.run)
    # A tree's marker holds its whole entry; a tier's record of it does not.
    if store.place == site.hot.place and record.id not in state.records:
        outcome = settle_orphan(site, held, keep=True)
        if outcome is Orphan.RECORDED:
            return True
        if outcome is not Orphan.DAMAGED or record.id not in site.hot.recorded():
            result.missing.append(f"{_shown(record)} in {store.name}: {outcome.value}")
            return False
    # A recorded replica is a verified one, also here: the entry that said so is lost.
    damages = read_back(store, held, progress=site.progress).damages
    # Its entry also where bytes are wrong: other tiers, asked next, may have them right.
    _commit(site, held)
    site.progress.step("recover.committed")
    if damages:
        result.missing.append(f"{_shown(record)} in {store.name}: {damages[0].path} {damages[0].why}")
        return True
    body = ReplicatedBody(
        tier=store.place.tier,
        node=store.place.node,
        proof="read_back",
        verified_at=site.now(),
        recovered=True,
    )
    draft = REPLICATED.draft(
        body,
        timeline=record.timeline,
        record=record.id,
        contents=Attachments(objects=held.objects) if held.objects else None,
    )
    _append(site, record.run, draft, f"readopted:{store.place.tier}:{record.id}:{state.sequence}")
    return True


def _commit(site: Site, held: Checkpoint) -> None:
    """The record's entry, without a replica: who committed it and from where is not known any more."""
    record = held.record

    def decide(state: RunState) -> Draft | None:
        if record.id in state.records:
            return None
        other = standing(state, record.timeline, record.step)
        clash = other is not None and other.record.id != record.supersedes
        body = CommittedBody(
            attempt=record.attempt,
            supersedes=record.supersedes,
            conflicts_with=other.record.id if other is not None and clash else None,
            recovered=True,
        )
        contents = Attachments(record=record, manifest=held.manifest)
        return COMMITTED.draft(body, timeline=record.timeline, contents=contents, saved_at=record.saved_at)

    site.ledger.append(record.run, decide, site.stamp(f"commit:{record.id}"))


def _run_and_timeline(site: Site, record: Record) -> None:
    """Opens the run, and the timelines up to the record's, where no entry is left that did."""
    state = site.ledger.run(record.run)
    if not state.exists:
        body = OpenedBody(data=record.data, parts=1, recovered=True)
        _append(site, record.run, OPENED.draft(body, timeline=1), f"recovered:opened:{record.run}")
        state = site.ledger.run(record.run)
    parent = state.records.get(record.parent or "")
    for number in range(state.next_timeline, record.timeline + 1):
        fork = _fork(parent, number)
        draft = RESUMED.draft(
            ResumedBody(record=fork.record or None, fork=fork, inferred=True, recovered=True),
            timeline=number,
            reason="the entry that opened it was lost",
        )
        _append(site, record.run, draft, f"recovered:timeline:{record.run}:{number}")


def _fork(parent: RecordState | None, number: int) -> Fork:
    """After its parent where that is known; else from the very beginning, which claims nothing."""
    if parent is None or parent.record.timeline >= number:
        return Fork(timeline=number - 1, step=-1, record="")
    return Fork(timeline=parent.record.timeline, step=parent.record.step, record=parent.record.id)


def _pins(site: Site, result: Recovered) -> None:
    """A data commit that something needs and no entry says is pinned is pinned anew."""
    if site.data is None:
        return
    state = site.ledger.site()
    for repository, commit in pins.needed(site):
        if state.pin_of(repository, commit) is None:
            try:
                pins.keep(site, repository, commit, run=None)
            except LakemarkError as error:
                result.missing.append(f"the pin of {repository}@{commit[:12]}: {error}")


# What is said of it


def _sizes(ledger: LedgerReader) -> dict[str, tuple[int, int]]:
    """Entries and records of each branch."""
    found = {SITE: (ledger.site().sequence, 0)}
    for run in ledger.runs():
        state = ledger.run(run)
        found[run] = (state.sequence, len(state.records))
    return found


def _count(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]], result: Recovered) -> None:
    for branch, (entries, records) in after.items():
        had = before.get(branch, (0, 0))
        result.entries += entries - had[0]
        result.records += records - had[1]


def _given_up(site: Site, result: Recovered) -> set[str]:
    """Branches of which entries are known that nobody has, once every tier was asked; what they let go is unclaimed."""
    # Asked of everybody once more, after all was taken in.
    left = look(site)
    result.missing.extend(one.why for one in left)
    result.away.extend(_unconfigured(site))
    if result.away:
        return set()
    result.missing.extend(one.shown for one in unclaim(site))
    site.progress.step("recover.unclaimed")
    return {one.branch if one.tip is not None else SITE for one in left}


def _say(
    site: Site,
    before: Mapping[str, tuple[int, int]],
    after: Mapping[str, tuple[int, int]],
    result: Recovered,
    *,
    given_up: set[str],
) -> None:
    """One entry on each branch that got more, or some of whose entries nobody has, with what is missing."""
    for branch, sizes in after.items():
        had = before.get(branch, (0, 0))
        if sizes == had and branch not in given_up:
            continue
        body = LedgerRecoveredBody(
            from_=tuple(dict.fromkeys(result.sources)),
            entries=sizes[0] - had[0],
            records=sizes[1] - had[1],
            missing=tuple(result.missing[:100]),
        )
        _append(site, branch, LEDGER_RECOVERED.draft(body), f"recovered:{site.ledger.tip(branch)}")
    site.progress.step("recover.said")


def _found(site: Site) -> None:
    """A site's branch that no copy had does not say which ledger it is: its tiers did."""
    with suppress(LakemarkError):
        found_site(site)


def _settle(site: Site, result: Recovered) -> None:
    """What is known and nowhere is given up, once every tier was asked; then the ledger is sound again."""
    if result.away:
        return
    seen = site.journal.seen()
    tips = site.ledger.tips()
    # Only what no tier that was asked has: forgotten earlier, it would never be looked for again.
    site.journal.forget_seen([one for one in seen if not _contains(site.ledger, one.branch, one.revision)])
    site.journal.saw(HERE, tips)
    site.progress.step("recover.settled")


def _unconfigured(site: Site) -> Iterator[str]:
    """Shared tiers that the ledger knows and nobody could ask."""
    for seen in site.ledger.site().left_out(site.tiers, node=site.node):
        if "@" not in seen.name:
            yield f"{seen.name}: this ledger's tier {seen.id[:8]} is not in the configuration"


def _plan(site: Site, copies: list[_Copy], result: Recovered) -> None:
    for copy in copies:
        lacking = _lacking(site.ledger, copy)
        if lacking:
            result.sources.append(copy.shown)
            result.would.extend(f"bring {branch} to {copy.heads[branch][:12]}, from {copy.shown}" for branch in lacking)
    if copies and not site.ledger.is_whole():
        result.would.append("take what can't be read of the ledger from its copies")
    told = {branch for copy in copies for branch in copy.heads}
    for store in site.tiers.values():
        unknown = _unknown(site, store, result)
        if unknown:
            result.sources.append(f"what lies in {store.name}")
            shown = ", ".join(_shown(one.record) for one in unknown[:5]) + (", …" if len(unknown) > 5 else "")  # noqa: PLR2004
            result.would.append(f"look in the copies for, else record anew, {len(unknown)} from {store.name}: {shown}")
    if not result.away and not result.would:  # else what comes back may say that it was let go
        result.would.extend(in_words(absent(site)))
    heads = {(branch, head) for copy in copies for branch, head in copy.heads.items()}
    for lack in known_lacks(site.ledger, site.journal):
        if (lack.branch, lack.revision) not in heads:
            near = "; a copy has some of it" if lack.branch in told else ""
            result.missing.append(f"{lack.why}{near}")


def _append(site: Site, branch: str, draft: Draft, request: str) -> None:
    if branch == SITE:
        site.ledger.append_site(lambda _: draft, site.stamp(request))
    else:
        site.ledger.append(branch, lambda _: draft, site.stamp(request))


def _shown(record: Record) -> str:
    return f"{record.run}@{record.step} ({record.id[:12]})"
