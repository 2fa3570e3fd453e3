"""resume and restore as people type them: what is said of roles, pointers and gaps, and of a step that is not there."""

import json
import os

import pytest

from tests.services.framework_bench import unpack


@pytest.fixture
def deepspeed(empty):
    """A solo site on which a DeepSpeed run saved the steps 5 and 10; nobody has to approve."""
    empty.ok("init", ".", "--profile", "solo")
    empty.ok("run", "open", "r1", "--watch", empty.home / "out")
    place = unpack(empty.home / "out", "deepspeed/zero1")
    for step in (5, 10):
        empty.ok("commit", place / f"global_step{step}", "--run", "r1", "--step", step)
    return empty


def test_resume_says_what_it_set_and_moved(deepspeed):
    out = deepspeed.home / "out"
    done = deepspeed.ok("resume", "r1", "--to", out, "--record", "r1@5", "--job", "7")
    assert done["path"] == str(out / "global_step5")
    assert done["moved_aside"] == [str(out / ".lakemark-aside/7/global_step10")]
    (pointer,) = done["pointers"]
    assert (pointer["path"], pointer["kind"], pointer["content"]) == (str(out / "latest"), "text", "global_step5")
    assert {"weights", "optimizer"} <= set(done["roles"]["present"])
    assert "rng" in done["roles"]["possible"]
    assert (done["roles"]["missing"], done["accepted_gaps"], done["passed_over"], done["baked_paths"]) == (
        [],
        [],
        [],
        [],
    )
    text = deepspeed("resume", "r1", "--to", out, "--job", "7").out
    assert "it was already" in text
    assert "may hold: " in text


def test_a_dry_run_says_what_would_be_done_and_does_nothing(deepspeed):
    out = deepspeed.home / "out"
    before, tips = sorted(os.listdir(out)), deepspeed.tips()
    said = deepspeed.ok("resume", "r1", "--to", out, "--record", "r1@5", "--dry-run")["would"]
    assert any(str(out / "latest") in line and "global_step5" in line for line in said)
    assert f"move {out / 'global_step10'} aside" in said
    assert (sorted(os.listdir(out)), deepspeed.tips()) == (before, tips)


@pytest.mark.parametrize("command", ["restore", "resume"])
def test_a_step_that_is_not_there_is_3_with_the_nearest_and_makes_nothing(deepspeed, command):
    words = ("restore", "r1@7") if command == "restore" else ("resume", "r1", "--record", "r1@7")
    error = deepspeed.fails(*words, "--to", deepspeed.home / "new")
    assert error["exit_code"] == 3
    assert "nearest are 5, 10" in error["message"]
    assert not (deepspeed.home / "new").exists()


@pytest.mark.parametrize("command", ["restore", "resume"])
def test_a_step_that_lies_there_half_written_is_said_to(deepspeed, command):
    half = deepspeed.home / "out/global_step15"
    half.mkdir()
    (half / "mp_rank_00_model_states.pt").write_bytes(b"PK\x03\x04half")
    words = ("restore", "r1@15") if command == "restore" else ("resume", "r1", "--record", "r1@15")
    error = deepspeed.fails(*words, "--to", deepspeed.home / "new")
    assert error["exit_code"] in (3, 4)
    assert f"{half} is incomplete: " in error["message"]
    assert "nearest are 5, 10" in error["message"]
    assert not (deepspeed.home / "new").exists()


def test_restore_of_roles(empty):
    empty.ok("init", ".", "--profile", "solo")
    empty.ok("run", "open", "r1")
    place = unpack(empty.home / "out", "hf_trainer/plain")
    empty.ok("commit", place / "checkpoint-5", "--run", "r1", "--step", 5)
    done = empty.ok("restore", "r1@5", "--to", empty.home / "back", "--role", "weights")
    assert (empty.home / "back/model.safetensors").exists()
    assert not (empty.home / "back/optimizer.pt").exists()
    assert (done["along"], done["mixed"], done["partial"], done["verified"]) == (["config"], [], None, True)
    assert "came along: config" in empty("restore", "r1@5", "--to", empty.home / "two", "--role", "weights").out
    assert empty.fails("restore", "r1@5", "--to", empty.home / "x", "--role", "wheel")["exit_code"] == 2
    dcp = unpack(empty.home / "dcp", "dcp/single")
    empty.ok("commit", dcp / "step-100", "--run", "r1", "--step", 100)
    part = empty.ok("restore", "r1@100", "--to", empty.home / "part", "--role", "weights")["partial"]
    assert part == {"files": ["__0_0.distcp"], "bytes_fetched": 87170, "bytes_sparse": 0}
    said = empty("restore", "r1@100", "--to", empty.home / "p2", "--role", "weights").out
    assert "in part" in said
    assert "only: weights\n" in said
    assert "optimizer" not in said


def test_without_names_the_roles_that_may_be_missing(empty):
    empty.ok("init", ".", "--profile", "solo")
    empty.ok("run", "open", "r1", "--watch", empty.home / "out")
    place = unpack(empty.home / "out", "torchtitan/keep2") / "checkpoint"
    for step in (30, 40):
        empty.ok("commit", place / f"step-{step}", "--run", "r1", "--step", step)
    error = empty.fails("resume", "r1", "--to", empty.home / "out")
    assert error["exit_code"] == 3
    assert "no rng" in error["message"]
    line = error["advice"].partition("lakemark ")[2].split()
    assert line[-2:] == ["--without", "rng"]
    done = empty.ok(*line)
    assert (done["step"], done["accepted_gaps"], done["roles"]["missing"]) == (45, ["no rng"], ["rng"])
    assert empty.fails("resume", "r1", "--to", empty.home / "out", "--without", "wheel")["exit_code"] == 2


def test_a_rollback_says_what_its_target_lacks_and_resume_never_goes_below_it(empty):
    empty.ok("init", ".", "--profile", "solo")
    empty.ok("run", "open", "r1", "--watch", empty.home / "out")
    place = unpack(empty.home / "out", "torchtitan/keep2") / "checkpoint"
    whole = unpack(empty.home / "hf", "hf_trainer/plain") / "checkpoint-5"
    empty.ok("commit", whole, "--run", "r1", "--step", 5)
    for step in (30, 40):
        empty.ok("commit", place / f"step-{step}", "--run", "r1", "--step", step)
    plan = empty.ok("rollback", "plan", "r1", "--to", 30, "--reason", "bad", "--while-running", "--model-only")
    assert any("no rng" in note for note in plan["notes"])
    done = empty("rollback", "apply", plan["plan"], "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["gaps"] == ["no rng"]
    error = empty.fails("resume", "r1", "--to", empty.home / "out")
    assert (error["kind"], error["exit_code"]) == ("Refused", 7)
    assert "rolled back to step 30" in error["message"]
    assert empty.ok("resume", "r1", "--to", empty.home / "out", "--without", "rng")["step"] == 30


def test_a_world_of_another_size_is_told_what_the_framework_needs(deepspeed):
    out = deepspeed.home / "out"
    note = "saved by 1 data rank: DeepSpeed loads ZeRO's states with as many only, and there are 4 processes"
    said = deepspeed.ok("resume", "r1", "--to", out, "--world", "4", "--dry-run")["would"]
    assert any(line.startswith(f"mind: {note}") for line in said)
    done = deepspeed.ok("resume", "r1", "--to", out, "--job", "7", "--world", "4")
    assert any(one.startswith(note) for one in done["notes"])
    assert not any(
        "data rank" in one for one in deepspeed.ok("resume", "r1", "--to", out, "--job", "7", "--world", "1")["notes"]
    )
