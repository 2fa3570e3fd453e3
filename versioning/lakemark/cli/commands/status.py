"""`status`: from the index, the places and a look at each server's address. Needs none of them to answer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lakemark.cli import output
from lakemark.cli.checks import questions
from lakemark.cli.checks.watch_state import seen, view, watch_problems
from lakemark.cli.commands.sandbox import next_steps
from lakemark.cli.output import coloured, instant, plain, size, table, told
from lakemark.cli.session import Answer, Session, session
from lakemark.errors import Denied, Incomplete, LakemarkError, Refused, Usage
from lakemark.model.ledger.run import Place
from lakemark.model.ledger.site import tier_name
from lakemark.model.ledger.soundness import in_words, lacks
from lakemark.model.values.instants import to_text
from lakemark.services.data import note as data_note
from lakemark.services.health.saves import (
    problems_of_best,
    problems_of_late,
    problems_of_left,
    problems_of_lost,
    problems_of_refused,
    problems_of_stepless,
    problems_without_record,
)
from lakemark.services.health.status import (
    AMBER,
    RED,
    LeftOut,
    PlaceSeen,
    Problem,
    Rules,
    ServerSeen,
    WatchSeen,
    problems_around,
    problems_of,
    problems_of_data,
    problems_of_ledger,
    problems_of_left_out,
    problems_of_room,
    problems_of_stores,
)
from lakemark.services.recovery import check as check_ledger
from lakemark.services.saves.waiting import WaitingSave, place_of
from lakemark.services.soundness import holds_of
from lakemark.services.tiers import store_note
from lakemark.settings import unused

if TYPE_CHECKING:
    from lakemark.model.ledger.run import RunState

# Bounds the time of a command that people give again and again; older records were looked at when they were new.
_LOOKED_AT: Final = 1_000
_PATIENCE_SECONDS: Final = 300
"""An announced save younger than this is on its way."""
_RECOVER: Final = "lakemark ledger recover --dry-run"


def status() -> Answer:
    """What is wrong, what waits, and what runs. Exits with 4 where something is red.

    Works with every server down. Of each run the newest 1000 records are looked at.
    """
    here = session()
    # First: everything below reads the index.
    unopened = _unopened(here)
    if unopened is not None:
        return unopened
    found = _look(here)
    problems = [replace(problem, next=here.advised(problem.next)) for problem in _problems(here, found)]
    # Red first; a stable sort, so within a colour they stay in the order they were looked for.
    problems.sort(key=lambda problem: problem.colour != RED)
    red = any(problem.colour == RED for problem in problems)
    runs = [_run_view(here, state) for state in found.states]
    document = {
        "ok": not red,
        "problems": [_problem_view(problem) for problem in problems],
        "runs": runs,
        "services": [
            *(
                {"name": one.name, "url": one.url, "ok": one.ok, "detail": one.detail, "pid": one.pid}
                for one in found.servers
            ),
            *view(here, found.watch),
        ],
        "waiting": [path for path, _ in found.waiting],
        "nodes": _nodes(here),
        "now": to_text(found.rules.now),
    }
    lines = _lines(problems, runs, found.servers)
    lines += [f"{one['name']}: {one['detail']}" for one in view(here, found.watch)]
    if any(one.pid is not None for one in found.servers):
        lines += ["", *next_steps(here)]
    return Answer(document=document, lines=lines, exit_code=Incomplete.exit_code if red else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What was asked once, all together: what is told of each rests on the same answers. spools: by run."""

    states: list[RunState]
    rules: Rules
    servers: list[ServerSeen]
    spools: dict[str, list[tuple[str, float | None]]]
    watch: WatchSeen | None

    @property
    def waiting(self) -> list[tuple[str, float | None]]:
        return [one for rows in self.spools.values() for one in rows]


def _look(here: Session) -> _Looked:
    states = [_recent(here, run) for run in here.history.runs()]
    return _Looked(
        states=states,
        rules=_rules(here, states),
        servers=list(servers_of(here)),
        spools={state.run: list(_announced(here, state.run)) for state in states},
        watch=seen(here),
    )


def _problems(here: Session, found: _Looked) -> Iterator[Problem]:
    """In the order they are looked for."""
    states, rules = found.states, found.rules
    for state in states:
        yield from problems_of(state, rules)
    yield from _distress(here)
    yield from problems_around(
        places=_places(here),
        servers=found.servers,
        disks=questions.disks(here),
        # None: its age can't be had, and too early an alarm is better than none.
        waiting=[path for path, age in found.waiting if age is None or age > _PATIENCE_SECONDS],
        unused=list(unused(here.parts.loaded)),
    )
    yield from problems_of_left_out(_left_out(here))
    for state in states:
        yield from _waiting(here, state, rules, announced=len(found.spools[state.run]))
    yield from _data_versions(here)
    yield from _stores(here)
    yield from _ledger_check(here)
    # Only these need the service: a run whose saves are announced or committed by hand does without.
    watched = [state.run for state in states if not state.closed and state.run in rules.directories]
    yield from watch_problems(here, found.watch, watched=watched)


def _nodes(here: Session) -> list[dict[str, Any]]:
    """What each node said of itself last; nothing where the ledger can't be read, which is said above."""
    from lakemark.background import heartbeats

    with suppress(LakemarkError, OSError):
        return [{"node": node, **said.as_json()} for node, said in heartbeats(here.settings).items()]
    return []


def _distress(here: Session) -> Iterator[Problem]:
    """What this node knows and the ledger lacks, and what in its folder is damaged. Loads Git only where a tip is another."""
    if here.parts.reads_only:
        yield from (Problem(colour=RED, what=alarm, next=_RECOVER) for alarm in here.history.index.alarms())
        return
    from lakemark.site import damaged_objects, known_tips, ledger_tips, mend_ledger

    # What `ledger recover` would do to the folder itself; nothing is done here.
    mend = mend_ledger(here.parts, dry_run=True)
    for one in mend:
        yield Problem(colour=RED, what=f"the ledger is damaged; `ledger recover` will {one}", next=_RECOVER)
    with suppress(LakemarkError):  # that it can't be opened is said below, and by what is to be mended
        # Reading all objects takes long: only where something is known to be damaged.
        for whose in damaged_objects(here.settings) if mend else ():
            yield Problem(colour=RED, what=f"in the ledger {whose} can't be read", next=_RECOVER)

    # A function: Git is loaded only if a tip differs and has to be looked for.
    def holds(branch: str, revision: str) -> bool:
        return holds_of(here.parts.ledger)(branch, revision)

    try:
        seen = known_tips(here.settings)
        lacking = lacks(seen, ledger_tips(here.settings), holds=holds)
    except LakemarkError as error:
        # A ledger or journal that can't be read is what must be said, not what keeps the rest from being said.
        yield Problem(colour=RED, what=str(error), next=error.advice)
        return
    if lacking:
        yield Problem(colour=RED, what=in_words(lacking), next=_RECOVER)
    for branch, revision, alarm in here.history.index.replaced():
        # One that came back, or whose history another copy took in, is no alarm.
        if not lacking and not holds(branch, revision):
            yield Problem(colour=RED, what=alarm, next=_RECOVER)


def _unopened(here: Session) -> Answer | None:
    """That the ledger can't be read at all: then there is nothing else to say, and this is said."""
    try:
        _ = here.history.index
    except (Usage, Denied):
        raise
    except LakemarkError as error:
        if not here.parts.journal_is_there():
            raise  # nobody ran `init` here
        problem = Problem(colour=RED, what=str(error), next=_RECOVER)
        document = {"ok": False, "problems": [_problem_view(problem)], "runs": [], "services": [], "waiting": []}
        return Answer(
            document={**document, "now": to_text(here.now)},
            lines=_lines([problem], [], []),
            exit_code=Incomplete.exit_code,
        )
    return None


def servers_of(here: Session) -> Iterator[ServerSeen]:
    """The servers that the configuration names and those that the sandbox started, each once."""
    started = {_address(one.url): one for one in _started(here)}
    for one in questions.servers(here):
        mine = started.pop(_address(one.url), None)
        # Asked and found silent says less than that its process ended.
        if mine and not mine.ok:
            yield replace(mine, name=one.name)
        elif mine is None and one.detail.startswith("does not answer") and _to_be_started(here, one):
            yield replace(one, advice="lakemark up")
        else:
            yield replace(one, pid=mine.pid if mine else None)
    yield from started.values()


def _to_be_started(here: Session, server: ServerSeen) -> bool:
    """Whether `up` would start it: one of the sandbox's, on this machine."""
    from lakemark.settings import is_loopback

    wanted = here.settings.sandbox
    kinds = {"s3": wanted.s3, "lakefs": wanted.lakefs, "prefect": wanted.prefect}
    return bool(kinds.get(server.name.partition(" ")[0])) and is_loopback(server.url)


def _address(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port


def _started(here: Session) -> Iterator[ServerSeen]:
    wanted = here.settings.sandbox
    if not (wanted.s3 or wanted.lakefs or wanted.prefect) or not os.path.lexists(wanted.dir / "services.json"):
        return
    from lakemark.sandbox.services import status as started

    for one in started(wanted.dir):
        detail = "" if one.alive else f"does not answer: its process {one.pid} ended"
        yield ServerSeen(
            name=one.name, url=one.url, ok=one.alive, detail=detail, advice="lakemark up starts it again.", pid=one.pid
        )


def _places(here: Session) -> Iterator[PlaceSeen]:
    """Tiers on this machine's file systems; those behind a server are `servers_of`'s, if the ledger knows them."""
    from lakemark.settings import DirectoryTier, HotTree, is_loopback

    seen = here.history.site().tiers
    for name, tier in here.settings.tiers.items():
        if not isinstance(tier, HotTree | DirectoryTier):
            if name not in seen or seen[name].retired:
                claim = "lakemark up" if here.settings.sandbox.s3 and is_loopback(tier.endpoint) else None
                yield PlaceSeen(name=name, state="not registered in the ledger", claim=claim)
            continue
        hot = isinstance(tier, HotTree)
        # A reader has no hot: what it calls so is no place of the site.
        if hot and here.parts.reads_only:
            continue
        # hot is one place on each node, and the ledger knows each by both names.
        known = seen.get(tier_name(name, here.settings.node if hot else None))
        misnamed = _misnamed(here, Place(tier=name, node=here.settings.node if hot else None), tier.path)
        if misnamed is not None:
            yield PlaceSeen(name=name, state=str(misnamed), misnamed=misnamed.advice)
            continue
        try:
            state = _state(tier.path, None if known is None or known.retired else known.id)
        except LakemarkError as error:
            yield PlaceSeen(name=name, state=str(error), broken=error.advice)
            continue
        removable = isinstance(tier, DirectoryTier) and tier.removable
        # Only hot has to stay free for the next save; a full tier is noticed by what can't sink to it.
        full = _full(tier.path, tier.min_free) if hot else None
        yield PlaceSeen(name=name, state=state, removable=removable, full=full)


def _left_out(here: Session) -> Iterator[LeftOut]:
    """Tiers of the ledger that lakemark.yaml does not name; not those that lie, under another name, at a place it names."""
    from lakemark.settings import DirectoryTier, HotTree
    from lakemark.site import identity_at

    settings = here.settings
    missing = here.history.site().left_out(settings.tiers, node=settings.node)
    if here.parts.reads_only:
        # hot of other nodes is nothing that a reader could name.
        missing = tuple(one for one in missing if "@" not in one.name)
    there: set[str | None] = set()
    for tier in settings.tiers.values() if missing else ():
        if isinstance(tier, HotTree | DirectoryTier):
            with suppress(LakemarkError):
                # A tier that lies at a named place under another name was renamed, and is told of by `_misnamed`.
                there.add(identity_at(tier.path))
    names = [one.name.partition("@")[0] for one in missing]
    for name, one in zip(names, missing, strict=True):
        if one.id not in there:
            # Alone: records that have no replica anywhere else, which go with these tiers.
            records, alone = here.history.index.held_in(name, but=names)
            yield LeftOut(name=name, id=one.id, tier_class=one.tier_class, kind=one.kind, records=records, alone=alone)


def _misnamed(here: Session, place: Place, path: Path) -> Refused | None:
    """What everybody is told who uses the place, where the ledger knows it under another name or of another node."""
    from lakemark.services.ledger import require_name_of
    from lakemark.site import identity_at

    site = here.history.site()
    seen = site.tiers.get(tier_name(place.tier, place.node))
    if seen is not None and not seen.retired:
        return None  # that name has a place of its own: `_state` compares
    try:
        found = identity_at(path)
        known = None if found is None else site.known_as(found)
        if known is not None:
            require_name_of(place, known, node=here.settings.node)
    except Refused as error:
        return error
    except LakemarkError:
        return None  # `_state` says what is wrong with the place
    return None


def _state(path: Path, known: str | None) -> str:
    """What lies at a tier's place, in words; `present` where it is the tier that the ledger knows. Raises what can't be read."""
    from lakemark.site import identity_at

    if known is None:
        return "not registered in the ledger"
    found = identity_at(path)
    if found is None:
        return "absent: no identity file there"
    return "present" if found == known else f"another tier ({found[:8]}, not {known[:8]})"


def _full(path: Path, min_free: Fraction | int) -> str | None:
    """That the file system at `path` has less than `min_free` left, in words; None where it has more."""
    from lakemark.settings import bytes_of

    try:
        found = os.statvfs(path)
    except OSError:
        return None
    # f_bavail, not f_bfree: the blocks kept for root are none that a trainer can use.
    free, least = found.f_bavail * found.f_frsize, bytes_of(min_free, total_bytes=found.f_blocks * found.f_frsize)
    return f"{size(free)} free, less than the {size(least)} of `min_free`" if free < least else None


def _announced(here: Session, run: str) -> Iterator[tuple[str, float | None]]:
    """Announced saves that are not committed, and for how many seconds they wait; None where nobody can say."""
    folder = here.parts.loaded.home / "spool" / run
    paths: list[Path] = []
    with suppress(OSError):  # of a disk that fails: the pass that takes them says so by name
        paths = sorted(folder.glob("*.json"))
    for path in paths:
        # Drafts: announcements are written beside their place, and get their name when they are whole.
        if not path.name.startswith("."):
            # Files have the times of the real clock, which a simulated one can't be compared with.
            yield str(path), None if here.settings.simulated_clock else _age(path)


def _age(path: Path) -> float | None:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return None


def _waiting(here: Session, state: RunState, rules: Rules, *, announced: int) -> Iterator[Problem]:
    """By the note of whoever looked for its saves last. announced: how many of its announcements lie in the spool."""
    waiting: tuple[WaitingSave, ...] = ()
    try:
        waiting = WaitingSave.read(json.loads(place_of(here.parts.loaded.home, state.run).read_bytes()))
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        what = f"the note of saves of {state.run} that could not be committed can't be read"
        yield Problem(colour=AMBER, what=what, next="lakemark sweep writes it anew.")
    # Of closed runs as well: what was saved before the close is still to be kept or given up.
    left = (*problems_of_room(state.run, waiting, now=here.now), *problems_of_refused(state.run, waiting))
    yield from (problems_of_late if state.closed else problems_of_lost)(state.run, waiting)
    # Whoever closed the run was told of them and said that it is over without them.
    yield from (replace(one, colour=AMBER) for one in left) if state.closed else left
    if not state.closed:
        yield from problems_of_left(state.run, waiting)
        yield from problems_of_stepless(state.run, waiting)
    yield from problems_of_best(state, here.history.modes())
    yield from problems_without_record(state, waiting, rules, announced=announced)


def _data_versions(here: Session) -> Iterator[Problem]:
    """By the note of whoever looked after them last; `settings.data` may have gone since."""
    path = data_note.place_of(here.parts.loaded.home)
    if here.settings.data is None:
        return
    try:
        yield from problems_of_data(data_note.DataNote.read(json.loads(path.read_bytes())))
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        what = "the note of what is wrong with data versions can't be read"
        yield Problem(colour=AMBER, what=what, next="lakemark sweep writes it anew.")


def _ledger_check(here: Session) -> Iterator[Problem]:
    """By the note of whoever read a share of the ledger's entries last."""
    path = check_ledger.place_of(here.parts.loaded.home)
    try:
        yield from problems_of_ledger(check_ledger.LedgerNote.read(json.loads(path.read_bytes())))
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        what = "the note of what can't be read in the ledger can't be read itself"
        yield Problem(colour=AMBER, what=what, next="lakemark sweep writes it anew.")


def _stores(here: Session) -> Iterator[Problem]:
    """By the note of the last pass: whoever asks for the state of things waits for no store."""
    path = store_note.place_of(here.parts.loaded.home)
    assured = {name: getattr(tier, "expires", None) == "never" for name, tier in here.settings.tiers.items()}
    try:
        note = store_note.StoreNote.read(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        what = "the note of stores that remove things by themselves can't be read"
        yield Problem(colour=AMBER, what=what, next="lakemark sweep writes it anew.")
        return
    yield from problems_of_stores(note, assured=assured, now=here.now)


def _recent(here: Session, run: str) -> RunState:
    from lakemark.index import Selection

    state = here.history.structure(run).snapshot()
    page = here.history.page(Selection(run=run, all_timelines=True, limit=_LOOKED_AT))
    # A page is newest first; states keep records in the order they came.
    for found in reversed(page.records):
        state.add(found)
    return state


def _rules(here: Session, states: Iterable[RunState]) -> Rules:
    settings = here.settings
    # Those of this node: another's directories can't be looked at from here.
    directories = {state.run: state.watch[settings.node] for state in states if state.watch.get(settings.node)}
    # What was written lately and is no record is a trainer at work, or a save that nobody takes.
    written = {run: _last_written(Path(where)) for run, where in directories.items()}
    domains = {name: tier.domain or name for name, tier in settings.tiers.items() if tier.tier_class != "hot"}
    wanted = settings.objectives
    return Rules(
        now=here.now,
        rpo=wanted.rpo,
        idle_after=wanted.idle_after,
        domains=domains,
        copies=settings.copies,
        data=settings.data is not None,
        approval=settings.approval.required,
        directories=directories,
        written_at={run: at for run, at in written.items() if at is not None},
    )


def _last_written(directory: Path) -> datetime | None:
    """When the directory or anything directly in it was written last, of the first thousand; None where it can't be had."""
    try:
        newest = directory.stat().st_mtime
    except OSError:  # gone, a stale mount, no right to it: of none of them a save can be found
        return None
    # What vanishes between, or may not be looked into, is no news: the pass that finds saves says so by name.
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in islice(entries, _LOOKED_AT):
            # A link's own time: `latest` is set anew at each save, and may point to what is gone.
            newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    return datetime.fromtimestamp(newest, UTC)


def _run_view(here: Session, state: RunState) -> dict[str, Any]:
    newest = here.history.index.latest(state.run)
    return {
        **here.history.run_view(state, newest),
        "replicas": sorted({place.tier for place in newest.replicas}) if newest else [],
    }


def _problem_view(problem: Problem) -> dict[str, Any]:
    return {
        "what": problem.what,
        "since": to_text(problem.since) if problem.since else None,
        "next": problem.next,
        "colour": problem.colour,
    }


def _lines(problems: list[Problem], runs: list[dict[str, Any]], servers: list[ServerSeen]) -> list[str]:
    lines: list[str] = []
    for problem in problems:
        since = f" (since {instant(problem.since)})" if problem.since else ""
        mark = coloured(f"{problem.colour.upper():<5}", output.RED if problem.colour == RED else output.AMBER)
        lines += [f"{mark}  {plain(f'{problem.what}{since}')}", plain(f"       next: {problem.next}")]
    rows: list[tuple[object, ...]] = [
        (
            one["run"],
            "closed" if one["closed"] else "open",
            one["timeline"],
            one["records"],
            "-" if one["step"] is None else one["step"],
            told(one["instant"]),
            " ".join(one["replicas"]),
        )
        for one in runs
    ]
    lines += ["" if problems else "nothing is wrong"]
    lines += table(("run", "", "timeline", "records", "step", "saved", "in"), rows)
    seen = [(one.name, "answers" if one.ok else one.detail.partition(":")[0], one.url) for one in servers]
    return [*lines, *(["", *table(("server", "", "url"), seen)] if seen else [])]
