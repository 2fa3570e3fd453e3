"""Branches, commits and what becomes of them: paging, merging, restoring, retention."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from lakemark.sandbox.lakefs.identity import commit_id
from tests.sandbox.serving import Repository

pytestmark = pytest.mark.xdist_group("lakefs-history")

DAY = 86_400


def rederived(commit: dict[str, Any]) -> str:
    names = {"tree": "meta_range_id", "created_s": "creation_date"}
    fields = ("committer", "message", "tree", "created_s", "metadata", "parents")
    return commit_id(**{field: commit[names.get(field, field)] for field in fields})


def test_every_commit_carries_the_id_of_its_fields(repository: Repository):
    repository.committed("main", {"a": b"1"}, metadata={"b": "2", "a": "1", "ü": ""}, date=1_700_000_000)
    repository.branch("side", "main")
    repository.committed("side", {"b": b"1"})
    repository.committed("main", {"a": b"2"})
    assert repository.send("POST", "/refs/side/merge/main", json={"metadata": {"k": "v"}}).status_code == 200
    found = repository.log("main")
    assert len(found) == 5
    for commit in found:
        assert rederived(commit) == commit["id"]


def test_the_log_comes_in_pages_that_join(repository: Repository):
    for number in range(25):
        repository.commit("main", f"{number}", allow_empty=True)
    seen: list[dict[str, Any]] = []
    after = ""
    while True:
        params = {"amount": 7, "after": after, "first_parent": True}
        answer = repository.send("GET", "/refs/main/commits", params=params).json()
        seen += answer["results"]
        if not answer["pagination"]["has_more"]:
            break
        after = answer["pagination"]["next_offset"]
    assert [commit["message"] for commit in seen] == [*map(str, reversed(range(25))), "Repository created"]
    assert all(commit["parents"] == [parent["id"]] for commit, parent in pairwise(seen))


def test_a_page_after_a_commit_off_the_path_is_empty(repository: Repository):
    repository.committed("main", {"a": b"1"})
    repository.branch("side", "main")
    side = repository.committed("side", {"b": b"1"})
    assert repository.log("main", after=side["id"]) == []
    unknown = repository.send("GET", "/refs/main/commits", params={"after": "0" * 64})
    assert (unknown.status_code, unknown.json()["message"]) == (404, "from ref: not found")


def test_since_prunes_whatever_lies_behind_an_older_commit(repository: Repository):
    now = int(time.time())
    for message, days_ago in (("new", 1), ("back-dated", 30), ("newest", 0)):
        repository.commit("main", message, allow_empty=True, date=now - days_ago * DAY)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 7 * DAY))
    assert [commit["message"] for commit in repository.log("main", since=since)] == ["newest"]
    with_offset = since.replace("Z", "+00:00")
    assert [commit["message"] for commit in repository.log("main", since=with_offset)] == ["newest"]
    assert repository.send("GET", "/refs/main/commits", params={"since": since[:-1]}).status_code == 400
    assert repository.send("GET", "/refs/main/commits", params={"since": "yesterday"}).status_code == 400


def test_first_parents_are_the_branchs_own_history(repository: Repository):
    repository.committed("main", {"a": b"1"})
    repository.branch("side", "main")
    side = repository.committed("side", {"b": b"1"})
    main = repository.committed("main", {"c": b"1"})
    merged = repository.send("POST", "/refs/side/merge/main", json={}).json()["reference"]
    assert repository.head("main")["parents"] == [main["id"], side["id"]]
    own = [commit["id"] for commit in repository.log("main", first_parent=True)]
    assert own[:2] == [merged, main["id"]]
    assert side["id"] not in own
    assert side["id"] in [commit["id"] for commit in repository.log("main")]
    assert repository.paths("main") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        ({}, {"a": b"2"}, {"a": b"2", "b": b"1"}),
        ({"b": None}, {"a": b"2"}, {"a": b"2"}),
        ({"c": b"1"}, {"a": None}, {"b": b"1", "c": b"1"}),
        ({"c": b"1"}, {"c": b"1", "d": b"1"}, {"a": b"1", "b": b"1", "c": b"1", "d": b"1"}),
        ({"a": None}, {"a": None, "b": b"2"}, {"b": b"2"}),
        ({"a": b"2"}, {"a": b"3"}, None),
        ({"a": None}, {"a": b"3"}, None),
        ({"c": b"2"}, {"c": b"3"}, None),
    ],
    ids=str,
)
def test_merging(repository: Repository, ours, theirs, merged):
    repository.committed("main", {"a": b"1", "b": b"1"})
    repository.branch("side", "main")
    for branch, changes in (("main", ours), ("side", theirs)):
        for path in [path for path, content in changes.items() if content is None]:
            repository.send("DELETE", f"/branches/{branch}/objects", params={"path": path})
        repository.committed(branch, {path: content for path, content in changes.items() if content}, allow_empty=True)
    outcome = [kind for kind, _ in repository.diff("main", "side", "three_dot")]
    answer = repository.send("POST", "/refs/side/merge/main", json={})
    assert ("conflict" in outcome) == (merged is None)
    assert answer.status_code == (409 if merged is None else 200)
    if merged is None:
        assert answer.json() == {"reference": ""}
        assert repository.send("POST", "/refs/side/merge/main", json={"strategy": "source-wins"}).status_code == 200
        merged = {"a": b"1", "b": b"1"} | ours | theirs
    shown = {path: repository.get("main", path).content for path in repository.paths("main")}
    assert shown == {path: content for path, content in merged.items() if content is not None}


def test_a_forward_restore_brings_a_tree_back_on_top(repository: Repository):
    old = repository.committed("main", {"a": b"1", "b": b"1"})
    new = repository.committed("main", {"a": b"2", "c": b"2"})
    assert repository.diff(old["id"], new["id"]) == [("changed", "a"), ("added", "c")]
    restored = repository.commit("main", "restore", tree=old["meta_range_id"])
    assert (restored.status_code, restored.json()["parents"]) == (201, [new["id"]])
    assert repository.diff(old["id"], "main") == []
    assert repository.get("main", "a").content == b"1"


def test_a_tree_that_does_not_exist_is_taken_and_breaks_the_branch(repository: Repository):
    good = repository.committed("main", {"a": b"1"})
    broken = repository.commit("main", "restore", tree="ab" * 32)
    assert (broken.status_code, broken.json()["meta_range_id"]) == (201, "ab" * 32)
    assert repository.get("main", "a").status_code == 410
    assert repository.send("GET", "/refs/main/objects/ls").status_code == 410
    assert repository.send("GET", f"/refs/{good['id']}/diff/main", params={"type": "two_dot"}).status_code == 410
    assert repository.upload("main", "b", b"1").status_code == 201
    assert repository.commit("main", "more").status_code == 410
    assert repository.get(good["id"], "a").content == b"1"
    assert repository.send("PUT", "/branches/main", json={"type": "reset"}).status_code == 204
    assert repository.send("PUT", "/branches/main/hard_reset", params={"ref": good["id"]}).status_code == 204
    assert repository.get("main", "a").content == b"1"


def test_reverting_and_picking(repository: Repository):
    repository.committed("main", {"a": b"1"})
    second = repository.committed("main", {"a": b"2"})
    third = repository.committed("main", {"b": b"1"})
    undo = {"ref": second["id"], "parent_number": 0}
    assert repository.send("POST", "/branches/main/revert", json=undo).status_code == 204
    assert repository.get("main", "a").content == b"1"
    assert repository.send("POST", "/branches/main/revert", json=undo).status_code == 400
    repository.branch("side", second["id"])
    picked = repository.send("POST", "/branches/side/cherry-pick", json={"ref": third["id"]})
    assert picked.status_code == 201
    assert picked.json()["metadata"] == {"cherry-pick-origin": third["id"], "cherry-pick-committer": "admin"}
    assert repository.paths("side") == ["a", "b"]
    merged = repository.send("POST", "/refs/side/merge/main", json={"allow_empty": True}).json()["reference"]
    no_parent = repository.send("POST", "/branches/main/revert", json={"ref": merged, "parent_number": 0})
    no_such = repository.send("POST", "/branches/main/revert", json={"ref": merged, "parent_number": 3})
    assert [no_parent.status_code, no_such.status_code] == [409, 400]


def test_a_branch_with_staged_changes_takes_no_merge(repository: Repository):
    repository.committed("main", {"a": b"1"})
    repository.branch("side", "main")
    side = repository.committed("side", {"b": b"1"})
    repository.upload("main", "c", b"1")
    refused = [
        repository.send("POST", "/refs/side/merge/main", json={}),
        repository.send("POST", "/branches/main/revert", json={"ref": side["id"], "parent_number": 0}),
        repository.send("POST", "/branches/main/cherry-pick", json={"ref": side["id"]}),
        repository.commit("main", "restore", tree=side["meta_range_id"]),
    ]
    assert [answer.status_code for answer in refused] == [400] * 4
    assert repository.paths("main") == ["a", "c"]


def test_staging_what_is_there_already_is_no_change(repository: Repository):
    repository.committed("main", {"a": b"1"})
    repository.upload("main", "a", b"1")
    answer = repository.commit("main", "again")
    assert (answer.status_code, answer.json()["message"]) == (400, "commit: no changes")


def test_commits_on_one_branch_form_one_line(repository: Repository):
    def commit(number: int) -> str:
        return repository.committed("main", {f"part-{number}": b"%d" % number}, allow_empty=True)["id"]

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(commit, range(24)))
    line = repository.log("main", first_parent=True)
    assert made == {each["id"] for each in line[:-1]}
    assert all(each["parents"] == [parent["id"]] for each, parent in pairwise(line))
    assert repository.paths("main") == sorted(f"part-{number}" for number in range(24))


def test_a_full_id_is_a_commit_before_it_is_a_branch(repository: Repository):
    first = repository.committed("main", {"a": b"1"})
    second = repository.committed("main", {"a": b"2"})
    repository.branch(first["id"], second["id"])
    repository.branch(first["id"][:12], second["id"])
    assert repository.head(first["id"])["id"] == first["id"]
    assert repository.head(first["id"][:12])["id"] == second["id"]
    assert repository.head(first["id"][:20])["id"] == first["id"]
    assert [repository.head(f"main{steps}")["id"] for steps in ("~1", "^", "~0", "^1~0")] == [
        first["id"],
        first["id"],
        second["id"],
        first["id"],
    ]


def test_protection_changes_only_from_the_state_that_was_read(repository: Repository):
    where = "/settings/branch_protection"
    assert repository.send("GET", where).headers["etag"] == ""
    assert repository.send("PUT", where, json=[{"pattern": "a"}], headers={"If-Match": ""}).status_code == 400
    assert repository.send("PUT", where, json=[{"pattern": "a"}]).status_code == 204
    state = repository.send("GET", where).headers["etag"]
    both = [{"pattern": "a"}, {"pattern": "pin-*"}]
    assert repository.send("PUT", where, json=both, headers={"If-Match": state}).status_code == 204
    assert repository.send("PUT", where, json=[], headers={"If-Match": state}).status_code == 412
    assert repository.send("GET", where).json() == both
    repository.branch("pin-1", "main")
    assert repository.upload("pin-1", "a", b"1").status_code == 403
    answer = repository.send("POST", "/branches/pin-1/objects/delete", json={"paths": ["a"]})
    assert [each["status_code"] for each in answer.json()["errors"]] == [403]


def active(repository: Repository) -> list[str]:
    answer = repository.send("POST", "/gc/prepare_commits")
    assert answer.status_code == 201, answer.text
    name = answer.json()["gc_commits_location"].rsplit("/", 1)[1]
    (listed,) = repository.server.directory.joinpath("objects").rglob(name)
    return [line.split(",")[0] for line in listed.read_text().splitlines()[1:]]


def test_retention_keeps_what_branches_point_to_and_nothing_for_a_tag(repository: Repository):
    now = int(time.time())
    ids = []
    for number, days_ago in enumerate((60, 50, 40, 30, 20, 10)):
        ids.append(repository.committed("main", {"a": b"%d" % number}, date=now - days_ago * DAY)["id"])
    repository.branch("pin-1", ids[1], hidden=True)
    repository.send("POST", "/tags", json={"id": "v1", "ref": ids[2]})
    repository.branch("gone", ids[0])
    gone = repository.committed("gone", {"b": b"1"}, date=now - 55 * DAY)["id"]
    repository.send("DELETE", "/branches/gone")
    assert repository.send("POST", "/gc/prepare_commits").status_code == 404
    repository.send("PUT", "/settings/gc_rules", json={"default_retention_days": 1, "branches": []})
    assert repository.send("GET", "/settings/gc_rules").json() == {"branches": None, "default_retention_days": 1}
    assert set(active(repository)) == {ids[5], ids[1]}
    rule = {"branch_id": "main", "retention_days": 25}
    repository.send("PUT", "/settings/gc_rules", json={"default_retention_days": 1, "branches": [rule]})
    assert set(active(repository)) == {ids[5], ids[4], ids[3], ids[1]}
    repository.send("PUT", "/settings/gc_rules", json={"default_retention_days": 56, "branches": []})
    assert set(active(repository)) == {*ids, gone}
