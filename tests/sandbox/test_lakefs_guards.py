"""Actions: a pin that carries its own guard, and what a guard's script may do."""

from typing import Any

import pytest

from tests.sandbox.serving import Repository

pytestmark = pytest.mark.xdist_group("lakefs-guards")

EVENTS = ("pre-delete-branch", "pre-revert", "pre-merge", "pre-cherry-pick")
ASKS_FOR_A_MARKER = """
local lakefs = require("lakefs")
local code = lakefs.get_object(action.repository_id, "lakemark-released", action.branch_id .. "/{nonce}")
if code ~= 200 then
  error("this data version is pinned (" .. code .. ")")
end
"""


def action(script: str, events: tuple[str, ...] = EVENTS, branches: str = "pin-*") -> bytes:
    on = "".join(f'  {event}:\n    branches: ["{branches}"]\n' for event in events)
    body = "".join(f"        {line}\n" for line in script.strip().splitlines())
    return (
        f"name: guard\non:\n{on}hooks:\n  - id: guard\n    type: lua\n    properties:\n      script: |\n{body}".encode()
    )


def pin(repository: Repository, name: str, source: str, script: str) -> dict[str, Any]:
    """A commit that adds nothing but the guard, and a hidden branch at it."""
    repository.branch(f"tmp-{name}", source, hidden=True)
    guard = repository.committed(f"tmp-{name}", {"_lakefs_actions/guard.yaml": action(script)})
    assert repository.branch(name, guard["id"], hidden=True).status_code == 201
    assert repository.send("DELETE", f"/branches/tmp-{name}").status_code == 204
    return guard


def delete(repository: Repository, name: str) -> int:
    return repository.send("DELETE", f"/branches/{name}").status_code


@pytest.fixture
def data(repository: Repository) -> dict[str, Any]:
    commit = repository.committed("main", {"part-0": b"zero", "part-1": b"one"})
    repository.branch("lakemark-released", commit["id"], hidden=True)
    return commit


def test_a_pin_opens_for_its_own_marker_alone(repository: Repository, data):
    pin(repository, "pin-1", data["id"], ASKS_FOR_A_MARKER.format(nonce="n1"))
    refused = repository.send("DELETE", "/branches/pin-1")
    assert refused.status_code == 412
    assert "this data version is pinned (404)" in refused.json()["message"]
    assert repository.upload("lakemark-released", "pin-2/n1", b"another pin").status_code == 201
    assert repository.upload("lakemark-released", "pin-1/n0", b"another nonce").status_code == 201
    assert delete(repository, "pin-1") == 412
    assert repository.upload("lakemark-released", "pin-1/n1", b"no longer needed").status_code == 201
    assert delete(repository, "pin-1") == 204


def test_an_old_marker_does_not_open_a_new_pin(repository: Repository, data):
    pin(repository, "pin-1", data["id"], ASKS_FOR_A_MARKER.format(nonce="n1"))
    repository.upload("lakemark-released", "pin-1/n1", b"reason")
    assert delete(repository, "pin-1") == 204
    pin(repository, "pin-1", data["id"], ASKS_FOR_A_MARKER.format(nonce="n2"))
    assert delete(repository, "pin-1") == 412
    assert repository.send("GET", "/branches/pin-1").status_code == 200


def test_a_committed_marker_opens_as_a_staged_one_does(repository: Repository, data):
    pin(repository, "pin-1", data["id"], ASKS_FOR_A_MARKER.format(nonce="n1"))
    repository.committed("lakemark-released", {"pin-1/n1": b"reason"})
    assert delete(repository, "pin-1") == 204


def test_a_pin_cannot_be_moved_by_revert_or_cherry_pick(repository: Repository, data):
    guard = pin(repository, "pin-1", data["id"], ASKS_FOR_A_MARKER.format(nonce="n1"))
    later = repository.committed("main", {"part-2": b"two"})
    revert = repository.send("POST", "/branches/pin-1/revert", json={"ref": data["id"], "parent_number": 0})
    pick = repository.send("POST", "/branches/pin-1/cherry-pick", json={"ref": later["id"]})
    assert [revert.status_code, pick.status_code] == [412, 412]
    assert repository.head("pin-1")["id"] == guard["id"]
    assert repository.head("pin-1")["parents"] == [data["id"]]


def test_the_hooks_asked_before_a_merge_are_the_sources(repository: Repository, data):
    """As in lakeFS: a branch without the guard can be merged into a pin, which then has moved."""
    guard = pin(repository, "pin-1", data["id"], ASKS_FOR_A_MARKER.format(nonce="n1"))
    repository.committed("main", {"part-2": b"two"})
    repository.branch("guarded", guard["id"])
    repository.committed("guarded", {"part-3": b"three"})
    assert repository.send("POST", "/refs/guarded/merge/pin-1", json={}).status_code == 412
    assert repository.head("pin-1")["id"] == guard["id"]
    merged = repository.send("POST", "/refs/main/merge/pin-1", json={})
    assert merged.status_code == 200
    assert repository.head("pin-1")["parents"][0] == guard["id"]


def test_a_pattern_decides_which_branches_an_action_is_for(repository: Repository, data):
    script = action('error("no")', ("pre-delete-branch",), "pin-?")
    guarded = repository.committed("main", {"_lakefs_actions/guard.yaml": script})
    for name in ("pin-1", "pin-22", "other"):
        repository.branch(name, guarded["id"])
    assert [delete(repository, name) for name in ("pin-1", "pin-22", "other")] == [412, 204, 204]


def test_a_hook_may_refuse_the_commit_that_brings_it(repository: Repository, data):
    repository.upload(
        "main", "_lakefs_actions/guard.yaml", action('error("no " .. action.commit.message)', ("pre-commit",), "*")
    )
    refused = repository.commit("main", "guarding")
    assert (refused.status_code, "no guarding" in refused.text) == (412, True)
    assert repository.head("main")["id"] == data["id"]
    assert repository.send("PUT", "/branches/main", json={"type": "reset"}).status_code == 204
    repository.committed("main", {"part-2": b"two"})


@pytest.mark.parametrize("event", ["pre-create-branch", "pre-create-tag", "pre-delete-tag"])
def test_other_events_may_be_refused_too(repository: Repository, data, event):
    repository.send("POST", "/tags", json={"id": "old", "ref": data["id"]})
    content = b"name: guard\non:\n  %s:\nhooks:\n  - {id: no, type: lua, properties: {script: 'error(\"no\")'}}\n"
    guarded = repository.committed("main", {"_lakefs_actions/guard.yaml": content % event.encode()})
    repository.send("POST", "/tags", json={"id": "new", "ref": guarded["id"]})
    made = {
        "pre-create-branch": repository.branch("side", guarded["id"]).status_code,
        "pre-create-tag": repository.send("POST", "/tags", json={"id": "newer", "ref": guarded["id"]}).status_code,
        "pre-delete-tag": repository.send("DELETE", "/tags/new").status_code,
    }
    assert [name for name, status in made.items() if status == 412] == [event]
    assert repository.send("DELETE", "/tags/old").status_code == 204


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"name: [", "line 1"),
        (b"name: guard\non: {pre-frobnicate: }\nhooks: []\n", "pre-frobnicate"),
        (b"name: guard\non: {pre-commit: }\nhooks:\n  - {id: x, type: lua, properties: {script: x}}\n", "missing ID"),
        (b"name: guard\non: {pre-commit: }\nhooks:\n  - {id: ab, type: shell}\n", "unknown"),
    ],
    ids=["no YAML", "unknown event", "short id", "unknown type"],
)
def test_a_bad_action_file_stops_the_branch(repository: Repository, data, content, reason):
    repository.upload("main", "_lakefs_actions/guard.yaml", content)
    answer = repository.commit("main", "x")
    assert answer.status_code == 500
    assert reason in answer.json()["message"]


def test_a_hook_that_the_stand_in_cannot_run_is_no_consent(repository: Repository, data):
    content = b"name: guard\non: {pre-commit: }\nhooks:\n  - {id: web, type: webhook, properties: {url: 'http://x'}}\n"
    repository.upload("main", "_lakefs_actions/guard.yaml", content)
    assert repository.commit("main", "x").status_code == 500


def outcome(repository: Repository, data: dict[str, Any], script: str) -> str:
    pin(repository, "pin-1", data["id"], script)
    answer = repository.send("DELETE", "/branches/pin-1")
    return "" if answer.status_code == 204 else answer.json()["message"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('lakefs.get_object("a", "b", "c")', "attempt to index global 'lakefs'"),
        ("os.exit()", "attempt to index global 'os'"),
        ("io.open('x')", "attempt to index global 'io'"),
        ("python.eval('1')", "attempt to index global 'python'"),
        ("load('x')", "attempt to call global 'load'"),
        ("require('socket')", "module 'socket' not found"),
        ("local f = require('lakefs').get_object; f.__globals__.x()", "attempt to index"),
        ("local a = = 1", "syntax error"),
        ("while true do end", "too many instructions"),
        ("local s = 'x' while true do s = s .. s end", "not enough memory"),
        ("require('hook').fail('not today')", "action failed: not today"),
        ("error('no')", 'runtime error: [string "lua"]:1: no'),
        (
            "local code, body = require('lakefs').get_object(action.repository_id, 'main', 'part-0') error(code .. body)",
            "200zero",
        ),
        (
            "local code, body = require('lakefs').stat_object(action.repository_id, 'main', 'part-0') error(body)",
            '"size_bytes": 4',
        ),
        (
            "local code, body = require('lakefs').get_object('nowhere', 'main', 'part-0') error(code .. body)",
            '404{"message": "repository not found"}',
        ),
        (
            "error(action.event_type .. action.action_name .. action.hook_id .. username)",
            "pre-delete-branchguardguardadmin",
        ),
        ("local _ = 1 + 1", ""),
    ],
)
def test_a_script_sees_the_action_and_the_servers_objects_only(repository: Repository, data, script, reason):
    message = outcome(repository, data, script)
    assert reason in message
    assert bool(message) == bool(reason)
