"""The few requests that a rollback makes of Prefect's server, over its REST interface. Nothing of Prefect is imported."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, urlsplit

from lakemark.errors import Denied, Misconfigured, StoreUnavailable, quoted, without_secrets

DEPLOYMENT: Final = ("rollback", "rollback")
_UNAUTHORISED: Final = (401, 403)
_NOT_FOUND: Final = 404
# Prefect answers faults of validation with the whole body that it was sent.
_SHOWN: Final = 300
_OK: Final = range(200, 300)


@dataclass(frozen=True)
class Reply:
    """What the server said. `date`: its clock, where it told it."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def ok(self) -> bool:
        return self.status in _OK

    def json(self) -> Any:  # noqa: ANN401 - whatever the server sends
        """Raises StoreUnavailable where it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise StoreUnavailable(f"Prefect answered no JSON: {error}", advice="Is PREFECT_API_URL its API?") from None

    @property
    def date(self) -> datetime | None:
        try:
            return parsedate_to_datetime(self.headers.get("date", ""))
        except (TypeError, ValueError):
            return None


@dataclass
class PrefectApi:
    """Prefect's API at `url` (PREFECT_API_URL), with `auth` (`user:password`, PREFECT_API_AUTH_STRING) where it has one.

    Every request raises StoreUnavailable where the server is silent, Denied where it refuses the password.
    """

    url: str
    auth: str | None = field(default=None, repr=False)
    timeout_seconds: float = 10.0
    _csrf: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> PrefectApi | None:
        """The server that the environment names; None where it names none. What may be secret in its address is left out."""
        url = _address(environ.get("PREFECT_API_URL"))
        # Paths are put behind it, each with a slash of its own.
        return cls(url.rstrip("/"), environ.get("PREFECT_API_AUTH_STRING")) if url else None

    def page_of(self, flow_run: str) -> str:
        """Where people see a flow run."""
        origin = self.url.removesuffix("/api")
        return f"{origin}/runs/flow-run/{flow_run}"

    def create_rollback(self, *, rollback: str, parameters: Mapping[str, Any]) -> str:
        """Makes the flow run that waits for the decision, or finds it: the same rollback is the same run. Answers its id."""
        flow, name = DEPLOYMENT
        found = self.ask("GET", f"/deployments/name/{flow}/{name}")
        if not found.ok:
            raise Misconfigured(
                f"Prefect has no deployment {flow}/{name} ({found.status})", advice="Run `lakemark flows deploy`."
            )
        # With that key Prefect answers the run that there is: a request given again makes no second one.
        body = {"parameters": dict(parameters), "tags": [tag_of(rollback)], "idempotency_key": f"rollback:{rollback}"}
        made = self.ask("POST", f"/deployments/{found.json()['id']}/create_flow_run", body)
        if not made.ok:
            raise StoreUnavailable(
                f"Prefect made no flow run: {said(made)}", advice="`lakemark status` says what waits."
            )
        return str(made.json()["id"])

    def runs_of(self, rollback: str, flow_run: str | None) -> list[dict[str, Any]]:
        """Flow runs of a rollback: the one its request names, and those that carry its tag. Each with `id` and `state`."""
        # Two requests, as filters of one are joined by `and`.
        wanted: list[dict[str, Any]] = [{"tags": {"all_": [tag_of(rollback)]}}]
        if flow_run is not None:
            wanted.append({"id": {"any_": [flow_run]}})
        found: dict[str, dict[str, Any]] = {}
        for one in wanted:
            reply = self.ask("POST", "/flow_runs/filter", {"flow_runs": one, "limit": 20})
            if not reply.ok:
                raise StoreUnavailable(f"Prefect lists no flow runs: {said(reply)}", advice="Try again.")
            found |= {str(run["id"]): run for run in reply.json()}
        return list(found.values())

    def resume(self, flow_run: str, run_input: Mapping[str, Any]) -> tuple[bool, str]:
        """Whether the suspended run goes on, and what the server said where it does not."""
        reply = self.ask("POST", f"/flow_runs/{quote(flow_run)}/resume", {"run_input": dict(run_input)})
        if not reply.ok:
            return False, said(reply)
        answer = reply.json()
        reason = (answer.get("details") or {}).get("reason") or answer.get("status", "")
        return answer.get("status") == "ACCEPT", str(reason)

    def deployments(self) -> list[dict[str, Any]]:
        """Every deployment with the tag lakemark."""
        body = {"deployments": {"tags": {"all_": ["lakemark"]}}, "limit": 200}
        reply = self.ask("POST", "/deployments/filter", body)
        if not reply.ok:
            raise StoreUnavailable(f"Prefect lists no deployments: {said(reply)}", advice="Try again.")
        return list(reply.json())

    def named(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """The deployments with these names, whatever their flow."""
        # 200 is the most that Prefect lists at once.
        body = {"deployments": {"name": {"any_": list(names)}}, "limit": 200}
        reply = self.ask("POST", "/deployments/filter", body)
        if not reply.ok:
            raise StoreUnavailable(f"Prefect lists no deployments: {said(reply)}", advice="Try again.")
        return list(reply.json())

    def queues(self, pool: str) -> list[dict[str, Any]]:
        """The work pool's queues: name, priority (1 is the highest), status; none where there is no such pool."""
        reply = self.ask("POST", f"/work_pools/{quote(pool)}/queues/filter", {})
        if reply.status == _NOT_FOUND:
            return []
        if not reply.ok:
            raise StoreUnavailable(f"Prefect lists no queues: {said(reply)}", advice="Try again.")
        return list(reply.json())

    def put_first(self, pool: str, queue: str) -> None:
        """Gives a queue the highest priority of its pool; the others move down."""
        # A new queue of a pool gets the lowest priority, whatever its name.
        reply = self.ask("PATCH", f"/work_pools/{quote(pool)}/queues/{quote(queue)}", {"priority": 1})
        if not reply.ok:
            raise StoreUnavailable(f"Prefect does not put the queue {queue} first: {said(reply)}", advice="Try again.")

    def ask(self, method: str, path: str, body: object = None) -> Reply:
        """One request of the API, with password and CSRF token as the server wants them."""
        reply = self.send(method, path, body, headers=self.headers(method))
        # A token ends after a while, and with the server: one more try with a new one, then it is the password.
        if reply.status in _UNAUTHORISED and method != "GET":
            self._csrf.clear()
            reply = self.send(method, path, body, headers=self.headers(method))
        if reply.status in _UNAUTHORISED:
            raise Denied(
                f"Prefect at {self.url} refuses PREFECT_API_AUTH_STRING ({reply.status})",
                advice="Set it to `user:password` as the server has it.",
            )
        return reply

    def send(self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None) -> Reply:
        """One request as it is. Raises StoreUnavailable for a silent server, Misconfigured for an address that is none."""
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in ("http", "https"):
            raise Misconfigured(
                f"PREFECT_API_URL {quoted(self.url)} is no address", advice="Like http://127.0.0.1:4200/api."
            )
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(host, port, timeout=self.timeout_seconds)
        sent = dict(headers or {})
        raw = None if body is None else json.dumps(body).encode()
        if raw is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, f"{parts.path}{path}", body=raw, headers=sent)
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, response.read(), told)
        except (OSError, HTTPException) as error:
            raise StoreUnavailable(
                f"Prefect at {self.url} does not answer: {in_words(error)}",
                advice="Start it, or see `lakemark status`.",
            ) from None
        finally:
            connection.close()

    def headers(self, method: str) -> dict[str, str]:
        """Password, and for what changes something the CSRF token."""
        headers: dict[str, str] = {}
        if self.auth:
            headers["Authorization"] = f"Basic {base64.b64encode(self.auth.encode()).decode()}"
        return headers if method == "GET" else headers | self._token(headers)

    def _token(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Empty where the server has no CSRF protection."""
        if not self._csrf:
            # The server keeps one token for each client: with a name of our own nobody else replaces it.
            client = str(uuid.uuid4())
            reply = self.send("GET", f"/csrf-token?client={client}", headers=headers)
            # A server without protection gives none: then none is sent.
            if reply.ok:
                token = str(reply.json()["token"])
                self._csrf.update({"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token})
        return dict(self._csrf)


def in_words(error: Exception) -> str:
    """Why a connection failed, without the system's number of it."""
    # `str` of an OSError begins with `[Errno 111]`, which helps nobody.
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _address(given: str | None) -> str | None:
    """PREFECT_API_URL as it may be shown: requests need no more of it, the password has a variable of its own."""
    return without_secrets(given).partition("?")[0].partition("#")[0] if given else None


def tag_of(rollback: str) -> str:
    """The tag of a rollback's flow runs."""
    return f"rollback:{rollback}"


def said(reply: Reply) -> str:
    """The server's refusal in one line."""
    return f"{reply.status} {' '.join(reply.body.decode(errors='replace').split())[:_SHOWN]}"
