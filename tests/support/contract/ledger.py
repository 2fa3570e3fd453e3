"""The guarantees of `ports.Ledger` as checks.

A check gets a function that opens the ledger: called again, it opens the same one as another process would. What is
appended stays, so these run on a ledger of their own, never on one in use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO, Final, TypeAlias

from lakemark.contract import Broken, Check, require
from lakemark.errors import LakemarkError, NotFound, Refused
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import DataRef, Record, record_for
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import SITE, Attachments, Clock, Draft, Entry, Means, Stamp
from lakemark.model.ledger.run import Place, RunState
from lakemark.model.values.canonical import JSON
from lakemark.ports.ledger import Appended, Ledger

Opens: TypeAlias = Callable[[], Ledger]

_START: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
_THREADS: Final = 4
_EACH: Final = 8


def _stamp(request: str, *, minutes: float = 0, node: str = "node-a") -> Stamp:
    return Stamp(at=_START + timedelta(minutes=minutes), node=node, actor=f"ana@{node}", request=request)


def _manifest(step: int) -> Manifest:
    digest = hashlib.sha256(str(step).encode()).hexdigest()
    files = (File(path="a/weights.npz", size_bytes=step, digest=digest, role="weights"), File(path="b", digest=digest))
    return Manifest(files=files, roles=("weights",))


def _record(run: str, step: int) -> Record:
    return record_for(_manifest(step), run=run, timeline=1, step=step, saved_at=_START, node="node-a")


def _open(ledger: Ledger, run: str) -> Entry:
    return _append(ledger, run, Draft(kind="opened", timeline=1), _stamp("open"))


def _commit(ledger: Ledger, run: str, step: int) -> Entry:
    contents = Attachments(record=_record(run, step), manifest=_manifest(step))
    draft = Draft(kind="committed", timeline=1, body={"tier": "hot"}, contents=contents, saved_at=_START)
    return _append(ledger, run, draft, _stamp(f"commit:{step}", minutes=step))


def _append(ledger: Ledger, run: str, draft: Draft, stamp: Stamp) -> Entry:
    return _entry(ledger.append(run, lambda _: draft, stamp))


def _entry(appended: Appended[Any]) -> Entry:
    """Of an append that had one to append: the state that it answers has it."""
    if appended.entry is None:
        raise Broken("an append had an entry to append, and answered none")
    require(appended.state.sequence >= appended.entry.sequence, "the state that an append answers lacks its entry")
    return appended.entry


def _replicate(ledger: Ledger, run: str, step: int, objects: dict[str, str]) -> Entry:
    draft = Draft(
        kind="replicated",
        timeline=1,
        record=_record(run, step).id,
        contents=Attachments(objects=objects),
        body={"tier": "warm", "node": None, "linked": False, "proof": "read_back"},
    )
    return _append(ledger, run, draft, _stamp(f"replicate:{step}:{len(objects)}", minutes=step))


def _survives(opens: Opens) -> None:
    run = "survives"
    ledger = opens()
    said = [_open(ledger, run), _commit(ledger, run, 10)]
    again = opens()
    require(again.id == ledger.id, f"the id was {ledger.id!r} and is {again.id!r} when opened again")
    require([entry for entry, _ in again.entries(run)] == said, "entries differ when the ledger is opened again")
    record = _record(run, 10)
    state = again.run(run)
    require(state.exists and set(state.records) == {record.id}, f"the state holds {sorted(state.records)}")
    require(state.records[record.id].record == record, "the record came back changed")
    require(again.manifest(run, record.id) == _manifest(10), "the manifest came back changed")
    require([contents.record for _, contents in again.entries(run)][1] == record, "`entries` lacks the record")


def _is_what_it_was_founded_as(opens: Opens) -> None:
    ledger = opens()
    known = ledger.site().id
    said = known or "a-ledger-of-the-checks"
    for number, identity in enumerate((said, "another-ledger")):
        draft = Draft(kind="founded", body={"id": identity, "site": "checks"})
        ledger.append_site(lambda _, draft=draft: draft, _stamp(f"founded:{number}"))  # type: ignore[misc]
    require({ledger.id, opens().id} == {said}, f"it was founded as {said}, and is {ledger.id}, {opens().id}")


def _replaces_heartbeats(opens: Opens) -> None:
    ledger, before = opens(), opens().tips()

    def after(last: Heartbeat | None, *, node: str, name: str) -> Heartbeat:
        passes = {} if last is None else dict(last.passes)
        return Heartbeat(node=node, at=_START, passes={**passes, name: _START}, free_bytes={"hot": len(passes)})

    def work(worker: int) -> None:
        for number in range(_EACH):
            node, name = f"node-{worker % 2}", f"{worker}.{number}"
            opens().beat(node, partial(after, node=node, name=name))

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(work, range(_THREADS)))
    for reader in (ledger, opens()):
        found = reader.heartbeats()
        sizes = {node: len(said.passes) for node, said in found.items() if node in ("node-0", "node-1")}
        each = _THREADS // 2 * _EACH
        require(sizes == {"node-0": each, "node-1": each}, f"heartbeats of two nodes were lost: {sizes}")
    require(opens().tips() == before, "a heartbeat became history")
    try:
        ledger.beat("../site", lambda last: after(last, node="../site", name="x"))
    except ValueError:
        return
    require(False, "a heartbeat was taken of what is no node's name")


def _counts(opens: Opens) -> None:
    run = "counts"
    ledger = opens()
    entries = [_open(ledger, run), *(_commit(ledger, run, step) for step in (10, 20, 30))]
    require([entry.sequence for entry in entries] == [1, 2, 3, 4], "sequences are not 1, 2, 3, 4")
    require([entry.sequence for entry, _ in ledger.entries(run, after=2)] == [3, 4], "`after` gives other entries")
    require(ledger.run(run).sequence == len(entries), "the state is not as of the last entry")


def _keeps_clocks(opens: Opens) -> None:
    run = "clocks"
    ledger = opens()
    _open(ledger, run)
    day = 24 * 60.0
    times = [
        (1, "node-a"),
        (2, "node-b"),
        (3 + 400 * day, "node-a"),
        (4, "node-a"),
        (5 - 365 * day, "node-b"),
        (6, "node-a"),
    ]
    drafts = [_stamp(f"commit:{number}", minutes=at, node=node) for number, (at, node) in enumerate(times)]
    ids = [_record(run, number).id for number in range(len(times))]
    for number, stamp in enumerate(drafts):
        contents = Attachments(record=_record(run, number), manifest=_manifest(number))
        draft = Draft(kind="committed", timeline=1, body={"tier": "hot"}, contents=contents, saved_at=_START)
        _append(ledger, run, draft, stamp)
    for reader in (ledger, opens()):
        read = [entry for entry, _ in reader.entries(run, after=1)]
        require(
            [entry.recorded_at for entry in read] == [stamp.at for stamp in drafts], "`recorded_at` is not the stamp's"
        )
        require({entry.clock for entry in read} == {Clock.OK}, "`clock` is not the stamp's")
        state = reader.run(run)
        suspect = [number for number, one in enumerate(ids) if state.records[one].clock == Clock.SUSPECT]
        require(suspect == [2, 4], f"the third and the fifth jumped; the state says so of {suspect}, counted from 0")


def _decides_on_what_is(opens: Opens) -> None:
    run = "takes-turns"
    _open(opens(), run)

    def work(worker: int) -> list[Entry]:
        ledger = opens()
        found = []
        for number in range(_EACH):

            def decide(state: RunState) -> Draft:
                return Draft(kind="closed", timeline=1, body={"saw": state.sequence})

            stamp = _stamp(f"{worker}:{number}", node=f"node-{worker}")
            found.append(_entry(ledger.append(run, decide, stamp)))
        return found

    with ThreadPoolExecutor(_THREADS) as pool:
        answered = [entry for found in pool.map(work, range(_THREADS)) for entry in found]
    read = [entry for entry, _ in opens().entries(run)]
    require(
        [entry.sequence for entry in read] == list(range(1, _THREADS * _EACH + 2)), "sequences have gaps or doubles"
    )
    require(
        sorted(answered, key=lambda entry: entry.sequence) == read[1:], "an acknowledged entry is not in the ledger"
    )
    blind = [entry.sequence for entry in read[1:] if entry.body["saw"] != entry.sequence - 1]
    require(not blind, f"the entries {blind} were decided on another state than the one before them")


def _same_request(opens: Opens) -> None:
    run = "same-request"
    ledger = opens()
    _open(ledger, run)
    first = _commit(ledger, run, 10)
    asked: list[int] = []

    def decide(state: RunState) -> Draft:
        asked.append(state.sequence)
        return Draft(kind="closed", timeline=1)

    for other in (ledger, opens()):
        second = _entry(other.append(run, decide, _stamp("commit:10", minutes=99, node="node-b")))
        require(second == first, f"the same request gave entry {second.sequence}, then {first.sequence}")
    require(not asked, "`decide` was asked for a request that is in the ledger already")
    require(opens().run(run).sequence == first.sequence, "the same request is in the ledger twice")


def _refused_leaves_nothing(opens: Opens) -> None:
    run = "refused"
    ledger = opens()
    _open(ledger, run)

    def decide(_: RunState) -> Draft:
        raise Refused("no", advice="None.")

    try:
        ledger.append(run, decide, _stamp("refused"))
    except Refused:
        pass
    else:
        require(holds=False, seen="what `decide` raised was swallowed")
    require([entry.kind for entry, _ in opens().entries(run)] == ["opened"], "a refused decision left an entry")
    require(ledger.run(run).sequence == 1, "a refused decision changed the state")
    _commit(ledger, run, 10)


def _nothing_is_no_entry(opens: Opens) -> None:
    run = "nothing"
    ledger = opens()
    _open(ledger, run)
    opens().append(run, lambda _: Draft(kind="closed", timeline=1), _stamp("closed"))

    def decide(state: RunState) -> Draft | None:
        return None if state.closed else Draft(kind="closed", timeline=1)

    entry, state = ledger.append(run, decide, _stamp("again"))
    require(entry is None, "a decision that there is nothing to append was answered with an entry")
    require(state.closed and state.sequence == 2, "the state that is answered is not the one that was decided on")
    require(
        [entry.kind for entry, _ in opens().entries(run)] == ["opened", "closed"], "no entry was appended all the same"
    )
    # Its request is not used up: what has nothing to append today may have something tomorrow.
    ledger.append(run, lambda _: Draft(kind="reopened", timeline=1), _stamp("reopened"))
    _entry(ledger.append(run, decide, _stamp("again")))
    require(state.sequence == 2 and state.closed, "later entries reach a state that was answered before them")


def _keeps_the_unknown(opens: Opens) -> None:
    run = "unknown"
    ledger = opens()
    _open(ledger, run)
    body: dict[str, JSON] = {"new": {"deep": [1, "zwei", None, True, 2.5]}, "text": "ä\u2028\U0001f600"}
    ledger.append(
        run, lambda _: Draft(kind="dreamt", timeline=1, body=body, unknown_means=Means.IGNORE), _stamp("dream")
    )
    read = [entry for entry, _ in opens().entries(run)][-1]
    require((read.kind, read.body) == ("dreamt", body), f"an entry of an unknown kind came back as {read}")
    require(opens().run(run).blocked is Means.IGNORE, "an unknown kind that may be ignored blocks something")
    ledger.append(run, lambda _: Draft(kind="dreamt", timeline=1), _stamp("dream again"))
    require(opens().run(run).blocked is Means.NO_DELETE, "an unknown kind does not block deletions")
    _commit(ledger, run, 10)


def _never_changes(opens: Opens) -> None:
    run = "never-changes"
    ledger = opens()
    _open(ledger, run)
    _commit(ledger, run, 10)
    before = [entry for entry, _ in ledger.entries(run)]
    named = [ledger.revision(run, entry.sequence) for entry in before]
    data = (DataRef(repository="data", commit="a" * 64),)
    bound = _record(run, 10).with_data(data)
    draft = Draft(kind="bound", timeline=1, contents=Attachments(record=bound), body={"data": [data[0].as_json()]})
    ledger.append(run, lambda _: draft, _stamp("bind"))
    again = opens()
    require([entry for entry, _ in again.entries(run)][:2] == before, "a later entry changed an earlier one")
    require([again.revision(run, number) for number in (1, 2)] == named, "a later entry renamed an earlier one")
    state = again.run(run).records[bound.id]
    require(state.record.data == data, "the newest binding is not the record's")
    require([contents.record for _, contents in again.entries(run)][1] == _record(run, 10), "binding changed the past")


def _knows_objects(opens: Opens) -> None:
    run = "objects"
    ledger = opens()
    _open(ledger, run)
    _commit(ledger, run, 10)
    record = _record(run, 10)
    require(not ledger.objects(run, record.id, "warm"), "a record without a replica has objects")
    names = {file.digest or "": "0" * 32 for file in _manifest(10).regular} | {"dir": "1" * 32}
    _replicate(ledger, run, 10, {"dir": "2" * 32} | names)
    newest = names | {"dir": "3" * 32, "another": "4" * 32}
    _replicate(ledger, run, 10, newest)
    again = opens()
    require(dict(again.objects(run, record.id, "warm")) == newest, "the objects are not the newest replica's")
    require(not again.objects(run, record.id, "cold"), "a tier without a replica has objects")
    require(Place(tier="warm") in again.run(run).records[record.id].replicas, "the replica is missing")


def _bundles_everything(opens: Opens) -> None:
    ledger = opens()
    _open(ledger, "bundled")
    with ledger.bundle() as bundle:
        before = bundle.read()
    _commit(ledger, "bundled", 10)
    with opens().bundle() as bundle:
        after = bundle.read()
        bundle.seek(0)
        require(bundle.read() == after, "a bundle can't be read twice")
    require(before and after != before, "a bundle lacks what was appended before it")


def _goes_on_from_a_copy(opens: Opens) -> None:
    run, ledger = "went-on", opens()
    _open(ledger, run)
    base = ledger.tips()
    with ledger.bundle() as whole:
        require(
            ledger.needs_of(whole) == () and _again(ledger, whole), "a whole copy needs another, or does not read whole"
        )
    _commit(ledger, run, 10)
    with ledger.bundle(since=tuple(base.values())) as more:
        heads = ledger.heads_of(more)
        more.seek(0)
        needs = ledger.needs_of(more)
        require(heads == {run: ledger.tip(run)}, f"a copy that goes on from another tells {heads}")
        require(bool(needs) and set(needs) <= set(base.values()), f"it goes on from {needs}, not from {base}")
        require(_again(ledger, more), "it does not read whole")
        more.seek(0)
        require(opens().take(more) == heads, "it is not taken in where that is")
        more.seek(0)
        data = bytearray(more.read())
    data[len(data) // 2] ^= 1
    require(not ledger.reads_whole(BytesIO(bytes(data))), "a changed copy reads whole")
    require(not ledger.reads_whole(BytesIO(bytes(data[:-1]))), "a copy that ends early reads whole")


def _again(ledger: Ledger, copy: BinaryIO) -> bool:
    copy.seek(0)
    return ledger.reads_whole(copy)


def _knows_its_history(opens: Opens) -> None:
    run, ledger = "held", opens()
    _open(ledger, run)
    first = ledger.tip(run)
    with ledger.bundle() as copy:
        heads = ledger.heads_of(copy)
        copy.seek(0)
        taken = ledger.take(copy)
    _commit(ledger, run, 10)
    again = opens()
    newest = again.tip(run)
    require(first is not None and newest is not None and again.tips()[run] == newest != first, f"the tip is {newest}")
    require(again.contains(run, str(first)) and again.contains(run, str(newest)), "a branch lacks an entry of its own")
    require(not again.contains(run, "0" * 40) and not again.contains("nobody", str(first)), "a strange entry is held")
    require(heads[run] == taken[run] == first, f"a copy's tips are {heads}")
    require(not again.forward(run, str(first)) and again.tip(run) == newest, "a branch went back")
    require(not list(again.beyond(run, str(first))), "an older copy has entries that the branch lacks")
    require(again.is_whole() and not again.broken_branches(), "a sound ledger is said to be damaged")
    require(not again.broken(run, after=0, limit=100), "a sound entry is said to be damaged")
    require(not again.set_aside(run, str(first)), "a branch that moved on was set aside")
    record = _record(run, 10).id
    require(not again.put_manifest(run, record, _manifest(11)), "another manifest was written in a record's place")
    require(again.put_manifest(run, record, _manifest(10)), "a record's own manifest was not taken")


def _says_what_is_missing(opens: Opens) -> None:
    ledger = opens()
    nobody = ledger.run("nobody")
    require(not nobody.exists and nobody.run == "nobody", "a run nobody opened has entries")
    require(not list(ledger.entries("nobody")), "a run nobody opened has entries")
    require("nobody" not in ledger.runs(), "asking for a run made it")
    for name in ("second", "first"):
        _open(ledger, name)
    runs = opens().runs()
    require({"first", "second"} <= set(runs) and list(runs) == sorted(runs), f"the runs are {runs}")
    require(_missing(lambda: ledger.manifest("first", "0" * 64)), "a manifest of no record was found")
    require(_missing(lambda: ledger.revision("first", 2)), "an entry that is not there has a revision")


def _missing(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except NotFound:
        return True
    except LakemarkError:
        return False
    return False


def _has_a_site(opens: Opens) -> None:
    ledger = opens()
    _open(ledger, "beside-the-site")
    before = ledger.site().sequence
    body: dict[str, JSON] = {"alias": "best", "run": "beside-the-site", "record": "0" * 64}
    entry = _entry(ledger.append_site(lambda _: Draft(kind="alias_set", body=body), _stamp("alias")))
    require(entry.sequence == before + 1 and entry.branch == SITE, f"the site's next entry is {entry.sequence}")
    again = opens()
    require("best" in again.site().aliases, "the site's entry is lost")
    require([found for found, _ in again.entries(SITE)][-1] == entry, "the site's entry came back changed")
    require(SITE not in again.runs(), "the site is listed as a run")


CHECKS: Final = (
    Check(
        "survives", "What was appended is there, unchanged, when the ledger is opened again.", _survives, probe=False
    ),
    Check("counts", "Sequences count from 1 without gaps.", _counts, probe=False),
    Check("clocks", "recorded_at is the stamp's; a node's clock that went back is marked.", _keeps_clocks, probe=False),
    Check("turns", "Each decision saw exactly the entries before its own.", _decides_on_what_is, probe=False),
    Check("requests", "The same request twice is one entry, decided once.", _same_request, probe=False),
    Check("refusals", "What a decision raises leaves nothing behind.", _refused_leaves_nothing, probe=False),
    Check("nothing", "A decision that there is nothing to append appends nothing.", _nothing_is_no_entry, probe=False),
    Check("unknown", "Unknown kinds and fields come back unchanged.", _keeps_the_unknown, probe=False),
    Check("history", "Nothing appended is changed by what comes later.", _never_changes, probe=False),
    Check("objects", "Objects are those of the newest replica in the tier.", _knows_objects, probe=False),
    Check("bundle", "A bundle holds all that was appended before.", _bundles_everything, probe=False),
    Check(
        "bundle since", "One since others holds the rest, and says what it needs.", _goes_on_from_a_copy, probe=False
    ),
    Check("copies", "What a branch holds is told, also of copies; none goes back.", _knows_its_history, probe=False),
    Check(
        "missing",
        "What is not there is NotFound or empty, and asking makes nothing.",
        _says_what_is_missing,
        probe=False,
    ),
    Check("founded", "The id is what the site's branch said first.", _is_what_it_was_founded_as, probe=False),
    Check("heartbeats", "A node's heartbeat is replaced, and no history.", _replaces_heartbeats, probe=False),
    Check("site", "The site has a branch of its own.", _has_a_site, probe=False),
)
