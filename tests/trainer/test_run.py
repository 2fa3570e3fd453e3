"""What training code sees, and what it must never notice."""

import io
import json
import math
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakemark.adapters.node.run_files import LocalSpool
from lakemark.model.values.names import run_for
from lakemark.ports import RunFile
from lakemark.trainer import Run, RunNotOpened
from lakemark.trainer.code import code_version
from lakemark.trainer.identity import identity_of
from tests.model.building import data

RESUME = {"path": "/train/step-300", "step": 300, "record": "b" * 64, "timeline": 2}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def opened(home, name="llama-7b", *, refs=None, resume=None, spool=None, **environ):
    run = run_for(name)
    spool = home / "spool" / run if spool is None else spool
    run_file = RunFile(
        run=run, timeline=3, attempt="t1", spool=spool, data=(data(),) if refs is None else refs, resume=resume
    )
    LocalSpool().write_run_file(home / "runs" / f"{run}.json", run_file)
    return Run.open(name, environ={"LAKEMARK_HOME": str(home)} | environ)


def spooled(run):
    return list(LocalSpool().spooled(Path(run._spool)))


def test_open_and_save(home, tmp_path):
    run = opened(home)
    assert run.data_uri() == f"lakefs://data/{'a' * 64}/"
    assert run.resume is None
    before = datetime.now(UTC)
    run.saved(tmp_path / "x/../step-1", step=1, metrics={"val_loss": 1.9, "tokens": 3}, roles={"w.npz": "weights"})
    (one,) = spooled(run)
    assert (one.run, one.step, one.attempt, one.timeline) == ("llama-7b", 1, "t1", None)
    assert one.path == tmp_path / "step-1"
    assert one.data == (data(),)
    assert one.metrics == {"val_loss": 1.9, "tokens": 3.0}
    assert one.roles == {"w.npz": "weights"}
    assert before <= one.saved_at <= datetime.now(UTC)


@pytest.mark.parametrize(("read", "timeline"), [(True, 2), (False, None)])
def test_the_timeline_of_resume_counts_once_it_was_read(home, read, timeline):
    run = opened(home, resume=RESUME)
    if read:
        assert run.resume == RESUME
    run.saved("/x", step=1)
    assert spooled(run)[0].timeline == timeline


def test_resume_cannot_be_spoilt(home):
    run = opened(home, resume=RESUME)
    run.resume["timeline"] = 9
    assert run.resume == RESUME


def test_a_later_run_file_does_not_change_what_this_process_has(home):
    run = opened(home, resume=RESUME)
    opened(home, refs=(data("c"),))
    assert run.data_uri() == f"lakefs://data/{'a' * 64}/"
    assert run.resume == RESUME


def test_several_data_versions(home):
    run = opened(home, refs=(data("a"), data("b", repository="eval")))
    assert run.data_uri("eval") == f"lakefs://eval/{'b' * 64}/"
    assert run.data_uri("data/main") == f"lakefs://data/{'a' * 64}/"
    for name in (None, "other", "data/dev"):
        with pytest.raises(RunNotOpened, match="data/main, eval/main"):
            run.data_uri(name)
    with pytest.raises(RunNotOpened, match="it has none"):
        opened(home, refs=()).data_uri()


@pytest.mark.parametrize("name", ["llama-7b", "Llama 7B", "x-41", "ü"])
def test_any_name(home, name):
    assert opened(home, name).name == run_for(name)


def test_the_run_file_by_itself(home, tmp_path):
    opened(home)
    path = tmp_path / "elsewhere.json"
    (home / "runs/llama-7b.json").rename(path)
    assert Run.open("llama-7b", environ={"LAKEMARK_RUN_FILE": str(path)}).attempt == "t1"
    with pytest.raises(RunNotOpened, match="is of the run 'llama-7b', not of 'other'"):
        Run.open("other", environ={"LAKEMARK_RUN_FILE": str(path)})


WRONG = ["", "{", "[]", "{}", '{"run": 3}', '{"run": "llama-7b", "timeline": 1, "attempt": "t", "spool": "/s", "data": [{}]}',
         '{"run": "llama-7b", "timeline": 1, "attempt": "t", "spool": "/s", "data": [], "resume": {}}', "\xff"]  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_raises_before_the_loop(home, text):
    opened(home)
    (home / "runs/llama-7b.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RunNotOpened):
        Run.open("llama-7b", environ={"LAKEMARK_HOME": str(home)})


def test_nothing_opened(home):
    with pytest.raises(RunNotOpened, match="there is no run file"):
        Run.open("llama-7b", environ={"LAKEMARK_HOME": str(home)})
    with pytest.raises(RunNotOpened, match="LAKEMARK_HOME"):
        Run.open("llama-7b", environ={})


class Evil:
    def __float__(self):
        raise SystemError

    def __str__(self):
        raise RuntimeError

    __repr__ = __str__
    __fspath__ = __str__


CALLS = {
    "step": {"step": -1}, "half a step": {"step": 1.5}, "no step": {"step": None}, "nan": {"step": math.nan},
    "path": {"path": None}, "evil path": {"path": Evil()}, "metrics": {"metrics": 3}, "roles": {"roles": [1]},
    "evil step": {"step": Evil()}, "evil role": {"roles": {"a": Evil()}},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_saved_never_raises(home, capsys, name):
    run = opened(home)
    call = {"path": "/x", "step": 1} | CALLS[name]
    run.saved(call.pop("path"), **call)
    run.saved("/y", step=-1)
    assert spooled(run) == []
    said = capsys.readouterr().err
    assert said.startswith("lakemark: ")
    assert said.count("\n") == 1
    run.saved("/z", step=2)
    assert [one.step for one in spooled(run)] == [2]


def test_metrics_that_are_no_numbers_are_left_out(home, capsys):
    run = opened(home)
    run.saved("/x", step=1, metrics={"a": 1, "b": math.nan, "c": math.inf, "d": "x", "e": Evil(), "f": True})
    assert spooled(run)[0].metrics == {"a": 1.0, "f": 1.0}
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(1.23456, 1.235), (0, 0.0), (None, None), (-1, None), (math.nan, None), ("x", None), (1e12, None)],
)
def test_how_long_it_took_is_told_where_it_can_be(home, seconds, told):
    run = opened(home)
    run.saved("/x", step=1, seconds=seconds)
    (one,) = spooled(run)
    assert one.saved_seconds == told


@pytest.mark.parametrize("broken", ["closed", "full"])
def test_not_even_without_a_stderr(home, monkeypatch, broken):
    run = opened(home)
    stream = io.StringIO() if broken == "closed" else open("/dev/full", "w", buffering=1)  # noqa: SIM115
    if broken == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    run.saved("/x", step=-1)
    if broken == "full":
        with pytest.raises(OSError, match="No space"):
            stream.close()


def test_a_spool_that_cannot_be_written(home, capsys):
    home.mkdir()
    (home / "spool").write_text("a file")
    run = opened(home)
    run.saved("/x", step=1)
    assert "not announced" in capsys.readouterr().err


def test_the_same_step_twice_is_two_announcements_and_no_draft_stays(home):
    run = opened(home)
    for _ in range(3):
        run.saved("/x", step=1)
    assert len(spooled(run)) == 3
    assert all(name.endswith(".json") for name in os.listdir(run._spool))


def test_inside_a_container(home, tmp_path):
    (home / "spool/llama-7b").mkdir(parents=True)
    run = opened(home, spool=Path("/host/only/spool/llama-7b"))
    run.saved("/x", step=1)
    assert len(list(LocalSpool().spooled(home / "spool/llama-7b"))) == 1


def test_a_process_killed_while_it_saves_leaves_whole_announcements(home):
    opened(home)
    code = """
import sys
from lakemark.trainer import Run
run = Run.open("llama-7b")
for step in range(10**9):
    run.saved("/x", step=step, metrics={"m": step})
    print(step, flush=True)
"""
    environ = os.environ | {"LAKEMARK_HOME": str(home)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True)
    for _ in range(50):
        done = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    found = list(LocalSpool().spooled(home / "spool/llama-7b"))
    assert [one.step for one in found][: done + 1] == list(range(done + 1))
    assert not (home / "spool/llama-7b/rejected").exists()


def test_code(tmp_path, require_command):
    git = require_command("git")

    def run(*command, cwd=tmp_path / "tree"):
        subprocess.run(
            [git, "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=cwd, check=True, capture_output=True
        )

    def version(folder="tree/deep"):
        code = "import json; from lakemark.trainer.code import code_version; print(json.dumps(code_version()))"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path / folder, check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout)

    (tmp_path / "tree/deep").mkdir(parents=True)
    assert version() is None
    run("init", "-b", "main")
    assert version() is None
    run("commit", "--allow-empty", "-m", "x")
    head = subprocess.run(
        [git, "rev-parse", "HEAD"], cwd=tmp_path / "tree", check=True, capture_output=True, text=True
    ).stdout.strip()
    assert version() == {"repository": str(tmp_path / "tree"), "commit": head, "dirty": None}
    run("remote", "add", "origin", "https://user:secret@example.org/a/b.git?token=1")
    assert version()["repository"] == "https://example.org/a/b.git"
    run("remote", "set-url", "origin", "git@example.org:a/b.git")
    assert version()["repository"] == "git@example.org:a/b.git"
    run("pack-refs", "--all")
    assert version()["commit"] == head
    run("worktree", "add", "../other", "-b", "side")
    assert version("other") == {"repository": "git@example.org:a/b.git", "commit": head, "dirty": None}
    run("checkout", "--detach")
    assert version()["commit"] == head
    (tmp_path / "tree/.git/HEAD").write_text("nonsense")
    assert version() is None


def test_what_was_saved_is_told_by_its_files(home, tmp_path):
    run = opened(home)
    folder = tmp_path / "step-1"
    (folder / "shards").mkdir(parents=True)
    files = [folder / "model.bin", folder / "shards" / "0.bin", tmp_path / "step-2.ckpt"]
    for number, path in enumerate(files):
        path.write_bytes(b"x" * number)
    (folder / "link").symlink_to("model.bin")
    told = [(found.st_ino, found.st_size, found.st_mtime_ns) for found in map(os.stat, files)]
    for step, path in ((1, folder), (2, files[2]), (3, tmp_path / "later")):
        run.saved(path, step=step)
    inside, alone, nothing = (one.identity for one in spooled(run))
    assert inside == {"model.bin": told[0], "shards/0.bin": told[1]}
    assert (alone, nothing) == ({".": told[2]}, {})


def test_what_was_saved_is_told_of_some_of_many_files(home, tmp_path):
    run = opened(home)
    for number in range(600):
        (tmp_path / f"{number}.bin").touch()
    run.saved(tmp_path, step=1)
    (one,) = spooled(run)
    assert one.identity
    assert len(one.identity) <= 256


def test_the_first_files_are_told_however_late_it_is(tmp_path):
    """A process may be stopped anywhere: what it told of no file, an overwritten one would pass for what was announced."""
    (tmp_path / "shards").mkdir()
    for number in range(20):
        (tmp_path / "shards" / f"{number}.bin").touch()
    (tmp_path / "steady.bin").touch()
    hours_pass = iter(range(0, 1_000_000, 3600))
    told = identity_of(str(tmp_path), clock=lambda: next(hours_pass))
    assert told
    assert "steady.bin" in told
    assert len(told) == 8


def test_folders_without_files_are_no_reason_to_walk_on(tmp_path):
    for number in range(200):
        (tmp_path / f"{number:03}").mkdir()
    looks = []
    assert identity_of(str(tmp_path), clock=lambda: looks.append(1) or len(looks)) is None
    assert len(looks) == 2


def test_a_name_that_is_no_text_is_not_told(home, tmp_path):
    run = opened(home)
    (tmp_path / "out").mkdir()
    for name in (b"\xff", b"plain"):
        (tmp_path / "out" / os.fsdecode(name)).touch()
    run.saved(tmp_path / "out", step=1)
    (one,) = spooled(run)
    assert list(one.identity) == ["plain"]


def test_code_travels_with_a_save(home):
    run = opened(home)
    run.saved("/x", step=1)
    assert spooled(run)[0].code == code_version()
