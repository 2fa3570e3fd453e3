"""A site that version 0.1 made before the formats were amended: its history is read, and goes on."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from lakemark.adapters.git.ledger import GitLedger

KEPT = Path(__file__).parent / "data" / "site-before.tar.xz"
LEDGER = "5111ba71-c267-42cf-8c07-8b5d00b213d2"
KINDS = [
    "opened", "attempt", "committed", "committed", "replicated", "replicated", "verified", "rollback_requested",
    "rolled_back", "attempt", "closed",
]  # fmt: skip


@pytest.fixture
def before(empty, tmp_path):
    with tarfile.open(KEPT) as kept:
        kept.extractall(tmp_path, filter="data")
    empty.home = tmp_path / "training"
    empty.environ = {**empty.environ, "LAKEMARK_CONFIG": str(empty.home / "lakemark.yaml"), "LAKEMARK_NODE": "node-a"}
    return empty


def test_its_history_and_records_are_read(before):
    assert [entry["kind"] for entry in before.ok("log", "toy")["entries"]] == KINDS
    records = before.ok("ls", "toy", "--all-timelines")["records"]
    assert [(one["step"], one["metrics"]) for one in records] == [(200, {"val_loss": 2.2}), (100, {"val_loss": 2.1})]
    assert all({replica["tier"] for replica in one["replicas"]} == {"hot", "cold"} for one in records)
    (rollback,) = before.ok("rollback", "ls")["rollbacks"]
    assert rollback["state"] == "applied"
    run = before.ok("run", "show", "toy")
    assert (len(run["timelines"]), run["closed"]) == (2, True)
    assert before.ok("verify", "toy")["damaged"] == []


def test_what_it_kept_is_restored_and_the_history_goes_on(before, tmp_path):
    for tier in ("hot", "cold"):
        before.ok("restore", "toy@100", "--from", tier, "--to", tmp_path / f"from-{tier}")
        assert (tmp_path / f"from-{tier}" / "config.json").read_text() == '{"step": 100}'
    before.ok("run", "reopen", "toy", "--reason", "it goes on")
    before.ok("metric", "toy@100", "mmlu=0.25", "--reason", "evaluated")
    kinds = [entry["kind"] for entry in before.ok("log", "toy")["entries"]]
    assert kinds == [*KINDS, "restored", "restored", "reopened", "metric_added"]


def test_its_identity_moves_to_the_site_with_the_next_sweep(before):
    ledger = GitLedger(before.home / "ledger.git")
    assert (ledger.id, ledger.site().id) == (LEDGER, None)
    swept = before.ok("sweep")
    assert swept["pending"] == []
    ledger = GitLedger(before.home / "ledger.git")
    assert (ledger.id, ledger.site().id, ledger.site().name) == (LEDGER, LEDGER, "solo")
    nodes = before.ok("status")["nodes"]
    assert [one["node"] for one in nodes] == ["node-a"]
    assert {"find", "copies"} <= nodes[0]["passes"].keys()


def test_a_clone_of_it_is_a_ledger_again_by_what_its_site_says(before, tmp_path):
    """With no tier in reach: whose ledger it is travels with the history."""
    before.ok("sweep")
    ledger = before.home / "ledger.git"
    ledger.rename(tmp_path / "old.git")
    subprocess.run(
        ["git", "clone", "--quiet", "--mirror", str(tmp_path / "old.git"), str(ledger)], check=True, capture_output=True
    )
    for tier in ("hot", "cold"):
        (before.home / tier).rename(tmp_path / f"away-{tier}")
    before("ledger", "recover")
    assert GitLedger(ledger).id == LEDGER
