"""`lakemark watch` as people run it: a process of its own that finds, commits and moves, and ends as it is told to."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakemark.cli.units import Service, user_unit, word
from lakemark.trainer import Run
from tests.cli.conftest import environment, save

ROOT = Path(__file__).parents[2]


def until(holds, *, seconds=180):
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)
    return found


class Watching:
    """The process, with what it said so far."""

    def __init__(self, process, log):
        self.process, self._log = process, log

    @property
    def said(self):
        return self._log.read_text()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(180)


@contextmanager
def watching(home, *options, every="1s", environ=None):
    """Ready once its state file says its process number. Not held back: the machine may have other tests to run."""
    eager = {"LAKEMARK_LIMITS__NICE": "0", "LAKEMARK_LIMITS__IO_CLASS": "none"}
    log = home / "watch.log"
    command = [sys.executable, "-m", "lakemark.cli", "watch", "--every", every, *options]
    with log.open("wb") as err, (home / "watch.out").open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=home,
            env=environment(home) | eager | (environ or {}),
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
        )
    try:
        until(lambda: process.poll() is not None or state(home).get("pid") == process.pid)
        assert process.poll() is None, log.read_text()
        yield Watching(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def problems(cli):
    """A save that can't be taken is red at once, so the exit code is 4."""
    return cli("status", "--json").json["problems"]


def state(home):
    try:
        return json.loads((home / "ledger.watch.json").read_text())
    except FileNotFoundError:
        return {}


def committed(cli, run="r1"):
    return {one["step"]: one for one in cli.ok("ls", run)["records"]}


def test_it_commits_moves_keeps_the_run_file_and_ends_well(cli):
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    with watching(cli.home) as watch:
        save(cli.home / "out", 100)
        run = Run.open("r1", environ={"LAKEMARK_HOME": str(cli.home)})
        run.saved(save(cli.home / "out", 200), step=200, metrics={"loss": 2.0})
        until(lambda: {100, 200} <= committed(cli).keys())
        until(lambda: all({"hot", "cold"} == {r["tier"] for r in one["replicas"]} for one in committed(cli).values()))
        assert committed(cli)[200]["metrics"] == {"loss": 2.0}
        until(lambda: Run.open("r1", environ={"LAKEMARK_HOME": str(cli.home)}).resume["step"] == 200)
        assert watch.end() == 0
    assert "committed r1@100" in watch.said
    assert (cli.home / "watch.out").read_text().startswith("ended: 2 committed, 2 replicated")
    assert state(cli.home)["stopped"]
    swept = cli.ok("sweep")
    assert (swept["committed"], swept["replicated"], swept["said"]) == ([], [], [])


def test_hints_alone_are_enough_for_what_is_announced_also_the_first_time(cli):
    """Nothing of the run is there when the service starts, not even the folder of spools; its next turn is in an hour."""
    with watching(cli.home, every="1h") as watch:
        for name in ("r1", "r2"):
            cli.ok("run", "open", name)
            run = Run.open(name, environ={"LAKEMARK_HOME": str(cli.home)})
            for step in (100, 200):
                run.saved(save(cli.home / f"out-{name}", step), step=step)
                until(lambda name=name, step=step: step in committed(cli, name))
        assert watch.end() == 0


def test_without_hints_and_with_json(cli):
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    with watching(cli.home, "--no-hints", "--json") as watch:
        save(cli.home / "out", 100)
        until(lambda: 100 in committed(cli))
        assert state(cli.home)["hints"] == "hints are switched off"
        assert watch.end() == 0
    assert json.loads((cli.home / "watch.out").read_text())["committed"] == 1
    assert watch.said == ""


def test_ctrl_c_is_130(cli):
    with watching(cli.home, "--json") as watch:
        assert watch.end(signal.SIGINT) == 130
    assert (cli.home / "watch.out").read_text() == ""
    assert json.loads(watch.said)["error"]["exit_code"] == 130


def test_one_for_a_node(cli):
    with watching(cli.home) as watch:
        error = cli.fails("watch")
        assert error["exit_code"] == 7
        assert str(watch.process.pid) in error["message"]
        assert watch.process.poll() is None


def test_what_is_under_way_is_abandoned_at_the_second_signal(cli):
    """At one KiB a second nothing is copied within a test's time."""
    cli.settings("bandwidth: null", "bandwidth: 1KiB")
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    save(cli.home / "out", 100, os.urandom(2**20))
    with watching(cli.home) as watch:
        until(lambda: 100 in committed(cli))
        until(lambda: any(one["name"] == "to cold" and one["busy_since"] for one in state(cli.home)["rounds"]))
        watch.process.send_signal(signal.SIGTERM)
        assert watch.end() == 0
    cli.settings("bandwidth: 1KiB", "bandwidth: null")
    swept = cli.ok("sweep")
    assert [one["tier"] for one in swept["replicated"]] == ["cold"]
    assert cli.ok("verify")["damaged"] == []


def test_and_at_the_first_once_the_grace_is_over(cli):
    cli.settings("bandwidth: null", "bandwidth: 1KiB")
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    save(cli.home / "out", 100, os.urandom(2**20))
    with watching(cli.home, "--json") as watch:
        until(lambda: 100 in committed(cli))
        until(lambda: any(one["name"] == "to cold" and one["busy_since"] for one in state(cli.home)["rounds"]))
        assert watch.end() == 0
    assert json.loads((cli.home / "watch.out").read_text())["committed"] == 1
    assert state(cli.home)["stopped"]


def test_status_says_whether_it_runs(cli):
    assert cli.ok("status")["services"] == []
    with watching(cli.home) as watch:
        (row,) = cli.ok("status")["services"]
        assert (row["name"], row["ok"], row["pid"]) == ("watch (node-a)", True, watch.process.pid)
        assert "watch (node-a): last looked" in cli("status").out
        watch.process.kill()
        watch.process.wait()
    document = cli.ok("status")
    assert [one["colour"] for one in document["problems"]] == ["amber"]
    assert "ended without a word" in document["problems"][0]["what"]
    assert not document["services"][0]["ok"]
    with watching(cli.home) as watch:
        watch.end()
    document = cli.ok("status")
    assert document["problems"] == []
    assert document["services"][0]["detail"].startswith("ended; last looked")


def test_status_shows_what_it_finds_wrong_and_that_it_hangs(cli):
    cli.ok("run", "open", "r1", "--watch", cli.home / "out")
    with watching(cli.home) as watch:
        bad = save(cli.home / "out", 100)
        (bad / ".git").mkdir()
        (bad / ".git" / "config").write_text("x")
        until(lambda: state(cli.home)["problems"])
        until(lambda: any("step-100" in one["what"] for one in problems(cli)))
        watch.process.send_signal(signal.SIGSTOP)
        old = state(cli.home) | {"alive_at": "2026-01-01T00:00:00Z"}
        (cli.home / "ledger.watch.json").write_text(json.dumps(old))
        assert any("no sign of life" in one["what"] for one in problems(cli))
        for round_ in old["rounds"]:
            round_["busy_since"] = "2026-01-01T00:00:00Z" if round_["name"] == "to cold" else None
        (cli.home / "ledger.watch.json").write_text(json.dumps(old))
        (busy,) = [one for one in problems(cli) if "is at work on 'to cold'" in one["what"]]
        assert busy["since"].startswith("2026-01-01T00:00:00")
        (cli.home / "ledger.watch.json").write_text("{")
        assert any("no state that can be read" in one["what"] for one in problems(cli))
        watch.process.send_signal(signal.SIGCONT)


def test_systemd_is_told(cli):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(cli.home / "notify"))
        ear.settimeout(60)
        with watching(cli.home, environ={"NOTIFY_SOCKET": str(cli.home / "notify")}) as watch:
            first = ear.recv(4096).decode()
            assert first.startswith("READY=1\nWATCHDOG=1\nSTATUS=0 committed")
            assert watch.end() == 0
            ear.settimeout(1)
            heard = [first]
            while not heard[-1].startswith("STOPPING"):
                heard.append(ear.recv(4096).decode())


def test_it_is_held_to_the_limits(cli):
    held = {"LAKEMARK_LIMITS__NICE": "13", "LAKEMARK_LIMITS__CPUS": "1"}
    with watching(cli.home, environ=held) as watch:
        tasks = [int(name) for name in os.listdir(f"/proc/{watch.process.pid}/task")]
        assert len(tasks) > 4
        assert {os.getpriority(os.PRIO_PROCESS, task) for task in tasks} == {13}
        assert {len(os.sched_getaffinity(task)) for task in tasks} == {1}


BACKGROUND = """
import os, sys
from pathlib import Path
from lakemark.site import open_site

def shown(site):
    stores = [site.hot, *(site.tiers[name].blobs for name in site.tiers if name != "hot")]
    return os.getpriority(os.PRIO_PROCESS, 0), sorted(type(store).__name__ for store in stores)

print(shown(open_site(Path(sys.argv[1]))), shown(open_site(Path(sys.argv[1]), background=True)))
"""


def test_whoever_opens_a_site_for_background_work_is_held(cli):
    """As Prefect's flows of that kind do."""
    cli.settings("nice: 10", "nice: 17")
    cli.settings("bandwidth: null", "bandwidth: 1GiB")
    command = [sys.executable, "-c", BACKGROUND, cli.home / "lakemark.yaml"]
    done = subprocess.run(command, env=environment(cli.home), capture_output=True, text=True, check=True)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    free, held = (usual, ["DirectoryBlobs", "TreeStore"]), (17, ["PacedBlobs", "TreeStore"])
    assert done.stdout.strip() == f"{free} {held}"


@pytest.mark.parametrize("every", ["0s", "soon", "2h", "1 s", "", "999999999w"])
def test_how_often_must_be_a_duration(cli, every):
    assert cli.fails("watch", "--every", every)["exit_code"] == 2


def test_where_no_ledger_is(empty):
    assert empty.fails("watch")["exit_code"] in (2, 3)


def test_what_it_would_do(trained):
    (trained.home / "exp" / "a").mkdir(parents=True)
    trained.settings("watch: []", f'watch: [{{path: {trained.home}/exp/*, run: "exp-{{name}}", data: data/main}}]')
    said = trained.ok("watch", "--dry-run")["would"]
    assert f"open exp-a on data/main for {trained.home / 'exp' / 'a'}" in said
    assert f"look for saves of r1 in {trained.home / 'out'}" in said
    assert not (trained.home / "ledger.watch.pid").exists()


# Units


def test_install_writes_a_unit_of_this_configuration(cli):
    would = cli.ok("watch", "--install", "--dry-run")
    path = cli.home / "home" / ".config" / "systemd" / "user" / "lakemark-watch.service"
    assert would["unit"] == str(path)
    assert not path.exists()
    assert would["text"] in cli("watch", "--install", "--dry-run").out
    done = cli.ok("watch", "--install")
    assert path.read_text() == would["text"]
    assert f'watch --config "{cli.home / "lakemark.yaml"}"' in path.read_text()
    assert f'ExecStart="{sys.executable}"' in path.read_text()
    assert any("enable-linger" in one for one in done["commands"])
    cli.settings("nice: 10", "nice: 19")
    cli.ok("watch", "--install")
    assert "Nice=19" in path.read_text()
    path.write_text("[Service]\nExecStart=/bin/other\n")
    assert cli.fails("watch", "--install")["exit_code"] == 7
    elsewhere = cli.home / "config"
    done = cli.ok("watch", "--install", environ={"XDG_CONFIG_HOME": str(elsewhere)})
    assert Path(done["unit"]).is_relative_to(elsewhere)


def unit(**more):
    usual = {
        "python": Path("/home/ana/venv/bin/python"),
        "config": Path("/home/ana/site/lakemark.yaml"),
        "home": Path("/home/ana/site"),
        "node": "workstation",
        "cpus": 2,
        "nice": 10,
        "io_class": "idle",
    }
    return user_unit(Service(**(usual | more)))


def test_the_example_of_a_user_s_unit_is_what_install_writes():
    assert (ROOT / "deploy" / "lakemark-watch.user.service").read_text() == unit()


def test_words_of_a_unit():
    assert word('/a "b"/c\\d') == '"/a \\"b\\"/c\\\\d"'
    assert word("/50%/$HOME") == '"/50%%/$$HOME"'
    assert word("LAKEMARK_HOME=/$x", command=False) == '"LAKEMARK_HOME=/$x"'


@pytest.mark.parametrize("strange", ["", ' with 50% $HOME "quotes" and \\'])
@pytest.mark.parametrize("io_class", ["idle", "best-effort", "none"])
def test_systemd_takes_the_units(tmp_path, require_command, strange, io_class):
    python = tmp_path / f"python{strange}"
    python.symlink_to(sys.executable)
    text = unit(python=python, config=Path(f"/home/ana{strange}/lakemark.yaml"), io_class=io_class)
    machine = (
        (ROOT / "deploy" / "lakemark-watch.service").read_text().replace("/opt/lakemark/bin/python", sys.executable)
    )
    for name, content in (("user", text), ("machine", machine)):
        (tmp_path / f"{name}.service").write_text(content)
        checked = subprocess.run(
            [require_command("systemd-analyze"), "verify", tmp_path / f"{name}.service"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (checked.returncode, checked.stderr) == (0, "")


def test_no_mount_lies_between_trainers_and_hot():
    """The kernel makes no hard link across mounts, also where both sides are one file system."""
    text = (ROOT / "deploy" / "lakemark-watch.service").read_text()
    settings = {line.partition("=")[0] for line in text.splitlines() if not line.startswith("#")}
    assert (
        settings & {"ReadWritePaths", "BindPaths", "PrivateTmp", "ProtectHome", "ReadOnlyPaths", "RootDirectory"}
        == set()
    )
    assert "ProtectSystem=full" in text
