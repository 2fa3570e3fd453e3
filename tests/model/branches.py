"""A run's branch and the site's with an entry of every kind, and what each of them adds up to as plain JSON."""

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256

from lakemark.model.checkpoints.record import DataRef, Record, record_for
from lakemark.model.entries.table import KINDS, settled
from lakemark.model.ledger.entry import SITE, Attachments, Draft, Entry, Means, Signer, Stamp
from lakemark.model.ledger.requests import Requests
from lakemark.model.values.canonical import canonical
from lakemark.model.values.instants import to_text
from lakemark.model.values.persistent import Rows
from tests.model.building import at, data, manifest

RUN = "llama-7b"
HOT = {"tier": "hot", "node": "node-a"}
WARM = {"tier": "warm", "node": None}
UNKNOWN = "reviewed"
DVC = DataRef(kind="dvc", repository="corpus", commit="3f" * 16, path="train.dvc")


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
    body = {"attempt": "a1", "linked": True, "source": "/out", "notes": ["weights only"], **HOT}
    body |= {"landed_seconds": 0.125, "size_bytes": record.size_bytes}
    return _typed("committed", body, timeline=1, contents=Attachments(record=record), saved_at=record.saved_at)


def _one(kind, record, *, reason=None, timeline=1, contents=None, **body):
    return _typed(kind, body, timeline=timeline, record=record.id, reason=reason, contents=contents)


def _run(kind, *, timeline=1, **body):
    return _typed(kind, body, timeline=timeline)


def _typed(kind, body, **more):
    """As services write it: by the kind's own body, which must have all these keys."""
    made = KINDS[kind]
    names = {one.name.removesuffix("_") for one in dataclasses.fields(made.body)}
    assert body.keys() <= names, body.keys() - names
    return made.draft(made.body.from_json(body), **more)


def _strange():
    return [
        *(Draft(kind=UNKNOWN, timeline=1, body={"stars": 5}, unknown_means=means) for means in Means),
        Draft(kind=UNKNOWN, timeline=1, body={"stars": [5, {"of": None}]}, unknown_means="stop_everything"),
    ]


_ASKED = {"rollback": "r1", "plan": {"to": 100}, "digest": "d" * 64, "requester": "ana@node-a"}
_BOUND = FIRST.with_data((DVC, data("b", evidence="declared")))
_MEASURED = dataclasses.replace(_BOUND, metrics={**_BOUND.metrics, "mmlu": 0.25})
_DRILL = {
    "drill": "d1",
    "record": FIRST.id,
    "node": "node-a",
    "tier": "warm",
    "restored_seconds": 3,
    "ready_seconds": 4.5,
    "size_bytes": 15,
    "tree_digest": "9" * 64,
    "objects_sampled": 2,
    "data_ok": True,
    "probe": {"exit": 0, "digest": "8" * 64},
    "ok": True,
}
_FAN_OUT = {
    "data": {"repository": "data", "commit": "a" * 64},
    "items": [
        {"record": SECOND.id, "relation": "trained_with", "why": "it read that commit"},
        {"record": THIRD.id, "relation": "resumed_from", "why": "it goes on from step 200"},
    ],
}
_PRUNE = {"prune": "p1", "plan": {"remove": 3}, "digest": "e" * 64}
_PART = {"attempt": "a1", "step": 300, "ordinal": 0}
OF_RUN = [
    _run("opened", data=[data().as_json()], parent=None, parts=1, watch={"node-a": "/out"}),
    _run("attempt", attempt="a1", job="17", directory="/out", data=[data().as_json()]),
    _run("part_sealed", **_PART),
    _run("part_replicated", **_PART, tier="warm"),
    *map(_committed, (FIRST, SECOND, THIRD)),
    _one(
        "bound",
        FIRST,
        data=[ref.as_json() for ref in _BOUND.data],
        contents=Attachments(record=_BOUND),
        reason="the log says so",
    ),
    *(
        _one("replicated", one, **WARM, linked=False, proof="checksum", verified_at=to_text(at(9)))
        for one in (FIRST, SECOND)
    ),
    _one(
        "replicated",
        THIRD,
        tier="cold",
        node=None,
        part=1,
        proof="read_back",
        verified_at=to_text(at(9)),
        replicated_seconds=2.25,
        size_bytes=15,
    ),
    _run("verified", items=[{"record": FIRST.id, **WARM, "ok": True}], verified_at=to_text(at(10))),
    _run(
        "verified",
        items=[{"record": SECOND.id, **WARM, "ok": False, "damaged": ["w.npz"], "suspect": False}],
        verified_at=to_text(at(11)),
    ),
    _run("drilled", items=[_DRILL, _DRILL | {"drill": "d2", "tier": "cold", "ok": False}]),
    _one(
        "metric_added",
        FIRST,
        reason="the evaluation of Monday",
        metrics={"mmlu": 0.25},
        contents=Attachments(record=_MEASURED),
    ),
    _one(
        "restored",
        FIRST,
        to="/mnt/look",
        roles=["weights"],
        sources=[WARM | {"files": 2}],
        restored_seconds=1.5,
        size_bytes=30,
    ),
    _run(
        "released",
        items=[{"record": FIRST.id, **HOT, "survivor": "warm", "survivor_verified_at": to_text(at(10)), "why": "age"}],
    ),
    _one("held", FIRST, reason="the paper", until=to_text(at(99))),
    _one("held", SECOND, reason="for now", until=None),
    _one("released_hold", SECOND),
    _one("quarantined", THIRD, reason="loss spike"),
    _one("quarantined", SECOND, reason="by mistake"),
    _one("quarantine_lifted", SECOND, reason="it was another"),
    dataclasses.replace(_run("quarantined", **_FAN_OUT), reason="duplicated rows"),
    dataclasses.replace(_run("quarantine_lifted", **_FAN_OUT), reason="they were not"),
    _run(
        "pruned",
        plan="e" * 64,
        policy="f" * 64,
        freed_bytes={"warm": 30, "hot": 15},
        items=[
            {
                "record": one.id,
                "reasons": ["old"],
                "thinned": False,
                "unexpected": one is THIRD,
                "frees_bytes": {"warm": 15},
            }
            for one in (SECOND, THIRD)
        ],
    ),
    _one("unpruned", SECOND),
    _run("prune_requested", **_PRUNE, requester="ana@node-a", expires_at=to_text(at(48)), flow_run=None),
    _run("prune_approved", prune="p1", digest="e" * 64, by="bob@node-b", alone=False),
    _run("prune_refused", prune="p2", by="bob@node-b", expired=True),
    _run("rollback_requested", **_ASKED, expires_at=to_text(at(48)), flow_run=None),
    dataclasses.replace(
        _run("rollback_approved", rollback="r1", digest="d" * 64, by="bob@node-b", alone=False),
        signer=Signer(name="bob", key="SHA256:" + "k" * 43, signed="d" * 64, signature="-----BEGIN SSH SIGNATURE-----"),
    ),
    _run("rollback_reviewed", rollback="r1", by="cyd@node-b"),
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
        inferred=False,
    ),
    _one("replica_refused", SECOND, tier="cold", node=None, why="another file has its name there"),
    _run("attempt_ended", timeline=3, attempt="a1", cause="unknown", noticed_by="idle"),
    _run("attempt_ended", timeline=3, attempt="a1", cause="node", noticed_by="resumed"),
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
_POLICY = '{"default":{"keep_last":5}}'
OF_SITE = [
    _run("founded", timeline=0, id="5111ba71-c267-42cf-8c07-8b5d00b213d2", site="laptop"),
    _run("policy_set", timeline=0, policy=sha256(_POLICY.encode()).hexdigest(), text=_POLICY),
    dataclasses.replace(
        _run("muted", timeline=0, problem="overdue:llama-7b", until=to_text(at(99))), reason="it waits for a disk"
    ),
    *(
        _run("tier_registered", timeline=0, tier=name, id=letter * 32, domain=name, tier_kind=kind, **{"class": name})
        for name, letter, kind in (("hot", "1", "tree"), ("warm", "2", "s3"), ("cold", "3", "directory"))
    ),
    _run("tier_moved", timeline=0, tier="cold", id="3" * 32, node=None),
    _run("tier_retired", timeline=0, tier="cold", id="3" * 32),
    _run("node_seen", timeline=0, node="node-a", version="0.1.0", level=1, address="10.0.0.7"),
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
    dataclasses.replace(_run("data_quarantined", timeline=0, **_COMMIT | {"commit": "b" * 64}), reason="by mistake"),
    dataclasses.replace(
        _run("data_quarantine_lifted", timeline=0, **_COMMIT | {"commit": "b" * 64}), reason="it was another"
    ),
    _run("ledger_recovered", timeline=0, **{"from": ["the copy in cold"]}, entries=1, records=0, missing=[]),
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
        yield line(entry, draft.contents or Attachments())


def line(entry: Entry, contents: Attachments) -> bytes:
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
    if isinstance(value, list | tuple | Rows):
        return [plain(one) for one in value]
    return to_text(value) if isinstance(value, datetime) else value


def _key(key):
    parts = dataclasses.astuple(key) if dataclasses.is_dataclass(key) else key
    return "/".join(str(part) for part in parts) if isinstance(parts, tuple) else str(parts)
