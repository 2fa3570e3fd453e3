"""Pins: made whole or not at all, whoever dies or interferes on the way.

On the stand-in, and on the server that LAKEFS_ENDPOINT names.
"""

import json
import secrets
import threading
import time

import lakefs_client
import pytest

from lakemark.adapters.lakefs.pins import GUARD_PATH, RELEASED, Pins, guard
from lakemark.adapters.lakefs.server import LakeFSServer
from lakemark.errors import Conflict, Denied, NotFound, Refused, StoreUnavailable, Usage
from lakemark.ports.data import PinAsked, Strength
from tests.services_fixtures import LAKEFS_SERVERS

pytestmark = pytest.mark.xdist_group("lakefs")

REFUSE = b"""name: nobody commits there
on:
  pre-commit:
    branches: ["making-*"]
hooks:
  - id: refuse
    type: lua
    properties:
      script: error("commits are made elsewhere")
"""


class Died(BaseException):
    """As SIGKILL: nothing of the caller runs after it."""


class DyingServer(LakeFSServer):
    """A server whose caller dies at its `at`-th request: before it is sent, or before its answer is read."""

    def __init__(self, *given, at, sent, **named):
        super().__init__(*given, **named)
        self.left, self.sent = at, sent

    def ask(self, *given, **named):
        self.left -= 1
        if self.left < 0:
            raise Died
        answer = super().ask(*given, **named) if self.left or self.sent else None
        if self.left == 0:
            raise Died
        return answer


class TiringServer(LakeFSServer):
    """A server that answers `left` requests and no more."""

    left = 1000

    def ask(self, *given, **named):
        self.left -= 1
        if self.left < 0:
            raise StoreUnavailable("it says nothing", advice="Try again.")
        return super().ask(*given, **named)


@pytest.fixture(scope="module", params=LAKEFS_SERVERS)
def lakefs(request, lakefs):
    return lakefs if request.param == "lakefs" else request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def scratch(lakefs):
    return lakefs.scratch()


def pins_on(lakefs, kind=LakeFSServer, **named):
    server = kind(lakefs.endpoint, lakefs.access_key_id, lakefs.secret_access_key, timeout_seconds=(5, 60), **named)
    return Pins(server, settle_seconds=8)


@pytest.fixture
def pins(lakefs):
    return pins_on(lakefs)


@pytest.fixture
def fresh(scratch):
    """A commit, a nonce, and the pin's name that goes with them."""
    nonce = secrets.token_hex(4)
    commit = scratch.put("main", {f"new/{nonce}": b"x"})
    return commit, nonce, f"pin-{commit[:12]}-{nonce}"


def left_behind(scratch, name):
    return {branch for branch in scratch.branches() if branch.endswith(name)} - {name}


def test_a_pin_is_one_commit_above_its_data(scratch, pins, fresh):
    commit, nonce, name = fresh
    made = pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    assert (made.strength, made.why_plain) == (Strength.GUARDED, None)
    head = scratch.data.resolve(scratch.repository, name)
    assert head.parents == (commit,)
    difference = scratch.data.diff(scratch.repository, commit, head.id)
    assert (difference.added, difference.removed, difference.changed) == (1, 0, 0)
    assert difference.sample == (GUARD_PATH,)
    assert left_behind(scratch, name) == set()


def test_pins_are_hidden(scratch, pins, fresh):
    commit, nonce, name = fresh
    pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    shown = scratch.client.branches_api.list_branches(scratch.repository, amount=1000)
    assert name not in {branch.id for branch in shown.results}
    assert name in scratch.branches()


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
def test_dying_at_any_request_leaves_what_the_next_one_finishes(lakefs, pins, sent):
    scratch = lakefs.scratch()
    at, died = 1, True
    while died:
        nonce = secrets.token_hex(4)
        commit = scratch.put("main", {nonce: b"x"})
        name = f"pin-{commit[:12]}-{nonce}"
        dying = pins_on(lakefs, DyingServer, at=at, sent=sent)
        try:
            dying.make(scratch.repository, commit, branch=name, nonce=nonce)
            died = False
        except Died:
            made = pins.make(scratch.repository, commit, branch=name, nonce=nonce)
            assert made.strength is Strength.GUARDED, f"died at {at}: {made.why_plain}"
        assert pins.strength(scratch.repository, commit, branch=name) is Strength.GUARDED
        assert left_behind(scratch, name) == set(), f"died at {at}"
        at += 1
    assert at > 15


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
def test_dying_at_any_request_of_a_release(lakefs, pins, sent):
    scratch = lakefs.scratch()
    at, died = 1, True
    while died:
        nonce = secrets.token_hex(4)
        commit = scratch.put("main", {nonce: b"x"})
        name = f"pin-{commit[:12]}-{nonce}"
        pins.make(scratch.repository, commit, branch=name, nonce=nonce)
        asked = {"branch": name, "nonce": nonce, "reason": "not needed"}
        try:
            pins_on(lakefs, DyingServer, at=at, sent=sent).release(scratch.repository, commit, **asked)
            died = False
        except Died:
            pins.release(scratch.repository, commit, **asked)
        assert name not in scratch.branches(), f"died at {at}"
        assert left_behind(scratch, name) == set()
        at += 1
    assert at > 7


def test_a_release_cleans_up_after_a_pin_that_never_was(lakefs, scratch, pins, fresh):
    commit, nonce, name = fresh
    scratch.make_branch(f"making-{name}", commit, hidden=True)
    pins.release(scratch.repository, commit, branch=name, nonce=nonce, reason="never used")
    assert left_behind(scratch, name) == set()


class Says404(LakeFSServer):
    """What is between us and the server says that no branch is there; its lists are right."""

    def head(self, *_):
        return None


def test_a_pin_is_gone_by_the_server_s_list_alone(lakefs, scratch, pins, fresh):
    """Else its branch would stay for good: whoever released it would not look again."""
    commit, nonce, name = fresh
    pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    with pytest.raises(StoreUnavailable):
        pins_on(lakefs, Says404).release(scratch.repository, commit, branch=name, nonce=nonce, reason="done")
    pins.release(scratch.repository, commit, branch=name, nonce=nonce, reason="done")
    assert left_behind(scratch, name) == set()
    pins_on(lakefs, Says404).release(scratch.repository, commit, branch=name, nonce=nonce, reason="done")


def test_many_at_once_make_one_pin(lakefs, scratch, fresh):
    commit, nonce, name = fresh
    together, made, failed = threading.Barrier(6), [], []

    def make():
        mine = pins_on(lakefs)
        together.wait()
        try:
            made.append(mine.make(scratch.repository, commit, branch=name, nonce=nonce))
        except Exception as error:  # noqa: BLE001 - reported below
            failed.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {pin.strength for pin in made} == {Strength.GUARDED}
    assert scratch.data.pin_strength(scratch.repository, commit, branch=name) is Strength.GUARDED
    # A straggler may have left the branch it worked on; whoever comes next removes it.
    pins_on(lakefs).make(scratch.repository, commit, branch=name, nonce=nonce)
    assert left_behind(scratch, name) == set()


def test_a_leftover_that_somebody_wrote_to_is_not_used(scratch, pins, fresh):
    commit, nonce, name = fresh
    scratch.make_branch(f"making-{name}", commit, hidden=True)
    scratch.put(f"making-{name}", {"intruder": b"x"})
    made = pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    assert made.strength is Strength.GUARDED
    assert left_behind(scratch, name) == set()


def test_a_commit_that_brings_a_guard_of_another_pin(scratch, pins):
    nonce = secrets.token_hex(4)
    commit = scratch.put("main", {GUARD_PATH: guard("older")})
    name = f"pin-{commit[:12]}-{nonce}"
    made = pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    assert made.strength is Strength.GUARDED
    assert pins.strength(scratch.repository, commit, branch=name) is Strength.GUARDED
    with pytest.raises(Refused):
        pins.release(scratch.repository, commit, branch=name, nonce="older", reason="x")
    pins.release(scratch.repository, commit, branch=name, nonce=nonce, reason="x")
    scratch.put("main", {GUARD_PATH: None})


def test_where_hooks_forbid_it_the_pin_is_plain(lakefs, pins):
    scratch = lakefs.scratch()
    commit = scratch.data.head(scratch.repository, "main")
    scratch.make_branch("strict", commit)
    scratch.stage("strict", "_lakefs_actions/refuse.yaml", REFUSE)
    commit = scratch.put("strict", {"train/3": b"x"})
    name = f"pin-{commit[:12]}-abcd"
    made = pins.make(scratch.repository, commit, branch=name, nonce="abcd")
    assert made.strength is Strength.PLAIN
    assert "refused the guard's commit" in made.why_plain
    assert scratch.branches()[name] == commit
    assert left_behind(scratch, name) == set()
    again = pins.make(scratch.repository, commit, branch=name, nonce="abcd")
    assert again.strength is Strength.PLAIN
    assert pins.strength(scratch.repository, commit, branch=name) is Strength.PLAIN
    pins.release(scratch.repository, commit, branch=name, nonce="abcd", reason="x")
    assert name not in scratch.branches()


def test_where_every_branch_is_protected_the_pin_is_plain(lakefs, pins):
    scratch = lakefs.scratch()
    commit = scratch.data.head(scratch.repository, "main")
    server_of(lakefs).protect(scratch.repository, ["*"], only_if="")
    while scratch.status(scratch.client.objects_api.delete_object, scratch.repository, "main", "none") != 403:
        time.sleep(0.1)
    made = pins.make(scratch.repository, commit, branch="pin-x-abcd", nonce="abcd")
    assert made.strength is Strength.PLAIN
    assert "guard's file" in made.why_plain
    assert set(server_of(lakefs).protected(scratch.repository)[0]) == {"*", "pin-*"}


def server_of(lakefs):
    return LakeFSServer(lakefs.endpoint, lakefs.access_key_id, lakefs.secret_access_key, timeout_seconds=(5, 60))


class OpenGuards(LakeFSServer):
    """Every guard it makes stands open, as if the server ran no actions."""

    def make_branch(self, repository, branch, commit, **named):
        answer = super().make_branch(repository, branch, commit, **named)
        if branch.startswith("pin-") and answer.ok:
            super().make_branch(repository, RELEASED, commit, hidden=True, expect=(409,))
            self.upload(repository, RELEASED, f"{branch}/{branch[-4:]}", b"x")
        return answer


def test_a_server_that_runs_no_actions_is_found_out(lakefs, pins):
    scratch = lakefs.scratch()
    commit = scratch.data.head(scratch.repository, "main")
    made = pins_on(lakefs, OpenGuards).make(scratch.repository, commit, branch="pin-x-abcd", nonce="abcd")
    assert made.strength is Strength.PLAIN
    assert "runs no actions" in made.why_plain
    assert scratch.branches()["pin-x-abcd"] == commit


def asked(commit, branch="pin-x-abcd", nonce="abcd", **more):
    return PinAsked(commit=commit, branch=branch, nonce=nonce, **more)


def test_a_plain_pin_is_guarded_once_that_is_possible(lakefs, pins):
    scratch = lakefs.scratch()
    commit = scratch.data.head(scratch.repository, "main")
    scratch.make_branch("pin-x-abcd", commit, hidden=True)
    made = pins.make(scratch.repository, commit, branch="pin-x-abcd", nonce="abcd")
    assert (made.strength, made.why_plain) == (Strength.GUARDED, None)
    assert pins.strength(scratch.repository, commit, branch="pin-x-abcd") is Strength.GUARDED
    assert left_behind(scratch, "pin-x-abcd") == set()


class NoActions(LakeFSServer):
    """Lets any branch go, as a server that runs no actions does."""

    def drop_branch(self, repository, branch, **named):
        if branch.startswith("pin-"):
            super().make_branch(repository, RELEASED, self.head(repository, "main"), hidden=True, expect=(409,))
            self.upload(repository, RELEASED, f"{branch}/{branch[-4:]}", b"x")
        answer = super().drop_branch(repository, branch, **named)
        if branch.startswith("pin-"):
            self.reset(repository, RELEASED)
        return answer


def test_a_guard_is_tried_and_what_lets_go_is_plain_and_not_lost(lakefs, pins):
    scratch = lakefs.scratch()
    first = scratch.data.head(scratch.repository, "main")
    second = scratch.put("main", {"more": b"x"})
    names = ["pin-x-abcd", "pin-y-abcd"]
    for commit, name in zip((first, second), names, strict=True):
        pins.make(scratch.repository, commit, branch=name, nonce="abcd")
    wanted = [asked(first), asked(second, "pin-y-abcd")]
    tried = pins.seen(scratch.repository, wanted, tries=names)
    assert {one.strength for one in tried.values()} == {Strength.GUARDED}
    assert all(one.tried for one in tried.values())
    weak = pins_on(lakefs, NoActions).seen(scratch.repository, wanted, tries=names[:1])
    assert {(one.strength, one.why) for one in weak.values()} == {
        (Strength.PLAIN, "the server runs no actions: it let the pin be deleted")
    }
    assert scratch.branches()["pin-x-abcd"] == first
    assert left_behind(scratch, "pin-x-abcd") == left_behind(scratch, "pin-y-abcd") == set()
    made = pins_on(lakefs, NoActions).make(scratch.repository, second, branch="pin-y-abcd", nonce="abcd")
    assert (made.strength, scratch.branches()["pin-y-abcd"]) == (Strength.PLAIN, second)
    again = pins.make(scratch.repository, first, branch="pin-x-abcd", nonce="abcd")
    assert again.strength is Strength.GUARDED


class Limited(LakeFSServer):
    """Answers what is asked by the client's methods in `forbidden` as a server does whose user has no right to it."""

    forbidden = frozenset()

    def _once(self, call, *given, **named):
        def refused(*_given, **_named):
            body = json.dumps({"message": "insufficient permissions"})
            error = lakefs_client.ApiException(status=401, reason="Unauthorized")
            error.body = body
            raise error

        refused.__name__ = call.__name__
        return super()._once(refused if call.__name__ in self.forbidden else call, *given, **named)


class Writer(Limited):
    forbidden = frozenset({"get_branch_protection_rules", "set_branch_protection_rules"})


class Reader(Limited):
    forbidden = Writer.forbidden | {"create_branch", "upload_object", "commit", "delete_branch", "reset_branch"}


def test_who_may_write_but_not_change_rules_makes_a_plain_pin(lakefs, pins):
    scratch = lakefs.scratch()
    commit = scratch.data.head(scratch.repository, "main")
    made = pins_on(lakefs, Writer).make(scratch.repository, commit, branch="pin-x-abcd", nonce="abcd")
    assert made.strength is Strength.PLAIN
    assert "protection rules" in made.why_plain
    assert scratch.data.diff(scratch.repository, commit, scratch.branches()["pin-x-abcd"]).sample == (GUARD_PATH,)


def test_who_may_only_read_is_told_that_it_is_a_right(lakefs):
    scratch = lakefs.scratch()
    commit = scratch.data.head(scratch.repository, "main")
    with pytest.raises(Denied) as denied:
        pins_on(lakefs, Reader).make(scratch.repository, commit, branch="pin-x-abcd", nonce="abcd")
    assert "no right" in denied.value.advice
    seen = pins_on(lakefs, Reader).seen(scratch.repository, [asked(commit)], tries=["pin-x-abcd"])
    assert seen["pin-x-abcd"].strength is Strength.NONE


class SlowRules(LakeFSServer):
    """A server whose protection rules hold only after so many tries."""

    def __init__(self, *given, tries, **named):
        super().__init__(*given, **named)
        self.tries = tries

    def reset(self, repository, branch, **named):
        self.tries -= 1
        return super().reset(repository, branch if self.tries < 0 else "main", **named)


@pytest.mark.parametrize(("tries", "strength"), [(0, "guarded"), (31, "guarded"), (32, "plain")])
def test_a_rule_is_waited_for(lakefs, tries, strength):
    if lakefs.directory is None:
        pytest.skip("counts on rules that hold at once")
    scratch = lakefs.scratch()
    commit, nonce, name = scratch.data.head(scratch.repository, "main"), "abcd", "pin-x-abcd"
    waited = []
    keys = lakefs.access_key_id, lakefs.secret_access_key
    server = SlowRules(lakefs.endpoint, *keys, timeout_seconds=(5, 60), tries=tries)
    pins = Pins(server, settle_seconds=8, sleep=waited.append)
    made = pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    assert made.strength == strength
    assert sum(waited) == tries * 0.25
    assert (made.why_plain is None) == (strength == "guarded")


def test_other_rules_stay(lakefs, pins):
    scratch = lakefs.scratch()
    server = server_of(lakefs)
    server.protect(scratch.repository, ["release-*"], only_if="")
    commit = scratch.data.head(scratch.repository, "main")
    pins.make(scratch.repository, commit, branch="pin-x-abcd", nonce="abcd")
    assert set(server.protected(scratch.repository)[0]) == {"release-*", "pin-*"}


def test_strength_is_what_the_server_shows_now(lakefs, pins):
    scratch = lakefs.scratch()
    repository, commit = scratch.repository, scratch.data.head(scratch.repository, "main")
    server = server_of(lakefs)
    pins.make(repository, commit, branch="pin-x-abcd", nonce="abcd")
    rules, tag = server.protected(repository)
    server.protect(repository, [], only_if=tag)
    assert pins.strength(repository, commit, branch="pin-x-abcd") is Strength.PLAIN
    server.protect(repository, rules, only_if=server.protected(repository)[1])
    assert pins.strength(repository, commit, branch="pin-x-abcd") is Strength.GUARDED
    scratch.make_branch(RELEASED, commit)
    scratch.stage(RELEASED, "pin-x-abcd/abcd", b"somebody wrote it")
    assert pins.strength(repository, commit, branch="pin-x-abcd") is Strength.PLAIN


@pytest.mark.parametrize(
    "changes",
    [
        {GUARD_PATH: REFUSE + b"# nonce: abcd\n"},
        {GUARD_PATH: guard("abcd").replace(b"pre-delete-branch", b"post-delete-branch")},
        {GUARD_PATH: guard("abcd"), "train/0": None},
        {GUARD_PATH: guard("abcd"), "more": b"x"},
        {"more": b"x"},
    ],
    ids=["no guard of ours", "weakened", "an object less", "an object more", "no guard"],
)
def test_what_is_not_exactly_a_guard_is_no_pin(lakefs, pins, changes):
    scratch = lakefs.scratch()
    commit = scratch.data.head(scratch.repository, "main")
    changes = dict(changes)
    scratch.make_branch("forged", commit)
    if GUARD_PATH in changes:
        scratch.stage("forged", GUARD_PATH, changes.pop(GUARD_PATH))
    forged = scratch.put("forged", changes)
    scratch.make_branch("pin-x-abcd", forged, hidden=True)
    assert pins.strength(scratch.repository, commit, branch="pin-x-abcd") is Strength.NONE
    with pytest.raises(Conflict):
        pins.make(scratch.repository, commit, branch="pin-x-abcd", nonce="abcd")
    with pytest.raises(Conflict):
        pins.release(scratch.repository, commit, branch="pin-x-abcd", nonce="abcd", reason="x")


def test_a_guard_above_another_commit_is_no_pin_of_this_one(lakefs, pins):
    scratch = lakefs.scratch()
    commit = scratch.data.head(scratch.repository, "main")
    scratch.make_branch("forged", commit)
    scratch.put("forged", {"more": b"x"})
    forged = scratch.put("forged", {"more": None, GUARD_PATH: guard("abcd")})
    assert scratch.data.diff(scratch.repository, commit, forged).sample == (GUARD_PATH,)
    scratch.make_branch("pin-x-abcd", forged, hidden=True)
    assert pins.strength(scratch.repository, commit, branch="pin-x-abcd") is Strength.NONE


def test_a_release_is_recorded_and_keeps_no_data(scratch, pins, fresh):
    commit, nonce, name = fresh
    pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    pins.release(scratch.repository, commit, branch=name, nonce=nonce, reason="the run was closed")
    head = scratch.data.resolve(scratch.repository, RELEASED)
    assert "the run was closed" in head.message
    held = [path for path, _ in scratch.data.list(scratch.repository, head.id)]
    assert f"{name}/{nonce}" in held
    assert not [path for path in held if not path.startswith("pin-")]
    marker = b"".join(scratch.data.read(scratch.repository, head.id, f"{name}/{nonce}"))
    assert b"the run was closed" in marker


def test_a_released_name_is_not_used_again(scratch, pins, fresh):
    commit, nonce, name = fresh
    pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    pins.release(scratch.repository, commit, branch=name, nonce=nonce, reason="x")
    with pytest.raises(Refused, match="was released"):
        pins.make(scratch.repository, commit, branch=name, nonce=nonce)
    assert name not in scratch.branches()
    again = f"{name}-2"
    assert pins.make(scratch.repository, commit, branch=again, nonce=f"{nonce}-2").strength is Strength.GUARDED


@pytest.mark.parametrize(
    ("branch", "nonce"),
    [
        ("main", "abcd"),
        ("pin-", "abcd"),
        ("pin-a/b", "abcd"),
        ("pin-x", "abc"),
        ("pin-x", 'a"]\n'),
        ("pin-x\n", "abcd"),
    ],
)
def test_names_that_are_none(scratch, pins, branch, nonce):
    commit = scratch.data.head(scratch.repository, "main")
    with pytest.raises(Usage):
        pins.make(scratch.repository, commit, branch=branch, nonce=nonce)
    with pytest.raises(Usage):
        pins.release(scratch.repository, commit, branch=branch, nonce=nonce, reason="x")


def test_a_commit_that_is_not_there(scratch, pins):
    with pytest.raises(NotFound, match="commit"):
        pins.make(scratch.repository, "0" * 64, branch="pin-x-abcd", nonce="abcd")


def test_what_was_seen_of_pins_stays_seen_where_the_server_stops_answering(lakefs, scratch, pins):
    asked = []
    for number in range(4):
        nonce = secrets.token_hex(4)
        commit = scratch.put("main", {f"tiring/{nonce}": b"%d" % number})
        name = f"pin-{commit[:12]}-{nonce}"
        pins.make(scratch.repository, commit, branch=name, nonce=nonce)
        asked.append(PinAsked(commit=commit, branch=name, nonce=nonce))
    tired, known = pins_on(lakefs, TiringServer), []
    for left in range(30):
        tired._server.left = left
        try:
            seen = tired.seen(scratch.repository, asked, tries=[asked[0].branch])
        except StoreUnavailable:
            assert not known
            continue
        # Never less for more answers, and never a word of a pin that was not seen.
        assert all(one.strength is Strength.GUARDED for one in seen.values())
        known.append(len(seen))
    assert known[0] == 1
    assert known[-1] == 4
    assert left_behind(scratch, asked[0].branch) == set()
