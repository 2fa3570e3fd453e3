"""A newcomer's day: a wheel in a fresh environment, nothing of the checkout, and a rollback in Prefect's pages.

The environment has lakemark from its wheel alone, and the locked set of everything else by a path: the checkout's own
`.pth` file is not read there, so that neither its package nor its `flows/` can be imported.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakemark.sandbox.prefect import Api
from tests.people.browser import browsing
from tests.people.prefect_pages import Pages

pytestmark = [pytest.mark.xdist_group("services"), pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
# As people's scripts are: it knows nothing of lakemark, saves where it always did, and goes on from the newest save.
TRAINER = """
import json, pathlib, random, sys, time
out, last = pathlib.Path(sys.argv[1]), int(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
done = max((int(path.name.removeprefix("step-")) for path in out.glob("step-*")), default=0)
for step in range(done + 100, last + 1, 100):
    half = out / f"writing-{step}"
    half.mkdir()
    (half / "weights.bin").write_bytes(random.Random(step).randbytes(100_000))
    (half / "optimizer.bin").write_bytes(random.Random(-step).randbytes(50_000))
    (half / "trainer.json").write_text(json.dumps({"step": step}))
    half.rename(out / f"step-{step}")
    print("saved", step, flush=True)
if len(sys.argv) > 3:
    (out / f"writing-{last + 100}").mkdir()
    print("saving", flush=True)
    time.sleep(600)
"""


@dataclass
class Newcomer:
    """A person with a fresh environment in `home` and nothing else."""

    home: Path
    environ: dict

    @property
    def python(self):
        return self.home / "venv" / "bin" / "python"

    def lakemark(self, *words):
        program = self.home / "venv" / "bin" / "lakemark"
        done = subprocess.run(
            [program, *words, "--json"], cwd=self.home, env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stderr[-3000:]}"
        return json.loads(done.stdout)

    def start(self, *words):
        return subprocess.Popen(words, cwd=self.home, env=self.environ, stdout=subprocess.PIPE, text=True)


def until(look, *, within_seconds=300, told=lambda: ""):
    """What `look` finds at last; `told` says what is known when it is waited for in vain."""
    ends = time.monotonic() + within_seconds
    while not (found := look()):
        if time.monotonic() > ends:
            raise AssertionError(f"waited in vain\n{told()}")
        time.sleep(1)
    return found


def whole_story(newcomer, keys, request, browser):
    """What the ledger, Prefect, the worker and the page say of a rollback that does not come about."""
    api = Api.at(keys["PREFECT_API_URL"], keys["PREFECT_API_AUTH_STRING"])
    standing = newcomer.lakemark("rollback", "show", request)
    only = {"flow_runs": {"id": {"any_": [standing["flow_run"]]}}}
    (flow_run,) = api.post("/flow_runs/filter", only)
    states = api.get(f"/flow_run_states/?flow_run_id={standing['flow_run']}")
    logs = api.post(
        "/logs/filter", {"logs": {"flow_run_id": {"any_": [standing["flow_run"]]}}, "sort": "TIMESTAMP_ASC"}
    )
    logged = {one.stem: one.read_text(errors="replace") for one in (newcomer.home / "sandbox" / "logs").glob("*.log")}
    told = {
        "the ledger": json.dumps(standing, indent=1),
        "Prefect's run": f"{flow_run['name']}, in the queue {flow_run['work_queue_name']}, tags {flow_run['tags']}",
        "its states": "\n".join(f"{one['timestamp']} {one['name']}: {one['message']}" for one in states),
        "its log": "\n".join(f"{one['timestamp']} {one['message']}" for one in logs),
        "the page": f"{browser.shot('in vain')}\n{browser.text()[:3000]}",
        **{f"the log {name}": "\n".join(text.splitlines()[-60:]) for name, text in logged.items()},
    }
    return "\n".join(f"== {what}\n{text}" for what, text in told.items())


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory, require_command):
    home = tmp_path_factory.mktemp("newcomer")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    venv.create(home / "venv", symlinks=True)
    python = home / "venv" / "bin" / "python"
    (wheel,) = (home / "dist").glob("*.whl")
    install = [require_command("uv"), "pip", "install", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for program in ("weed", "rclone"):
        (home / "venv" / "bin" / program).symlink_to(require_command(program))
    (home / "train.py").write_text(TRAINER)
    (home / "home").mkdir()
    foreign = ("LAKEMARK_", "PREFECT_", "LAKEFS_", "AWS_", "PYTHON", "VIRTUAL_ENV", "PYTEST_", "COVERAGE")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    made = Newcomer(home, environ | {"HOME": str(home / "home"), "LOGNAME": "ana", "LAKEMARK_NODE": "node-a"})
    try:
        yield made
    finally:
        if (home / "lakemark.yaml").exists():
            made.lakemark("down")


def test_the_checkout_is_not_there(newcomer):
    look = "import importlib.util as u, lakemark; print(lakemark.__file__, u.find_spec('flows'), u.find_spec('tests'))"
    done = subprocess.run(
        [newcomer.python, "-c", look],
        cwd=newcomer.home,
        env=newcomer.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    file, *others = done.stdout.split()
    assert Path(file).is_relative_to(newcomer.home)
    assert others == ["None", "None"]


def test_from_the_wheel_to_a_rollback_in_prefects_form(newcomer, tmp_path, require_command):
    chromium, driver = require_command("chromium"), require_command("chromedriver")
    newcomer.lakemark("init", ".", "--profile", "laptop")
    newcomer.lakemark("up")
    assert [one for one in newcomer.lakemark("doctor")["checks"] if not one["ok"]] == []
    out = newcomer.home / "train" / "out"
    newcomer.lakemark("run", "open", "llama", "--watch", str(out))
    watch = newcomer.start(newcomer.home / "venv" / "bin" / "lakemark", "watch")
    try:
        trainer = newcomer.start(newcomer.python, "train.py", str(out), "300", "and die")
        until(lambda: trainer.stdout.readline() == "saving\n")
        trainer.kill()
        trainer.communicate()
        until(lambda: [one["step"] for one in newcomer.lakemark("ls", "llama")["records"]] == [300, 200, 100])
        rolled_back = in_the_browser(newcomer, tmp_path, chromium=chromium, driver=driver)
        assert [one["by"] for one in rolled_back["approvals"]] == ["bea"]
        resumed = newcomer.lakemark("resume", "llama", "--to", str(out), "--job", "second")
        assert (resumed["step"], resumed["timeline"]) == (100, 2)
        assert sorted(path.name for path in out.glob("step-*")) == ["step-100"]
        subprocess.run(
            [newcomer.python, "train.py", str(out), "200"], cwd=newcomer.home, check=True, capture_output=True
        )
        found = until(lambda: [one for one in newcomer.lakemark("ls", "llama")["records"] if one["step"] == 200])
        assert found[0]["timeline"] == 2
    finally:
        watch.send_signal(signal.SIGTERM)
        watch.communicate()


def in_the_browser(newcomer, folder, *, chromium, driver):
    """Asks by the deployment's form, reads the plan in the question, approves it; answers the rollback as applied."""
    lines = (newcomer.home / "sandbox" / "credentials.env").read_text().splitlines()
    keys = dict(line.split("=", 1) for line in lines)
    with browsing(folder, chromium=chromium, driver=driver) as browser:
        pages = Pages(browser, keys["PREFECT_API_URL"].removesuffix("/api"), keys["PREFECT_API_AUTH_STRING"])
        asked = {"run": "llama", "to": "100", "reason": "the loss rises", "requester": "ana", "while_running": True}
        pages.start("rollback", "form", **asked)
        (request,) = until(lambda: newcomer.lakemark("rollback", "ls")["rollbacks"], told=browser.text)
        digest = request["plan"][:12]
        shown = pages.answer(
            newcomer.lakemark("rollback", "show", request["rollback"])["flow_run"],
            "question",
            decision="approve",
            approver="bea",
            plan_digest=digest,
        )
        for told in ("Roll llama back to step 100?", "step 300", "stop the trainer", digest, "may approve alone from"):
            assert told in shown
        show = ("rollback", "show", request["rollback"])
        return until(
            lambda: (found := newcomer.lakemark(*show))["state"] == "applied" and found,
            told=lambda: whole_story(newcomer, keys, request["rollback"], browser),
        )
