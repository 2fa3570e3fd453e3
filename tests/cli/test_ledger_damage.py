"""A record whose objects in the ledger are damaged is red by its name, found unasked, and comes back from a tier."""

import os

import pytest

from lakemark.adapters.git.ledger import GitLedger
from tests.adapters.test_git_broken import break_in_pack, git as git_at, oid_of


def committed(cli, step):
    """The commit of the entry that committed it."""
    rows = git_at(cli.home / "ledger.git", "log", "--format=%H", f"--grep=^Step: {step}$", "refs/heads/runs/r1").split()
    return rows[-1]


def pack(cli):
    ledger = GitLedger(cli.home / "ledger.git")
    ledger.pack()
    ledger.close()


def red(cli):
    return [one for one in cli("status", "--json").json["problems"] if one["colour"] == "red"]


@pytest.fixture
def away(trained):
    """Hides every tier, and brings them back."""
    names = ("hot", "cold")

    def move(*, away):
        for name in names:
            here, there = trained.home / name, trained.home / f"{name}-away"
            (here if away else there).rename(there if away else here)

    return move


def test_a_manifest_that_rots_in_a_pack(trained, away):
    pack(trained)
    path = trained.home / "ledger.git"
    break_in_pack(path, oid_of(path, committed(trained, 100), "manifest.json"))
    away(away=True)
    trained("verify", "--json")
    (named,) = [one for one in red(trained) if "in the ledger r1@100 (" in one["what"]]
    assert "manifest.json" in named["what"]
    assert "tier" in named["next"]
    away(away=False)
    done = trained("verify", "--json")
    assert done.code == 0
    assert "can be read again" in done.err
    assert red(trained) == []


def test_what_no_tier_keeps_by_itself_comes_back_from_its_copy_of_the_ledger(trained):
    trained.ok("sweep")  # leaves a copy in each tier
    pack(trained)
    path = trained.home / "ledger.git"
    break_in_pack(path, oid_of(path, committed(trained, 100), "record.json"))
    trained("verify", "--json")
    (named,) = [one for one in red(trained) if "in the ledger r1@100 (" in one["what"]]
    assert "record.json" in named["what"]
    assert "ledger recover" in named["next"]
    assert trained.ok("ledger", "recover", "--dry-run")["would"]
    trained.ok("ledger", "recover")
    trained.ok("verify", "--invariants")
    assert red(trained) == []


def test_a_loose_object_cut_to_nothing_is_named_by_its_record(trained):
    path = trained.home / "ledger.git"
    oid = oid_of(path, committed(trained, 100), "manifest.json")
    place = path / "objects" / oid[:2] / oid[2:]
    os.chmod(place, 0o644)
    place.write_bytes(b"")
    assert [one for one in red(trained) if "manifest.json of r1@100 (" in one["what"]]
