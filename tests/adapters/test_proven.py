"""Whatever a manifest is read from, it is its record's, and its numbers are within bounds, before a byte is used."""

import json
from dataclasses import replace

import pygit2
import pytest

from lakemark.adapters.disk.digests import Digester
from lakemark.adapters.disk.proven_manifest import proven
from lakemark.adapters.dvc.layout import Claim, claim_key
from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.hot.marker import Sealed, tree_of
from lakemark.adapters.hot.named_trees import Shelf
from lakemark.errors import Corrupt, Refused
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import Record, record_for
from lakemark.model.ledger.entry import Attachments, Draft, Entry
from tests.adapters.test_git_ledger import RUN, START, Told, git

PART = 4
CONTENT = b"ten bytes!"


def file_of(content, path="w.bin"):
    digester = Digester(PART)
    digester.update(memoryview(content))
    found = digester.finish()
    return File(path=path, size_bytes=len(content), digest=found.digest, parts=found.parts)


RIGHT = Manifest(files=(file_of(CONTENT),), part_size_bytes=PART)
RECORD = record_for(RIGHT, run=RUN, timeline=1, step=10, saved_at=START, node="node-a")
OTHER = Manifest(files=(file_of(b"other byte"),), part_size_bytes=PART)
WRONG_PART = replace(RIGHT.files[0], parts=(*OTHER.files[0].parts[:1], *RIGHT.files[0].parts[1:]))
HOSTILE = {
    "another file's digest": OTHER.as_json(),
    "no files": {**RIGHT.as_json(), "files": []},
    "no list of files": {key: value for key, value in RIGHT.as_json().items() if key != "files"},
    "another size": {**RIGHT.as_json(), "files": [{**RIGHT.files[0].as_json(), "size_bytes": 11}]},
    "another path": {**RIGHT.as_json(), "files": [{**RIGHT.files[0].as_json(), "path": "v.bin"}]},
    "one file more": {**RIGHT.as_json(), "files": [RIGHT.files[0].as_json(), file_of(b"x", "x").as_json()]},
    "a part of other bytes": {**RIGHT.as_json(), "files": [WRONG_PART.as_json()]},
    "no parts": {**RIGHT.as_json(), "files": [{**RIGHT.files[0].as_json(), "parts": []}]},
    "parts of no length": {**RIGHT.as_json(), "part_size_bytes": 0},
    "parts of a negative length": {**RIGHT.as_json(), "part_size_bytes": -1},
    "parts of all memory": {**RIGHT.as_json(), "part_size_bytes": 2**50},
    "true as a length": {**RIGHT.as_json(), "part_size_bytes": True},
}
hostile = pytest.mark.parametrize("manifest", HOSTILE.values(), ids=HOSTILE)


def forged(path, files):
    """The tip's commit with other files in its tree, as whoever keeps a mirror can make it."""
    repository = pygit2.Repository(str(path))
    tip = repository[git(path, "rev-parse", f"runs/{RUN}").strip()]
    builder = repository.TreeBuilder(tip.tree)
    for name, data in files.items():
        builder.insert(name, repository.create_blob(data), 0o100644)
    commit = repository.create_commit(None, tip.author, tip.committer, tip.message, builder.write(), tip.parent_ids)
    git(path, "update-ref", f"refs/heads/runs/{RUN}", str(commit))


@pytest.fixture
def told(tmp_path):
    found = Told(tmp_path / "ledger.git")
    draft = Draft(
        kind="committed", timeline=1, contents=Attachments(record=RECORD, manifest=RIGHT), body={"tier": "hot"}
    )
    found.add(draft)
    return found


@hostile
def test_a_ledger_s_manifest(told, manifest):
    forged(told.path, {"manifest.json": json.dumps(manifest).encode()})
    with pytest.raises(Corrupt):
        GitLedger(told.path).manifest(RUN, RECORD.id)


@hostile
def test_a_tier_s_claim(manifest):
    claim = Claim(record=RECORD, manifest=RIGHT, objects={}, claimed_at=START)
    value = {**json.loads(claim.to_bytes()), "manifest": manifest}
    with pytest.raises(Corrupt):
        Claim.from_bytes(json.dumps(value).encode(), key=claim_key(RECORD.id))


@hostile
def test_a_hot_tree_s_marker(manifest):
    sealed = Sealed(record=RECORD, manifest=RIGHT, tree=tree_of(RECORD))
    value = {**json.loads(sealed.to_bytes()), "manifest": manifest}
    with pytest.raises(Corrupt):
        Sealed.from_bytes(json.dumps(value).encode())


@pytest.mark.parametrize("harm", ["another tree", "another record's"])
def test_a_marker_that_was_renamed(tmp_path, harm):
    shelf = Shelf(tmp_path, tmp_path / ".lakemark", None)
    shelf.make()
    tree = tree_of(RECORD) if harm != "another tree" else "../../home"
    at = RECORD.id if harm == "another tree" else "0" * 64
    shelf.marker(at).write_bytes(Sealed(record=RECORD, manifest=RIGHT, tree=tree).to_bytes())
    with pytest.raises(Corrupt):
        shelf.find(at)


def test_the_right_one(told):
    assert GitLedger(told.path).manifest(RUN, RECORD.id) == RIGHT
    assert proven(RECORD, Manifest.from_json(RIGHT.as_json())) == RIGHT


def test_a_manifest_of_another_record_is_not_appended(told):
    record = record_for(OTHER, run=RUN, timeline=1, step=20, saved_at=START, node="node-a")
    with pytest.raises(Refused):
        told.add(Draft(kind="committed", timeline=1, contents=Attachments(record=record, manifest=RIGHT)))


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"timeline": 0},
        {"size_bytes": -1},
        {"files": -1},
        {"run": "../up"},
        {"content": "x" * 64},
        {"parent": "../x"},
        {"supersedes": "A" * 64},
        {"step": 1.5},
        {"step": 2**60},
        {"data": [{"kind": "none", "from_step": -1}]},
    ],
    ids=str,
)
def test_a_record_s_fields_have_bounds(changes):
    value = {**RECORD.as_json(), **changes}
    value["record"] = "f" * 64
    with pytest.raises(Corrupt, match="can't be read"):
        Record.from_json(value)


@pytest.mark.parametrize(
    "changes",
    [{"sequence": 0}, {"timeline": -1}, {"record": "x"}, {"record_digest": "../x"}, {"sequence": 2**60}],
    ids=str,
)
def test_an_entry_s_fields_have_bounds(told, changes):
    value = json.loads(told.show("entry.json"))
    assert Entry.from_json(value).record == RECORD.id
    with pytest.raises(Corrupt, match="can't be read"):
        Entry.from_json({**value, **changes})


@pytest.mark.parametrize("size", [-1, 2**60, True, "5"])
def test_a_file_s_size_has_bounds(size):
    with pytest.raises(Corrupt):
        File.from_json({"path": "a", "size_bytes": size, "digest": "0" * 64})
