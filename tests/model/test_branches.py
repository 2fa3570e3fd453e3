"""A ledger will be read for years: a branch with every kind of entry as it is written now, read back, and folded."""

import dataclasses
import os

import pytest

from lakemark.model.entries.fold import fold, fold_site
from lakemark.model.entries.table import KINDS
from lakemark.model.ledger.entry import SITE, Attachments, Means, parsed
from lakemark.model.values.canonical import canonical, parse
from tests.model.branches import RUN, UNKNOWN, line, plain, written
from tests.model.building import GOLDEN, check_golden

FILE = GOLDEN / "branches.jsonl"
NULLS = GOLDEN / "branches-nulls.jsonl"
"""The same as it was written when keys that say nothing were written, too."""
NOT_ACTED_ON_YET = {
    RUN: {"part_sealed", "part_replicated", "prune_requested", "prune_approved", "prune_refused"},
    SITE: {"tier_moved"},
}


def rows(file=FILE):
    return file.read_bytes().splitlines()


def read(row):
    value = parse(row)
    return parsed(canonical(value["entry"]), None if value["record"] is None else canonical(value["record"]))


def branch(name, file=FILE):
    return [(entry, contents) for entry, contents in map(read, rows(file)) if entry.branch == name]


def test_every_entry_is_written_as_it_was():
    if os.environ.get("UPDATE_GOLDEN") == "1":
        FILE.write_bytes(written())
    assert written().splitlines() == rows(), "entries changed; if that is meant, run with UPDATE_GOLDEN=1"


def test_every_kind_is_there_and_one_that_is_none():
    entries = [read(row)[0] for row in rows()]
    assert {entry.kind for entry in entries} == {*KINDS, UNKNOWN}
    for name in (RUN, SITE):
        strange = [entry for entry in entries if entry.branch == name and entry.kind not in KINDS]
        assert [entry.unknown_means for entry in strange] == [*Means, "stop_everything"]
        assert all(entry.extra for entry in strange)
        ordered = [entry.sequence for entry in entries if entry.branch == name]
        assert ordered == list(range(1, len(ordered) + 1))


def test_every_kind_is_on_the_branches_it_belongs_to():
    seen = {kind: {row.branch for row, _ in map(read, rows()) if row.kind == kind} for kind in KINDS}
    wanted = {"run": {RUN}, "site": {SITE}, "both": {RUN, SITE}}
    assert seen == {kind: wanted[KINDS[kind].branch] for kind in KINDS}


def test_what_each_kind_stops_where_it_is_not_known_is_written_with_it():
    entries = [read(row)[0] for row in rows()]
    assert {(entry.kind, entry.unknown_means) for entry in entries if entry.kind in KINDS} == {
        (name, str(kind.unknown_means)) for name, kind in KINDS.items()
    }


@pytest.mark.parametrize("kind", [*sorted(NOT_ACTED_ON_YET[RUN]), *sorted(NOT_ACTED_ON_YET[SITE]), "muted", "closed"])
@pytest.mark.parametrize("where", [RUN, SITE])
def test_a_known_kind_that_is_not_acted_on_counts_as_it_says(kind, where):
    """Reserved for later, or on a branch on which it means nothing: never passed over in silence."""
    entry = next(entry for entry, _ in map(read, rows()) if entry.kind == kind)
    state = fold(RUN, [(entry, Attachments())]) if where == RUN else fold_site([entry])
    acted = kind not in NOT_ACTED_ON_YET[where] and KINDS[kind].branch == ("run" if where == RUN else "site")
    assert (state.unknown, state.blocked) == (([], Means.IGNORE) if acted else ([kind], KINDS[kind].unknown_means))
    stricter = dataclasses.replace(entry, unknown_means="read_only")
    state = fold(RUN, [(stricter, Attachments())]) if where == RUN else fold_site([stricter])
    assert state.blocked == (Means.IGNORE if acted else Means.READ_ONLY)


@pytest.mark.parametrize("number", range(len(written().splitlines())))
def test_every_entry_is_read_and_written_again_byte_for_byte(number):
    row = rows()[number]
    assert line(*read(row)) == row


def test_a_run_s_branch_adds_up():
    state = fold(RUN, branch(RUN))
    assert [kind for kind in state.unknown if kind == UNKNOWN] == [UNKNOWN] * 4
    assert set(state.unknown) - {UNKNOWN} == NOT_ACTED_ON_YET[RUN]
    assert all(state.requests.of(entry.request) == [entry.sequence] for entry, _ in branch(RUN))
    check_golden("branches-run.json", plain(state))


def test_what_is_absent_says_the_same_as_null():
    assert plain(fold(RUN, branch(RUN, NULLS))) == plain(fold(RUN, branch(RUN)))
    of_site = [plain(fold_site(entry for entry, _ in branch(SITE, file))) for file in (NULLS, FILE)]
    assert of_site[0] == of_site[1]
    assert any(None in entry.body.values() for entry, _ in branch(RUN, NULLS))


def test_the_site_s_branch_adds_up():
    state = fold_site(entry for entry, _ in branch(SITE))
    assert [kind for kind in state.unknown if kind == UNKNOWN] == [UNKNOWN] * 4
    assert set(state.unknown) - {UNKNOWN} == NOT_ACTED_ON_YET[SITE]
    assert all(state.requests.of(entry.request) == [entry.sequence] for entry, _ in branch(SITE))
    check_golden("branches-site.json", plain(state))
