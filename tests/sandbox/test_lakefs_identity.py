"""Ids by content, and trees: what is the same is called the same, however it came about."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lakemark.sandbox.lakefs import trees
from lakemark.sandbox.lakefs.blobs import ObjectFiles
from lakemark.sandbox.lakefs.database import Database
from lakemark.sandbox.lakefs.entries import ObjectEntry
from lakemark.sandbox.lakefs.identity import commit_id
from lakemark.sandbox.lakefs.scope import Repository, Scope

COMMITS = [
    json.loads(line) for line in Path(__file__).with_name("data").joinpath("commits.jsonl").read_text().splitlines()
]


def derived(commit: dict[str, Any]) -> str:
    return commit_id(
        committer=commit["committer"],
        message=commit["message"],
        tree=commit["meta_range_id"],
        created_s=commit["creation_date"],
        metadata=commit["metadata"],
        parents=commit["parents"],
    )


@pytest.mark.parametrize("commit", COMMITS, ids=lambda commit: commit["id"][:12])
def test_a_real_commits_id_follows_from_its_fields(commit: dict[str, Any]):
    assert derived(commit) == commit["id"]


@pytest.mark.parametrize(
    "change",
    [
        {"committer": "else"},
        {"message": ""},
        {"meta_range_id": "0" * 64},
        {"creation_date": 0},
        {"metadata": {"a": "c"}},
        {"metadata": {}},
        {"parents": []},
    ],
    ids=str,
)
def test_any_changed_field_changes_the_id(change: dict[str, Any]):
    commit = next(commit for commit in COMMITS if commit["metadata"])
    assert derived(commit | change) != commit["id"]


@pytest.fixture(scope="module")
def scope(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scope]:
    directory = tmp_path_factory.mktemp("trees")
    database = Database(directory / "metadata.sqlite")
    with database.writing() as db:
        yield Scope(db, ObjectFiles(directory), Repository("data", "local://data", "main", 0))
    database.close()


def entry(path: str, version: int) -> ObjectEntry:
    return ObjectEntry(path, f"blob-{version}", f"{version:032x}", version, 0, "application/octet-stream", {})


def built(scope: Scope, contents: dict[str, int]) -> str:
    return trees.apply(scope, trees.NO_TREE, {path: entry(path, version) for path, version in contents.items()})


# Few paths, so that histories meet; enough that several ranges come about.
ALL = [f"part-{number}" for number in range(2000)]
ENDS = [path for path in ALL if trees._ends_range(path)]
PATHS = st.sampled_from(ALL) | st.sampled_from(ENDS)
PATCHES = st.lists(st.dictionaries(PATHS, st.none() | st.integers(1, 3), max_size=30), max_size=4)


@given(patches=PATCHES, base=st.integers(0, 1500))
def test_a_tree_changed_bit_by_bit_is_the_tree_written_at_once(scope: Scope, patches: list[Any], base: int):
    contents = {f"part-{number}": 9 for number in range(base)}
    tree = built(scope, contents)
    for patch in patches:
        tree = trees.apply(scope, tree, {path: version and entry(path, version) for path, version in patch.items()})
        contents = {path: version for path, version in (contents | patch).items() if version is not None}
    assert tree == built(scope, contents)
    assert [each.path for each in trees.scan(scope, tree)] == sorted(contents)


@given(
    left=st.dictionaries(PATHS, st.integers(1, 2)), right=st.dictionaries(PATHS, st.integers(1, 2)), base=st.booleans()
)
def test_the_changes_between_two_trees_are_those_of_their_contents(scope, left, right, base):
    common = {f"part-{number}": 9 for number in range(1500)} if base else {}
    left, right = common | left, common | right
    found = trees.changes(scope, built(scope, left), built(scope, right))
    shown = {
        change.path: (change.before and change.before.size_bytes, change.after and change.after.size_bytes)
        for change in found
    }
    expected = {
        path: (left.get(path), right.get(path))
        for path in sorted(left.keys() | right.keys())
        if left.get(path) != right.get(path)
    }
    assert list(shown.items()) == list(expected.items())


def test_a_small_change_rewrites_few_ranges(scope: Scope):
    tree = built(scope, {f"wide-{number}": 1 for number in range(5000)})
    assert len(trees._ranges(scope, tree)) > 10
    before = scope.db.execute("SELECT count(*) FROM range").fetchone()[0]
    trees.apply(scope, tree, {"wide-77": entry("wide-77", 2), "wide-4000": None})
    assert scope.db.execute("SELECT count(*) FROM range").fetchone()[0] - before <= 3


def test_where_bytes_lie_and_when_they_came_makes_no_other_version():
    one = ObjectEntry("a", "blob-1", "0" * 32, 1, 100, "text/plain", {"k": "v"})
    assert one.identity == ObjectEntry("a", "blob-2", "0" * 32, 1, 200, "text/plain", {"k": "v"}).identity
    assert one.identity != ObjectEntry("a", "blob-1", "0" * 32, 1, 100, "text/plain", {}).identity
    assert one.identity != ObjectEntry("a", "blob-1", "0" * 32, 1, 100, "text/csv", {"k": "v"}).identity
