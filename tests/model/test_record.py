from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from lakemark.errors import Corrupt
from lakemark.model.checkpoints.record import Code, DataRef, Record, record_for, record_id
from tests.model.building import check_golden, data, manifest


def whole():
    record = record_for(
        manifest(), run="llama-7b", timeline=2, step=300, saved_at=datetime(2026, 11, 26, 12, tzinfo=UTC), node="node-a"
    )
    return replace(
        record,
        data=(data(), data("b", repository="eval", evidence="declared")),
        code=Code(repository="https://example.org/x.git", commit="c" * 40, dirty=None),
        metrics={"val_loss": 1.9, "tokens": 3},
        parent="d" * 64,
        attempt="t1",
    )


def test_golden():
    check_golden("record.json", whole().as_json())


def test_id_is_of_run_timeline_step_and_content_alone():
    record = whole()
    assert record.id == record_id("llama-7b", 2, 300, record.content)
    same = replace(record, data=(), metrics={}, code=None, parent=None, attempt=None, node="x", size_bytes=1)
    assert same.id == record.id
    for change in ({"run": "b"}, {"timeline": 1}, {"step": 301}, {"content": "0" * 64}):
        assert replace(record, **change).id != record.id


def test_round_trip_keeps_unknown_fields():
    value = whole().as_json() | {"from_the_future": [1]}
    value["data"][0]["more"] = 1
    again = Record.from_json(value)
    assert again.as_json() == value


@pytest.mark.parametrize("name", ["run", "timeline", "step", "content"])
def test_fields_of_another_record_are_corrupt(name):
    value = whole().as_json()
    value[name] = {"run": "b", "timeline": 3, "step": 1, "content": "0" * 64}[name]
    with pytest.raises(Corrupt):
        Record.from_json(value)


@pytest.mark.parametrize(
    "change", [{"saved_at": "2026-11-26"}, {"metrics": {"a": "b"}}, {"metrics": {"a": True}}, {"data": [{"kind": "lakefs"}]},
               {"step": "300"}, {"format": "x"}, {"code": {"repository": "x"}}],
)  # fmt: skip
def test_malformed_is_corrupt(change):
    with pytest.raises(Corrupt):
        Record.from_json(whole().as_json() | change)


@given(st.sampled_from(["main", "", "A" * 64, "a" * 63, "a" * 65, "g" * 64]))
def test_a_commit_is_64_hex(commit):
    with pytest.raises(ValueError, match="64 lower-case hex"):
        DataRef(repository="data", commit=commit)


def test_bound():
    record = whole()
    assert record.bound
    assert not replace(record, data=()).bound
    assert not replace(record, data=(data(), data(evidence="ambiguous"))).bound
    assert not replace(record, data=(DataRef(kind="none"),)).bound
    assert replace(record, data=(DataRef(kind="fingerprint", commit="x"),)).bound
