"""Running deployments of the sandbox's Prefect, and answering a run that waits, as a person at its pages would."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakemark.errors import LakemarkError, StoreUnavailable
from lakemark.sandbox.prefect import Api

ENDED: Final = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
WAITING: Final = frozenset({"PAUSED"})
_POLL_SECONDS: Final = 0.5


class RunFailed(LakemarkError):
    """A flow run ended otherwise than it should."""


@dataclass(frozen=True)
class Deployments:
    """The deployments `flow/name` of one server, each flow having one deployment of its own name."""

    api: Api

    def start(self, name: str, parameters: Mapping[str, object] | None = None) -> str:
        """Starts a run of the deployment; answers the flow run's id."""
        deployment = _object(self.api.get(f"/deployments/name/{name}/{name}"))
        body = {"parameters": dict(parameters or {}), "state": {"type": "SCHEDULED", "name": "Scheduled"}}
        made = _object(self.api.post(f"/deployments/{deployment['id']}/create_flow_run", body))
        return str(made["id"])

    def wait(self, run: str, states: Collection[str] = ENDED, *, within_seconds: float) -> str:
        """The type of state the run reached, of `states`. Raises StoreUnavailable when the time is over."""
        until = time.monotonic() + within_seconds
        kind = "unknown"
        while time.monotonic() < until:
            state = _object(self.api.get(f"/flow_runs/{run}")).get("state")
            kind = str(state["type"]) if isinstance(state, dict) else "unknown"
            # An end that was not asked for is an answer, too: waiting on would be in vain.
            if kind in states or kind in ENDED:
                return kind
            time.sleep(_POLL_SECONDS)
        raise StoreUnavailable(
            f"the flow run {run} is {kind} after {within_seconds:g} s",
            advice="See prefect-worker.log in the sandbox's logs.",
        )

    def finish(self, name: str, parameters: Mapping[str, object] | None = None, *, within_seconds: float = 900) -> str:
        """Starts a run and waits until it completed. Raises RunFailed with its message otherwise.

        A run that Prefect cancels before it began, because the deployment's schedule has one going, is started again once
        that one ended: it may have looked before what this one is for was there.
        """
        until = time.monotonic() + within_seconds
        while True:
            run = self.start(name, parameters)
            if self.wait(run, within_seconds=until - time.monotonic()) != "CANCELLED" or not self._collided(run):
                self.completed(run, within_seconds=max(1.0, until - time.monotonic()))
                return run
            # Started at once, it would meet the same limit again.
            while self._going(name) and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)

    def completed(self, run: str, *, within_seconds: float = 900) -> None:
        """Waits until the run completed. Raises RunFailed with its message otherwise."""
        kind = self.wait(run, within_seconds=within_seconds)
        if kind != "COMPLETED":
            state = _object(_object(self.api.get(f"/flow_runs/{run}"))["state"])
            raise RunFailed(
                f"the flow run {run} {kind}: {state.get('message')}", advice="See the run in Prefect's pages."
            )

    def _collided(self, run: str) -> bool:
        """Whether it was cancelled without ever having run: by the deployment's limit, not by a person."""
        return not _object(self.api.get(f"/flow_runs/{run}")).get("run_count")

    def _going(self, name: str) -> bool:
        going = {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}
        asked = {"flow_runs": {"state": going}, "deployments": {"name": {"any_": [name]}}, "limit": 1}
        return bool(self.api.post("/flow_runs/filter", asked))

    def answer(self, run: str, given: Mapping[str, str], *, within_seconds: float = 30) -> None:
        """Fills in the form a suspended run waits for. It is shown before it can be answered: asked again until taken."""
        until = time.monotonic() + within_seconds
        said: object = None
        while time.monotonic() < until:
            said = self.api.post(f"/flow_runs/{run}/resume", {"run_input": dict(given)})
            # Prefect answers 200 also where it refuses, as it does before the run is suspended; `status` tells them apart.
            if isinstance(said, dict) and said.get("status") == "ACCEPT":
                return
            time.sleep(_POLL_SECONDS)
        raise RunFailed(f"Prefect does not take the answer for {run}: {said}", advice="Answer in its pages.")


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StoreUnavailable(f"Prefect answered {str(value)[:80]!r}", advice="See prefect-server.log.")
    return value
