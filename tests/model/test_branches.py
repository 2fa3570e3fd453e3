"""A ledger will be read for years: a branch with every kind of entry as it is written now, read back, and folded."""

import os

import pytest

from lakemark.model.canonical import canonical, parse
from lakemark.model.entry import KINDS, SITE, Means, parsed
from lakemark.model.fold import fold
from lakemark.model.site_ledger import fold_site
from tests.model.branches import RUN, UNKNOWN, line, plain, written
from tests.model.building import GOLDEN, check_golden

FILE = GOLDEN / "branches.jsonl"


def rows():
    return FILE.read_bytes().splitlines()


def read(row):
    value = parse(row)
    return parsed(canonical(value["entry"]), None if value["record"] is None else canonical(value["record"]))


def branch(name):
    return [(entry, contents) for entry, contents in map(read, rows()) if entry.branch == name]


def test_every_entry_is_written_as_it_was():
    if os.environ.get("UPDATE_GOLDEN") == "1":
        FILE.write_bytes(written())
    assert written().splitlines() == rows(), "entries changed; if that is meant, run with UPDATE_GOLDEN=1"


def test_every_kind_is_there_and_one_that_is_none():
    entries = [read(row)[0] for row in rows()]
    assert {entry.kind for entry in entries} == {*KINDS, UNKNOWN}
    for name in (RUN, SITE):
        strange = [entry for entry in entries if entry.branch == name and not entry.known]
        assert [entry.unknown_means for entry in strange] == [*Means, "stop_everything"]
        assert all(entry.extra for entry in strange)
        ordered = [entry.sequence for entry in entries if entry.branch == name]
        assert ordered == list(range(1, len(ordered) + 1))


@pytest.mark.parametrize("number", range(len(written().splitlines())))
def test_every_entry_is_read_and_written_again_byte_for_byte(number):
    row = rows()[number]
    assert line(*read(row)) == row


def test_a_run_s_branch_adds_up():
    state = fold(RUN, branch(RUN))
    assert state.unknown == [UNKNOWN] * 4
    assert all(state.requests.of(entry.request) == [entry.sequence] for entry, _ in branch(RUN))
    check_golden("branches-run.json", plain(state))


def test_the_site_s_branch_adds_up():
    state = fold_site(entry for entry, _ in branch(SITE))
    assert state.unknown == [UNKNOWN] * 4
    assert all(state.requests.of(entry.request) == [entry.sequence] for entry, _ in branch(SITE))
    check_golden("branches-site.json", plain(state))
