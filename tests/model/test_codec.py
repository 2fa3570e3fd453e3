"""What is read and written by types: every kind of entry and every format, right and wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Annotated

import pytest
from hypothesis import given, settings, strategies as st

from lakemark.errors import Corrupt
from lakemark.model.back.rollback_plan import Affected, Flags, GivesUp, PlanData, PlanTarget, RollbackPlan
from lakemark.model.checkpoints.parts import Facts
from lakemark.model.checkpoints.record import Code, DataRef, Record
from lakemark.model.entries.fold import apply, apply_site, foreseen
from lakemark.model.entries.kind import OnBranch
from lakemark.model.entries.table import KINDS
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.copies import Sent
from lakemark.model.ledger.entry import Attachments, Entry, Signer
from lakemark.model.ledger.run import Fork
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.canonical import canonical, parse
from lakemark.model.values.codec import LEFT_OUT, PASSED_OVER, REQUIRED, Coded, Size, read, write
from tests.model.building import Running
from tests.model.test_branches import read as entry_and_record, rows
from tests.model.types_drawn import anything, like, of, whole

FORMATS = [
    Affected, Code, DataRef, Entry, Facts, Flags, Fork, GivesUp, Heartbeat, PlanData, PlanTarget, Record, RollbackPlan, Sent,
    Signer,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_the_body_of_every_kind_is_read_as_it_was_written(kind, data):
    body = data.draw(of(KINDS[kind].body))
    assert read(type(body), parse(canonical(write(body)))) == body


@pytest.mark.parametrize("cls", FORMATS)
@settings(max_examples=10)
@given(st.data())
def test_every_format_is_read_as_it_was_written(cls, data):
    value = data.draw(whole(cls))
    text = canonical(value.as_json())
    again = cls.from_json(parse(text))
    assert again == value
    assert canonical(again.as_json()) == text


@pytest.mark.parametrize("cls", [*FORMATS, *dict.fromkeys(kind.body for kind in KINDS.values())])
@settings(max_examples=10)
@given(st.data())
def test_anything_else_is_a_value_error_or_corrupt(cls, data):
    value = data.draw(anything | like(cls))
    try:
        found = cls.from_json(value)
    except (ValueError, Corrupt):
        return
    assert isinstance(found, cls)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data())
def test_no_body_stops_a_fold(kind, data):
    """Whoever may append may say anything: what can't be read counts as its kind's `unknown_means` says."""
    running = Running().open()
    record = running.commit(1).record
    body = data.draw(like(KINDS[kind].body) | of(KINDS[kind].body).map(write))
    entry = replace(running.entries[-1], kind=kind, body=body, record=record.id, sequence=running.state.sequence + 1)
    before, state, site = running.state.snapshot(), running.state, SiteState()
    try:
        foreseen(state, entry, Attachments())
        understood = True
    except ValueError:
        understood = False
    assert state == before
    apply(state, entry, Attachments())
    if not understood:
        assert state.unknown == [kind]
        assert replace(
            state, unknown=[], blocked=before.blocked, sequence=0, requests=before.requests, clocks=before.clocks
        ) == (replace(before, sequence=0)), "what can't be read does not do half of it"
    apply_site(site, entry, Attachments())
    assert site.unknown in ([], [kind])


def test_a_kind_is_found_by_its_name_and_does_something_where_it_belongs():
    for name, kind in KINDS.items():
        assert kind.name == name
        assert kind.on_site is None or kind.branch is not OnBranch.RUN, name
        assert (kind.on_run or kind.with_record) is None or kind.branch is not OnBranch.SITE, name


def test_a_body_has_every_key_that_is_written():
    lacking = {
        (entry.kind, key)
        for entry, _ in map(entry_and_record, rows())
        if entry.kind in KINDS
        for key in entry.body.keys() - {field.name.removesuffix("_") for field in fields(KINDS[entry.kind].body)}
    }
    assert lacking == set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner(Coded):
    size: Size
    from_: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Coded, what="an outer", document="outer/1"):
    inner: Inner
    name: str = field(default="n", metadata=REQUIRED)
    rest: tuple[Inner, ...] = field(default=(), metadata=LEFT_OUT)
    pair: tuple[str, int] = ("a", 1)
    by_name: Mapping[str, float | None] = field(default_factory=dict)
    at: datetime | None = None
    seconds: Annotated[float | None, PASSED_OVER] = None
    extra: Mapping[str, object] = field(default_factory=dict)


RIGHT = {"format": "outer/1", "inner": {"size": 1}, "name": "n"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "outer/2"}, "an outer: it has the format 'outer/2'; this version reads 'outer/1'"),
        ({"name": None}, "an outer: name: it is missing"),
        ({"inner": {}}, "an outer: inner.size: it is missing"),
        ({"inner": [1]}, "an outer: inner: a list is not an object"),
        ({"inner": {"size": True}}, "an outer: inner.size: True is not a whole number"),
        ({"inner": {"size": -1}}, "an outer: inner.size: it is -1, not a whole number from 0"),
        ({"rest": "text"}, "an outer: rest: 'text' is not a list"),
        ({"rest": [{"size": 1}, {"size": 1, "from": 3}]}, r"an outer: rest\[1\].from: 3 is not text"),
        ({"pair": ["a"]}, "an outer: pair: a list has not 2 items"),
        ({"pair": ["a", 1, 2]}, "an outer: pair: a list has not 2 items"),
        ({"by_name": {"x": "y"}}, r"an outer: by_name\['x'\]: 'y' is not a finite number"),
        ({"by_name": {"x": float("inf")}}, "inf is not a finite number"),
        ({"by_name": {"x": 10**400}}, "is not a whole number that JSON keeps exact"),
        ({"at": "yesterday"}, "an outer: at: 'yesterday' is not an ISO 8601 instant"),
        ({"at": "0001-01-01T00:00:00Z"}, "an outer: at: .* is not within the years"),
    ],
)
def test_an_error_names_the_key_the_value_and_the_rule(change, said):
    with pytest.raises(ValueError, match=said):
        Outer.from_json(RIGHT | change)


def test_what_may_be_absent_and_what_is_kept():
    found = Outer.from_json(RIGHT | {"seconds": "long", "at": None, "by_name": {"x": None}, "new": [None]})
    assert found == Outer(inner=Inner(size=1), by_name={"x": None}, extra={"new": [None]})
    assert found.as_json() == RIGHT | {
        "inner": {"size": 1, "from": None},
        "pair": ["a", 1],
        "by_name": {"x": None},
        "at": None,
        "seconds": None,
        "new": [None],
    }
    full = replace(found, rest=(Inner(size=2, from_="y"),), at=datetime(2026, 11, 26, tzinfo=UTC))
    assert full.as_json()["rest"] == [{"size": 2, "from": "y"}]
    assert Outer.from_json(full.as_json()) == full


def test_what_is_nested_deeply_is_no_other_error():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="a list is not text"):
        Outer.from_json(RIGHT | {"name": deep})
    with pytest.raises(ValueError, match="an object is not text"):
        Outer.from_json(RIGHT | {"name": {"a": deep}})
    while deep:  # unwound by hand: the interpreter's own way out is as deep
        deep = deep.pop()
