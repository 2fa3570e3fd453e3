"""Histories of a run as Hypothesis draws them: clocks go back, timelines fork anywhere, kinds are new or malformed."""

import hashlib
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import DataRef, record_for
from lakemark.model.entries.fold import apply
from lakemark.model.entries.table import settled
from lakemark.model.ledger.entry import Attachments, Draft, Entry, Means, Stamp, parsed
from lakemark.model.ledger.run import RunState
from lakemark.model.values.canonical import canonical
from lakemark.model.values.instants import to_text

START = datetime(2026, 11, 26, tzinfo=UTC)
RUN = "drawn"
TIERS = ("hot", "warm", "cold")

History = list[tuple[Entry, Attachments]]


def manifest(content: int) -> Manifest:
    digest = hashlib.sha256(str(content).encode()).hexdigest()
    return Manifest(files=(File(path="weights", size_bytes=content, digest=digest),))


def stamp(sequence: int, minutes: int, node: str = "node-a") -> Stamp:
    return Stamp(at=START + timedelta(minutes=minutes), node=node, actor="ana", request=f"request-{sequence}")


def row(entry: Entry, contents: Attachments) -> tuple[bytes, bytes | None]:
    record = contents.record
    return canonical(entry.as_json()), None if record is None else canonical(record.as_json())


def settle(draft: Draft, sequence: int, at: Stamp) -> tuple[Entry, Attachments]:
    """The entry as a ledger would give it back."""
    entry = settled(draft, branch=RUN, sequence=sequence, stamp=at)
    return parsed(*row(entry, draft.contents or Attachments()))


@st.composite
def histories(draw, longest: int = 40) -> History:
    state = RunState(run=RUN)
    found: History = []
    for sequence in range(1, draw(st.integers(1, longest)) + 1):
        minutes = 10 * sequence + draw(st.sampled_from([0, 0, 0, -15, -60, 45]))
        draft = Draft(kind="opened", timeline=1) if sequence == 1 else draw(drafts(state, minutes))
        entry, contents = settle(draft, sequence, stamp(sequence, minutes))
        apply(state, entry, contents)
        found.append((entry, contents))
    return found


def drafts(state: RunState, minutes: int):
    kinds = [commits(state, minutes)] * 3 + [forks(state), runs_own(state), strange()]
    if state.records:
        kinds += [of_one(state)] * 2 + [in_bulk(state)]
    return st.one_of(kinds)


@st.composite
def commits(draw, state: RunState, minutes: int) -> Draft:
    timeline = draw(st.sampled_from([state.timeline, state.timeline, *state.timelines]))
    steps = [row[0] for row in state.by_step.get(timeline, ())]
    step = draw(st.sampled_from([max(steps, default=0) + 10, *steps, 5, 15]))
    content = manifest(draw(st.integers(0, 10_000)))
    saved_at = START + timedelta(minutes=minutes - draw(st.sampled_from([0, 1, 30, -5])))
    record = record_for(content, run=RUN, timeline=timeline, step=step, saved_at=saved_at, node="node-a")
    others = [found.record.id for found in state.records.values() if found.record.step == step]
    body = {"tier": "hot"}
    if others and draw(st.booleans()):
        record = record_for(content, run=RUN, timeline=timeline, step=step, saved_at=saved_at, node="node-a")
        object.__setattr__(record, "supersedes", draw(st.sampled_from(others)))
    elif others and draw(st.booleans()):
        body |= {"conflicts_with": others[0]}
    if draw(st.integers(0, 9)) == 0:
        body |= {"ambiguous": True}
    return Draft(kind="committed", timeline=timeline, contents=Attachments(record=record, manifest=content), body=body)


@st.composite
def forks(draw, state: RunState) -> Draft:
    timeline = max(state.timelines) + 1
    record = draw(st.sampled_from([None, *state.records.values()]))
    origin = draw(st.sampled_from(list(state.timelines))) if record is None else record.record.timeline
    step, name = (0, "") if record is None else (record.record.step, record.record.id)
    fork = {"timeline": origin, "step": step, "record": name}
    kind = draw(st.sampled_from(["resumed", "rolled_back"]))
    body = {"fork": fork, "attempt": f"attempt-{timeline}", "rollback": "r"}
    if kind == "resumed":
        body |= {"inferred": draw(st.booleans()), "recovered": draw(st.integers(0, 9)) == 0}
    # Somebody says that a timeline goes on, be it in doubt or current.
    if kind == "resumed" and draw(st.integers(0, 3)) == 0:
        timeline, body["fork"] = draw(st.sampled_from(list(state.timelines))), None
    return Draft(kind=kind, timeline=timeline, body=body)


@st.composite
def of_one(draw, state: RunState) -> Draft:
    record = draw(st.sampled_from(list(state.records.values()))).record
    kind = draw(
        st.sampled_from(
            ["replicated", "held", "released_hold", "quarantined", "unpruned", "bound", "bound without record"]
        )
    )
    body = {"tier": draw(st.sampled_from(TIERS)), "node": draw(st.sampled_from([None, "node-a"]))}
    contents = None
    if kind.startswith("bound"):
        data = (DataRef(repository="data", commit=draw(st.sampled_from("ab")) * 64),)
        body = {"data": [data[0].as_json()]}
        contents = Attachments(record=record.with_data(data)) if kind == "bound" else None
    if kind == "held":
        body = {"until": draw(st.sampled_from([None, to_text(START)]))}
    return Draft(kind=kind.split()[0], timeline=record.timeline, record=record.id, body=body, contents=contents)


@st.composite
def in_bulk(draw, state: RunState) -> Draft:
    chosen = draw(st.lists(st.sampled_from(sorted(state.records)), max_size=3))
    kind = draw(st.sampled_from(["released", "verified", "pruned", "drilled"]))
    items = [
        {
            "record": record,
            "tier": draw(st.sampled_from(TIERS)),
            "node": draw(st.sampled_from([None, "node-a"])),
            "ok": draw(st.booleans()),
            "suspect": draw(st.booleans()),
            "reasons": ["policy"],
        }
        for record in chosen
    ]
    return Draft(kind=kind, timeline=state.timeline, body={"items": items})


@st.composite
def runs_own(draw, state: RunState) -> Draft:
    kind = draw(
        st.sampled_from(["attempt", "closed", "reopened", "opened", "bound", "rollback_requested", "rollback_approved"])
    )
    body = {
        "attempt": f"attempt-{draw(st.integers(0, 3))}",
        "rollback": draw(st.sampled_from(["r", "s"])),
        "data": [{"repository": "data", "commit": draw(st.sampled_from("ab")) * 64}],
    }
    if kind == "attempt":
        body["in_doubt"] = draw(st.booleans())
    return Draft(kind=kind, timeline=draw(st.sampled_from(list(state.timelines))), body=body)


@st.composite
def strange(draw) -> Draft:
    """Of a newer version, or of a known kind and not to be read."""
    if draw(st.booleans()):
        return Draft(kind="dreamt", unknown_means=draw(st.sampled_from(Means)))
    malformed = [
        Draft(kind="opened", timeline=1, body={"data": [{"repository": "data", "commit": "short"}]}),
        Draft(kind="held", timeline=1, record="0" * 64, body={"until": "yesterday"}),
        Draft(kind="rolled_back", timeline=99, body={"fork": {"timeline": "one"}}),
        Draft(kind="verified", timeline=1, body={"items": [None, {"record": 3}], "verified_at": "never"}),
    ]
    return draw(st.sampled_from(malformed))
