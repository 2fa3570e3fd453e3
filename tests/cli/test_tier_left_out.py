"""A tier that lakemark.yaml no longer names, while the ledger knows of records there: named, with the way back, by everybody."""

import re

import pytest


def leave_out(cli, name):
    """Takes a tier out of lakemark.yaml, as somebody does who tidies up."""
    file = cli.home / "lakemark.yaml"
    text = file.read_text()
    shorter = re.sub(rf"(?m)^  {name}:\n(?:    .*\n)+", "", text)
    assert shorter != text
    file.write_text(shorter)


@pytest.fixture
def without_cold(trained):
    """Step 100 lies in cold alone, 200 and 300 also in hot; cold is no longer named."""
    trained.settings("settle: 10m", "settle: 0s")
    trained.ok("release", "r1@100", "--from", "hot")
    before = (trained.home / "lakemark.yaml").read_text()
    leave_out(trained, "cold")
    yield trained
    (trained.home / "lakemark.yaml").write_text(before)
    trained.ok("restore", "r1@100", "--to", trained.home / "back")  # what is advised is the way back
    assert not [one for one in trained.ok("status")["problems"] if "does not name" in one["what"]]


def test_status_is_red_while_records_lie_only_there(without_cold):
    done = without_cold("status", "--json")
    (red,) = [one for one in done.json["problems"] if one["colour"] == "red"]
    assert (done.code, red["what"]) == (4, "1 record(s) lie only in cold, which lakemark.yaml does not name")
    assert "cold: {class: cold, kind: directory" in red["next"]


def test_it_is_amber_while_each_of_them_has_another_replica(trained):
    leave_out(trained, "cold")
    (one,) = [one for one in trained.ok("status")["problems"] if "does not name" in one["what"]]
    assert (one["colour"], one["what"][:11]) == ("amber", "3 record(s)")


def test_who_needs_the_bytes_is_told_where_they_are(without_cold):
    cli = without_cold
    for words in (
        ("restore", "r1@100", "--to", cli.home / "x"),
        ("restore", "r1@100", "--to", cli.home / "x", "--from", "cold"),
        ("replicate", "r1@100", "--to", "hot"),
    ):
        error = cli.fails(*words)
        assert error["kind"] == "NoReplica"
        assert "lies in cold, which lakemark.yaml of node-a does not name" in error["message"]
        assert "under `tiers:`" in error["advice"]


def test_resume_says_it_too_where_the_other_replicas_are_no_use(trained):
    leave_out(trained, "cold")
    (trained.home / "hot").rename(trained.home / "unmounted")
    error = trained.fails("resume", "r1", "--to", trained.home / "elsewhere")
    assert "it lies in cold, too, which lakemark.yaml of node-a does not name" in error["message"]


def test_verify_counts_what_it_could_not_look_at(without_cold):
    done = without_cold("verify", "--json")
    away = done.json["unreachable"]
    assert (done.code, {one["step"] for one in away}) == (6, {100, 200, 300})
    assert all("does not name cold" in one["why"] for one in away)
    assert without_cold("verify", "r1@100", "--tier", "cold", "--json").code == 6
    broken = without_cold("verify", "--invariants", "--json").json["violations"]
    assert [one["what"] for one in broken if one["rule"] == "reachable"] == ["tier cold"]


def test_a_commit_of_it_lands_again_and_says_why(without_cold):
    cli = without_cold
    done = cli("commit", cli.home / "out" / "step-100", "--run", "r1", "--step", 100, "--json")
    assert done.code == 0
    assert "lies in cold, which lakemark.yaml does not name: its bytes were taken into hot again" in done.err


def test_an_s3_tier_that_nobody_claimed_is_amber(trained):
    trained.tier("array: {class: warm, kind: s3, url: s3://nowhere/x, endpoint: http://127.0.0.1:9, region: us-east-1}")
    (one,) = [one for one in trained("status", "--json").json["problems"] if "the tier array" in one["what"]]
    assert (one["colour"], "tier init array" in one["next"]) == ("amber", True)


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "--tier", "nosuch"),
        ("verify", "--tier", "nosuch"),
        ("verify", "--tier", "nosuch", "--dry-run"),
        ("replicate", "r1@300", "--to", "nosuch"),
        ("release", "r1@300", "--from", "nosuch"),
        ("restore", "r1@300", "--from", "nosuch", "--to", "back"),
        ("commit", "out/step-300", "--run", "r1", "--step", "300", "--wait", "nosuch"),
        ("tier", "rename", "cold", "nosuch"),
    ],
)
def test_a_name_that_nobody_ever_gave_a_tier_is_an_argument(trained, words):
    done = trained(*words, "--json")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "nosuch" in done.err
