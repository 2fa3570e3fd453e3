"""A rollback's plan as a value, and its digest.

The digest names the decisions alone (run, timeline, target, data commits, branch names and heads to move from, flags,
reason, requester, expiry). Estimates, notes and what is given up are for the reader and may change while it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Self

from lakemark.errors import Corrupt
from lakemark.model.values.canonical import JSON, digest
from lakemark.model.values.codec import LEFT_OUT, Coded, read, write
from lakemark.model.values.instants import to_text

FORMAT: Final = "lakemark.plan/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(Coded, what="a plan's flags"):
    """What of a rollback is done. while_running: even if the run still writes. A contradiction is a ValueError."""

    model_only: bool = False
    data_only: bool = False
    move_branch: bool = False
    while_running: bool = False

    def __post_init__(self) -> None:
        if self.model_only and self.data_only:
            raise ValueError("model-only and data-only exclude each other")
        if self.model_only and self.move_branch:
            raise ValueError("model-only leaves data alone: it can't move a branch")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTarget(Coded, what="a plan's target"):
    """The record gone back to."""

    record: str
    timeline: int
    step: int
    saved_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanData(Coded, what="a plan's data"):
    """A data version brought back: `opens_branch` is made at `commit`. branch: what the trainer had asked for.

    moves_from: where `branch` is to be set back too, its head when that was planned: at any other it is not touched.
    """

    repository: str
    commit: str
    opens_branch: str
    branch: str | None = None
    # Left out where it is none: plans from before this field read and write as they did.
    moves_from: str | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivesUp(Coded, what="what a plan gives up"):
    """Of the current lineage: records no longer in it, steps and hours of training to be done again."""

    records: tuple[str, ...] = ()
    steps: int = 0
    hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected(Coded, what="what a plan affects"):
    """Something that rests on what is given up."""

    run: str
    record: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan(Coded, what="a plan", document=FORMAT):
    """What a rollback will do. `timeline` is the run's when planned: another one since means the run moved.

    at: the instant asked for, where it was one. data_changes: added, removed, changed objects from the data in use to
    the data brought back. source_tier, size_bytes and estimated_seconds are advice.
    """

    run: str
    timeline: int
    at: datetime | None = None
    target: PlanTarget
    data: tuple[PlanData, ...] = ()
    flags: Flags = field(default_factory=Flags)
    source_tier: str | None = None
    size_bytes: int = 0
    estimated_seconds: float | None = None
    gives_up: GivesUp = field(default_factory=GivesUp)
    affected: tuple[Affected, ...] = ()
    data_changes: Mapping[str, JSON] | None = None
    notes: tuple[str, ...] = ()
    reason: str
    requester: str
    expires_at: datetime
    extra: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """64 hex digits over the decisions."""
        data: list[JSON] = [
            # Only where it moves a branch: the digests of other plans do not depend on this field.
            [item.repository, item.commit, item.opens_branch, *([item.moves_from] if item.moves_from else [])]
            for item in self.data
        ]
        return digest(
            {
                "run": self.run,
                "timeline": self.timeline,
                "target": self.target.record,
                "data": data,
                "flags": self.flags.as_json(),
                "reason": self.reason,
                "requester": self.requester,
                "expires_at": to_text(self.expires_at),
            }
        )

    def as_json(self) -> dict[str, JSON]:
        # What a newer version added is passed on: it is no decision, or the digest would differ.
        return {"format": FORMAT, "plan": self.digest} | write(self)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt for anything that is no plan, or whose decisions are not those its `plan` names."""
        fields = dict(value) if isinstance(value, Mapping) else {}
        said = fields.pop("plan", None)
        try:
            plan = read(cls, fields)
        except ValueError as error:
            raise Corrupt(f"a rollback plan can't be read: {error}", advice=_AGAIN) from error
        # A plan is kept and passed on as JSON, which anybody can edit.
        if plan.digest != said:
            raise Corrupt(
                f"the plan {said!s:.12} was altered: its decisions are those of {plan.digest[:12]}", advice=_AGAIN
            )
        return plan

    def advised(
        self,
        *,
        source_tier: str | None = None,
        estimated_seconds: float | None = None,
        data_changes: Mapping[str, JSON] | None = None,
        notes: Iterable[str] = (),
    ) -> Self:
        """The same decisions with estimates and notes added; the digest stays."""
        return replace(
            self,
            source_tier=source_tier or self.source_tier,
            estimated_seconds=self.estimated_seconds if estimated_seconds is None else estimated_seconds,
            data_changes=self.data_changes if data_changes is None else data_changes,
            notes=(*self.notes, *notes),
        )


_AGAIN: Final = "Make the plan again with `lakemark rollback plan`."
