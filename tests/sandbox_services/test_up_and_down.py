"""`up` and `down` with the service that starts fastest."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lakemark.errors import Corrupt, Misconfigured, StoreUnavailable
from lakemark.sandbox import credentials, loopback, processes, services


@pytest.fixture
def plan(tmp_path):
    (port,) = loopback.free_ports(1)
    box = tmp_path / "sandbox"
    keys = credentials.generate(box / "credentials.env", prefect_port=1)
    yield services.Plan(box, keys, dict(os.environ), lakefs=services.LakeFS(port, "data", "main"))
    services.down(box)


@pytest.fixture
def bystander():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def up(plan, told=None):
    (running,) = services.up(plan, (lambda line: None) if told is None else told.append)
    return running


def repositories(plan):
    keys = (plan.credentials["LAKEFS_ACCESS_KEY_ID"], plan.credentials["LAKEFS_SECRET_ACCESS_KEY"])
    answer = loopback.Origin(plan.lakefs.port, *keys).ask("GET", "/api/v1/repositories")
    return [(one["id"], one["default_branch"]) for one in answer.json()["results"]]


def test_up_twice_is_up_once(plan):
    told = []
    first = up(plan, told)
    assert repositories(plan) == [("data", "main")]
    assert first.ready_seconds is not None
    assert "ready after" in told[-1]
    again = up(plan, told)
    assert again == replace(first, ready_seconds=None)
    assert "runs already" in told[-1]
    assert services.status(plan.directory) == [services.Status("lakefs", first.url, first.pid, alive=True)]


def test_two_at_once_start_one(plan):
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: up(plan), range(2))
    assert one.pid == two.pid


def test_a_killed_one_is_started_again_with_what_it_held(plan):
    first = up(plan)
    os.kill(first.pid, signal.SIGKILL)
    healed = up(plan)
    assert healed.pid != first.pid
    assert repositories(plan) == [("data", "main")]


def test_a_silent_one_is_restarted_and_a_stopped_one_ends(plan):
    first = up(plan)
    os.kill(first.pid, signal.SIGSTOP)
    told = []
    (healed,) = services.up(plan, told.append, silent_within=0.1)
    assert healed.pid != first.pid
    assert any("restarting" in line for line in told)
    assert repositories(plan) == [("data", "main")]


def test_down_ends_it_frees_the_port_and_can_be_repeated(plan):
    running = up(plan)
    assert services.down(plan.directory) == [services.Ended("lakefs", running.url, running.pid, killed=False)]
    assert processes.identify(running.pid) is None
    assert loopback.is_free(plan.lakefs.port)
    assert services.status(plan.directory) == []
    assert services.down(plan.directory) == []
    assert services.down(plan.directory / "never") == []
    assert not (plan.directory / "never").exists()


def test_down_finds_what_up_started_also_without_its_notes(plan):
    running = up(plan)
    (plan.directory / "services.json").unlink()
    assert [ended.pid for ended in services.down(plan.directory)] == [running.pid]


@pytest.mark.parametrize("change", [{"started_ticks": 1}, {"boot": "another"}])
def test_down_leaves_a_recycled_number_alone(plan, bystander, change):
    up(plan)
    notes = plan.directory / "services.json"
    noted = json.loads(notes.read_text())
    true = processes.identify(bystander.pid)
    noted["services"][0]["identity"] = {
        "pid": true.pid,
        "started_ticks": true.started_ticks,
        "boot": true.boot,
    } | change
    notes.write_text(json.dumps(noted))
    assert [one.alive for one in services.status(plan.directory)] == [False]
    services.down(plan.directory)
    assert bystander.poll() is None
    assert loopback.is_free(plan.lakefs.port)


def test_down_leaves_another_sandbox_alone(plan, tmp_path):
    (port,) = loopback.free_ports(1)
    other = replace(plan, directory=tmp_path / "sandbox2", lakefs=replace(plan.lakefs, port=port))
    running = up(other)
    try:
        up(plan)
        services.down(plan.directory)
        assert services.status(other.directory) == [services.Status("lakefs", running.url, running.pid, alive=True)]
    finally:
        services.down(other.directory)


def test_a_taken_port_is_named_and_nothing_started(plan):
    with socket.socket() as other:
        other.bind((loopback.HOST, plan.lakefs.port))
        other.listen()
        with pytest.raises(Misconfigured, match=f"port {plan.lakefs.port}"):
            up(plan)
    assert services.status(plan.directory) == []


def test_one_that_ends_at_once_is_told_with_its_log(plan):
    told = []
    empty = replace(plan, credentials={**plan.credentials, "LAKEFS_ACCESS_KEY_ID": ""})
    with pytest.raises(StoreUnavailable, match="ended with exit code 2"):
        up(empty, told)
    assert any("LAKEFS_ACCESS_KEY_ID" in line for line in told)
    assert services.status(plan.directory) == []


def test_what_up_started_ends_again_when_it_cannot_serve(plan):
    with pytest.raises(StoreUnavailable, match="400"):
        up(replace(plan, lakefs=replace(plan.lakefs, repository="No!")))
    assert services.status(plan.directory) == []
    assert loopback.is_free(plan.lakefs.port)


def test_what_ran_before_stays_when_up_fails(plan):
    running = up(plan)
    with pytest.raises(StoreUnavailable):
        up(replace(plan, lakefs=replace(plan.lakefs, repository="No!")))
    assert services.status(plan.directory) == [services.Status("lakefs", running.url, running.pid, alive=True)]


def test_a_missing_key_is_named(plan):
    with pytest.raises(Misconfigured, match="LAKEFS_SECRET_ACCESS_KEY"):
        up(replace(plan, credentials={"LAKEFS_ACCESS_KEY_ID": "x"}))


def test_damaged_notes_say_what_to_do(plan):
    (plan.directory / "services.json").write_text("[]")
    with pytest.raises(Corrupt, match=r"services\.json"):
        services.status(plan.directory)
    (plan.directory / "services.json").unlink()
