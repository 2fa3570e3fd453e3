"""Prefect's server and worker as services of the sandbox: environments, command lines, REST.

Prefect runs as programs; nothing here imports it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from lakemark.errors import Denied, Misconfigured, StoreUnavailable, quoted
from lakemark.sandbox import loopback, processes
from lakemark.sandbox.declared import FIRST, in_order

__all__ = [
    "POOL",
    "Api",
    "Role",
    "deploy",
    "deploy_command",
    "prefect_environment",
    "queues",
    "server_command",
    "worker_command",
    "worker_environment",
]

POOL = "lakemark"
"""The work pool of every deployment, of type `process`."""

Role = Literal["server", "worker", "client"]
"""Who reads the environment."""

_LEASES = "prefect.server.concurrency.lease_storage.filesystem"
_UNAUTHORISED = (401, 403)
_NOT_FOUND = 404
_CONFLICT = 409
_PASSING = (0, 500, 503)
_PAUSES = (0.2, 0.5, 1.0, 2.0)
_TAIL_CHARACTERS = 2_000
_POLL_SECONDS = 0.1
_NEWS_SECONDS = 10.0


def prefect_environment(role: Role, *, folder: Path, port: int, auth: str) -> dict[str, str]:
    """What `role` needs to run or reach the Prefect server on `port`; `auth` is `user:password`.

    Nothing is taken from the surrounding environment: lay this over one that holds no
    other PREFECT_ variable. `folder` becomes PREFECT_HOME.
    """
    common = {"PREFECT_HOME": str(folder), "DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    origin = loopback.url(port)
    if role == "server":
        return common | {
            "PREFECT_SERVER_API_HOST": loopback.HOST,
            "PREFECT_SERVER_API_PORT": str(port),
            # Without it any page in a browser could start a rollback: Prefect answers every origin by default.
            "PREFECT_SERVER_API_AUTH_STRING": auth,
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
            # Prefect's default is every origin.
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": origin,
            # In memory, a restart of the server would crash every run that holds a slot.
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": _LEASES,
            # The pages ask this address; the default is port 4200, whatever the server's own.
            "PREFECT_SERVER_UI_API_URL": f"{origin}/api",
            # The second edition of the pages calls an analytics service when loaded.
            "PREFECT_SERVER_UI_V2_ENABLED": "false",
        }
    client = common | {
        "PREFECT_API_URL": f"{origin}/api",
        "PREFECT_API_AUTH_STRING": auth,
        # SQLite's "database is locked" arrives as 500.
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
        # A client that cannot reach the server says so, and starts none of its own.
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    }
    # The default is ten seconds: who tries things out would wait for it at each step.
    return client | ({"PREFECT_WORKER_QUERY_SECONDS": "1"} if role == "worker" else {})


def queues(node: str) -> tuple[str, ...]:
    """The queues that the worker of `node` polls, hot work of the node first."""
    return (f"node-{node}", "urgent", "default")


def worker_environment(base: Mapping[str, str], *, home: Path, node: str, project: Path | None) -> dict[str, str]:
    """`base` with what flow runs read: LAKEMARK_HOME, LAKEMARK_NODE, and `project` first on PYTHONPATH."""
    added = {"LAKEMARK_HOME": str(home), "LAKEMARK_NODE": node}
    if project is not None:
        added["PYTHONPATH"] = os.pathsep.join(filter(None, (str(project), base.get("PYTHONPATH", ""))))
    return {**base, **added}


def server_command() -> list[str]:
    """In the foreground; the environment says where it listens."""
    return [*_program(), "server", "start"]


def worker_command(node: str) -> list[str]:
    """In the foreground; where one of its queues is missing it gets no work, see `Api.ensure_pool`."""
    polled = [word for queue in queues(node) for word in ("--work-queue", queue)]
    return [*_program(), "worker", "start", "--pool", POOL, "--type", "process", "--name", node, *polled]


def deploy_command(prefect_file: Path) -> list[str]:
    """To run in the file's folder."""
    return [*_program(), "deploy", "--all", "--prefect-file", prefect_file.name]


def deploy(
    prefect_file: Path,
    *,
    environment: Mapping[str, str],
    report: Callable[[str], None] = lambda _: None,
    still_within: float = 120.0,
) -> None:
    """Bring the server's deployments to what `prefect_file` says; its flows are imported from its folder.

    The work pool must exist (`Api.ensure_pool`). Raises `Misconfigured` with the end of Prefect's output where
    it fails, `StoreUnavailable` where it does not move for `still_within` seconds.
    """
    if not prefect_file.is_file():
        raise Misconfigured(
            f"no deployments at {quoted(str(prefect_file))}", advice="`lakemark flows export` writes a prefect.yaml."
        )
    # Left as a placeholder, each node's worker fills in its own.
    given = {name: value for name, value in environment.items() if name != "LAKEMARK_HOME"}
    given["PYTHONPATH"] = os.pathsep.join(filter(None, (str(prefect_file.parent), given.get("PYTHONPATH", ""))))
    code, said = _run(
        deploy_command(prefect_file), given, folder=prefect_file.parent, report=report, still_within=still_within
    )
    if code is None:
        raise StoreUnavailable(
            f"deploying {quoted(str(prefect_file))} has not moved for {still_within:.0f} s",
            advice="Look whether the Prefect server answers, then deploy again.",
        )
    if code != 0:
        raise Misconfigured(
            f"Prefect did not deploy {quoted(str(prefect_file))}: "
            f"{quoted(said.strip()[-_TAIL_CHARACTERS:], limit=_TAIL_CHARACTERS)}",
            advice="Mend what its last lines name, then run `lakemark flows deploy`.",
        )


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path,
    report: Callable[[str], None],
    still_within: float,
) -> tuple[int | None, str]:
    """(exit code, output) of a program that may take as long as it moves; None where it stood still and was ended."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
        still, news = processes.Still(), time.monotonic() + _NEWS_SECONDS
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                # By what it uses and says, not by how long it takes: on a busy machine importing Prefect alone takes a minute.
                me = processes.identify(process.pid)
                seen = (processes.spent_ticks([me] if me else []), os.fstat(said.fileno()).st_size)
                if still.look(seen) > still_within:
                    return None, ""
                if time.monotonic() > news:
                    news += _NEWS_SECONDS
                    report("waiting for Prefect to take the deployments")
        finally:
            # Also where somebody interrupts: a deployment that goes on alone would race the next one.
            process.kill()
            process.wait()
        said.seek(0)
        return process.returncode, said.read().decode(errors="replace")


def _job_template() -> dict[str, object]:
    """That of Prefect's process pools, with the command said: else a second process, as slow to start, prepares each run."""
    text = {"type": "string"}
    variables: dict[str, dict[str, object]] = {
        "command": {**text, "default": shlex.join([sys.executable, "-m", "prefect.engine"])},
        "env": {"type": "object", "additionalProperties": text},
        "labels": {"type": "object", "additionalProperties": text},
        "name": {**text},
        "stream_output": {"type": "boolean", "default": True},
        "working_dir": {**text},
    }
    return {
        "job_configuration": {name: f"{{{{ {name} }}}}" for name in variables},
        "variables": {"type": "object", "properties": variables},
    }


def _program() -> Sequence[str]:
    if find_spec("prefect") is None:
        raise Misconfigured(
            "Prefect is not installed", advice="Install `lakemark[flows]`, or leave `prefect` out of `sandbox:`."
        )
    return [sys.executable, "-m", "prefect", "--no-prompt"]


@dataclass(frozen=True)
class Api:
    """The few requests that starting needs, against a server on loopback with auth and CSRF protection."""

    port: int
    auth: str = field(repr=False)
    _csrf: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def at(cls, url: str, auth: str) -> Api:
        """From PREFECT_API_URL; raises `Misconfigured` where that is not on loopback."""
        parts = urlsplit(url)
        # The sandbox's password must not be sent to a server elsewhere.
        if parts.hostname not in {loopback.HOST, "localhost"} or parts.port is None:
            raise Misconfigured(
                f"PREFECT_API_URL {quoted(url)} is not on {loopback.HOST}",
                advice="The sandbox only runs its own Prefect; leave `prefect` out of `sandbox:` to use another.",
            )
        return cls(parts.port, auth)

    def waits_for_server(self) -> str | None:
        """What is missing before the server can be used; None when nothing is. `Denied` for another password."""
        # Health is answered without a password; the version is not, so it tells whether ours is right.
        if not self._origin().ask("GET", "/api/health").ok:
            return "Prefect to answer"
        answer = self._origin().ask("GET", "/api/admin/version")
        if answer.status in _UNAUTHORISED:
            raise Denied(
                f"the Prefect server on port {self.port} refuses the sandbox's PREFECT_API_AUTH_STRING",
                advice="Run `lakemark down` and `lakemark up`; if it stays, another server uses the port.",
            )
        return None if answer.ok else "Prefect to accept requests"

    def ensure_pool(self, node: str) -> None:
        """Make the work pool and the queues of `node` where they are missing; what somebody waits for goes first.

        A worker that polls one missing queue gets nothing from the others either.
        """
        if self._origin().ask("GET", f"/api/work_pools/{POOL}").status == _NOT_FOUND:
            self._change("/work_pools/", {"name": POOL, "type": "process", "base_job_template": _job_template()})
        for queue in queues(node):
            self._change(f"/work_pools/{POOL}/queues", {"name": queue})
        if not in_order(self.queues()):
            # Prefect gives a new queue the lowest rank: a rollback would wait behind every scheduled sweep.
            self._change(f"/work_pools/{POOL}/queues/{FIRST}", {"priority": 1}, method="PATCH")

    def queues(self) -> list[dict[str, Any]]:
        """The pool's queues as the server tells them: name, priority, status, whether paused."""
        found = self._change(f"/work_pools/{POOL}/queues/filter", {})
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def deployments(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """The deployments with these names."""
        found = self._change("/deployments/filter", {"deployments": {"name": {"any_": list(names)}}, "limit": 200})
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def heartbeat(self, node: str) -> str | None:
        """When the worker of `node` was last heard, in the server's own words; None for never."""
        found = self._change(f"/work_pools/{POOL}/workers/filter", {})
        workers = found if isinstance(found, list) else []
        return next((worker["last_heartbeat_time"] for worker in workers if worker["name"] == node), None)

    def post(self, path: str, body: object) -> object:
        """The answer to a request below `/api`; None where what it makes exists already. Raises StoreUnavailable."""
        return self._change(path, body)

    def get(self, path: str) -> object:
        """What is at `path` below `/api`. Raises StoreUnavailable."""
        answer = self._origin().ask("GET", f"/api{path}")
        if not answer.ok:
            raise StoreUnavailable(
                f"Prefect on port {self.port} answers {answer.status or 'nothing'} to {path}",
                advice="See prefect-server.log in the sandbox's logs.",
            )
        return answer.json()

    def _origin(self) -> loopback.Origin:
        user, _, password = self.auth.partition(":")
        return loopback.Origin(self.port, user, password)

    def _change(self, path: str, body: object, *, method: str = "POST") -> object:
        for pause in (*_PAUSES, None):
            answer = self._origin().ask(method, f"/api{path}", body=body, headers=self._csrf_headers())
            # Two nodes may make the pool at once.
            if answer.status == _CONFLICT:  # it exists
                return None
            if answer.ok:
                return answer.json() if answer.body else None
            # Silence, and SQLite's "database is locked", pass.
            if answer.status not in _PASSING or pause is None:
                break
            time.sleep(pause)
        said = quoted(answer.body.decode(errors="replace").strip())
        raise StoreUnavailable(
            f"Prefect on port {self.port} does not do {path}: {said if answer.status else 'no answer'}",
            advice="See prefect-server.log in the sandbox's logs, then run `lakemark up` again.",
        )

    def _csrf_headers(self) -> dict[str, str]:
        # One token serves all requests of a client.
        if not self._csrf:
            client = str(uuid.uuid4())
            token = self._origin().ask("GET", f"/api/csrf-token?client={client}")
            if token.ok and isinstance(given := token.json(), dict):
                self._csrf.update({"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": str(given["token"])})
        return self._csrf
