from datetime import UTC, datetime

import pytest

from lakemark.model.entries.table import settled
from lakemark.model.ledger.entry import Draft, Entry, Signer, Stamp
from lakemark.model.ledger.measures import MOST_SECONDS, measures, told as said

STAMP = Stamp(at=datetime(2026, 11, 26, 12, tzinfo=UTC), node="n1", actor="ana@n1", request="r")


def entry(**body):
    return settled(Draft(kind="replicated", timeline=1, body=body), branch="r", sequence=1, stamp=STAMP)


def told(**body):
    return [(one.work, one.seconds, one.size_bytes) for one in measures(entry(**body))]


def test_what_was_measured_is_read_back():
    assert told(landed_seconds=said(1.23456), size_bytes=7) == [("landed", 1.235, 7)]
    assert told(saved_seconds=2, landed_seconds=0.5, size_bytes=7) == [("saved", 2.0, 7), ("landed", 0.5, 7)]
    assert told() == []


def test_what_is_measured_of_each_item_is_read_with_its_node():
    items = [{"node": "n2", "restored_seconds": 3, "size_bytes": 5}, "?", {"ready_seconds": 4}]
    found = list(measures(entry(items=items)))
    assert [(one.work, one.node, one.size_bytes) for one in found] == [("restored", "n2", 5), ("ready", "n1", None)]


@pytest.mark.parametrize("seconds", [-0.001, MOST_SECONDS + 1, True, "1", None, float("nan"), float("inf")])
def test_out_of_bounds_is_passed_over(seconds):
    assert told(landed_seconds=seconds, size_bytes=7) == []


@pytest.mark.parametrize("size", [-1, 2**53, True, 1.5, "7"])
def test_bytes_out_of_bounds_are_not_told(size):
    assert told(landed_seconds=0, size_bytes=size) == [("landed", 0.0, None)]


def test_whoever_measures_stays_within_the_bounds():
    assert said(-3.0) == 0
    assert said(MOST_SECONDS * 2) == MOST_SECONDS


def test_an_entry_carries_its_signer():
    signer = Signer(name="bo", key="SHA256:x", signed="d" * 64, signature="-----BEGIN")
    signed = settled(Draft(kind="rollback_approved", signer=signer), branch="r", sequence=1, stamp=STAMP)
    assert Entry.from_json(signed.as_json()) == signed
    assert Entry.from_json(signed.as_json()).signer == signer
    assert "signer" not in entry().as_json()


@pytest.mark.parametrize(
    "change", [{"name": ""}, {"key": 3}, {"signature": "x" * (2**14 + 1)}, {"signed": None}],
)  # fmt: skip
def test_a_signer_out_of_bounds_is_none(change):
    value = {"name": "bo", "key": "SHA256:x", "signed": "d", "signature": "s"}
    with pytest.raises(ValueError, match=next(iter(change))):
        Signer.from_json(value | change)
