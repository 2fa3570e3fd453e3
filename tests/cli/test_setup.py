"""init: what it writes, and that it can be repeated."""

import stat

import pytest

from lakemark.sandbox import credentials
from tests.cli.keys import has


@pytest.mark.parametrize("profile", ["solo", "laptop", "cluster"])
def test_each_profile_makes_a_site_that_loads(empty, profile):
    document = empty.ok("init", "site", "--profile", profile)
    has(document, ["config", "ledger", "tiers"])
    assert document["config"] == str(empty.home / "site/lakemark.yaml")
    assert (empty.home / "site/ledger.git/HEAD").is_file()
    for row in document["tiers"]:
        has(row, ["name", "class", "kind", "id"])
    known = {row["name"]: row["id"] is not None for row in document["tiers"]}
    assert known["hot"], "what needs no keys is claimed without them"
    assert known.get("warm") in (None, False)
    values = {one["key"]: one["value"] for one in empty.ok("--config", "site", "config", "show")["values"]}
    assert (values["site"], values["node"]) == (profile, "node-a")
    assert empty.ok("--config", "site", "ls") == {"records": [], "next": None}


def test_the_default_is_a_laptop_in_this_directory(empty):
    document = empty.ok("init")
    assert document["config"] == str(empty.home / "lakemark.yaml")
    file = empty.home / "sandbox/credentials.env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(credentials.read(file)) == set(credentials.NAMES)
    text = (empty.home / "lakemark.yaml").read_text()
    assert "sandbox:\n  dir: sandbox\n  s3: seaweedfs\n  lakefs: stand-in\n  prefect: server\n" in text


def test_again_keeps_everything(trained):
    before = (trained.home / "lakemark.yaml").read_bytes()
    tips = trained.tips()
    first = trained.ok("init", ".", "--profile", "laptop")
    assert {row["name"] for row in first["tiers"]} == {"hot", "cold"}
    assert (trained.home / "lakemark.yaml").read_bytes() == before
    assert trained.tips() == tips
    assert not (trained.home / "sandbox").exists()


def test_joining_a_shared_ledger_is_said_to_be_impossible_but_for_readers(empty):
    for words in (["--profile", "node"], ["--profile", "solo", "--ledger", "https://git.example.org/ledger.git"]):
        error = empty.fails("init", "site", *words)
        assert (error["kind"], error["exit_code"]) == ("Usage", 2)
        assert "one node" in error["message"]
    assert not (empty.home / "site").exists()


def test_a_name_for_the_site(empty):
    empty.ok("init", ".", "--profile", "solo", "--site", "attic")
    assert "site: attic" in (empty.home / "lakemark.yaml").read_text()
    assert empty.fails("init", "bad", "--profile", "solo", "--site", "No Name!")["exit_code"] == 2
    assert not (empty.home / "bad/lakemark.yaml").exists()


def test_a_directory_that_can_not_be_used(empty):
    (empty.home / "file").write_text("x")
    assert empty.fails("init", "file", "--profile", "solo")["exit_code"] == 2
    assert empty.fails("init", "file/below", "--profile", "solo")["exit_code"] == 2
    (empty.home / "taken/ledger.git").mkdir(parents=True)
    (empty.home / "taken/ledger.git/x").write_text("x")
    assert empty.fails("init", "taken", "--profile", "solo")["exit_code"] in (2, 3, 5)


@pytest.mark.parametrize(
    ("profile", "line"),
    [("solo", "lakemark run open RUN --watch DIR"), ("laptop", "lakemark up"), ("cluster", "lakemark doctor")],
)
def test_each_profile_says_what_comes_next(empty, profile, line):
    done = empty("init", "site", "--profile", profile)
    assert done.code == 0
    assert f"next: {line}" in done.out
