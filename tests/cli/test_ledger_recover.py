"""A ledger damaged, old, diverged, copied or lost, each sort: it is red, a save waits, and `ledger recover` brings it back.

The rows of docs/lost-ledger.md.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lakemark.adapters.git import copies as git_copies
from lakemark.adapters.git.ledger import GitLedger
from tests.adapters.kill_sweep import dies_at

WAYS = {}


def way(name):
    """One row of the page, by its words there."""

    def noted(make):
        WAYS[name] = make
        return make

    return noted


def ledger(site):
    return site.home / "ledger.git"


def without_journal(site):
    for file in site.home.glob("ledger.journal.sqlite*"):
        file.unlink()


def packed(site):
    """Everything in packs, as Git keeps what is older."""
    GitLedger(ledger(site)).pack()


def loose(site, commit, name):
    """The loose object of a file in a commit's tree."""
    found = subprocess.run(
        ["git", "--git-dir", ledger(site), "rev-parse", f"{commit}:{name}" if name else commit],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return ledger(site) / "objects" / found[:2] / found[2:]


def cut(path):
    path.chmod(0o644)
    path.write_bytes(b"")


@way("yesterday's, from a backup")
def _backup(site):
    shutil.rmtree(ledger(site))
    shutil.copytree(site.home / "backup.git", ledger(site))


@way("yesterday's, and the journal gone")
def _backup_alone(site):
    _backup(site)
    without_journal(site)


@way("gone")
def _gone(site):
    shutil.rmtree(ledger(site))


@way("an empty folder")
def _empty(site):
    shutil.rmtree(ledger(site))
    ledger(site).mkdir()


@way("a new, empty ledger")
def _new(site):
    shutil.rmtree(ledger(site))
    site("init", site.home, "--profile", "solo")


@way("the branch of a run lost")
def _run_lost(site):
    (ledger(site) / "refs/heads/runs/r1").unlink()


@way("the branch `site` lost")
def _site_lost(site):
    (ledger(site) / "refs/heads/site").unlink()


@way("a branch that names no commit")
def _tip(site):
    (ledger(site) / "refs/heads/runs/r1").write_bytes(b"\0" * 41)


@way("the newest commit cut off")
def _tip_object(site):
    commit = site.tips()["r1"]
    shutil.rmtree(ledger(site) / "lakemark" / "recent", ignore_errors=True)
    cut(loose(site, commit, ""))


@way("`config` empty")
def _config(site):
    (ledger(site) / "config").write_text("")


@way("`HEAD` empty")
def _head(site):
    (ledger(site) / "HEAD").write_text("")


@way("an older object cut off")
def _object(site):
    commit = subprocess.run(
        ["git", "--git-dir", ledger(site), "log", "--format=%H", "--grep=^Step: 100$", "--grep=^Kind: committed$",
         "--all-match", "runs/r1"],
        check=True, capture_output=True, text=True,
    ).stdout.split()[-1]  # fmt: skip
    cut(loose(site, commit, "entry.json"))


@way("a clone with `--mirror`")
def _mirror(site):
    subprocess.run(["git", "clone", "-q", "--mirror", ledger(site), site.home / "mirror.git"], check=True)
    shutil.rmtree(ledger(site))
    (site.home / "mirror.git").rename(ledger(site))


@way("one of two living copies")
def _parted(site):
    newer = site.home / "newer.git"
    ledger(site).rename(newer)
    shutil.copytree(site.home / "backup.git", ledger(site))
    journal = {file: file.read_bytes() for file in site.home.glob("ledger.journal.sqlite*")}
    without_journal(site)
    for tier in ("hot/.lakemark", "cold/lakemark"):
        (site.home / tier).rename(site.home / f"{tier}.away")
        (site.home / tier).mkdir()
    entry = GitLedger(ledger(site))
    from lakemark.model.ledger.entry import Draft, Stamp
    from tests.model.building import at

    stamp = Stamp(at=at(1), node="node-b", actor="bob@node-b", request="of the other copy")
    entry.append("r1", lambda _: Draft(kind="closed", timeline=1), stamp)
    entry.append(
        "r1", lambda _: Draft(kind="reopened", timeline=1), Stamp(at=at(2), node="node-b", actor="b@b", request="x")
    )
    entry.close()
    for tier in ("hot/.lakemark", "cold/lakemark"):
        (site.home / tier).rmdir()
        (site.home / f"{tier}.away").rename(site.home / tier)
    for file, data in journal.items():
        file.write_bytes(data)


@pytest.fixture
def lived(trained):
    """r1 at 100, 200, 300; a backup of its ledger; then 400, and copies of the ledger in the tiers that know of it."""
    shutil.copytree(ledger(trained), trained.home / "backup.git")
    trained("commit", trained.save(400), "--run", "r1", "--step", "400", "--wait", "cold")
    trained("sweep")
    return trained


def records(site):
    return {one["record"] for one in site.ok("ls", "r1", "--all-timelines")["records"]}


@pytest.mark.parametrize("name", WAYS)
def test_a_damaged_ledger_is_red_and_comes_back(lived, name):
    before, tips = records(lived), lived.tips()
    WAYS[name](lived)
    if name in ("yesterday's, and the journal gone", "a clone with `--mirror`"):
        lived.swept = lived("sweep", "--json")  # a pass asks the tiers, and remembers what they know
    state = lived("status", "--json")
    assert state.code == 4, state
    assert any("ledger recover" in one["next"] for one in state.json["problems"]), state.json["problems"]
    planned = lived.ok("ledger", "recover", "--dry-run")
    assert planned["dry_run"]
    done = lived.ok("ledger", "recover")
    assert done["violations"] == []
    assert done["away"] == []
    assert records(lived) >= before
    assert done["missing"] == [] or name == "the newest commit cut off"
    found = GitLedger(ledger(lived))
    if not done["missing"]:
        assert all(found.contains(branch, tip) for branch, tip in tips.items())
    found.close()
    assert git_copies.is_whole(ledger(lived))
    for record in before:
        lived("restore", f"id:{record}", "--to", lived.home / f"back-{record[:6]}")
    state = lived("status", "--json")
    assert not [one for one in state.json["problems"] if "ledger" in one["what"]]
    lived("commit", lived.save(900), "--run", "r1", "--step", "900", "--wait", "cold")
    lived("sweep")
    assert lived.ok("ledger", "recover")["recovered"] == {"entries": 0, "records": 0}


def test_a_manifest_cut_off_is_red_and_comes_from_a_tier(lived):
    """An old record's, in no pack: everything else goes on, and reading it once brings it back."""
    record = next(one["record"] for one in lived.ok("ls", "r1")["records"] if one["step"] == 100)
    entry = next(
        one for one in lived.ok("log", "r1")["entries"] if one["kind"] == "committed" and one["record"] == record
    )
    found = GitLedger(ledger(lived))
    commit = found.revision("r1", entry["sequence"])
    found.close()
    shutil.rmtree(ledger(lived) / "lakemark" / "recent", ignore_errors=True)
    place = loose(lived, commit, "manifest.json")
    cut(place)
    state = lived("status", "--json")
    assert state.code == 4
    assert any("object" in one["what"] and "damaged" in one["what"] for one in state.json["problems"])
    before = (lived.home / "cold/lakemark/ledger.bundle").read_bytes()
    lived.ok("restore", f"id:{record}", "--to", lived.home / "back")
    assert place.stat().st_size > 0
    assert lived.ok("status")["ok"]
    cut(place)
    lived.ok("commit", lived.save(900), "--run", "r1", "--step", "900")
    without_journal(lived)  # so that a copy is due
    lived.ok("sweep")
    assert (lived.home / "cold/lakemark/ledger.bundle").read_bytes() != before
    assert lived.ok("verify", "--invariants")["violations"] == []


def test_each_row_of_the_page_is_tested():
    page = (Path(__file__).parents[2] / "docs/lost-ledger.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]
    assert rows[1:] == list(WAYS)


def test_the_original_put_back_is_no_alarm(lived):
    """Where it was read in between, and with an entry more: a tip that a descendant replaced."""
    shutil.copytree(ledger(lived), lived.home / "original.git")
    _backup(lived)
    assert lived("status").code == 4
    assert lived("ls", "r1").code == 0
    shutil.rmtree(ledger(lived))
    (lived.home / "original.git").rename(ledger(lived))
    assert lived.ok("status")["ok"]
    lived.ok("commit", lived.save(500), "--run", "r1", "--step", "500", "--wait", "cold")
    assert lived.ok("status")["ok"]


def test_a_save_waits_and_becomes_an_entry(lived):
    _backup(lived)
    done = lived.ok("commit", lived.save(500), "--run", "r1", "--step", "500", "--metric", "loss=2")
    assert (done["pending"], done["record"]) == (True, None)
    assert json.dumps(done)
    lived.ok("ledger", "recover")
    assert lived.ok("show", "r1@500")["metrics"] == {"loss": 2.0}


def without_copies(site):
    """No tier has a copy of the ledger that is newer than the backup."""
    for tier in ("hot/.lakemark", "cold/lakemark"):
        for copy in (site.home / tier).rglob("*.bundle"):
            copy.unlink()


def record_at(site, step):
    return next(one for one in site.ok("ls", "r1")["records"] if one["step"] == step)


def released(site):
    site.clock("2026-12-03T12:00:00Z")
    site.ok("release", "r1@100", "--from", "hot", "--reason", "room")


def sunk_and_released(site):
    """Of 400 the backup knows only hot."""
    site.clock("2026-12-03T12:00:00Z")
    site.ok("replicate", "r1@400", "--to", "cold")
    site.clock("2026-12-05T12:00:00Z")
    site.ok("release", "r1@400", "--from", "hot", "--reason", "room")


def held(site):
    from lakemark.model.ledger.entry import Draft
    from lakemark.site import site_of

    here = site_of(site.parts())
    draft = Draft(kind="held", record=record_at(site, 100)["record"], reason="for the paper", body={"until": None})
    here.ledger.append("r1", lambda _: draft, here.stamp("held"))


@pytest.fixture
def simulated(trained):
    """400 in hot alone, by a clock that the test sets; then a backup of the ledger."""
    with (trained.home / "lakemark.yaml").open("a") as file:
        file.write("simulated_clock: true\n")

    def clock(text):
        trained.environ["LAKEMARK_CLOCK"] = text

    trained.clock = clock
    clock("2026-12-01T12:00:00Z")
    trained.ok("commit", trained.save(400), "--run", "r1", "--step", "400")
    shutil.copytree(ledger(trained), trained.home / "backup.git")
    return trained


@pytest.mark.parametrize("act", [released, sunk_and_released, held])
def test_an_entry_that_no_copy_has_is_given_up_and_the_site_goes_on(simulated, act):
    site = simulated
    act(site)
    before = {step: {one["tier"] for one in record_at(site, step)["replicas"]} for step in (100, 200, 300, 400)}
    _backup(site)
    without_copies(site)
    assert site("status").code == 4
    planned = site.ok("ledger", "recover", "--dry-run")
    assert any("this node knows" in one for one in planned["missing"]), planned
    done = site.ok("ledger", "recover")
    assert done["violations"] == []
    assert any("this node knows" in one for one in done["missing"]), done
    assert before == {step: {one["tier"] for one in record_at(site, step)["replicas"]} for step in before}
    said = site.ok("log", "r1")["entries"][-1]
    assert said["kind"] == "ledger_recovered", said
    assert site.ok("ledger", "recover")["missing"] == []
    assert site.ok("verify", "--invariants")["violations"] == []
    for step in before:
        site.ok("restore", f"r1@{step}", "--to", site.home / f"back-{step}")
    site.ok("commit", site.save(500), "--run", "r1", "--step", "500", "--wait", "cold")
    site.ok("sweep")
    assert site.ok("status")["ok"]


def test_a_last_copy_is_not_given_up_by_a_listing(simulated):
    """Its bytes lie in cold, whose note of them is gone: the ledger goes on to claim it, as damaged."""
    site = simulated
    sunk_and_released(site)
    record = record_at(site, 400)["record"]
    shutil.rmtree(site.home / "backup.git")
    shutil.copytree(ledger(site), site.home / "backup.git")
    held(site)
    (site.home / f"cold/lakemark/records/{record}.json").unlink()
    _backup(site)
    without_copies(site)
    done = site("ledger", "recover", "--json")
    assert done.code == 4
    assert any("400" in one and "not whole" in one for one in done.json["missing"]), done.json
    assert [one["tier"] for one in record_at(site, 400)["replicas"]] == ["cold"]
    site.ok("restore", "r1@400", "--to", site.home / "back")


def _entry_of_tip(site):
    """The newest entry can't be read, the commit that carries it can."""
    shutil.rmtree(ledger(site) / "lakemark" / "recent", ignore_errors=True)
    cut(loose(site, site.tips()["r1"], "entry.json"))


UNREAD = {
    name: WAYS[name]
    for name in ("gone", "an empty folder", "`config` empty", "a branch that names no commit",
                 "the newest commit cut off", "the branch `site` lost")
} | {"the newest entry cut off": _entry_of_tip}  # fmt: skip


def announced(site, step):
    """As the trainer does it, with a file in the spool."""
    path = site.save(step)
    subprocess.run(
        [sys.executable, "-c",
         "import sys; from lakemark.trainer import Run; r = Run.open('r1'); r.saved(sys.argv[1], step=int(sys.argv[2]))",
         path, str(step)],
        env=site.environ | {"LAKEMARK_HOME": str(site.home), "LAKEMARK_RUN_FILE": str(site.home / "runs/r1.json")},
        check=True,
    )  # fmt: skip


@pytest.mark.parametrize("how", UNREAD)
def test_saves_are_sealed_whatever_became_of_the_ledger(lived, how):
    """Also one that can't be opened at all: both who commits by hand and who announces is told that it is kept."""
    UNREAD[how](lived)
    done = lived.ok("commit", lived.save(500), "--run", "r1", "--step", "500", "--metric", "loss=2")
    assert (done["pending"], done["record"]) == (True, None)
    announced(lived, 600)
    swept = lived.ok("sweep")
    assert any("600" in one["why"] and "sealed" in one["why"] for one in swept["pending"]), swept["pending"]
    assert not list((lived.home / "spool/r1").glob("*.json"))
    shutil.rmtree(lived.home / "out")
    assert lived("status").code == 4
    lived.ok("ledger", "recover")
    for step in (100, 200, 300, 400, 500, 600):
        lived.ok("restore", f"r1@{step}", "--to", lived.home / f"back-{step}")
        assert (lived.home / f"back-{step}/weights.bin").read_bytes() == f"weights {step}".encode() * 100
    assert lived.ok("show", "r1@500")["metrics"] == {"loss": 2.0}
    assert lived.ok("verify", "--invariants")["violations"] == []


def test_nothing_is_recovered_where_nobody_knows_the_ledger(empty):
    empty("init", empty.home, "--profile", "solo")
    shutil.rmtree(ledger(empty))
    for tier in ("hot", "cold"):
        shutil.rmtree(empty.home / tier)
    assert empty("ledger", "recover").code == 3


@pytest.mark.parametrize("emptied", [True, False], ids=["the folder is empty", "yesterday's"])
def test_killed_between_any_two_steps_of_the_mending(lived, emptied):
    """Later and later, each time in what the last one left: the same again goes on, and in the end all is there."""
    before, tips = records(lived), lived.tips()
    if emptied:
        _gone(lived)
        ledger(lived).mkdir()
    else:
        _backup(lived)
    lived.ok("ledger", "recover", "--dry-run")
    assert not emptied or list(ledger(lived).iterdir()) == []
    deaths, step = 0, 3
    while dies_at(step, lambda: lived("ledger", "recover")):
        deaths += 1
        step += step // 2  # further on each time, past what was done by then
        assert lived("status", "--json").code in (0, 4)
    assert deaths >= 5
    lived.ok("ledger", "recover")
    assert records(lived) == before
    again = GitLedger(ledger(lived))
    assert all(again.contains(branch, tip) for branch, tip in tips.items()), "the very history, not a new one"
    again.close()
    assert lived.ok("verify", "--invariants")["violations"] == []
    assert lived("status", "--json").code == 0


def test_what_was_done_to_the_folder_is_said_as_done(simulated):
    shutil.rmtree(ledger(simulated))
    planned = simulated("ledger", "recover", "--dry-run").out
    assert "would make an empty ledger" in planned
    done = simulated("ledger", "recover").out
    assert "made an empty ledger" in done
    assert "make an empty" not in done
