"""Keeping data commits alive: a pin is recorded before it is made, and forgotten before it is unmade.

Each pin stands on its own: one that can't be made, seen or let go is named, and the others are looked after all the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter

from lakemark.errors import (
    Conflict,
    DataGone,
    Denied,
    LakemarkError,
    Misconfigured,
    NotFound,
    PinReleased,
    Refused,
    StoreUnavailable,
)
from lakemark.model.checkpoints.record import DataKind, DataRef
from lakemark.model.entries.data_versions import PINNED, UNPINNED, UNPINNING, PinnedBody, UnpinnedBody
from lakemark.model.entries.kind import Kind
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import Pin, SiteState
from lakemark.model.values.instants import duration_text
from lakemark.ports import DataPins, DataVersions, MadePin, Mark, MarkKind, PinAsked, PinSeen, Site, Strength
from lakemark.services.ledger import require_deletable, still
from lakemark.services.soundness import require_sound

_ORDER = (Strength.NONE, Strength.PLAIN, Strength.GUARDED)
_NAMES = 3
_AGAIN = "The next pass looks at them; see what keeps the server busy."


@dataclass(slots=True, kw_only=True)
class PinsPass:
    """What a pass over the pins did, a sentence each; what it could not do: (what, why); each pin it saw, by branch.

    judged: pins that it looked after, whether or not there was anything to do, as `failed` names them.
    """

    said: list[str] = field(default_factory=list)
    failed: list[tuple[str, LakemarkError]] = field(default_factory=list)
    seen: dict[str, PinSeen] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)


def versions(site: Site) -> DataVersions:
    """The site's data versions. Raises Misconfigured where it has none."""
    if site.data is None:
        raise Misconfigured(
            "this site has no data versioning (`data: none` in lakemark.yaml)",
            advice="Nothing has to be bound or opened with --data there: a rollback brings the model back alone. "
            "To version data, name a lakeFS endpoint under `data:`.",
        )
    return site.data


def keep(site: Site, repository: str, commit: str, *, run: str | None) -> MadePin:
    """Pins `commit`: entry first, then the branch. The same commit again is the same pin.

    A name that can't serve any more (somebody released the pin, or merged into it) is given up for a new one, both recorded.
    Raises Refused where the pin came out weaker than the site's `require_pin`, NotFound where the repository has no such
    commit; where the site requires none, what may not be pinned is answered as strength `none`.
    """
    data, least = versions(site), site.policies.require_pin
    made = _pinned(site, data, repository, commit, run=run)
    site.progress.step("pin.made")
    if weaker(made.strength, least):
        raise Refused(
            f"the pin of {repository}@{commit[:12]} is only {made.strength}: {made.why_plain or 'no reason given'}",
            advice=f"Allow the guard in that repository, or set data.require_pin: {made.strength}",
        )
    return made


def _pinned(site: Site, data: DataPins, repository: str, commit: str, *, run: str | None) -> MadePin:
    spent: LakemarkError | None = None
    for _ in range(_NAMES):
        # Its entry first: a branch without one is nobody's, and would stand for ever after a crash.
        pin = _wanted(site, repository, commit, run=run)
        site.progress.step("pin.recorded")
        try:
            return data.pin(repository, commit, branch=pin.branch, nonce=pin.nonce)
        except (Conflict, PinReleased) as error:
            # Its name is spent: who released that pin, or merged into its branch, may do so again.
            spent = error
            _append(site, UNPINNED, pin, reason=f"its name can't keep the data any more: {error}")
        except (Denied, Refused) as error:
            if site.policies.require_pin is not Strength.NONE:
                raise
            none = Strength.NONE
            return MadePin(repository=repository, commit=commit, branch=pin.branch, strength=none, why_plain=str(error))
    raise spent or Conflict(f"{repository}@{commit[:12]} can't be pinned", advice="Look at its branches.")


def require_data(site: Site, state: RunState) -> None:
    """Raises Refused, with the command that goes on, where the server says that the data a run reads is gone.

    A server that does not answer says nothing of the kind.
    """
    interval, data = state.interval, site.data
    if interval is None or data is None:
        return
    for ref in interval.data:
        if ref.kind != DataKind.LAKEFS:
            continue
        try:
            data.resolve(ref.repository, ref.commit)
            _require_pin(site, data, ref, run=state.run)
        except (NotFound, DataGone) as error:
            raise data_gone(state.run, ref, error) from error
        except LakemarkError:
            continue


def _require_pin(site: Site, data: DataPins, ref: DataRef, *, run: str) -> None:
    """Makes the pin again that the data should have, where it is gone. Raises NotFound where its commit is, too.

    A server keeps commits in mind: of a repository that was made anew it may go on naming the old ones for minutes. Its
    branches it reads anew.
    """
    pin = site.ledger.site().pin_of(ref.repository, ref.commit)
    if pin is None or pin.state != "pinned":
        return
    if data.pin_strength(ref.repository, ref.commit, branch=pin.branch) is Strength.NONE:
        keep(site, ref.repository, ref.commit, run=run)


def data_gone(run: str, ref: DataRef, error: LakemarkError) -> Refused:
    """That what the run reads is not in its repository any more: the repository was made anew, or its history was."""
    return Refused(
        f"the data of {run} is gone: {ref.repository} has no commit {ref.commit[:12]} any more ({error})",
        advice=f"Bring the repository back, or go on with its data of now: lakemark run open {run} --repin",
    )


def needed(site: Site) -> dict[tuple[str, str], list[str]]:
    """(repository, commit) -> who needs it: runs not closed, their attempts, unpruned records, open rollbacks.

    An attempt needs what it was told to read, also where its run has gone on to other data: its process may still read it.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for run in site.ledger.runs():
        state = site.ledger.run(run)
        if not state.closed:
            for number in sorted(state.timelines):
                # Of every timeline the last: a resume may go back to any of them.
                latest = [interval for interval in state.intervals if interval.timeline == number][-1:]
                _note(found, [ref for interval in latest for ref in interval.data], f"run {run}")
            for attempt in state.attempts.values():
                older = [ref for ref in attempt.data if f"run {run}" not in found.get((ref.repository, ref.commit), ())]
                _note(found, older, f"attempt {attempt.id} of {run}")
        for record in state.live():
            _note(found, record.record.data, f"record {record.record.id[:12]}")
        for rollback in state.rollbacks.values():
            if rollback.open:
                _note(found, _planned(rollback.plan), f"rollback {rollback.id}")
    return found


def settle(site: Site, *, proven: Mapping[str, str] | None = None) -> PinsPass:
    """One pass over the pins: makes missing ones, mends weak ones, starts and ends the grace of those nobody needs.

    proven: branch -> head at which an earlier pass read its whole guard. What one pin can't have, the others still get.
    """
    require_sound(site)  # who needs a pin may be among the entries that are missing
    data, wanted = versions(site), needed(site)
    pins = list(site.ledger.site().pins.values())
    look = [pin for pin in pins if pin.state == "pinned" and (pin.repository, pin.commit) in wanted]
    result = looked_at(data, look, proven=proven or {})
    for pin in pins:
        if pin in look and pin.branch not in result.seen:
            continue  # of its repository nothing could be seen, which is named
        try:
            result.said.extend(_settled(site, data, pin, wanted=wanted, seen=result.seen.get(pin.branch)))
        except LakemarkError as error:
            result.failed.append((f"the pin of {_shown(pin)}", error))
        else:
            result.judged.add(f"the pin of {_shown(pin)}")
    return result


def tries(pins: Iterable[Pin], *, turn: int) -> list[str]:
    """Of each repository's pins the one whose guard is tried this time: all in turn, and each shows whether actions run."""
    by_repository: dict[str, list[str]] = {}
    for pin in pins:
        by_repository.setdefault(pin.repository, []).append(pin.branch)
    return [names[turn % len(names)] for names in by_repository.values()]


def weaker(strength: Strength, least: Strength) -> bool:
    """Whether it is less than what a site requires."""
    return _ORDER.index(strength) < _ORDER.index(least)


def asked(pin: Pin, *, proven: Mapping[str, str] | None = None) -> PinAsked:
    """The pin as the server is asked for it."""
    return PinAsked(commit=pin.commit, branch=pin.branch, nonce=pin.nonce, proven=(proven or {}).get(pin.branch))


def looked_at(data: DataPins, pins: list[Pin], *, proven: Mapping[str, str]) -> PinsPass:
    """What the pins are worth now, a repository at a time; one guard of each is tried. `failed` names what gave no answer."""
    result = PinsPass()
    # By chance, so that also passes that each are a process of their own come to every pin.
    trying = tries(pins, turn=secrets.randbits(32))
    repositories = sorted({pin.repository for pin in pins})
    # In another order each time, as in `observe`.
    for repository in secrets.SystemRandom().sample(repositories, len(repositories)):
        mine = [pin for pin in pins if pin.repository == repository]
        try:
            seen = data.pins_seen(repository, [asked(pin, proven=proven) for pin in mine], tries=trying)
        except LakemarkError as error:
            result.failed.append((f"the {len(mine)} pin(s) in {repository}", error))
            continue
        result.seen |= seen
        left = len(mine) - len(seen)
        if left:
            unseen = StoreUnavailable("the server stopped answering before they were seen", advice=_AGAIN)
            result.failed.append((f"{left} of the {len(mine)} pin(s) in {repository}", unseen))
    result.failed.sort(key=itemgetter(0))
    return result


def _settled(
    site: Site,
    data: DataVersions,
    pin: Pin,
    *,
    wanted: Mapping[tuple[str, str], list[str]],
    seen: PinSeen | None,
) -> list[str]:
    """What was done about one pin."""
    key = (pin.repository, pin.commit)
    if pin.state == "unpinned":
        _remove(site, data, pin)
    elif key in wanted:
        if pin.state == "unpinning":
            keep(site, *key, run=pin.run)
            return [f"kept {_shown(pin)}: needed again by {wanted[key][0]}"]
        return _mended(site, pin, seen) if seen is not None else []
    elif pin.state == "pinned":
        started = _append(site, UNPINNING, pin, reason="nothing needs it")
        return [f"{_shown(pin)} is needed by nothing any more: its pin goes after the grace"] if started else []
    # A grace: a run that is opened on the same data meanwhile takes the pin back, and finds its commit alive.
    elif pin.state == "unpinning" and site.now() - pin.changed_at >= site.policies.grace:
        return _unpin(site, data, pin)
    return []


def _mended(site: Site, pin: Pin, seen: PinSeen) -> list[str]:
    """A pin that is missing, moved or weaker than the site requires is made again. Raises where that does not help."""
    least = site.policies.require_pin
    if seen.strength is not Strength.NONE and not weaker(seen.strength, least):
        return []
    made = keep(site, pin.repository, pin.commit, run=pin.run)
    if made.strength is Strength.NONE:
        return []
    if made.branch != pin.branch:
        return [f"replaced the pin of {_shown(pin)}: {seen.why}"]
    word = "made the pin again" if seen.strength is Strength.NONE else "strengthened the pin"
    return [f"{word} of {_shown(pin)}: {seen.why}"]


def _shown(pin: Pin) -> str:
    return f"{pin.repository}@{pin.commit[:12]}"


def _wanted(site: Site, repository: str, commit: str, *, run: str | None) -> Pin:
    nonce = secrets.token_hex(8)
    fresh = f"pin-{commit[:12]}-{nonce}"

    def decide(state: SiteState) -> Draft | None:
        # The same commit, the same pin: two runs that open at once must not each make a branch.
        standing = state.pin_of(repository, commit)
        if standing is not None and standing.state == "pinned":
            return None
        branch = standing.branch if standing else fresh
        return PINNED.draft(
            PinnedBody(
                repository=repository,
                commit=commit,
                pin=branch,
                run=run,
                nonce=standing.nonce if standing else nonce,
            )
        )

    state = site.ledger.append_site(decide, site.stamp(f"pinned:{fresh}")).state
    wanted = state.pin_of(repository, commit)
    return still(state.pins, wanted.branch if wanted else fresh, what="pin")


def _unpin(site: Site, data: DataPins, pin: Pin) -> list[str]:
    """Nothing where somebody needs it again since."""
    # Forgotten before it is unmade: an entry that says `pinned` must never outlive the branch.
    if not _append(site, UNPINNED, pin, reason=f"nothing needed it for {duration_text(site.policies.grace)}"):
        return []
    site.progress.step("pin.forgotten")
    _remove(site, data, pin)
    return [f"unpinned {_shown(pin)}"]


def _append(site: Site, kind: Kind[UnpinnedBody], pin: Pin, *, reason: str) -> bool:
    """False where the pin changed since it was looked at: somebody needs it again."""

    def decide(state: SiteState) -> Draft | None:
        require_deletable(state)
        now = still(state.pins, pin.branch, what="pin")
        # Decided on what is true at the entry: a run may have been opened on it since the pass looked.
        if (now.state, now.changed_at) != (pin.state, pin.changed_at):
            return None
        body = UnpinnedBody(repository=pin.repository, commit=pin.commit, pin=pin.branch)
        return kind.draft(body, reason=reason)

    sequence = site.ledger.site().sequence
    return (
        site.ledger.append_site(decide, site.stamp(f"{kind.name}:{pin.branch}:{site.node}:{sequence}")).entry
        is not None
    )


def _remove(site: Site, data: DataPins, pin: Pin) -> None:
    """Once `unpinned` is recorded, whoever comes by takes the branch away."""
    mark = Mark(MarkKind.UNPINNED, pin.branch)
    # Once per node: asking for a branch that is gone at each pass would cost a request for each old pin.
    if site.journal.marks.get(mark) is None:
        with suppress(Conflict):  # the branch is somebody else's by now: it stays
            data.unpin(
                pin.repository, pin.commit, branch=pin.branch, nonce=pin.nonce, reason="no record or run needs it"
            )
        site.journal.marks.set(mark, at=site.now())


def _note(found: dict[tuple[str, str], list[str]], refs: Iterable[DataRef], who: str) -> None:
    for ref in refs:
        if ref.kind == DataKind.LAKEFS:
            users = found.setdefault((ref.repository, ref.commit), [])
            if who not in users:
                users.append(who)


def _planned(plan: object) -> list[DataRef]:
    """What of a plan's data can be read: a plan of a newer version must not keep pins from being counted."""
    rows = plan.get("data", ()) if isinstance(plan, dict) else ()
    found: list[DataRef] = []
    for row in rows if isinstance(rows, list | tuple) else ():
        try:
            found.append(DataRef(repository=str(row["repository"]), commit=str(row["commit"])))
        except (LakemarkError, ValueError, KeyError, TypeError):
            continue
    return found
