"""`lakemark up` and `down`: real servers on this machine, in one folder.

Every server listens on 127.0.0.1 only, sends nothing home, writes under the
sandbox's folder, and logs to `logs/<name>.log`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakemark.errors import Misconfigured, StoreUnavailable
from lakemark.sandbox import prefect, processes, roster, state
from lakemark.sandbox.crew import Crew, SandboxService, everything_of
from lakemark.sandbox.declared import declared
from lakemark.sandbox.plan import S3, LakeFS, Plan, Prefect

__all__ = ["S3", "Ended", "LakeFS", "Plan", "Prefect", "Running", "Status", "deploy", "down", "status", "up"]

# Runs of the worker use the others: ended first, it ends in order.
_AFTER_THE_WORKER = (roster.SERVER, roster.SEAWEEDFS, roster.LAKEFS)


@dataclass(frozen=True)
class Running:
    """A service that serves; `ready_seconds` is how long it took, None where it ran already."""

    name: str
    url: str
    pid: int
    ready_seconds: float | None


@dataclass(frozen=True)
class Status:
    """A service that `up` started; `alive` says whether that very process still runs."""

    name: str
    url: str
    pid: int
    alive: bool


@dataclass(frozen=True)
class Ended:
    """A service that `down` ended; `killed` where SIGTERM was not enough."""

    name: str
    url: str
    pid: int
    killed: bool


def up(
    plan: Plan, report: Callable[[str], None], *, ready_within: float = 120.0, silent_within: float = 30.0
) -> list[Running]:
    """Bring every service of `plan` to where it serves; what runs already is left alone.

    What runs, but does not serve for `silent_within` seconds, is restarted. Makes the bucket and the
    repository where they are missing, and deploys when a part of Prefect was started, or what is declared
    is not there. `report` gets
    progress in lines. On any failure, what this call started is ended again. Raises `Misconfigured` for
    a taken port or a missing program, `StoreUnavailable` for a service that ends or does not move for
    `ready_within` seconds before it is ready.
    """
    directory = plan.directory.resolve()
    with state.locked(directory):
        crew = Crew(directory, report, ready_within, silent_within, state.load(directory))
        try:
            wanted = roster.independent(plan)
            for service in wanted:
                crew.ensure(service)
            crew.wait(wanted)
            if plan.prefect is not None:
                wanted.append(_run_worker(plan, plan.prefect, crew))
        except BaseException:
            # Also after Ctrl-C: what was half started would hold ports and look like a running site.
            crew.abandon()
            raise
        return [
            Running(one.name, one.url, crew.started[one.name].identity.pid, crew.ready_seconds.get(one.name))
            for one in wanted
        ]


def down(directory: Path, *, ended_within: float = 40.0) -> list[Ended]:
    """End what `up` started in `directory`, the worker first, and nothing else.

    A number that means another process by now is left alone. Children go with their service. What has
    not ended `ended_within` seconds after SIGTERM is killed; SeaweedFS takes 30 where clients kept
    connections open.
    """
    directory = directory.resolve()
    if not directory.is_dir():
        return []
    with state.locked(directory):
        known = state.load(directory)
        ended = _end(directory, known, (roster.WORKER,), within=ended_within)
        ended += _end(directory, known, _AFTER_THE_WORKER, within=ended_within)
        if roster.SEAWEEDFS in known:
            roster.forget(directory, known[roster.SEAWEEDFS].url)
        state.save(directory, {})
        return ended


def status(directory: Path) -> list[Status]:
    """What `up` started there and whether it lives; asks no server, waits for nothing."""
    return [
        Status(one.name, one.url, one.identity.pid, processes.alive(one.identity))
        for one in state.load(directory.resolve()).values()
    ]


def deploy(plan: Plan, *, report: Callable[[str], None], still_within: float = 120.0) -> None:
    """Bring the deployments of the sandbox's Prefect to what its prefect.yaml says; the server must run."""
    wanted = plan.prefect
    if wanted is None or wanted.deployments is None:
        raise Misconfigured(
            "no prefect.yaml to deploy to the sandbox's Prefect",
            advice="`lakemark flows export` writes one; have `prefect: server` in `sandbox:`.",
        )
    roster.api(plan).ensure_pool(wanted.node)
    environment = roster.client_environment(plan)
    prefect.deploy(wanted.deployments.resolve(), environment=environment, report=report, still_within=still_within)


def _run_worker(plan: Plan, wanted: Prefect, crew: Crew) -> SandboxService:
    api = roster.api(plan)
    api.ensure_pool(wanted.node)
    # A worker that lives has been heard before; one to be started must be heard anew.
    heard = None if crew.lives(roster.WORKER) else api.heartbeat(wanted.node)
    worker = roster.worker(plan, wanted, heard=heard)
    restarted = crew.ensure(worker) or roster.SERVER in crew.fresh
    if wanted.deployments is not None and (restarted or wanted.anew or _undeployed(api, wanted.deployments)):
        deploy(plan, report=crew.report, still_within=crew.ready_within)  # while the worker comes up
        crew.report(f"deployed {wanted.deployments}")
    crew.wait([worker])
    return worker


def _undeployed(api: prefect.Api, file: Path) -> bool:
    wanted = {(one.name, one.entrypoint) for one in declared(file)}
    found = api.deployments([name for name, _ in wanted])
    return not wanted <= {(one.get("name"), one.get("entrypoint")) for one in found}


def _end(directory: Path, known: Mapping[str, state.Started], names: Iterable[str], *, within: float) -> list[Ended]:
    found = {name: everything_of(directory, name, known.get(name)) for name in names}
    everyone = [process for several in found.values() for process in several]
    killed = set(processes.end(everyone, within_seconds=within))
    if left := [str(process.pid) for process in everyone if processes.alive(process)]:
        raise StoreUnavailable(
            f"process {', '.join(left)} does not end, not even by SIGKILL",
            advice="It waits for a disk or the network; when that answers, run `lakemark down` again.",
        )
    return [
        Ended(
            name,
            known[name].url if name in known else "",
            known[name].identity.pid if name in known else several[0].pid,
            not killed.isdisjoint(several),
        )
        for name, several in found.items()
        if several
    ]
