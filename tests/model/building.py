"""States of runs, made as the ledger makes them: by folding entries."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import DataRef, record_for
from lakemark.model.entries.fold import apply
from lakemark.model.entries.table import settled
from lakemark.model.ledger.entry import Attachments, Draft, Stamp
from lakemark.model.ledger.run import RunState
from lakemark.model.values.instants import to_text

GOLDEN = Path(__file__).parent / "golden"
START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(hours):
    return START + hours * HOUR


def manifest(text="w", *, size_bytes=10):
    return Manifest(files=(File(path="w.npz", size_bytes=size_bytes, digest=text.encode().hex().rjust(64, "0")),))


def data(letter="a", *, repository="data", evidence="opened"):
    return DataRef(repository=repository, branch="main", commit=letter * 64, evidence=evidence)


class Running:
    """One run whose entries are appended one after the other, an hour apart unless said otherwise."""

    def __init__(self, run="r", node="n1"):
        self.state = RunState(run=run)
        self.node = node
        self.entries = []
        self.now = START

    def add(self, kind, *, when=None, node=None, clock="ok", contents=None, **fields):
        self.now = when if when is not None else self.now + HOUR
        names = ("timeline", "record", "reason", "saved_at", "unknown_means")
        drafted = {name: fields.pop(name) for name in names if name in fields}
        drafted.setdefault("timeline", self.state.timeline)
        draft = Draft(kind=kind, contents=contents, body=fields, **drafted)
        sequence = self.state.sequence + 1
        stamp = Stamp(at=self.now, node=node or self.node, actor="ana@n1", request=f"r{sequence}", clock=clock)
        entry = settled(draft, branch=self.state.run, sequence=sequence, stamp=stamp)
        apply(self.state, entry, contents or Attachments())
        self.entries.append(entry)
        return entry

    def open(self, *refs):
        self.add("opened", data=[ref.as_json() for ref in refs or (data(),)])
        return self

    def commit(
        self, step, *, when=None, saved_at=None, metrics=None, refs=None, clock="ok", node=None, text=None, **fields
    ):
        when = when if when is not None else self.now + HOUR
        record = record_for(
            manifest(text or f"{step}"),
            run=self.state.run,
            timeline=fields.get("timeline", self.state.timeline),
            step=step,
            saved_at=saved_at or when,
            node=node or self.node,
        )
        record = replace(
            record,
            data=(data(),) if refs is None else tuple(refs),
            metrics=metrics or {},
            supersedes=fields.pop("supersedes", None),
        )
        self.add(
            "committed", when=when, clock=clock, node=node, contents=Attachments(record=record), tier="hot", **fields
        )
        return self.state.records[record.id]

    def replicate(self, found, tier, *, when=None, node=None):
        when = when or self.now + HOUR
        self.add(
            "replicated",
            when=when,
            record=found.record.id,
            tier=tier,
            node=node,
            verified_at=to_text(when),
            proof="read_back",
        )

    def verify(self, found, tier, *, when=None, node=None, ok=True, suspect=False):
        when = when or self.now + HOUR
        item = {"record": found.record.id, "tier": tier, "node": node, "ok": ok, "suspect": suspect}
        self.add("verified", when=when, items=[item], verified_at=to_text(when))

    def roll_back(self, found):
        fork = {"timeline": found.record.timeline, "step": found.record.step, "record": found.record.id}
        refs = [ref.as_json() for ref in found.record.data]
        self.add(
            "rolled_back", timeline=self.state.timeline + 1, rollback="rb", record=found.record.id, fork=fork, data=refs
        )


def check_golden(name, value):
    """Compares with tests/model/golden/NAME; UPDATE_GOLDEN=1 writes it anew."""
    text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"{name} changed; if that is meant, run with UPDATE_GOLDEN=1 and look at the diff"
