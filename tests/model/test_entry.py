from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from lakemark.errors import Corrupt
from lakemark.model.entries.fold import fold
from lakemark.model.entries.table import KINDS, settled
from lakemark.model.ledger.entry import Attachments, Draft, Entry, Means, Stamp
from tests.model.building import Running, check_golden
from tests.model.test_canonical import texts, values
from tests.model.test_record import whole

STAMP = Stamp(at=datetime(2026, 11, 26, 12, tzinfo=UTC), node="n1", actor="ana@n1", request="commit:1")


def entry():
    record = whole()
    draft = Draft(kind="committed", timeline=2, body={"tier": "hot"}, contents=Attachments(record=record), reason="why")
    return settled(draft, branch="llama-7b", sequence=7, stamp=STAMP)


def test_golden():
    check_golden("entry.json", entry().as_json())


@given(
    st.sampled_from([*KINDS, "sharded", "x"]), st.dictionaries(texts, values, max_size=3),
    st.dictionaries(texts.map(lambda name: "x_" + name), values, max_size=3), st.sampled_from([*Means, "stop_everything"]),
)  # fmt: skip
def test_unknown_kinds_and_fields_survive(kind, body, extra, means):
    value = entry().as_json() | {"kind": kind, "body": body, "unknown_means": str(means)} | extra
    again = Entry.from_json(value)
    assert again.as_json() == value


@pytest.mark.parametrize(
    "change", [{"format": "lakemark.entry/2"}, {"sequence": "1"}, {"kind": None}, {"recorded_at": "2026-11-26T12:00"},
               {"body": []}, {"node": 3}],
)  # fmt: skip
def test_malformed_is_corrupt(change):
    with pytest.raises(Corrupt):
        Entry.from_json(entry().as_json() | change)


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_not_an_object_is_corrupt(value):
    with pytest.raises(Corrupt):
        Entry.from_json(value)


@pytest.mark.parametrize(
    ("means", "blocked"),
    [
        ("ignore", Means.IGNORE),
        ("no_delete", Means.NO_DELETE),
        ("read_only", Means.READ_ONLY),
        ("new", Means.READ_ONLY),
    ],
)
def test_what_an_unknown_kind_stops(means, blocked):
    running = Running().open()
    running.add("sharded", unknown_means=means)
    assert running.state.blocked is blocked
    assert fold("r", [(one, Attachments()) for one in running.entries]).unknown == ["sharded"]


def test_an_instant_of_no_calendar_stops_what_its_kind_means_and_no_reader():
    run = Running().open()
    record = run.commit(1)
    run.add("held", record=record.record.id, reason="a talk", until="0001-01-01T00:00:00+02:00")
    assert (run.state.blocked, run.state.unknown) == (KINDS["held"].unknown_means, ["held"])
    assert run.commit(2).record.id in run.state.records
