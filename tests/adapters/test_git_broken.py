"""Damage inside packs: found by reading, named by the record, never copied to a tier, and taken back from a copy."""

import os
import shutil
import subprocess

import pytest

from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.git.owners import owners
from lakemark.errors import Corrupt
from tests.adapters.test_git_ledger import RUN, Told


def git(path, *arguments):
    return subprocess.run(["git", "--git-dir", path, *arguments], capture_output=True, text=True, check=True).stdout


def oid_of(path, revision, name):
    return git(path, "rev-parse", f"{revision}:{name}").strip()


def commits_of(path):
    return git(path, "rev-list", "--reverse", "--first-parent", f"refs/heads/runs/{RUN}").split()


def break_in_pack(path, oid):
    """Changes bytes of a packed object, as a disk that rots does."""
    for index in (path / "objects" / "pack").glob("*.idx"):
        for line in git(path, "verify-pack", "-v", index).splitlines():
            words = line.split()
            if words and words[0] == oid:
                size, offset = int(words[3]), int(words[4])
                pack = index.with_suffix(".pack")
                os.chmod(pack, 0o644)
                data = bytearray(pack.read_bytes())
                data[offset + size // 2] ^= 0xFF
                data[offset + size - 3] ^= 0xFF
                pack.write_bytes(data)
                return
    raise AssertionError(f"{oid} is in no pack")


@pytest.fixture
def packed(tmp_path):
    """A ledger of which all lies in a pack; its path, and the run's entries' commits."""
    told = Told(tmp_path / "ledger.git")
    for step in (1, 2, 3):
        told.commit(step)
    told.ledger.pack()
    told.ledger.close()
    return told.path, commits_of(told.path)


@pytest.mark.parametrize("name", ["manifest.json", "record.json", "entry.json"])
def test_it_is_found_by_the_entry_and_record(packed, name):
    path, commits = packed
    ledger = GitLedger(path)
    state = ledger.run(RUN)  # as from an index: the objects of old entries are not asked any more
    sequence = next(found.sequence for found in state.records.values() if found.record.step == 2)
    assert ledger.broken(RUN, after=0, limit=100) == ()
    ledger.close()
    break_in_pack(path, oid_of(path, commits[sequence - 1], name))
    again = GitLedger(path, cache=None)
    if name == "manifest.json":
        (one,) = again.broken(RUN, after=0, limit=100)
        assert (one.file, one.sequence) == (name, sequence)
        assert one.record in state.records
        assert again.broken(RUN, after=sequence, limit=100) == ()
        assert again.broken_branches() == {}
    else:  # without an index the branch can't be followed: that is red by itself
        with pytest.raises(Corrupt):
            again.broken(RUN, after=0, limit=100)
        assert again.broken_branches() == {RUN: commits[-1]}
    again.close()


def test_it_is_never_bundled(packed):
    """What replaces the copy in a tier must be whole."""
    path, commits = packed
    ledger = GitLedger(path)
    with ledger.bundle() as copy, (path.parent / "copy").open("wb") as file:
        shutil.copyfileobj(copy, file)
    git(path.parent, "clone", "--quiet", "--mirror", path.parent / "copy", path.parent / "clone.git")
    assert git(path.parent / "clone.git", "rev-parse", f"refs/heads/runs/{RUN}").strip() == commits[-1]
    break_in_pack(path, oid_of(path, commits[-2], "manifest.json"))
    again = GitLedger(path)
    with pytest.raises(Corrupt, match="can't be bundled"), again.bundle():
        pass
    assert not [name for name in os.listdir(path / "lakemark") if name.startswith("bundling.")]
    with (path.parent / "copy").open("rb") as file:
        again.take(file)
    assert again.broken(RUN, after=0, limit=100) == ()
    with again.bundle():
        pass
    again.close()
    ledger.close()


def test_a_manifest_is_put_back_where_a_pack_has_it_damaged(packed):
    path, commits = packed
    ledger = GitLedger(path)
    record = next(found.record for found in ledger.run(RUN).records.values() if found.record.step == 1)
    manifest = ledger.manifest(RUN, record.id)
    ledger.close()
    break_in_pack(path, oid_of(path, commits[1], "manifest.json"))
    again = GitLedger(path)
    with pytest.raises(Corrupt):
        again.manifest(RUN, record.id)
    assert again.put_manifest(RUN, record.id, manifest)
    assert again.manifest(RUN, record.id) == manifest
    assert again.broken(RUN, after=0, limit=100) == ()
    assert again.is_whole()
    assert list((path / "lakemark" / "damaged").glob("*.pack"))  # in case somebody knows more than we do
    again.close()


def test_a_damaged_loose_object_is_known_by_its_owner(tmp_path):
    told = Told(tmp_path / "ledger.git")
    for step in (1, 2, 3):
        told.commit(step)
    told.ledger.close()
    path = told.path
    commits = commits_of(path)
    wanted = {
        oid_of(path, commits[-2], "manifest.json"),
        commits[1],
        git(path, "rev-parse", f"{commits[-1]}^{{tree}}").strip(),
    }
    shown = sorted(one.shown for one in owners(path, wanted).values())
    assert [text.split(" (")[0] for text in shown] == [f"an entry of {RUN}@3", f"manifest.json of {RUN}@2"]
