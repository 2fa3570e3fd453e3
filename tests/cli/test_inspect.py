"""`inspect` and what `sweep` and `commit` say of what was found."""

import json
import os

from tests.formats.builders import dcp, safetensors, save, torch_zip
from tests.services.on_disk import age, hf
from tests.services.test_waiting import closed

KEYS = {
    "path", "framework", "step", "verdict", "roles", "possible", "resumable", "gaps", "why", "members", "ranks",
    "unfinished", "target", "notes",
}  # fmt: skip


def by_name(found):
    return {os.path.basename(one["path"]): one for one in found}


def test_everything_in_a_directory_is_told(empty):
    out = empty.home / "out"
    hf(out, 10)
    hf(out, 20, without=("trainer_state.json",))
    dcp(out / "deep" / "step-5", ranks=2)
    save(out / "notes.txt", b"mine")
    found = by_name(empty.ok("inspect", out)["found"])
    assert all(one.keys() == KEYS for one in found.values())
    whole, cut, sharded = found["checkpoint-10"], found["checkpoint-20"], found["step-5"]
    assert (whole["framework"], whole["step"], whole["verdict"], whole["resumable"]) == (
        "hf-trainer",
        10,
        "complete",
        True,
    )
    assert {"optimizer", "rng", "scheduler", "weights"} <= set(whole["roles"])
    assert whole["roles"] == sorted(whole["roles"])
    assert cut["verdict"] == "incomplete"
    assert "trainer_state.json" in cut["why"]
    assert (sharded["framework"], sharded["step"]) == ("dcp", 5)
    lines = empty("inspect", out).out.splitlines()
    assert lines[0].split() == ["verdict", "step", "framework", "roles", "path", "why"]
    assert len(lines) == 1 + len(found)


def test_a_role_that_every_earlier_step_has_is_said_to_be_lost(empty):
    out = empty.home / "out"
    for step in (10, 20, 30):
        hf(out, step, without=("rng_state.pth",) if step == 30 else ())
    hf(out / "other", 40, without=("rng_state.pth",))
    found = by_name(empty.ok("inspect", out)["found"])
    told = {name: [note for note in one["notes"] if "any more" in note] for name, one in found.items()}
    assert told.pop("checkpoint-30") == ["no rng any more, which every earlier step has"]
    assert set(map(tuple, told.values())) == {()}
    assert found["checkpoint-30"]["verdict"] == "complete"


def test_a_checkpoint_is_judged_itself(empty):
    path = hf(empty.home / "out", 10)
    (one,) = empty.ok("inspect", path)["found"]
    assert (one["path"], one["step"]) == (str(path), 10)
    (file,) = empty.ok("inspect", path / "optimizer.pt")["found"]
    assert file["path"].endswith("optimizer.pt")


def test_a_prefix_is_judged(empty):
    from tests.services.on_disk import Yard

    yard = Yard(empty.home)
    yard.unpack("keras_tf/tfckpt")
    (one,) = empty.ok("inspect", yard.out / "ckpt-50")["found"]
    assert (one["framework"], one["step"]) == ("tf", 50)
    assert sorted(os.path.basename(path) for path in one["members"]) == [
        "ckpt-50.data-00000-of-00001",
        "ckpt-50.index",
    ]


def test_where_there_is_none_it_says_so(empty):
    (empty.home / "void").mkdir()
    save(empty.home / "code" / "main.py", b"print()")
    for place in ("void", "code"):
        assert empty.ok("inspect", place) == {"found": [], "unreadable": []}
        assert empty("inspect", place).out.startswith("no checkpoint in ")
    assert empty.fails("inspect", "nowhere")["kind"] == "NotFound"


def test_hostile_names_stay_one_readable_document(empty):
    out = empty.home / "out"
    names = ("step=1,val:loss=2", "new\nline", "bad\udcff", "a b", "ünï")
    for number, name in enumerate(names):
        dcp(out / name / f"step-{number}")
        save(out / name / f"model-{number}.pt", torch_zip())
    done = empty("inspect", out, "--json")
    assert done.code == 0
    found = json.loads(done.out)["found"]
    done.out.encode()  # no lone surrogate
    assert done.out.count("\n") == 1
    assert {one["step"] for one in found} == set(range(len(names)))
    assert any("bad\\xff" in one["path"] for one in found)
    text = empty("inspect", out).out
    assert "new\\nline" in text
    assert len(text.splitlines()) == 1 + len(found)


def test_sweep_tells_incomplete_abandoned_and_notes(cli):
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    out = cli.home / "out"
    hf(out, 10)
    cut = age(hf(out, 5, without=("trainer_state.json",)), days=2)
    fresh = hf(out, 30, without=("trainer_state.json",))
    save(out / "checkpoint-20" / "model.safetensors", safetensors())
    save(out / "checkpoint-20" / "trainer_state.json", json.dumps({"global_step": 20}))
    age(out / "checkpoint-10", minutes=1)
    age(out / "checkpoint-20", minutes=1)
    plan = cli.ok("sweep", "--dry-run")
    assert any("checkpoint-10" in str(said) for said in plan.values())
    swept = cli.ok("sweep")
    assert [one["step"] for one in swept["committed"]] == [10, 20]
    assert [one["path"] for one in swept["incomplete"]] == [str(fresh)]
    (abandoned,) = swept["abandoned"]
    assert (abandoned["path"], set(abandoned)) == (str(cut), {"path", "why", "since"})
    assert abandoned["since"].endswith("Z")
    assert "r1@20: weights only: not resumable" in swept["said"]
    text = cli("sweep").out
    assert f"abandoned {cut} since" in text
    assert f"incomplete {fresh}" in text


def test_a_prefix_is_committed_and_its_dry_run_counts_its_files(cli):
    from tests.services.on_disk import Yard

    cli.ok("run", "open", "r1")
    yard = Yard(cli.home)
    yard.unpack("keras_tf/tfckpt")
    plan = cli.ok("commit", yard.out / "ckpt-50", "--run", "r1", "--step", 50, "--dry-run")
    assert plan["files"] == 2
    record = cli.ok("commit", yard.out / "ckpt-50", "--run", "r1", "--step", 50)
    assert (record["step"], record["files"], record["framework"]) == (50, 2, "tf")


def test_what_cannot_be_looked_into_is_said_once(cli):
    out = cli.home / "out"
    hf(out, 10)
    (out / "private").mkdir()
    cli.ok("run", "open", "r1", "--watch", out)
    cli.ok("sweep")
    assert cli.ok("inspect", out)["unreadable"] == []
    with closed(out / "private"):
        document = cli.ok("inspect", out)
        text = cli("inspect", out).out
    assert [one["step"] for one in document["found"]] == [10]
    assert document["unreadable"] == [{"path": str(out / "private"), "why": "Permission denied"}]
    line = f"could not be read: {out / 'private'}: Permission denied"
    assert text.splitlines().count(line) == 1
    hidden = (out / "private").rename(cli.home / "private")
    (out / "private").symlink_to(hidden)
    assert cli.ok("sweep")["unreadable"] == []


def test_a_sweep_names_watched_directories_that_nobody_opened(cli):
    jobs = cli.home / "jobs"
    hf(jobs / "a" / "out", 10)
    (jobs / "b" / "out").mkdir(parents=True)
    cli.settings("watch: []", f"watch: [{{path: {jobs}/*/out, run: 'job-{{name}}'}}]")
    (waits,) = cli.ok("sweep")["pending"]
    assert waits["what"] == f"saves in {jobs / 'a' / 'out'}"
    assert waits["why"] == "nobody opened job-a: lakemark run open job-a (and so for 1 more)"
    for name in ("a", "b"):
        cli.ok("run", "open", f"job-{name}")
    swept = cli.ok("sweep")
    assert swept["pending"] == []
    assert [one["step"] for one in swept["committed"]] == [10]


# P22: what does not exist, or only half, was restored as nothing


def test_restoring_a_step_that_is_not_there_names_those_that_are(trained):
    hf(trained.home / "out", 400, without=("trainer_state.json",))
    trained.ok("sweep")
    for step in (150, 400):
        error = trained.fails("restore", f"r1@{step}", "--to", "restored")
        assert error["kind"] in ("NotFound", "NoRecordAsOf")
        assert "300" in error["message"] + error["advice"]
    assert not (trained.home / "restored").exists()
    (trained.home / "mine").mkdir()
    trained.fails("restore", "r1@400", "--to", "mine")
    assert list((trained.home / "mine").iterdir()) == []
