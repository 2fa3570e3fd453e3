"""Heartbeats: replaced by their own node, with nothing left that grows with time."""

import os
import subprocess
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.git.make import init
from lakemark.adapters.git.mend import mend
from lakemark.adapters.git.mirror import ReadOnlyLedger, refresh
from lakemark.adapters.git.nodes import NODES, heartbeats
from lakemark.errors import Refused
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import Draft, Stamp

AT = datetime(2026, 11, 26, 12, tzinfo=UTC)
STAMP = Stamp(at=AT, node="node-a", actor="ana@node-a", request="r")


@pytest.fixture
def path(tmp_path):
    init(tmp_path / "ledger.git")
    return tmp_path / "ledger.git"


def beat(path, number, node="node-a"):
    at = AT + timedelta(minutes=number)
    return GitLedger(path).beat(node, lambda last: replace(last or Heartbeat(node=node, at=at), at=at))


def objects(path):
    return sorted(one for one in (path / "objects").glob("??/*") if one.is_file())


def test_a_year_of_heartbeats_leaves_two_objects_and_no_history(path):
    before = len(objects(path))
    for number in range(40):
        beat(path, number)
        assert len(objects(path)) - before <= 2
    assert GitLedger(path).heartbeats()["node-a"].at == AT + timedelta(minutes=39)
    assert GitLedger(path).tips() == {}
    GitLedger(path).pack()
    beat(path, 41)
    assert len(objects(path)) - before == 2
    assert GitLedger(path).is_whole()


def test_each_node_has_its_own(path):
    beat(path, 1)
    beat(path, 2, node="Node_B.rack-7")
    found = GitLedger(path).heartbeats()
    assert {node: said.at for node, said in found.items()} == {
        "node-a": AT + timedelta(minutes=1),
        "Node_B.rack-7": AT + timedelta(minutes=2),
    }


def test_a_mount_that_says_that_all_is_free_keeps_no_node_silent(path):
    said = Heartbeat(node="node-a", at=AT, free_bytes={"hot": 2**63 - 1, "cold": 10})
    GitLedger(path).beat("node-a", lambda _: said)
    assert GitLedger(path).heartbeats()["node-a"].free_bytes == {"hot": 2**53 - 1, "cold": 10}


@pytest.mark.parametrize("node", ["", "..", "a/b", "a..b", "-a", "a.lock", "x" * 64, "a b", "a\n"])
def test_what_is_no_node_s_name_makes_no_reference(path, node):
    with pytest.raises(ValueError, match="node's name"):
        beat(path, 1, node=node)
    assert GitLedger(path).heartbeats() == {}


@pytest.mark.parametrize("text", ["", "nonsense", "0" * 40 + "\n"])
def test_a_damaged_one_is_left_out_and_replaced(path, text):
    beat(path, 1)
    (path / NODES / "node-a").write_text(text)
    assert GitLedger(path).heartbeats() == {}
    beat(path, 2)
    assert GitLedger(path).heartbeats()["node-a"].at == AT + timedelta(minutes=2)


def test_a_damaged_one_is_set_aside_by_a_recovery(path):
    beat(path, 1)
    (path / NODES / "node-a").write_text("nonsense")
    assert any("nodes/node-a" in said for said in mend(path, lambda: None))
    assert GitLedger(path).is_whole()


def test_a_copy_of_the_ledger_has_none_and_a_mirror_has_them(path, tmp_path):
    ledger = GitLedger(path)
    ledger.append("r1", lambda _: Draft(kind="opened", timeline=1), STAMP)
    ledger.append_site(lambda _: Draft(kind="node_seen", body={"node": "node-a"}), STAMP)
    beat(path, 1)
    with ledger.bundle() as copy:
        (tmp_path / "bundle").write_bytes(copy.read())
    heads = subprocess.run(
        ["git", "bundle", "list-heads", str(tmp_path / "bundle")], check=True, capture_output=True, text=True
    )
    assert "lakemark/nodes" not in heads.stdout
    assert "refs/heads/runs/r1" in heads.stdout
    for number in (1, 2):  # replaced, which is no rewritten history
        beat(path, number)
        refresh(tmp_path / "mirror.git", str(path))
        mirror = ReadOnlyLedger(tmp_path / "mirror.git")
        assert mirror.heartbeats()["node-a"].at == AT + timedelta(minutes=number)
    with pytest.raises(Refused):
        mirror.beat("node-a", lambda last: last)


def test_the_mirror_of_a_ledger_is_that_ledger(path, tmp_path):
    ledger = GitLedger(path)
    draft = Draft(kind="founded", body={"id": ledger.id, "site": "s"})
    ledger.append_site(lambda _: draft, STAMP)
    refresh(tmp_path / "mirror.git", str(path))
    assert ReadOnlyLedger(tmp_path / "mirror.git").id == ledger.id


def test_one_that_git_packs_at_this_moment_is_not_missed(path):
    beat(path, 1)
    loose, packed = path / NODES / "node-a", path / "packed-refs"
    oid = loose.read_text().strip()
    os.mkfifo(packed)

    def pack():
        # Opens once the reader is there, and gives it the file as it was before Git packed the reference.
        with packed.open("w") as before:
            (path / "packed-refs.new").write_text(
                f"# pack-refs with: peeled fully-peeled sorted \n{oid} {NODES}node-a\n"
            )
            (path / "packed-refs.new").rename(packed)
            loose.unlink()
            before.write("# pack-refs with: peeled fully-peeled sorted \n")

    git = threading.Thread(target=pack)
    git.start()
    found = heartbeats(path)
    git.join()
    assert found["node-a"].at == AT + timedelta(minutes=1)
