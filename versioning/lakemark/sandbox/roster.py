"""From a plan to the services to run: commands, environments, ports, and when each one serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lakemark.sandbox import loopback, prefect, processes, seaweedfs, stand_in
from lakemark.sandbox.crew import SandboxService
from lakemark.sandbox.declared import declared
from lakemark.sandbox.plan import S3, LakeFS, Plan, Prefect

__all__ = ["LAKEFS", "SEAWEEDFS", "SERVER", "WORKER", "api", "client_environment", "forget", "independent", "worker"]

SEAWEEDFS, LAKEFS, SERVER, WORKER = "seaweedfs", "lakefs", "prefect-server", "prefect-worker"

_S3_KEYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "LAKEMARK_S3_ACCESS_KEY_ID",
    "LAKEMARK_S3_SECRET_ACCESS_KEY",
)
_LAKEFS_KEYS = ("LAKEFS_ACCESS_KEY_ID", "LAKEFS_SECRET_ACCESS_KEY")
# SeaweedFS finishes the requests it has, and waits half a minute for idle connections.
_ENDS_WITHIN = {SEAWEEDFS: 40.0, LAKEFS: 15.0, SERVER: 15.0, WORKER: 15.0}


def independent(plan: Plan) -> list[SandboxService]:
    """Those that need no other one, the slowest first."""
    services = []
    if plan.prefect is not None:
        services.append(_server(plan))
    if plan.s3 is not None:
        services.append(_seaweedfs(plan, plan.s3))
    if plan.lakefs is not None:
        services.append(_stand_in(plan, plan.lakefs))
    return services


def worker(plan: Plan, wanted: Prefect, *, heard: str | None) -> SandboxService:
    """The worker of `wanted.node`; it serves once its heartbeat is another than `heard`, and it polls what is deployed."""
    server = api(plan)
    names = [one.name for one in declared(wanted.deployments)] if wanted.deployments else []
    # Flow runs use the stores: the worker gets their keys, each server only its own.
    own = dict(_client(plan, "worker"))
    own |= {name: plan.credential(name) for name in _S3_KEYS} if plan.s3 else {}
    own |= {name: plan.credential(name) for name in _LAKEFS_KEYS} if plan.lakefs else {}
    project = wanted.deployments.resolve().parent if wanted.deployments else None
    base = prefect.worker_environment(plan.inherited() | own, home=wanted.home, node=wanted.node, project=project)
    return _service(
        plan,
        WORKER,
        f"{loopback.url(server.port)}/work-pools/work-pool/{prefect.POOL}",
        ports=[],
        run=(prefect.worker_command(wanted.node), base | dict(wanted.worker)),
        waits_for=lambda: (
            "the worker to report"
            # The heartbeat of a worker that died is still told for a while.
            if server.heartbeat(wanted.node) in {None, heard}
            else _unpolled(server, wanted.node, names)
        ),
    )


def _unpolled(server: prefect.Api, node: str, names: Sequence[str]) -> str | None:
    """Which queue or deployment nobody asks for runs yet, in words; None where the worker polls all."""
    # A queue that somebody paused is not waited for: it was done on purpose.
    ready = {one["name"] for one in server.queues() if one.get("status") in {"READY", "PAUSED"}}
    if unpolled := [queue for queue in prefect.queues(node) if queue not in ready]:
        return f"the worker to poll {', '.join(unpolled)}"
    found = server.deployments(names) if names else []
    waiting = [one["name"] for one in found if one.get("status") != "READY" and one.get("work_queue_name") in ready]
    return f"Prefect to call {', '.join(waiting)} ready" if waiting else None


def api(plan: Plan) -> prefect.Api:
    """The sandbox's Prefect server, as the credentials name it."""
    return prefect.Api.at(plan.credential("PREFECT_API_URL"), plan.credential("PREFECT_API_AUTH_STRING"))


def client_environment(plan: Plan) -> dict[str, str]:
    """For programs that talk to the sandbox's Prefect."""
    return plan.inherited() | _client(plan, "client")


def forget(directory: Path, url: str) -> None:
    """Remove what SeaweedFS, which served at `url`, leaves behind outside of `directory`."""
    seaweedfs.forget_sockets(seaweedfs.ports(directory / SEAWEEDFS, int(url.rpartition(":")[2]), avoid=()))


def _seaweedfs(plan: Plan, wanted: S3) -> SandboxService:
    others = [plan.lakefs.port] if plan.lakefs else []
    others += [api(plan).port] if plan.prefect else []
    folder = plan.directory.resolve() / SEAWEEDFS
    at = seaweedfs.ports(folder, wanted.port, avoid=others)
    access_key, secret_key = (plan.credential(name) for name in _S3_KEYS[:2])
    environment = seaweedfs.environment(plan.inherited(), access_key=access_key, secret_key=secret_key)
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    return _service(
        plan,
        SEAWEEDFS,
        loopback.url(wanted.port),
        ports=at.all(),
        run=(seaweedfs.command(data, at), environment),
        waits_for=lambda: seaweedfs.waits_for(at, wanted.bucket),
    )


def _stand_in(plan: Plan, wanted: LakeFS) -> SandboxService:
    keys = {name: plan.credential(name) for name in _LAKEFS_KEYS}
    return _service(
        plan,
        LAKEFS,
        loopback.url(wanted.port),
        ports=[wanted.port],
        run=(stand_in.command(plan.directory.resolve() / LAKEFS, wanted.port), plan.inherited() | keys),
        waits_for=lambda: stand_in.waits_for(wanted.port, keys, repository=wanted.repository, branch=wanted.branch),
    )


def _server(plan: Plan) -> SandboxService:
    server = api(plan)
    return _service(
        plan,
        SERVER,
        loopback.url(server.port),
        ports=[server.port],
        run=(prefect.server_command(), plan.inherited() | _client(plan, "server")),
        waits_for=server.waits_for_server,
    )


def _client(plan: Plan, role: prefect.Role) -> dict[str, str]:
    folder = plan.directory.resolve() / "prefect"
    auth = plan.credential("PREFECT_API_AUTH_STRING")
    return prefect.prefect_environment(role, folder=folder, port=api(plan).port, auth=auth)


def _service(
    plan: Plan,
    name: str,
    url: str,
    *,
    ports: Sequence[int],
    run: tuple[Sequence[str], Mapping[str, str]],
    waits_for: Callable[[], str | None],
) -> SandboxService:
    directory = plan.directory.resolve()
    start = processes.ProcessStart(*run, folder=directory / "work" / name, log=directory / "logs" / f"{name}.log")
    return SandboxService(name, url, ports, start, waits_for, _ENDS_WITHIN[name])
