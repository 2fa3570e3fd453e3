"""What the contract leaves open: sizes beyond one page, lost answers, histories that somebody edited."""

import contextlib
import sqlite3
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from lakefs_client import models

from lakemark.adapters.lakefs.server import LakeFSServer, Said
from lakemark.errors import Conflict, DataGone, NotFound, Refused, StoreUnavailable, Usage
from lakemark.ports.data import PinAsked, Strength
from tests.lakefs_scratch import TIMEOUT

pytestmark = pytest.mark.xdist_group("lakefs")


@pytest.fixture(scope="module")
def scratch(lakefs):
    return lakefs.scratch()


def first_commit(scratch):
    """The empty one, which comes with the repository."""
    commit = scratch.data.resolve(scratch.repository, "main")
    while commit.parents:
        commit = scratch.data.resolve(scratch.repository, commit.parents[0])
    return commit.id


def edit_message(directory, commit, message):
    """Changes a commit's message behind the server's back."""
    with contextlib.closing(sqlite3.connect(directory / "metadata.sqlite", isolation_level=None)) as database:
        command = "UPDATE commits SET document = json_set(document, '$.message', ?) WHERE id = ?"
        assert database.execute(command, (message, commit)).rowcount == 1


@pytest.mark.parametrize("page", [2, 3, 11, 12, 13])
def test_listing_and_comparing_go_on_behind_a_page(lakefs, many, page):
    scratch, before, after = many
    data, repository = lakefs.data(server=paged(page)), scratch.repository
    names = [f"many/{n:02}" for n in range(12)]
    assert [path for path, _ in data.list(repository, after, prefix="many/")] == names
    assert data.diff(repository, before, after).added == 12
    cut = data.diff(repository, before, after, limit=11)
    assert (cut.added, cut.complete, len(cut.sample)) == (11, False, 10)
    assert data.diff(repository, before, after, limit=12).complete
    assert data.readable(repository, after, sample=5, seed=1).lost == ()


@pytest.fixture(scope="module")
def many(lakefs):
    scratch = lakefs.scratch()
    before = scratch.data.head(scratch.repository, "main")
    return scratch, before, scratch.put("main", {f"many/{n:02}": b"x" for n in range(12)})


def paged(size):
    class Paged(LakeFSServer):
        page = size

    return Paged


def test_history_goes_on_behind_a_page(lakefs, scratch):
    keys = lakefs.access_key_id, lakefs.secret_access_key
    for number in range(6):
        scratch.put("main", {"count": str(number).encode()}, message=f"count {number}")
    commit, expected = scratch.data.resolve(scratch.repository, "main"), []
    while commit.parents:
        expected.append(commit.id)
        commit = scratch.data.resolve(scratch.repository, commit.parents[0])
    expected.append(commit.id)
    for page in (2, 3, len(expected) - 1, len(expected), len(expected) + 1):
        server = paged(page)(lakefs.endpoint, *keys, timeout_seconds=(5, 60))
        assert [one.id for one in server.history(scratch.repository, expected[0])] == expected, page


class Counting(LakeFSServer):
    """Counts what is asked, by the method of the client."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.asked = Counter()

    def _once(self, call, *given, **named):
        self.asked[call.__name__] += 1
        return super()._once(call, *given, **named)


def test_history_is_asked_for_once_and_an_edited_one_found_all_the_same(lakefs):
    scratch = lakefs.scratch()
    for number in range(5):
        scratch.put("main", {"n": b"%d" % number})
    servers = []

    def counting(*given, **named):
        servers.append(Counting(*given, **named))
        servers[0].page = 2
        return servers[0]

    data, now = lakefs.data(server=counting), datetime.now(UTC)
    first = data.head_at(scratch.repository, "main", now)
    asked = servers[0].asked["log_commits"]
    assert asked > 2
    assert data.head_at(scratch.repository, "main", now) == first
    assert servers[0].asked["log_commits"] == asked
    data.altered(scratch.repository, first.commit, limit=100)
    assert servers[0].asked["log_commits"] > asked


def test_three_hundred_pins_are_seen_by_a_handful_of_requests(lakefs):
    scratch = lakefs.scratch()
    servers = []

    def counting(*given, **named):
        servers.append(Counting(*given, **named))
        return servers[0]

    data = lakefs.data(server=counting)
    head = scratch.data.head(scratch.repository, "main")
    made = data.pin(scratch.repository, head, branch="pin-one-abcd", nonce="abcd")
    guard = scratch.branches()[made.branch]
    for number in range(40):
        scratch.make_branch(f"pin-x{number}-abcd", head, hidden=True)
    pins = [PinAsked(commit=head, branch=f"pin-x{number}-abcd", nonce="abcd") for number in range(40)]
    servers[0].asked.clear()
    pins.append(PinAsked(commit=head, branch=made.branch, nonce="abcd", proven=guard))
    seen = data.pins_seen(scratch.repository, pins)
    assert servers[0].asked.total() <= 3
    assert Counter(one.strength for one in seen.values()) == {Strength.PLAIN: 40, Strength.GUARDED: 1}


def test_ids_of_a_real_history_are_those_of_its_fields(scratch):
    head = scratch.data.head(scratch.repository, "main")
    assert scratch.data.altered(scratch.repository, head, limit=100) == ()


def test_a_branch_that_is_not_there(scratch):
    now = datetime.fromisoformat("2026-11-29T12:00:00+00:00")
    assert scratch.data.head(scratch.repository, "none") is None
    with pytest.raises(NotFound, match="no branch 'none'"):
        scratch.data.head_at(scratch.repository, "none", now)
    with pytest.raises(NotFound, match="no branch 'none'"):
        scratch.data.move_branch(scratch.repository, "none", first_commit(scratch), message="x")


def test_a_time_without_an_offset_is_no_time(scratch):
    with pytest.raises(ValueError, match="no offset"):
        scratch.data.head_at(scratch.repository, "main", datetime(2026, 11, 29))  # noqa: DTZ001 - the point


def test_head_at_sees_through_back_dated_commits(lakefs):
    scratch = lakefs.scratch()
    first = scratch.data.resolve(scratch.repository, "main")
    back_dated = scratch.put("main", {"a": b"1"}, date=int((first.created_at - timedelta(days=9)).timestamp()))
    long_before = scratch.data.head_at(scratch.repository, "main", first.created_at - timedelta(days=1))
    assert long_before.commit is None
    assert scratch.data.head_at(scratch.repository, "main", first.created_at).commit == back_dated


def test_the_empty_first_commit_can_not_be_restored(scratch):
    with pytest.raises(Refused, match="empty first commit"):
        scratch.data.move_branch(scratch.repository, "main", first_commit(scratch), message="x")


def test_a_branch_does_not_follow_a_commit_that_has_no_tree(scratch):
    """lakeFS takes any meta-range for granted and breaks the branch that gets it."""
    scratch.make_branch("broken", scratch.data.head(scratch.repository, "main"))
    wanted = models.CommitCreation(message="x")
    call = scratch.client.commits_api.commit
    broken = call(scratch.repository, "broken", wanted, source_metarange="ab" * 32, _request_timeout=TIMEOUT).id
    before = scratch.data.head(scratch.repository, "main")
    with pytest.raises((DataGone, StoreUnavailable)):
        scratch.data.move_branch(scratch.repository, "main", broken, message="x")
    assert scratch.data.head(scratch.repository, "main") == before


class LostAnswer(LakeFSServer):
    """Its commits happen, and nobody hears of it."""

    def record(self, *given, **named):
        super().record(*given, **named)
        raise StoreUnavailable("broken off", advice="Try again.")


class Interrupted(LakeFSServer):
    """Somebody else commits just before."""

    def __init__(self, *given, between, **named):
        super().__init__(*given, **named)
        self.between = between

    def record(self, *given, **named):
        self.between()
        return super().record(*given, **named)


class Slower(Interrupted):
    """Somebody else commits at the same moment, and the slower of two is told 500."""

    raced = False

    def record(self, *given, **named):
        if self.raced:
            return LakeFSServer.record(self, *given, **named)
        self.between()
        self.raced = True
        return Said(500, "predicate failed")


def test_a_move_whose_answer_was_lost_is_found_again(lakefs, scratch):
    data, repository = scratch.data, scratch.repository
    older = data.head(repository, "main")
    newer = scratch.put("main", {"lost": b"x"})
    data.branch_at(repository, "lost", newer)
    with pytest.raises(StoreUnavailable):
        lakefs.data(server=LostAnswer).move_branch(repository, "lost", older, message="back")
    made = data.head(repository, "lost")
    assert data.move_branch(repository, "lost", older, message="back") == made
    assert data.move_branch(repository, "lost", older, message="back, for another reason") != made


def test_a_commit_that_came_between_is_told(lakefs, scratch):
    data, repository = scratch.data, scratch.repository
    older = data.head(repository, "main")
    newer = scratch.put("main", {"between": b"x"})
    data.branch_at(repository, "between", newer)
    meanwhile = []
    interrupted = lakefs.data(
        server=partial(Interrupted, between=lambda: meanwhile.append(scratch.put("between", {"mine": b"x"})))
    )
    with pytest.raises(Conflict) as caught:
        interrupted.move_branch(repository, "between", older, message="back")
    assert meanwhile[0] in caught.value.message
    assert data.resolve(repository, "between").parents == (meanwhile[0],)


@pytest.mark.parametrize("server", [Interrupted, Slower])
def test_a_commit_of_nothing_that_came_between_is_no_conflict(lakefs, scratch, server):
    data, repository = scratch.data, scratch.repository
    branch = f"empty-{server.__name__}"
    older = data.head(repository, "main")
    data.branch_at(repository, branch, scratch.put("main", {branch: b"x"}))
    meanwhile = []
    moving = partial(server, between=lambda: meanwhile.append(scratch.put(branch, {}, allow_empty=True)))
    made = lakefs.data(server=moving).move_branch(repository, branch, older, message="back")
    assert data.head(repository, branch) == made
    assert data.resolve(repository, made).parents == tuple(meanwhile)
    assert data.resolve(repository, made).meta_range == data.resolve(repository, older).meta_range


def test_a_server_that_fails_is_no_race(lakefs, scratch):
    data, repository = scratch.data, scratch.repository
    older = data.head(repository, "main")
    newer = scratch.put("main", {"fails": b"x"})
    data.branch_at(repository, "fails", newer)
    failing = lakefs.data(server=partial(Slower, between=lambda: None), settle_seconds=0.0)
    with pytest.raises(StoreUnavailable, match="predicate failed"):
        failing.move_branch(repository, "fails", older, message="back")
    assert data.head(repository, "fails") == newer


def test_a_change_that_is_staged_in_between_is_not_buried(lakefs, scratch):
    data, repository = scratch.data, scratch.repository
    older = data.head(repository, "main")
    data.branch_at(repository, "staged", scratch.put("main", {"staged": b"x"}))
    interrupted = lakefs.data(server=partial(Interrupted, between=lambda: scratch.stage("staged", "mine", b"x")))
    with pytest.raises(Refused, match="uncommitted changes"):
        interrupted.move_branch(repository, "staged", older, message="back")


@pytest.mark.parametrize("name", ["a/b", "a.b", "-a", ""])
def test_names_a_branch_can_not_have(scratch, name):
    with pytest.raises((Usage, NotFound)):
        scratch.data.branch_at(scratch.repository, name, scratch.data.head(scratch.repository, "main"))


@pytest.mark.parametrize("ref", ["a/b", "main~1", "main@", "main^", "a b", "v1.0", "", "%2F", "é"])
def test_refs_that_name_nothing(scratch, ref):
    with pytest.raises(NotFound):
        scratch.data.resolve(scratch.repository, ref)


def test_lost_bytes_of_an_empty_object_are_no_loss_to_be_missed(lakefs):
    scratch = lakefs.scratch()
    commit = scratch.put("main", {"empty": b""})
    assert scratch.data.readable(scratch.repository, commit, sample=9, seed=1).lost == ()
    assert scratch.collect(commit, "empty")
    assert scratch.data.readable(scratch.repository, commit, sample=9, seed=1).lost == ("empty",)


def test_an_edited_history_is_found(lakefs):
    scratch = lakefs.scratch()
    edited = scratch.put("main", {"a": b"1"}, message="the truth")
    head = scratch.put("main", {"a": b"2"})
    edit_message(lakefs.directory, edited, "another truth")
    assert scratch.data.altered(scratch.repository, head, limit=10) == (edited,)
    assert scratch.data.altered(scratch.repository, head, limit=1) == ()
