"""The index answers what the model answers on the whole state, from any point it was left at."""

import hashlib
import sqlite3
import threading
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.git.make import init
from lakemark.errors import Corrupt, NoRecordAsOf, NotFound, Usage
from lakemark.index import Index, Selection
from lakemark.index.database import VERSION
from lakemark.model.checkpoints.record import record_for
from lakemark.model.entries.fold import fold
from lakemark.model.ledger.entry import SITE, Attachments, Draft
from lakemark.model.ledger.run import Place
from lakemark.model.runs.timeline import as_of, forked_from, latest, segments
from tests.model.histories import RUN, START, histories, manifest, row, settle, stamp


class Source:
    """A ledger as the index sees it: `rows` of `RUN`, as many as were told so far."""

    def __init__(self, history, salt=""):
        self.told = 0
        self._rows = []
        chain = salt
        for entry, contents in history:
            data, record = row(entry, contents)
            chain = hashlib.sha1(f"{chain}{data}{record}".encode()).hexdigest()
            self._rows.append((chain, data, record))

    def tips(self):
        return {RUN: self._rows[self.told - 1][0]} if self.told else {}

    def rows(self, branch, *, onto):
        known = [None, *(revision for revision, _, _ in self._rows[: self.told])]
        return iter(self._rows[known.index(onto) : self.told]) if onto in known else None


def filled(path, history):
    source = Source(history)
    source.told = len(history)
    index = Index(path)
    index.catch_up(source)
    return index, source


def committed(number, step, timeline=1, minutes=None):
    held = manifest(number)
    saved_at = START + timedelta(minutes=number if minutes is None else minutes)
    record = record_for(held, run=RUN, timeline=timeline, step=step, saved_at=saved_at, node="node-a")
    draft = Draft(kind="committed", timeline=timeline, contents=Attachments(record=record), body={"tier": "hot"})
    return settle(draft, number, stamp(number, number if minutes is None else minutes))


def simple(count=5):
    opened = settle(Draft(kind="opened", timeline=1), 1, stamp(1, 1))
    return [opened, *(committed(number, 10 * number) for number in range(2, count + 2))]


def answer(ask, *given, **named):
    try:
        return ask(*given, **named)
    except NoRecordAsOf as error:
        return str(error)


def in_lineage(state, found):
    forks = forked_from(state)
    return any(
        number == found.record.timeline
        and (bound is None or found.record.step < bound or (found.record.step == bound and found.record.id in forks))
        for number, bound in segments(state)
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.data())
def test_it_agrees_with_the_model(tmp_path, history, data):
    path = tmp_path / f"{data.draw(st.uuids())}.sqlite"
    source, state = Source(history), fold(RUN, history)
    for told in sorted({*data.draw(st.sets(st.integers(1, len(history)), max_size=3)), len(history)}):
        source.told = told
        index = Index(path)
        index.catch_up(source)
        assert index.is_current(source.tips())
        index.close()
    index = Index(path, read_only=True)
    for identity, found in state.records.items():
        assert index.find(identity) == found
    known = index.known(RUN)
    assert known.state == state
    assert [*known.state.records.items()] == [*state.records.items()]
    assert list(known.revisions) == [revision for revision, _, _ in source._rows]
    own = index.structure(RUN)
    for name in (
        "timelines",
        "intervals",
        "attempts",
        "rollbacks",
        "watch",
        "closed",
        "sequence",
        "last_recorded_at",
        "blocked",
    ):
        assert getattr(own, name) == getattr(state, name)
    for timeline in (None, *state.timelines):
        assert index.latest(RUN, timeline=timeline) == latest(state, timeline)
        for minutes in data.draw(st.lists(st.integers(-60, 500), max_size=4)):
            for known_then in (False, True):
                at = START + timedelta(minutes=minutes)
                expected = answer(as_of, state, at, timeline, known_then=known_then)
                assert answer(index.as_of, RUN, at, timeline=timeline, known_then=known_then) == expected
    assert list(index.log(RUN)) == [entry for entry, _ in history]
    index.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.data())
def test_pages_list_every_record_once_newest_first(tmp_path, history, data):
    index, _ = filled(tmp_path / f"{data.draw(st.uuids())}.sqlite", history)
    state = fold(RUN, history)
    run = data.draw(st.sampled_from([RUN, None]))
    wanted = {
        "all_timelines": data.draw(st.booleans()),
        "pruned": data.draw(st.booleans()),
        "tier": data.draw(st.sampled_from([None, "hot", "warm"])),
        "since": data.draw(st.sampled_from([None, START + timedelta(minutes=60)])),
        "until": data.draw(st.sampled_from([None, START + timedelta(minutes=200)])),
    }
    listed, after = [], None
    while True:
        page = index.records(Selection(run=run, limit=data.draw(st.integers(1, 4)), after=after, **wanted))
        listed += page.records
        after = page.next
        if after is None:
            break
        assert page.records
    expected = [
        found
        for found in state.records.values()
        if (wanted["all_timelines"] or in_lineage(state, found))
        and (wanted["pruned"] or found.pruned is None)
        and (wanted["tier"] is None or wanted["tier"] in {place.tier for place in found.replicas})
        and (wanted["since"] is None or found.instant >= wanted["since"])
        and (wanted["until"] is None or found.instant <= wanted["until"])
    ]
    expected.sort(key=lambda found: found.sequence if run else (found.recorded_at, found.sequence), reverse=True)
    assert listed == expected
    index.close()


def test_at_a_fork_only_the_record_it_names_counts(tmp_path):
    first, second = committed(2, 10), committed(3, 10)
    fork = {"timeline": 1, "step": 10, "record": first[1].record.id}
    rolled = settle(Draft(kind="rolled_back", timeline=2, body={"rollback": "r", "fork": fork}), 4, stamp(4, 4))
    index, _ = filled(tmp_path / "index.sqlite", [simple(0)[0], first, second, rolled])
    assert index.latest(RUN).record == first[1].record
    assert index.latest(RUN, timeline=1).record == second[1].record
    assert [found.record for found in index.records(Selection(run=RUN)).records] == [first[1].record]


def test_records_are_found_by_the_beginning_of_their_id(tmp_path):
    index, _ = filled(tmp_path / "index.sqlite", simple(40))
    found = index.records(Selection(run=RUN, limit=100)).records
    identity = found[0].record.id
    assert index.find(identity[:16].upper()) == found[0]
    with pytest.raises(NotFound, match="no record"):
        index.find(identity[:16], run="another")
    first = next(digit for digit in "0123456789abcdef" if sum(one.record.id[0] == digit for one in found) > 1)
    with pytest.raises(Usage) as raised:
        index.find(first)
    named = [one.record for one in found if one.record.id.startswith(first)][:10]
    assert all(record.id[:16] in str(raised.value) or len(named) == 10 for record in named)
    for text in ("", "xyz", "12 34"):
        with pytest.raises(Usage):
            index.find(text)


def test_a_cursor_of_another_listing_is_refused(tmp_path):
    index, _ = filled(tmp_path / "index.sqlite", simple())
    with pytest.raises(Usage, match="cursor"):
        index.records(Selection(run=RUN, after="yesterday"))


def test_entries_have_revisions(tmp_path):
    index, source = filled(tmp_path / "index.sqlite", simple())
    assert index.revision(RUN, 6) == source.tips()[RUN]
    with pytest.raises(NotFound):
        index.revision(RUN, 7)
    assert (index.runs(), index.count(RUN)) == ((RUN,), 5)


@pytest.mark.parametrize("kind", ["another schema", "not a database", "torn"])
def test_a_file_that_is_no_index_is_made_anew(tmp_path, kind):
    path = tmp_path / "index.sqlite"
    index, source = filled(path, simple(300))
    index.close()
    if kind == "another schema":
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        connection.close()
    elif kind == "not a database":
        path.write_bytes(b"not a database" * 1000)
    else:
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    index = Index(path)
    index.catch_up(source)
    assert index.count(RUN) == 300
    assert index.latest(RUN).record.step == 3010


def test_damage_met_while_reading_is_mended_from_the_ledger(tmp_path):
    path = tmp_path / "index.sqlite"
    index, _ = filled(path, simple(300))
    index._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    index._connection.execute("UPDATE records SET state = '{}'")
    assert len(index.records(Selection(run=RUN, limit=400)).records) == 300


def test_damage_without_a_source_is_corrupt_once(tmp_path):
    path = tmp_path / "index.sqlite"
    index, source = filled(path, simple(3))
    index._connection.execute("UPDATE records SET state = '{}'")
    index.close()
    other = Index(path)
    with pytest.raises(Corrupt):
        other.records(Selection(run=RUN))
    assert other.tip(RUN) is None
    other.catch_up(source)
    assert other.count(RUN) == 3


def test_a_reader_needs_an_index(tmp_path):
    with pytest.raises(NotFound):
        Index(tmp_path / "index.sqlite", read_only=True)
    assert not list(tmp_path.iterdir())


def test_a_reader_sees_a_file_made_anew(tmp_path):
    path = tmp_path / "index.sqlite"
    index, source = filled(path, simple(3))
    reader = Index(path, read_only=True)
    index._replace()
    assert reader.runs() == ()
    index.catch_up(source)
    assert reader.count(RUN) == 3


def test_a_replaced_history_is_taken_in_anew_with_an_alarm(tmp_path):
    index, _ = filled(tmp_path / "index.sqlite", simple(5))
    other = Source(simple(2), salt="other")
    other.told = 3
    index.catch_up(other)
    assert index.count(RUN) == 2
    assert len(index.alarms()) == 1
    assert RUN in index.alarms()[0]
    other.told = 0
    index.catch_up(other)
    assert index.runs() == ()


def test_many_fill_one_file(tmp_path):
    path = tmp_path / "index.sqlite"
    history = simple(400)
    source = Source(history)
    source.told = len(history)
    problems = []

    def fill():
        try:
            index = Index(path)
            index.catch_up(source)
            assert index.count(RUN) == 400
        except BaseException as error:
            problems.append(error)
            raise

    threads = [threading.Thread(target=fill) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def ledger_with_entries(path, **named):
    init(path)
    ledger = GitLedger(path, **named)
    for number, (entry, contents) in enumerate(simple(20), 1):
        draft = Draft(
            kind=entry.kind,
            timeline=1,
            body=entry.body,
            contents=Attachments(record=contents.record, manifest=manifest(number)),
        )
        ledger.append(RUN, lambda _, draft=draft: draft, stamp(number, number))
    ledger.append_site(
        lambda _: Draft(kind="alias_set", body={"alias": "best", "run": RUN, "record": "0" * 64}), stamp(1, 1)
    )
    return ledger


def test_it_follows_a_git_ledger(tmp_path):
    ledger = ledger_with_entries(tmp_path / "ledger.git")
    index = Index(tmp_path / "index.sqlite")
    index.catch_up(ledger)
    assert index.is_current(ledger.tips())
    state = ledger.run(RUN)
    assert {found.record.id: found for found in index.records(Selection(run=RUN, limit=99)).records} == state.records
    assert index.revision(RUN, 7) == ledger.revision(RUN, 7)
    assert index.site() == ledger.site()
    assert (index.runs(), [entry.kind for entry in index.log(SITE)]) == ((RUN,), ["alias_set"])


def test_the_site_is_folded_on_from_where_it_was(tmp_path):
    ledger = ledger_with_entries(tmp_path / "ledger.git")
    index = Index(tmp_path / "index.sqlite")
    index.catch_up(ledger)
    before = index.site()
    assert index.site() is before
    body = {"alias": "last", "run": RUN, "record": "1" * 64}
    ledger.append_site(lambda _: Draft(kind="alias_set", body=body), stamp(2, 2))
    index.catch_up(ledger)
    assert index.site() == ledger.site()
    assert (list(before.aliases), list(index.site().aliases)) == (["best"], ["best", "last"])
    # Another history of the same length: nothing of the one before may stay.
    other = GitLedger(init_of(tmp_path / "other.git"))
    for number in (1, 2):
        body = {"alias": f"other-{number}", "run": RUN, "record": "2" * 64}
        other.append_site(lambda _, body=body: Draft(kind="alias_set", body=body), stamp(number, number))
    index.catch_up(other)
    assert index.site() == other.site()
    assert list(index.site().aliases) == ["other-1", "other-2"]


def init_of(path):
    init(path)
    return path


def test_a_ledger_starts_from_its_cache(tmp_path):
    path = tmp_path / "ledger.git"
    ledger = ledger_with_entries(path)
    cache = Index(tmp_path / "index.sqlite")
    assert GitLedger(path, cache=cache).run(RUN) == ledger.run(RUN)
    assert cache.tip(RUN) == (ledger.tips()[RUN], 21)
    ledger.append(RUN, lambda _: Draft(kind="closed", timeline=1), stamp(99, 99))
    again = GitLedger(path, cache=cache)
    assert again.run(RUN) == ledger.run(RUN)
    assert again.run(RUN).closed
    assert again.revision(RUN, 3) == ledger.revision(RUN, 3)
    seen = []
    again.append(RUN, lambda state: seen.append(state.sequence), stamp(99, 99))
    assert not seen
    assert cache.tip(RUN)[1] == 22


def test_runs_not_asked_for_lately_go_from_memory_and_come_back_the_same(tmp_path):
    path = tmp_path / "ledger.git"
    init(path)
    few = GitLedger(path, cache=Index(tmp_path / "index.sqlite"), kept_records=3)
    names = ("a", "b", "c")
    for number in range(1, 5):
        for name in names:
            held = manifest(number)
            made = record_for(held, run=name, timeline=1, step=number, saved_at=START, node="node-a")
            draft = Draft(kind="committed", timeline=1, contents=Attachments(record=made, manifest=held))
            few.append(name, lambda _, draft=draft: draft, stamp(number, number))
    states = {name: few.run(name) for name in names}
    assert few.run("c") is states["c"]
    assert few.run("a") is not states["a"]
    assert states == {name: GitLedger(path).run(name) for name in names}
    few.append("b", lambda _: Draft(kind="closed", timeline=1), stamp(9, 9))
    few.run("a")
    assert (few.run("b").closed, few.run("b").sequence, states["b"].closed) == (True, 5, False)
    assert few.revision("b", 5) == few.tips()["b"]
    again: list[int] = []
    few.append("a", lambda state: again.append(state.sequence), stamp(4, 4))
    assert not again


def append_committed(ledger, run, number):
    held = manifest(number)
    made = record_for(held, run=run, timeline=1, step=number, saved_at=START, node="node-a")
    draft = Draft(kind="committed", timeline=1, contents=Attachments(record=made, manifest=held))
    return ledger.append(run, lambda _: draft, stamp(number, number)).entry


def test_others_may_fill_the_cache_while_a_run_comes_back_from_it(tmp_path):
    class Meanwhile(Index):
        others = staticmethod(lambda: None)

        def known(self, run):
            self.others()
            return super().known(run)

    path = tmp_path / "ledger.git"
    init(path)
    cache, other = Meanwhile(tmp_path / "index.sqlite"), GitLedger(path, cache=Index(tmp_path / "index.sqlite"))
    few = GitLedger(path, cache=cache, kept_records=1)
    for run in ("a", "b"):
        for number in (1, 2):
            append_committed(few, run, number)

    def fill():
        append_committed(other, "a", 3)
        Index(tmp_path / "index.sqlite").catch_up(other)

    cache.others = fill
    assert few.run("a").sequence == 3
    assert (few.alarms, cache.tip("a")[1]) == ([], 3)


def test_a_cache_that_is_away_keeps_no_run_from_coming_back(tmp_path):
    path, index = tmp_path / "ledger.git", tmp_path / "index.sqlite"
    init(path)
    few = GitLedger(path, cache=Index(index), kept_records=1)
    for run, number in (("a", 1), ("a", 2), ("b", 1)):
        append_committed(few, run, number)
    for number, state in enumerate(("removed", "garbage", "a folder"), 2):
        for name in tmp_path.glob("index.sqlite*"):
            name.unlink()
        if state == "garbage":
            index.write_bytes(bytes(range(256)) * 64)
        elif state == "a folder":
            index.mkdir()
        assert few.run("a").sequence == 2, state
        assert append_committed(few, "b", number).sequence == number, state
    assert few.alarms == []


def test_a_state_from_the_cache_is_read_record_by_record(tmp_path):
    index, _ = filled(tmp_path / "index.sqlite", simple(5))
    records = index.known(RUN).state.records
    state = fold(RUN, simple(5))
    first, second, *_ = state.records
    copied, kept = records.copy(), dict(records)
    assert records[first] == state.records[first]
    assert (first in records, "0" * 64 in records, records.get("0" * 64)) == (True, False, None)
    with pytest.raises(KeyError):
        records["0" * 64]
    assert copied.get(second) == state.records[second]
    assert (copied, kept, records, len(records)) == (state.records, state.records, state.records, 5)
    assert list(records.values()) == list(state.records.values())
    assert repr(records) == repr(state.records)
    records[first] = state.records[second]
    assert copied[first] == state.records[first]


def test_a_cache_of_another_history_is_forgotten(tmp_path):
    cache = Index(tmp_path / "index.sqlite")
    path = tmp_path / "ledger.git"
    ledger_with_entries(path, cache=cache)
    GitLedger(path, cache=cache).run(RUN)
    init(tmp_path / "other.git")
    other = GitLedger(tmp_path / "other.git", cache=cache)
    other.append(RUN, lambda _: Draft(kind="opened", timeline=1), stamp(1, 1))
    assert other.run(RUN).sequence == 1
    assert len(other.alarms) == 1
    assert cache.alarms()


def test_a_cache_that_breaks_costs_no_append(tmp_path):
    path = tmp_path / "ledger.git"
    cache = Index(tmp_path / "index.sqlite")
    ledger = ledger_with_entries(path, cache=cache)
    GitLedger(path, cache=cache).run(RUN)
    cache._connection.execute("DROP TABLE entries")
    again = GitLedger(path, cache=cache)
    again.append(RUN, lambda _: Draft(kind="closed", timeline=1), stamp(50, 50))
    assert again.run(RUN) == ledger.run(RUN)


def test_replicas_are_listed_by_tier(tmp_path):
    history = simple(3)
    record = history[1][1].record.id
    warm = Draft(kind="replicated", timeline=1, record=record, body={"tier": "warm", "node": None})
    index, _ = filled(tmp_path / "index.sqlite", [*history, settle(warm, 5, stamp(5, 5))])
    (found,) = index.records(Selection(run=RUN, tier="warm")).records
    assert (found.record.id, Place(tier="warm") in found.replicas) == (record, True)
    assert len(index.records(Selection(tier="hot")).records) == 3
