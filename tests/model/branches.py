"""A run's branch and the site's with an entry of every kind, and what each of them adds up to as plain JSON."""

import dataclasses
from collections.abc import Mapping
from datetime import datetime

from lakemark.model.canonical import canonical
from lakemark.model.entry import SITE, Contents, Draft, Entry, Means, Stamp, settled
from lakemark.model.instants import to_text
from lakemark.model.record import DataRef, Record, record_for
from lakemark.model.requests import Requests
from tests.model.building import at, data, manifest

RUN = "llama-7b"
HOT = {"tier": "hot", "node": "node-a"}
WARM = {"tier": "warm", "node": None}
UNKNOWN = "reviewed"
DVC = DataRef(kind="dvc", repository="corpus", commit="3f" * 16, extra={"path": "train.dvc"})


def record_at(step, *, timeline=1, parent=None):
    found = record_for(
        manifest(str(step)), run=RUN, timeline=timeline, step=step, saved_at=at(step / 100), node="node-a"
    )
    return dataclasses.replace(found, data=(data(),), metrics={"val_loss": 2.5}, parent=parent, attempt="a1")


FIRST = record_at(100)
SECOND = record_at(200, parent=FIRST.id)
THIRD = dataclasses.replace(record_at(300, parent=SECOND.id), extra={"added_later": [1, None]})
FORK = {"timeline": 1, "step": 100, "record": FIRST.id}


def _committed(record):
    body = {"attempt": "a1", "supersedes": None, "conflicts_with": None, "linked": True, "source": "/out", **HOT}
    return Draft(kind="committed", timeline=1, body=body, contents=Contents(record=record), saved_at=record.saved_at)


def _one(kind, record, *, reason=None, timeline=1, **body):
    return Draft(kind=kind, timeline=timeline, body=body, record=record.id, reason=reason)


def _run(kind, *, timeline=1, **body):
    return Draft(kind=kind, timeline=timeline, body=body)


def _strange():
    return [
        *(Draft(kind=UNKNOWN, timeline=1, body={"stars": 5}, unknown_means=means) for means in Means),
        Draft(kind=UNKNOWN, timeline=1, body={"stars": [5, {"of": None}]}, unknown_means="stop_everything"),
    ]


_ASKED = {"rollback": "r1", "plan": {"to": 100}, "digest": "d" * 64, "requester": "ana@node-a"}
_BOUND = FIRST.with_data((DVC, data("b", evidence="declared")))
_PART = {"attempt": "a1", "step": 300, "ordinal": 0}
OF_RUN = [
    _run("opened", data=[data().as_json()], parent=None, parts=1, watch={"node-a": "/out"}),
    _run("attempt", attempt="a1", job="17", directory="/out", data=[data().as_json()]),
    _run("part_sealed", **_PART),
    _run("part_replicated", **_PART, tier="warm"),
    *map(_committed, (FIRST, SECOND, THIRD)),
    Draft(
        kind="bound",
        timeline=1,
        body={"data": [ref.as_json() for ref in _BOUND.data]},
        record=FIRST.id,
        contents=Contents(record=_BOUND),
        reason="the log says so",
    ),
    *(
        _one("replicated", one, **WARM, linked=False, proof="checksum", verified_at=to_text(at(9)))
        for one in (FIRST, SECOND)
    ),
    _run("verified", items=[{"record": FIRST.id, **WARM, "ok": True}], verified_at=to_text(at(10))),
    _run(
        "verified",
        items=[{"record": SECOND.id, **WARM, "ok": False, "damaged": ["w.npz"], "suspect": False}],
        verified_at=to_text(at(11)),
    ),
    _run("drilled", items=[{"record": FIRST.id, "tier": "warm", "ok": True, "restored_seconds": 3, "data_ok": True}]),
    _run(
        "released",
        items=[{"record": FIRST.id, **HOT, "survivor": "warm", "survivor_verified_at": to_text(at(10)), "why": "age"}],
    ),
    _one("held", FIRST, reason="the paper", until=to_text(at(99))),
    _one("held", SECOND, reason="for now", until=None),
    _one("released_hold", SECOND),
    _one("quarantined", THIRD, reason="loss spike"),
    _run("pruned", items=[{"record": one.id, "reasons": ["old"], "thinned": False} for one in (SECOND, THIRD)]),
    _one("unpruned", SECOND),
    _run("rollback_requested", **_ASKED, expires_at=to_text(at(48)), flow_run=None),
    _run("rollback_approved", rollback="r1", digest="d" * 64, by="bob@node-b", alone=False),
    _run("rollback_requested", **_ASKED | {"rollback": "r2"}, expires_at=to_text(at(48)), flow_run="f7"),
    _run("rollback_refused", rollback="r2", by="bob@node-b", expired=False),
    _one(
        "rolled_back",
        FIRST,
        timeline=2,
        rollback="r1",
        fork=FORK,
        data=[data("b").as_json()],
        checkpoint_dir="/restores/1",
    ),
    _run(
        "branch_moved",
        timeline=2,
        rollback="r1",
        digest="d" * 64,
        moves=[
            {"repository": "data", "branch": "main", "from": "c" * 64, "commit": "b" * 64, "made": "e" * 64},
        ],
    ),
    _one(
        "resumed",
        FIRST,
        timeline=3,
        attempt="a2",
        job="18",
        directory="/out",
        fork=FORK,
        moved_aside=["/out/step-200"],
        inferred=False,
    ),
    _one("replica_refused", SECOND, tier="cold", node=None, why="another file has its name there"),
    _run("closed", timeline=3),
    _run("reopened", timeline=3),
    _run("data_lost", timeline=3, items=[{"record": THIRD.id, **HOT, "why": "hot of node-a is ephemeral"}]),
    _run("tier_renamed", timeline=3, tier="warm", to="array", node=None, items=[{"record": SECOND.id}]),
    _run("node_renamed", timeline=3, node="node-a", to="node-c", items=[{"record": one.id} for one in (FIRST, SECOND)]),
    _run("ledger_recovered", timeline=3, **{"from": ["the copy in cold"]}, entries=2, records=1, missing=[]),
    *_strange(),
]
_COMMIT = {"repository": "data", "commit": "a" * 64}
_PIN = _COMMIT | {"pin": "lakemark-pin-1"}
OF_SITE = [
    *(
        _run("tier_registered", timeline=0, tier=name, id=letter * 32, domain=name, tier_kind=kind, **{"class": name})
        for name, letter, kind in (("hot", "1", "tree"), ("warm", "2", "s3"), ("cold", "3", "directory"))
    ),
    _run("tier_retired", timeline=0, tier="cold", id="3" * 32),
    _run("node_seen", timeline=0, node="node-a"),
    _run("node_seen", timeline=0, node="node-b"),
    _run("node_retired", timeline=0, node="node-b"),
    _run("tier_renamed", timeline=0, tier="warm", to="array", id="2" * 32, node=None),
    _run("node_renamed", timeline=0, node="node-a", to="node-c"),
    _run(
        "branch_observed",
        timeline=0,
        **_COMMIT,
        branch="main",
        previous=None,
        observed_at=to_text(at(1)),
        last_looked_at=None,
    ),
    _run(
        "branch_observed",
        timeline=0,
        **_COMMIT | {"commit": None},
        branch="main",
        previous="a" * 64,
        observed_at=to_text(at(3)),
        last_looked_at=to_text(at(2)),
    ),
    dataclasses.replace(_run("data_quarantined", timeline=0, **_COMMIT), reason="duplicated rows"),
    _run("pinned", timeline=0, **_PIN, nonce="n1", run=RUN),
    _run("pinned", timeline=0, **_PIN | {"pin": "lakemark-pin-2"}, nonce="n2", run=RUN),
    _run("unpinning", timeline=0, **_PIN),
    _run("unpinned", timeline=0, **_PIN),
    _run("unpinning", timeline=0, **_PIN | {"pin": "lakemark-pin-2"}),
    _run("alias_set", timeline=0, alias="best", run=RUN, record=FIRST.id),
    *_strange(),
]


def lines(branch, drafts):
    """Each entry and its record as this version writes them, one canonical JSON a line."""
    for number, draft in enumerate(drafts, 1):
        clock = ("ok", "suspect", "simulated")[number % 3]
        stamp = Stamp(at=at(number), node="node-a", actor="ana@node-a", request=f"{draft.kind}:{number}", clock=clock)
        entry = settled(draft, branch=branch, sequence=number, stamp=stamp)
        if draft.kind == UNKNOWN:
            entry = dataclasses.replace(entry, extra={"seal": {"by": ["x", 1.5, True]}, "ünseen": None})
        yield line(entry, draft.contents or Contents())


def line(entry: Entry, contents: Contents) -> bytes:
    record = contents.record
    return canonical({"entry": entry.as_json(), "record": None if record is None else record.as_json()})


def written() -> bytes:
    """The golden file: the run's branch, then the site's."""
    return b"".join(one + b"\n" for one in [*lines(RUN, OF_RUN), *lines(SITE, OF_SITE)])


def plain(value):
    """A state as JSON: fields by name, keys that are no text as their values joined by a slash."""
    if isinstance(value, DataRef | Record):
        return value.as_json()
    if isinstance(value, Requests):
        return len(value)
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(one) for one in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return to_text(value) if isinstance(value, datetime) else value


def _key(key):
    parts = dataclasses.astuple(key) if dataclasses.is_dataclass(key) else key
    return "/".join(str(part) for part in parts) if isinstance(parts, tuple) else str(parts)
