"""A demo or `up` that is stopped, at any moment, ends what it started; what it prints works when it is pasted."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakemark.sandbox import directions, processes, services
from lakemark.sandbox.story import demo
from lakemark.sandbox.story.deployments import Deployments

# Whoever runs the tests in the background has Ctrl-C ignored, and so would what they start.
LISTENING = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
PROGRAM = [sys.executable, "-c", f"{LISTENING}from lakemark.cli import main; main()"]
NAMES = ("prefect-server", "seaweedfs", "lakefs", "prefect-worker")


def until(true, *, within_seconds=300):
    ends = time.monotonic() + within_seconds
    while not true():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.05)


def alive(home):
    return [one for name in NAMES for one in processes.marked(f"{home.resolve() / 'sandbox'}#{name}")]


def begin(tmp_path, *words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKEMARK_")}
    return subprocess.Popen(
        [*PROGRAM, *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_demo_that_is_stopped_ends_what_it_started(tmp_path, number):
    started = begin(tmp_path, "demo", "--dir", "demo", "--keep")
    until(lambda: alive(tmp_path / "demo"))
    started.send_signal(number)
    out, err = started.communicate(timeout=290)
    assert started.returncode == 130, err
    assert alive(tmp_path / "demo") == []
    assert "Traceback" not in out + err
    assert "interrupted" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_up_that_is_stopped_ends_what_it_started(tmp_path, number):
    subprocess.run([*PROGRAM, "init", "site", "--profile", "laptop"], cwd=tmp_path, check=True, capture_output=True)
    started = begin(tmp_path, "--config", "site/lakemark.yaml", "up")
    until(lambda: alive(tmp_path / "site"))
    started.send_signal(number)
    out, err = started.communicate(timeout=290)
    assert started.returncode == 130, err
    assert alive(tmp_path / "site") == []
    assert "Traceback" not in out + err


def test_an_interruption_before_there_is_a_command_is_no_traceback(tmp_path):
    """Importing takes a while on a busy machine: the signal falls into that."""
    hook = "import os, signal, sys\nsys.meta_path.insert(0, type('Stop', (), {'find_spec': staticmethod(\n"
    hook += "    lambda name, *_: os.kill(os.getpid(), signal.SIGINT) if name == 'cyclopts' else None)}))\n"
    code = LISTENING + hook + "from lakemark.cli import main\nsys.argv = ['lakemark', 'ls']\nmain()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr


def test_a_demo_that_fails_says_where_to_look_and_ends_what_it_started(tmp_path, monkeypatch):
    """Its data server is not there: a real failure in the middle of setting up."""
    told = []
    environ = dict(os.environ) | {"LAKEFS_ENDPOINT": "http://127.0.0.1:9", "LAKEFS_ACCESS_KEY_ID": "a"}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match="lakeFS answers 0"):
        demo.run(tmp_path / "demo", say=told.append, environ=environ | {"LAKEFS_SECRET_ACCESS_KEY": "b"}, keep=False)
    assert services.status(tmp_path / "demo" / "sandbox") == []
    commands = pasted(told)
    assert any(" ls demo" in one for one in commands)
    for line in commands:
        if " ls " in line:
            done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode in (0, 3), line + done.stderr


@pytest.mark.parametrize("keep", [True, False])
def test_a_demo_that_keeps_its_services_says_where_prefect_is_how_to_open_it_and_how_to_end_them(
    tmp_path, monkeypatch, keep
):
    monkeypatch.chdir(tmp_path)
    stage = demo.Stage(home=tmp_path / "demo", say=print, environ={})
    told = demo.look_around(stage, {"prefect-server": "http://127.0.0.1:4200"}, None, keep=keep)
    wanted = [
        "  # Prefect's page: http://127.0.0.1:4200",
        "  # it asks for a password: the value of PREFECT_API_AUTH_STRING in demo/sandbox/credentials.env",
    ]
    assert [line for line in told if line.startswith("  #")] == (wanted if keep else [])
    assert any(line.endswith(" --config demo/lakemark.yaml down") for line in told) is keep


def pasted(told):
    return [line.strip() for line in told if line.startswith("  ") and not line.startswith("  #")]


def test_commands_are_spelled_as_they_can_be_called(tmp_path, monkeypatch):
    site = tmp_path / "a site" / "lakemark.yaml"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    first, *words = shlex.split(directions.command(site, "as-of", "r1", "2026-01-01T00:00:00Z"))
    assert Path(first).is_absolute() or (tmp_path / first).exists()
    assert words == ["--config", "a site/lakemark.yaml", "as-of", "r1", "2026-01-01T00:00:00Z"]
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert directions.command(site, "down").startswith("lakemark --config 'a site/lakemark.yaml'")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert str(site) in shlex.split(directions.command(site, "down"))


class Busy:
    """A server whose schedule has a run of the deployment going: the first one started is cancelled, as Prefect does it."""

    def __init__(self):
        self.started, self.asked = [], 0

    def get(self, path):
        if path.startswith("/deployments/"):
            return {"id": "d1"}
        mine = int(path.rpartition("-")[2])
        state = (
            {"type": "CANCELLED", "message": "Deployment concurrency limit reached."}
            if mine == 0
            else {"type": "COMPLETED"}
        )
        return {"id": path, "state": state, "run_count": mine}

    def post(self, path, _body):
        if path.endswith("/create_flow_run"):
            self.started.append(f"run-{len(self.started)}")
            return {"id": self.started[-1]}
        self.asked += 1
        return [{"id": "somebody-elses"}] if self.asked < 3 else []


def test_a_run_that_somebody_elses_kept_from_starting_is_started_again():
    busy = Busy()
    assert Deployments(busy).finish("sweep") == "run-1"
    assert (busy.started, busy.asked) == (["run-0", "run-1"], 3)
