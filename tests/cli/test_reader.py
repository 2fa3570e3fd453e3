"""The profile reader: a machine that only restores, from the ledger and tiers of a site."""

import shutil

import pytest

from tests.services.framework_bench import tree, unpack


@pytest.fixture
def site(empty):
    """A solo site in `site` with the steps 5 and 10 of `r1`, step 5 also in cold."""
    home = empty.home / "site"
    empty.ok("init", home, "--profile", "solo")
    empty.environ["LAKEMARK_CONFIG"] = str(home / "lakemark.yaml")
    empty.ok("run", "open", "r1")
    place = unpack(empty.home / "out", "hf_trainer/plain")
    for step in (5, 10):
        empty.ok("commit", place / f"checkpoint-{step}", "--run", "r1", "--step", step, "--wait", "cold")
    return empty


@pytest.fixture
def reader(site):
    """That site's reader in `reader`; commands are given there."""
    document = site.ok("init", site.home / "reader", "--profile", "reader", "--ledger", site.home / "site/ledger.git")
    site.environ["LAKEMARK_CONFIG"] = document["config"]
    site.environ["LAKEMARK_NODE"] = "laptop-9"
    return site


def test_it_finds_the_site_s_tiers_by_itself(site):
    document = site.ok("init", site.home / "reader", "--profile", "reader", "--ledger", "site/ledger.git")
    rows = {row["name"]: row for row in document["tiers"]}
    assert rows["cold"]["class"] == "cold"
    assert rows["cold"]["id"] is not None
    assert rows["hot"]["id"] is None
    text = (site.home / "reader/lakemark.yaml").read_text()
    assert "profile: reader" in text
    assert str(site.home / "site/cold") in text
    again = site.ok("init", site.home / "reader", "--profile", "reader", "--ledger", "site/ledger.git")
    assert again == document


def test_it_lists_and_restores_what_others_committed(reader):
    assert [row["step"] for row in reader.ok("ls", "r1")["records"]] == [10, 5]
    back = reader.home / "back"
    done = reader.ok("restore", "r1@5", "--to", back)
    assert {one["tier"] for one in done["sources"]} == {"cold"}
    assert tree(back) == tree(reader.home / "out/checkpoint-5")
    site = {"LAKEMARK_CONFIG": str(reader.home / "site/lakemark.yaml"), "LAKEMARK_NODE": "node-a"}
    more = unpack(reader.home / "more", "hf_trainer/legacy_names") / "checkpoint-500"
    reader.ok("commit", more, "--run", "r1", "--step", 500, environ=site)
    assert reader.ok("ls", "r1")["records"][0]["step"] == 500, "the mirror was not refreshed"


WRITING = (
    ("commit", "out/checkpoint-5", "--run", "r1", "--step", 7),
    ("run", "open", "r2"),
    ("resume", "r1", "--to", "elsewhere"),
    ("replicate", "r1@5", "--to", "cold"),
    ("release", "r1@5", "--from", "cold"),
    ("sweep",),
    ("tier", "init", "cold"),
    ("verify", "r1"),
    ("rollback", "request", "r1", "--to", "5", "--reason", "because"),
    ("bind", "r1", "--data", f"data/{'a' * 64}", "--reason", "because"),
)


def site_of(reader):
    """All that the site's own ledger and tiers hold."""
    places = ("cold", "hot", "ledger.git/refs")
    return {place: tree(reader.home / "site" / place) for place in places}


def test_whatever_would_write_is_refused(reader):
    before = site_of(reader)
    for words in WRITING:
        error = reader.fails(*words)
        assert (error["kind"], error["exit_code"]) == ("Refused", 7), (words, error)
        assert "only reads" in error["message"]
    assert site_of(reader) == before
    assert not (reader.home / "reader/hot").exists()
    assert not (reader.home / "elsewhere").exists()


def test_doctor_and_status_look_and_write_nothing(reader):
    before = site_of(reader)
    checks = {one["name"]: one for one in reader.ok("doctor")["checks"]}
    assert checks["guarantees"]["detail"] == "not tried: this node only reads"
    assert "is tier" in checks["tier cold"]["detail"]
    assert not [name for name in checks if name.startswith(("tier hot", "tier cold,", "space", "failure domains"))]
    assert not [one for one in reader("status", "--json").json["problems"] if "hot" in one["what"]]
    assert site_of(reader) == before
    (reader.home / "site/cold/lakemark-tier.json").rename(reader.home / "tier.json")
    (red,) = [one for one in reader("doctor", "--json").json["checks"] if not one["ok"]]
    assert red["name"] == "tier cold"


def test_with_the_remote_away_it_says_so_and_goes_on(reader):
    reader.ok("ls")
    (reader.home / "site/ledger.git").rename(reader.home / "away")
    done = reader("ls", "r1", "--json")
    assert done.code == 0
    assert "as of the last time" in done.err
    assert [row["step"] for row in done.json["records"]] == [10, 5]


def test_without_any_mirror_a_remote_that_is_away_is_an_error(reader):
    (reader.home / "site/ledger.git").rename(reader.home / "away")
    shutil.rmtree(reader.home / "reader/ledger.git")
    assert reader.fails("ls", "r1")["exit_code"] in (3, 6)


def test_a_damaged_replica_is_passed_over_without_a_word_to_the_ledger(reader):
    victim = max((reader.home / "site/cold/files").rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    victim.chmod(0o644)
    victim.write_bytes(b"rot" * 1000)
    errors = {reader("restore", f"r1@{step}", "--to", reader.home / f"b{step}", "--json").code for step in (5, 10)}
    assert errors == {0, 4}


def test_a_history_that_was_replaced_is_refused(reader):
    reader.ok("ls")
    refs = reader.home / "site/ledger.git/refs/heads/runs/r1"
    first = reader.ok("log", "r1")["entries"]
    assert first
    other = reader.home / "other"
    site = {"LAKEMARK_CONFIG": str(other / "lakemark.yaml"), "LAKEMARK_NODE": "node-a"}
    reader.ok("init", other, "--profile", "solo", environ={"LAKEMARK_NODE": "node-a"})
    reader.ok("run", "open", "r1", environ=site)
    shutil.rmtree(reader.home / "site/ledger.git")
    shutil.copytree(other / "ledger.git", reader.home / "site/ledger.git")
    assert refs.parent.exists()
    error = reader.fails("ls", "r1")
    assert (error["kind"], error["exit_code"]) == ("Refused", 7)
    assert "replaced" in error["message"]


def test_init_wants_a_ledger_that_is_there(empty):
    assert empty.fails("init", "r", "--profile", "reader")["exit_code"] == 2
    assert empty.fails("init", "r", "--profile", "reader", "--ledger", empty.home / "nothing")["exit_code"] in (3, 6)
    assert not (empty.home / "r/lakemark.yaml").exists()
    assert empty.fails("init", "r", "--profile", "node", "--ledger", "x")["exit_code"] == 2
    said = empty.ok("init", "r", "--profile", "reader", "--ledger", "x", "--dry-run")["would"]
    assert any("mirror" in line for line in said)
    assert not (empty.home / "r/lakemark.yaml").exists()
