"""What is said before, beside and after a command is what the command does: dry runs, `inspect`, `verify --repair`, `status`."""

import os
import shutil

import pytest

from tests.support.md5_pair import ONE, OTHER


@pytest.fixture
def old_ledger(trained):
    """A site whose ledger was put back from a backup, made before its newest save."""
    ledger, kept = trained.home / "ledger.git", trained.home / "kept.git"
    shutil.copytree(ledger, kept)
    trained.ok("commit", trained.save(400), "--run", "r1", "--step", 400)
    shutil.rmtree(ledger)
    kept.rename(ledger)
    return trained


@pytest.mark.parametrize(
    "words",
    [
        ("resume", "r1", "--to", "out"),
        ("run", "open", "r1"),
        ("run", "close", "r1", "--reason", "because"),
        ("release", "r1@100", "--from", "hot"),
        ("rollback", "request", "r1", "--to", 100, "--reason", "because", "--model-only", "--while-running"),
    ],
)
def test_a_ledger_that_lacks_entries_refuses_the_dry_run_like_the_run(old_ledger, words):
    for more in (("--dry-run",), ()):
        error = old_ledger.fails(*words, *more)
        assert (error["exit_code"], "in distress" in error["message"]) == (7, True)
        assert "lakemark ledger recover" in error["advice"]


def test_while_the_ledger_lacks_entries_saves_are_foreseen_to_wait(old_ledger):
    path = old_ledger.save(500)
    assert "in distress" in old_ledger.ok("commit", path, "--run", "r1", "--step", 500, "--dry-run")["would"][-1]
    said = old_ledger.ok("sweep", "--dry-run")["would"]
    assert "in distress" in said[0]
    assert any(one.startswith("seal ") and one.endswith("as r1@500") for one in said)
    assert not any(one.startswith(("commit", "replicate", "release")) for one in said)
    (check,) = [one for one in old_ledger("doctor", "--json").json["checks"] if not one["ok"]]
    assert check["name"] == "ledger"
    assert "lakemark ledger recover" in check["advice"]


def test_nothing_is_called_repaired_that_the_ledger_could_not_be_told_of(old_ledger):
    (tree,) = (old_ledger.home / "hot" / "r1").glob("100-*")
    shutil.rmtree(tree)
    done = old_ledger("verify", "r1@100", "--repair", "--json")
    assert (done.code, done.json["repaired"]) == (4, [])
    assert "in distress" in done.json["unrecorded"][0]
    assert any("not repaired" in one["why"] for one in done.json["unreachable"])
    assert not tree.exists()


@pytest.mark.parametrize("sort", ["link out", "reserved name", "not UTF-8"])
def test_what_no_commit_takes_is_called_complete_by_nobody(trained, sort):
    path = trained.save(400)
    if sort == "link out":
        (path / "tokenizer").symlink_to("/models/base")
    elif sort == "reserved name":
        (path / ".dvc").mkdir()
        (path / ".dvc" / "config").write_text("x")
    else:
        with open(os.fsencode(path) + b"/a\xff", "wb") as file:
            file.write(b"x")
    refused = trained.fails("commit", path, "--run", "r1", "--step", 400)
    assert refused["exit_code"] == 7
    (found,) = trained.ok("inspect", path)["found"]
    assert found["verdict"] == "incomplete"
    assert refused["message"] in found["why"]
    assert refused["advice"] in found["why"]
    assert trained.fails("commit", path, "--run", "r1", "--step", 400, "--dry-run") == refused
    assert any(one.startswith(f"not take {path}") for one in trained.ok("sweep", "--dry-run")["would"])
    resume = ("resume", "r1", "--to", trained.home / "out")
    assert trained.fails(*resume, "--dry-run") == trained.fails(*resume)
    assert any("step 400" in one for one in trained.ok(*resume, "--without-step", 400, "--dry-run")["would"])
    assert trained.ok(*resume, "--without-step", 400)["step"] == 300


def test_a_resume_foresees_what_it_commits_first(trained):
    path = trained.save(400)
    said = trained.ok("resume", "r1", "--to", trained.home / "out", "--dry-run")["would"]
    assert said[0] == f"commit {path} as r1@400 first"
    assert not any("aside" in one for one in said)
    assert trained.ok("resume", "r1", "--to", trained.home / "out")["step"] == 400


def test_a_resume_foresees_that_there_is_no_room(trained):
    trained.save(400)
    trained.settings("min_free: 10%", "min_free: 100%")
    resume = ("resume", "r1", "--to", trained.home / "out")
    for more in (("--dry-run",), ()):
        error = trained.fails(*resume, *more)
        assert (error["exit_code"], "step 400 lies there" in error["message"]) == (7, True)
        assert "--without-step 400" in error["advice"]


def test_a_start_that_decided_says_that_it_follows_no_other_record(trained):
    resume = ("resume", "r1", "--to", trained.home / "out", "--job", "7")
    assert trained.ok(*resume)["step"] == 300
    done = trained.ok(*resume, "--record", "r1@100")
    assert done["step"] == 300
    assert "step 100 was asked for" in done["notes"][0]
    assert any(
        "step 100 was asked for" in one for one in trained.ok(*resume, "--record", "r1@100", "--dry-run")["would"]
    )
    assert trained.ok(*resume)["notes"] == []


def test_a_metric_that_comes_later_is_added_to_the_record(trained):
    again = ("commit", trained.home / "out" / "step-300", "--run", "r1", "--step", 300)
    done = trained(*again, "--metric", "loss=100", "--metric", "accuracy=0.5", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert trained.ok("show", "r1@300")["metrics"]["accuracy"] == 0.5
    metric = ("metric", "r1@300", "mmlu=0.25", "--reason", "the evaluation of Monday")
    assert "add mmlu=0.25 to r1@300" in trained.ok(*metric, "--dry-run")["would"][0]
    assert trained.ok(*metric)["metrics"] == {**trained.ok("show", "r1@300")["metrics"], "accuracy": 0.5, "mmlu": 0.25}
    assert trained.ok("show", "r1@best:mmlu")["step"] == 300


def test_a_tier_that_refused_a_record_is_named_before_it_is_asked_again(trained):
    trained.ok("commit", trained.save(400, ONE), "--run", "r1", "--step", 400, "--wait", "cold")
    trained.ok("commit", trained.save(500, OTHER), "--run", "r1", "--step", 500)
    error = trained.fails("replicate", "r1@500", "--to", "cold")
    (said,) = trained.ok("replicate", "r1@500", "--to", "cold", "--dry-run")["would"]
    assert "which cold refused" in said
    assert error["message"] in said


def test_a_tier_that_is_away_is_passed_by_beforehand_too(cli):
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    cli.ok("commit", cli.save(100), "--run", "r1", "--step", 100)
    (cli.home / "cold").rename(cli.home / "unplugged")
    said = cli.ok("sweep", "--dry-run")["would"]
    assert any(one.startswith("pass tier cold by") for one in said)
    assert not any("replicate" in one for one in said)
    (cli.home / "unplugged").rename(cli.home / "cold")
    assert any("replicate r1@100 to cold" in one for one in cli.ok("sweep", "--dry-run")["would"])


@pytest.fixture
def unreadable(trained):
    """A site whose newest entry of r1 can't be read, nor any copy of it here: no index, and nothing beside the ledger."""
    ledger = trained.home / "ledger.git"
    tip = trained.tips()["r1"]
    for copy in (ledger / "lakemark" / "recent").iterdir():
        copy.unlink()
    for file in trained.home.glob("ledger.index.sqlite*"):
        file.unlink()
    place = ledger / "objects" / tip[:2] / tip[2:]
    place.chmod(0o644)
    place.write_bytes(b"")
    return trained


def test_what_is_sealed_while_the_ledger_can_t_be_read_is_foreseen_so(unreadable):
    path = unreadable.save(500)
    said = unreadable.ok("commit", path, "--run", "r1", "--step", 500, "--dry-run")["would"]
    assert "waiting for its entry" in said[-1]
    assert "can't be read" in said[-1]
    assert unreadable.ok("sweep", "--dry-run")["would"]
    assert unreadable.ok("commit", path, "--run", "r1", "--step", 500)["pending"]


def test_a_close_is_foreseen_with_the_saves_that_it_takes_first(trained):
    trained.save(500)
    said = trained.ok("run", "close", "r1", "--reason", "over", "--dry-run")["would"]
    assert [one.rpartition(" as ")[2] for one in said[:-1]] == ["r1@500"]
    assert said[-1] == "close r1"
    trained.ok("run", "close", "r1", "--reason", "over")
    assert [one["step"] for one in trained.ok("ls", "r1")["records"]] == [500, 300, 200, 100]


def test_a_close_that_would_be_refused_is_foreseen_so(trained):
    path = trained.save(500)
    (path / "outside").symlink_to("/etc/hostname")
    said = trained.ok("run", "close", "r1", "--reason", "over", "--dry-run")["would"]
    assert said[-1].startswith("refuse to close r1")
    assert trained("run", "close", "r1", "--reason", "over", "--json").code == 7


def test_a_recovery_that_ends_with_a_violation_says_what_is_next(trained):
    trained.ok("commit", trained.save(400), "--run", "r1", "--step", 400)
    (tree,) = (trained.home / "hot" / "r1").glob("400-*")
    (tree / "weights.bin").chmod(0o644)
    (tree / "weights.bin").write_bytes(b"other")
    assert trained("verify", "r1@400", "--json").code == 4
    done = trained("ledger", "recover", "--json")
    assert (done.code, [one.partition(":")[0] for one in done.json["violations"]]) == (4, ["copies"])
    assert ["lakemark verify RUN@STEP --repair" in one for one in done.json["next"]] == [True]
    for words in (("ledger", "recover"), ("verify", "--invariants")):
        assert "lakemark verify RUN@STEP --repair" in trained(*words).out


def test_a_resume_before_there_is_a_record_is_foreseen(cli):
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    asked = ("resume", "r1", "--to", "out", "--without", "scheduler", "rng")
    for more in (("--dry-run",), ()):
        assert cli.fails(*asked, *more)["exit_code"] == 3
    path = cli.save(100)
    (path / "outside").symlink_to("/etc/hostname")
    for more in (("--dry-run",), ()):
        error = cli.fails(*asked, *more)
        assert (error["exit_code"], "step 100 lies there and is not committed" in error["message"]) == (7, True)
    (path / "outside").unlink()
    said = cli.ok(*asked, "--dry-run")["would"]
    assert said[0].endswith("as r1@100 first")
    assert cli.ok("ls", "r1")["records"] == []
    assert cli.ok(*asked)["step"] == 100


def test_a_close_says_what_it_took_and_what_is_not_whole(trained):
    trained.save(500)
    cut = trained.home / "out" / "checkpoint-600"
    cut.mkdir()
    (cut / "trainer_state.json").write_text('{"global_step": 600}')
    (cut / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model-00001-of-00002.safetensors"}}')
    (cut / "config.json").write_text("{}")
    done = trained("run", "close", "r1", "--reason", "over", "--json")
    assert done.code == 0
    assert [trained.ok("show", f"id:{one}")["step"] for one in done.json["committed"]] == [500]
    assert [one["path"] for one in done.json["incomplete"]] == [str(cut)]
    assert f"{cut} is not committed: " in done.err
    again = trained("run", "close", "r1", "--reason", "over", "--json")
    assert (again.json["committed"], again.json["incomplete"], again.err) == ([], [], "")
