"""End to end: Prefect's server and worker as `lakemark up` runs them, with auth, CSRF and CORS, and what they survive."""

import base64
import fcntl
import os
import signal
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from flows.rollback import roll_back
from flows.sweep import sweep
from lakemark.errors import StoreUnavailable
from lakemark.sandbox import loopback, state
from lakemark.services.back import rollback_decide
from lakemark.trainer import Run
from tests.flows.stage import until

pytestmark = pytest.mark.xdist_group("prefect")

SECRETS = (
    "AWS_SECRET_ACCESS_KEY",
    "LAKEFS_SECRET_ACCESS_KEY",
    "LAKEMARK_S3_SECRET_ACCESS_KEY",
    "PREFECT_API_AUTH_STRING",
)


@contextmanager
def ledger_held(stage, run):
    """No entry is appended to `run` meanwhile: whoever wants to, waits."""
    with (stage.home / "ledger.git" / "lakemark" / "locks" / run).open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def silent(pid):
    """The process answers nobody meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def server_of(stage):
    return state.load(stage.plan.directory)["prefect-server"].identity.pid


def ask(stage, method, path, **sent):
    return loopback.Origin(stage.api.port).ask(method, path, **sent)


def basic(stage):
    word = base64.b64encode(stage.plan.credentials["PREFECT_API_AUTH_STRING"].encode()).decode()
    return {"Authorization": f"Basic {word}"}


def secrets_in(folder, secrets):
    """(secret's number, file) of what is found in any file below `folder`, as it is or in base64."""
    needles = [
        (number, spelled.encode())
        for number, secret in enumerate(secrets)
        for spelled in (secret, base64.b64encode(secret.encode()).decode().rstrip("="))
    ]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        (number, str(path))
        for path in files
        for content in [path.read_bytes()]
        for number, word in needles
        if word in content
    ]


def test_saved_found_sunk_and_rolled_back(stage):
    run = stage.trained("story", 100, 200)
    trainer = Run.open(run, environ=stage.environ)
    trainer.saved(stage.save(run, 300), step=300)
    stage.deployments.finish("sweep")
    assert sorted(found.record.step for found in stage.state(run).records.values()) == [100, 200, 300]
    demotion = stage.deployments.start("demote", {"run": run})
    # The slot of a limited deployment is a file: a restart of the server does not lose it.
    leases = stage.prefect_home / "concurrency_leases"
    until(lambda: [path for path in leases.glob("*.json") if path.stem != "expirations"])
    stage.deployments.completed(demotion)
    assert all(len(found.replicas) == 3 for found in stage.state(run).records.values())
    stage.wait_in_time(hours=12)

    flow_run = stage.asks(run)
    standing = stage.suspended(flow_run)
    assert standing.digest[:12] in stage.artifact(f"rollback-plan-{standing.id}")
    assert stage.api.post(f"/flow_runs/{flow_run}/resume", {"run_input": {}})["status"] == "REJECT"
    answer = {"decision": "approve", "approver": "bea", "plan_digest": standing.digest[:12]}
    stage.deployments.answer(flow_run, answer)
    stage.deployments.completed(flow_run)
    assert [found.state for found in stage.rollbacks(run)] == ["applied"]
    assert stage.kinds(run).count("rolled_back") == 1
    assert stage.state(run).timeline == 2
    restored = stage.home / "restores" / standing.id / "model.bin"
    assert restored.read_bytes() == (stage.out(run) / "step-100" / "model.bin").read_bytes()
    assert f"{run} is back at step 100" in stage.artifact(f"rollback-result-{standing.id}")
    # Answered twice is answered once.
    again = stage.api.post(f"/flow_runs/{flow_run}/resume", {"run_input": answer})
    assert again["status"] == "ABORT"


def branch_exists(stage, branch):
    try:
        return bool(stage.repository.head(branch))
    except StoreUnavailable:
        return False


def test_nobody_gets_in_without_the_password_nor_from_another_page(stage):
    there = "/api/deployments/name/rollback/rollback"
    assert ask(stage, "GET", there).status == 401
    assert ask(stage, "GET", there, headers=basic(stage)).ok
    evil = {"Origin": "http://evil.example"}
    assert ask(stage, "POST", "/api/flow_runs/filter", body={}, headers=evil).status in {401, 403}
    tokens = ask(stage, "GET", "/api/csrf-token?client=test", headers=basic(stage)).json()
    token = {"Prefect-Csrf-Client": "test", "Prefect-Csrf-Token": tokens["token"]}
    assert ask(stage, "POST", "/api/flow_runs/filter", body={}, headers=evil | token).status == 401
    assert ask(stage, "POST", "/api/flow_runs/filter", body={}, headers=basic(stage) | token).ok
    # A browser that knows the password would send it along: the token keeps other pages out.
    assert ask(stage, "POST", "/api/flow_runs/filter", body={}, headers=evil | basic(stage)).status == 403
    asked = evil | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "prefect-csrf-token"}
    assert ask(stage, "OPTIONS", "/api/flow_runs/filter", headers=asked).status == 400
    assert ask(stage, "OPTIONS", "/api/flow_runs/filter", headers=asked | {"Origin": loopback.url(stage.api.port)}).ok


def test_the_server_keeps_leases_on_disk_and_sends_nothing_home(stage):
    server = stage.api.get("/admin/settings")["server"]
    assert server["concurrency"]["lease_storage"] == "prefect.server.concurrency.lease_storage.filesystem"
    assert server["analytics_enabled"] is False
    assert server["ui"]["v2_enabled"] is False
    for name, started in state.load(stage.plan.directory).items():
        if name.startswith("prefect"):
            environment = Path(f"/proc/{started.identity.pid}/environ").read_bytes().split(b"\0")
            assert b"DO_NOT_TRACK=1" in environment


def test_killed_in_the_middle_of_applying(stage, engine):
    run = stage.trained("killed", 100, 200, 300)
    flow_run = stage.asks(run)
    standing = stage.suspended(flow_run)
    with silent(server_of(stage)):
        decided = rollback_decide.approve(stage.site("bea@laptop"), standing.id, digest=standing.digest[:12])
    assert decided.state == "approved"
    # Prefect is back, and the suspended run follows; then its node dies with the checkpoint restored and the branch open.
    branch, commit = (decided.plan["data"][0][name] for name in ("opens_branch", "commit"))
    with ledger_held(stage, run):
        until(lambda: stage.flow_run(flow_run)["name"] in sweep()["resumed"])
        until(lambda: (stage.home / "restores" / standing.id).exists() and branch_exists(stage, branch))
        stage.kill(flow_run)
        assert "rolled_back" not in stage.kinds(run)
    sweep()
    assert "rolled_back" not in stage.kinds(run)
    request = {"run": run, "to": "100", "reason": "go on", "requester": "ana", "rollback": standing.id}
    engine.run(roll_back, engine.create("rollback", request))
    assert [found.state for found in stage.rollbacks(run)] == ["applied"]
    assert stage.kinds(run).count("rolled_back") == 1
    assert stage.repository.head(branch) == commit
    restored = stage.home / "restores" / standing.id / "model.bin"
    assert restored.read_bytes() == (stage.out(run) / "step-100" / "model.bin").read_bytes()
    assert not [path for path in (stage.home / "restores").iterdir() if path.name.startswith(".")]


def test_prefect_knows_no_secret_and_stores_no_pickle(stage):
    """After everything the tests before this did with workers."""
    secrets = [stage.plan.credentials[name] for name in SECRETS]
    secrets[-1] = secrets[-1].partition(":")[2]
    with closing(sqlite3.connect(":memory:")) as copy:
        with closing(sqlite3.connect(stage.prefect_home / "prefect.db")) as database:
            database.backup(copy)
        assert copy.execute("SELECT count(*) FROM flow_run").fetchone()[0] > 0
        assert [secret for secret in secrets if secret in "\n".join(copy.iterdump())] == []
        copy.execute("INSERT INTO variable (id, name, value) VALUES ('canary', 'canary', ?)", [f'"{secrets[0]}"'])
        assert {secret for secret in secrets if secret in "\n".join(copy.iterdump())} == {secrets[0]}
    assert secrets_in(stage.prefect_home, secrets) == []
    assert secrets_in(stage.plan.directory / "logs", secrets) == []
    assert secrets_in(stage.plan.directory, secrets), "the keys themselves are there: look again at how they are found"
    assert not (stage.prefect_home / "storage").exists()
