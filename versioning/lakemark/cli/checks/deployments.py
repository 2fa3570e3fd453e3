"""What `doctor` asks Prefect of the deployments: whether each is there, ready, its schedule active, its queue polled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemark.cli.prefect_api import PrefectApi
from lakemark.errors import Incomplete, LakemarkError
from lakemark.services.health.doctor import Examination

if TYPE_CHECKING:
    from lakemark.cli.session import Session
    from lakemark.sandbox.declared import Declared


def examinations(here: Session) -> Iterator[Examination]:
    """One a deployment of the prefect.yaml beside lakemark.yaml, else of the one this installation carries."""
    from lakemark.sandbox import carried
    from lakemark.sandbox.declared import declared

    api = PrefectApi.of(here.parts.keys)
    if api is None:
        return
    home = here.parts.loaded.home
    yield Examination(name="prefect flows", run=partial(_flows, home))
    try:
        # What somebody edited counts: they may have taken a deployment out on purpose.
        file = home / carried.FILE
        wanted = declared(file if file.is_file() else carried.carried() / carried.FILE)
    except LakemarkError as error:
        # A file that can't be read is a finding, and the examinations of everything else are made all the same.
        yield Examination(name="prefect deployments", run=partial(_raise, error))
        return
    asked = _Asked(api, wanted)
    for one in wanted:
        yield Examination(
            name=f"prefect deployment {one.name}",
            run=partial(_deployment, asked, one),
            advice="`lakemark flows deploy`, with a worker that polls its queue; switch its schedule on in Prefect's page.",
            part_of="prefect",
        )
    yield Examination(
        name="prefect queues",
        run=partial(_order, asked),
        advice="`lakemark flows deploy` puts the queue of what somebody waits for first.",
        part_of="prefect",
    )


@dataclass(frozen=True)
class _Asked:
    """The server's answers, each asked for once."""

    api: PrefectApi
    wanted: tuple[Declared, ...]

    @cached_property
    def found(self) -> list[dict[str, Any]]:
        return self.api.named([one.name for one in self.wanted])

    @cached_property
    def queues(self) -> dict[str | None, list[dict[str, Any]]]:
        return {pool: self.api.queues(pool) for pool in {one.pool for one in self.wanted} if pool}


def _flows(home: Path) -> str:
    from lakemark.sandbox import carried

    if not (home / carried.FILE).is_file():
        raise Incomplete(f"there is no {carried.FILE} in {home}", advice="`lakemark flows export` writes it.")
    if old := carried.left_behind(home):
        raise Incomplete(
            f"{', '.join(old)} in {home} are those of another version of lakemark",
            advice="`lakemark flows export`, then `lakemark flows deploy`.",
        )
    kept = carried.edited(home)
    return f"{home / carried.FILE}" + (f", edited: {', '.join(kept)}" if kept else "")


def _deployment(asked: _Asked, wanted: Declared) -> str:
    from lakemark.sandbox.declared import wrong

    reasons = list(wrong(wanted, asked.found, asked.queues.get(wanted.pool, [])))
    if reasons:
        raise Incomplete("; ".join(reasons), advice="")
    return f"ready in the queue {wanted.queue}" + (", its schedule active" if wanted.scheduled else "")


def _order(asked: _Asked) -> str:
    from lakemark.sandbox.declared import in_order

    late = [pool for pool, queues in asked.queues.items() if not in_order(queues)]
    if late:
        raise Incomplete(f"in the pool {', '.join(map(str, late))} scheduled runs go before urgent ones", advice="")
    return "urgent runs go before scheduled ones"


def _raise(error: LakemarkError) -> str:
    raise error
