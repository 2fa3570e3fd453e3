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
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import to_text

FORMAT: Final = "lakemark.plan/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
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

    def as_json(self) -> dict[str, JSON]:
        return {
            "model_only": self.model_only,
            "data_only": self.data_only,
            "move_branch": self.move_branch,
            "while_running": self.while_running,
        }

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        read = Fields(value, "a plan's flags")
        return cls(
            model_only=read.flag("model_only", default=False),
            data_only=read.flag("data_only", default=False),
            move_branch=read.flag("move_branch", default=False),
            while_running=read.flag("while_running", default=False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTarget:
    """The record gone back to."""

    record: str
    timeline: int
    step: int
    saved_at: datetime

    def as_json(self) -> dict[str, JSON]:
        return {
            "record": self.record,
            "timeline": self.timeline,
            "step": self.step,
            "saved_at": to_text(self.saved_at),
        }

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        read = Fields(value, "a plan's target")
        return cls(
            record=read.text("record"),
            timeline=read.integer("timeline"),
            step=read.integer("step"),
            saved_at=read.instant("saved_at"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanData:
    """A data version brought back: `opens_branch` is made at `commit`. branch: what the trainer had asked for.

    moves_from: where `branch` is to be set back too, its head when that was planned: at any other it is not touched.
    """

    repository: str
    commit: str
    opens_branch: str
    branch: str | None = None
    moves_from: str | None = None

    def as_json(self) -> dict[str, JSON]:
        value: dict[str, JSON] = {
            "repository": self.repository,
            "commit": self.commit,
            "opens_branch": self.opens_branch,
            "branch": self.branch,
        }
        # Left out where it is none: plans from before this field read and write as they did.
        return value if self.moves_from is None else value | {"moves_from": self.moves_from}

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        read = Fields(value, "a plan's data")
        return cls(
            repository=read.text("repository"),
            commit=read.text("commit"),
            opens_branch=read.text("opens_branch"),
            branch=read.optional_text("branch"),
            moves_from=read.optional_text("moves_from"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivesUp:
    """Of the current lineage: records no longer in it, steps and hours of training to be done again."""

    records: tuple[str, ...] = ()
    steps: int = 0
    hours: float = 0.0

    def as_json(self) -> dict[str, JSON]:
        return {"records": list(self.records), "steps": self.steps, "hours": self.hours}


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """Something that rests on what is given up."""

    run: str
    record: str
    why: str

    def as_json(self) -> dict[str, JSON]:
        return {"run": self.run, "record": self.record, "why": self.why}


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """What a rollback will do. `timeline` is the run's when planned: another one since means the run moved.

    at: the instant asked for, where it was one. data_changes: added, removed, changed objects from the data in use to
    the data brought back. source_tier, size_bytes and estimated_seconds are advice.
    """

    run: str
    timeline: int
    target: PlanTarget
    reason: str
    requester: str
    expires_at: datetime
    at: datetime | None = None
    data: tuple[PlanData, ...] = ()
    flags: Flags = field(default_factory=Flags)
    source_tier: str | None = None
    size_bytes: int = 0
    estimated_seconds: float | None = None
    gives_up: GivesUp = field(default_factory=GivesUp)
    affected: tuple[Affected, ...] = ()
    data_changes: Mapping[str, JSON] | None = None
    notes: tuple[str, ...] = ()
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
        value: dict[str, JSON] = {
            "format": FORMAT,
            "plan": self.digest,
            "run": self.run,
            "timeline": self.timeline,
            "at": None if self.at is None else to_text(self.at),
            "target": self.target.as_json(),
            "data": [item.as_json() for item in self.data],
            "flags": self.flags.as_json(),
            "source_tier": self.source_tier,
            "size_bytes": self.size_bytes,
            "estimated_seconds": self.estimated_seconds,
            "gives_up": self.gives_up.as_json(),
            "affected": [item.as_json() for item in self.affected],
            "data_changes": None if self.data_changes is None else dict(self.data_changes),
            "notes": list(self.notes),
            "reason": self.reason,
            "requester": self.requester,
            "expires_at": to_text(self.expires_at),
        }
        # What a newer version added is passed on: it is no decision, or the digest would differ.
        return value | dict(self.extra)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt for anything that is no plan, or whose decisions are not those its `plan` names."""
        read = Fields(value, "a plan")
        try:
            read.format(FORMAT)
            said = read.text("plan")
            plan = cls._read(read)
        except ValueError as error:
            raise Corrupt(f"a rollback plan can't be read: {error}", advice=_AGAIN) from error
        # A plan is kept and passed on as JSON, which anybody can edit.
        if plan.digest != said:
            raise Corrupt(
                f"the plan {said[:12]} was altered: its decisions are those of {plan.digest[:12]}", advice=_AGAIN
            )
        return plan

    @classmethod
    def _read(cls, read: Fields) -> Self:
        gives_up = Fields(read.mapping("gives_up"), "what a plan gives up")
        affected = (Fields(item, "what a plan affects") for item in read.items("affected"))
        return cls(
            run=read.text("run"),
            timeline=read.integer("timeline"),
            at=read.optional_instant("at"),
            target=PlanTarget.from_json(read.mapping("target")),
            data=tuple(PlanData.from_json(item) for item in read.items("data")),
            flags=Flags.from_json(read.mapping("flags")),
            source_tier=read.optional_text("source_tier"),
            size_bytes=read.integer("size_bytes", default=0),
            estimated_seconds=read.optional_number("estimated_seconds"),
            gives_up=GivesUp(
                records=gives_up.texts("records"),
                steps=gives_up.integer("steps", default=0),
                hours=gives_up.optional_number("hours") or 0.0,
            ),
            affected=tuple(
                Affected(run=item.text("run"), record=item.text("record"), why=item.text("why")) for item in affected
            ),
            data_changes=read.optional_mapping("data_changes"),
            notes=read.texts("notes"),
            reason=read.text("reason"),
            requester=read.text("requester"),
            expires_at=read.instant("expires_at"),
            extra=read.rest(),
        )

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
