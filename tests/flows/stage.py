"""A real site with its Prefect: server, worker, deployments and the lakeFS stand-in, and what tests do with them."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.exceptions import Pause
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from lakemark.adapters.git import make
from lakemark.model.ledger.run import RollbackState, RunState
from lakemark.sandbox import processes, services, state
from lakemark.sandbox.prefect import Api
from lakemark.sandbox.story.data_repository import DataRepository
from lakemark.sandbox.story.deployments import WAITING, Deployments
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.register import register_all
from lakemark.site import open_site

NODE = "node-a"
START = datetime(2026, 11, 20, 12, tzinfo=UTC)
CONFIGURATION = """\
site: flows
node: node-a
ledger: {{path: ledger.git, remote: null}}
data: {{endpoint: http://127.0.0.1:{lakefs}, repository: data, branch: main, require_pin: guarded}}
tiers: {{hot: {{class: hot, kind: tree, path: hot, landing: auto, min_free: 1%, when_full: stop, peers: []}},
  warm: {{class: warm, kind: directory, path: warm}}, cold: {{class: cold, kind: directory, path: cold}}}}
copies: 1
residence: {{hot: {{keep_last: 2, settle: 10m}}, warm: {{admit: all, keep_for: 7d, settle: 1h}}, cold: {{admit: all}}}}
approval: {{required: true, alone_after: 15m, expires_after: 24h, prune_share: 20%, allowed_signers: null}}
limits: {{cpus: 2, nice: 0, io_class: none, bandwidth: null}}
restore_root: restores
sandbox: {{dir: sandbox, s3: null, lakefs: stand-in, prefect: server}}
simulated_clock: true
"""


@dataclass
class Stage:
    """One site and its services. Tests share them and differ by run."""

    home: Path
    plan: services.Plan
    repository: DataRepository
    environ: dict[str, str]
    editions: dict[str, int] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        keys = self.plan.credentials
        return Api.at(keys["PREFECT_API_URL"], keys["PREFECT_API_AUTH_STRING"])

    @property
    def deployments(self) -> Deployments:
        return Deployments(self.api)

    @property
    def prefect_home(self) -> Path:
        return self.plan.directory / "prefect"

    def site(self, actor: str = "ana@node-a"):
        return open_site(environ=self.environ, actor=actor)

    def state(self, run: str) -> RunState:
        return self.site().ledger.run(run)

    def rollbacks(self, run: str) -> list[RollbackState]:
        return list(self.state(run).rollbacks.values())

    def kinds(self, run: str) -> list[str]:
        return [entry.kind for entry, _ in self.site().ledger.entries(run)]

    def wait_in_time(self, **spent: float) -> None:
        """Moves the site's clock on."""
        file = self.home / "clock"
        file.write_text((datetime.fromisoformat(file.read_text()) + timedelta(**spent)).isoformat())

    def out(self, run: str) -> Path:
        return self.home / "train" / run

    def save(self, run: str, step: int) -> Path:
        """A checkpoint as a trainer leaves it, an hour of the site's time after the one before."""
        self.wait_in_time(hours=1)
        path = self.out(run) / f"step-{step}"
        path.mkdir(parents=True)
        (path / "model.bin").write_bytes(f"weights of {run} at {step}".encode() * 1000)
        (path / "optim.bin").write_bytes(f"moments of {run} at {step}".encode() * 500)
        return path

    def open(self, run: str) -> None:
        """Opens `run` on a data commit of its own."""
        edition = len(self.editions) + 1
        self.editions[run] = edition
        self.repository.commit("main", {"rows.bin": b"edition %d" % edition}, message=f"for {run}")
        open_run(self.site(), Opening(run=run, watch=self.out(run)))

    def trained(self, run: str, *steps: int) -> str:
        """A run with a committed record at each step, and its trainer silent for two hours. Answers its name."""
        self.open(run)
        for step in steps:
            commit(self.site(), Commit(path=self.save(run, step), run=run, step=step, directory=self.out(run)))
        self.wait_in_time(hours=2)
        return run

    def flow_run(self, identity: str) -> dict[str, Any]:
        found = self.api.get(f"/flow_runs/{identity}")
        assert isinstance(found, dict)
        return found

    def state_name(self, identity: str) -> str:
        return self.flow_run(identity)["state_name"]

    def artifact(self, key: str) -> str:
        found = self.api.get(f"/artifacts/{key}/latest")
        assert isinstance(found, dict)
        return found["data"]

    def asks(self, run: str, **request: object) -> str:
        """The flow run of a rollback's request, as the form makes it."""
        asked = {"run": run, "to": "100", "reason": "the loss went up", "requester": "ana"} | request
        return self.deployments.start("rollback", asked)

    def suspended(self, flow_run: str, *, within_seconds: float = 300) -> RollbackState:
        """Waits until the run is suspended; answers the request it made."""
        kind = self.deployments.wait(flow_run, WAITING, within_seconds=within_seconds)
        assert kind in WAITING, self.flow_run(flow_run)["state"]["message"]
        (tag,) = [tag for tag in self.flow_run(flow_run)["tags"] if tag.startswith("rollback:")]
        run = self.flow_run(flow_run)["parameters"]["run"]
        return self.state(run).rollbacks[tag.removeprefix("rollback:")]

    def ended(self, flow_run: str, *, within_seconds: float = 300) -> tuple[str, str]:
        """(type, message) of the state the run ended in."""
        kind = self.deployments.wait(flow_run, within_seconds=within_seconds)
        return kind, str(self.flow_run(flow_run)["state"]["message"])

    def engine_of(self, flow_run: str) -> list[int]:
        """Process ids of the flow run, wherever it runs on this machine."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                environment = (entry / "environ").read_bytes().split(b"\0")
                if f"PREFECT__FLOW_RUN_ID={flow_run}".encode() in environment:
                    found.append(int(entry.name))
        return found

    def kill(self, flow_run: str) -> None:
        """SIGKILL to the worker and to the flow run at once, as when a node dies."""
        worker = state.load(self.plan.directory)["prefect-worker"].identity
        victims = [worker.pid, *self.engine_of(flow_run)]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.engine_of(flow_run) and not processes.alive(worker))

    def pause_schedules(self) -> None:
        """Nothing runs but what a test starts."""
        found = self.api.post("/deployments/filter", {})
        assert isinstance(found, list)
        for deployment in found:
            self.api.post(f"/deployments/{deployment['id']}/pause_deployment", {})


@dataclass
class Engine:
    """Runs flows in this process as a worker would in its own: real engine, real server, no seconds of start-up."""

    stage: Stage

    def create(self, name: str, parameters: dict[str, Any], *, waited: timedelta | None = None, tags=()) -> UUID:
        """A flow run of the deployment `name`, in a queue that nobody polls. waited: scheduled that long ago."""
        state = Scheduled(scheduled_time=datetime.now(UTC) - waited) if waited else None
        with get_client(sync_client=True) as client:
            deployment = client.read_deployment_by_name(f"{name}/{name}")
            made = client.create_flow_run_from_deployment(
                deployment.id, parameters=parameters, state=state, tags=list(tags), work_queue_name="nobodys"
            )
        return made.id

    def run(self, flow: Flow, identity: UUID) -> Any:
        """What the flow answers; None where it suspended itself. Raises what it raises."""
        with get_client(sync_client=True) as client:
            flow_run = client.read_flow_run(identity)
        try:
            return run_flow(flow, flow_run=flow_run)
        except Pause:
            return None

    def suspended(self, flow: Flow, run: str, **request: object) -> tuple[UUID, RollbackState]:
        """A rollback's flow run that waits for its answer, and the request it made."""
        asked = {"run": run, "to": "100", "reason": "the loss went up", "requester": "ana"} | request
        identity = self.create("rollback", asked)
        assert self.run(flow, identity) is None
        return identity, self.stage.suspended(str(identity))


def until(true, *, within_seconds: float = 180):
    """Polls until `true()` is, and answers what it gave."""
    ends = time.monotonic() + within_seconds
    while time.monotonic() < ends:
        if found := true():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {within_seconds} s: {true}")


def new_site(home: Path, lakefs_port: int) -> None:
    """Configuration, ledger and clock; the tiers are claimed by the first `register`."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "lakemark.yaml").write_text(CONFIGURATION.format(lakefs=lakefs_port))
    (home / "clock").write_text(START.isoformat())
    make.init(home / "ledger.git")


def register(stage: Stage) -> None:
    wrong = {name: outcome for name, outcome in register_all(stage.site()).items() if isinstance(outcome, Exception)}
    assert not wrong
