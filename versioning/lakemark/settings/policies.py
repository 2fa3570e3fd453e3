"""Retention and residence as configured. An empty policy is refused: it would keep nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from lakemark.errors import quoted
from lakemark.settings.document import Value
from lakemark.settings.kinds import Count, Delay, Duration, Metric, Positive, RunPattern, Share, Zone
from lakemark.settings.section import (
    Default,
    JsonSchema,
    Section,
    SettingProblem,
    ValueKind,
    invalid,
    read_section,
    section_schema,
    shown_section,
)


@dataclass(frozen=True, kw_only=True)
class BestSettings(Section):
    """Keep the `keep` best records by a metric; `min`: the smaller the better."""

    what: ClassVar[str] = "best"

    metric: Metric
    mode: Annotated[Literal["min", "max"], Default("min")]
    keep: Annotated[Positive, Default(1)]


@dataclass(frozen=True, kw_only=True)
class PolicySettings(Section):
    """One retention policy, whole: what it does not name, it does not keep.

    A record stays if any rule keeps it: the `keep_last` newest; the newest of each
    of the last `hourly` … `yearly` periods that have one; steps divisible by
    `every_steps`; the `best`; and everything younger than `keep_for`.
    """

    what: ClassVar[str] = "a retention policy"

    keep_last: Annotated[Positive | None, Default(None)]
    keep_for: Annotated[Duration | None, Default(None)]
    hourly: Annotated[Count, Default(0)]
    daily: Annotated[Count, Default(0)]
    weekly: Annotated[Count, Default(0)]
    monthly: Annotated[Count, Default(0)]
    yearly: Annotated[Count, Default(0)]
    every_steps: Annotated[Positive | None, Default(None)]
    best: Annotated[BestSettings | None, Default(None)]

    def problems(self) -> Iterator[SettingProblem]:
        """A policy without a rule."""
        # Zero of everything is what a mistyped key leaves behind, and it would delete all.
        periods = self.hourly or self.daily or self.weekly or self.monthly or self.yearly
        if not (self.keep_last or self.keep_for or periods or self.every_steps or self.best):
            yield SettingProblem((), "keeps nothing; give at least one rule, such as keep_last: 5")


_DEFAULT: Final[Mapping[str, Value]] = {
    "keep_last": 5,
    "hourly": 24,
    "daily": 30,
    "weekly": 12,
    "monthly": 12,
    "yearly": 0,
    "every_steps": 10_000,
    "best": {"metric": "val_loss", "mode": "min", "keep": 3},
}
# What a rollback left behind may have to be looked at for a while: why it went wrong, above all.
_ABANDONED: Final[Mapping[str, Value]] = {"keep_last": 1, "keep_for": "14d"}


@dataclass(frozen=True, kw_only=True)
class RetentionSettings(Section):
    """Which records stay, and how fast the others may go.

    `abandoned` is for timelines left behind by a rollback. `runs`: shell patterns
    of run names; the first that matches decides, else `default`. `zone` is where
    days and weeks begin. `min_keep` records of a run stay whatever a policy says.
    `max_delete` is the share of a run that one pass may remove unexpectedly,
    rounded up. `grace` passes between forgetting and deleting. With `apply` false
    there are only plans.
    """

    what: ClassVar[str] = "retention"

    default: Annotated[PolicySettings, Default(_DEFAULT)]
    abandoned: Annotated[PolicySettings, Default(_ABANDONED)]
    runs: Annotated[Mapping[RunPattern, PolicySettings], Default({})]
    zone: Annotated[Zone, Default("UTC")]
    min_keep: Annotated[Positive, Default(2)]
    max_delete: Annotated[Share, Default("20%")]
    grace: Annotated[Duration, Default("72h")]
    apply: Annotated[bool, Default(value=True)]


@dataclass(frozen=True, kw_only=True)
class AdmitSettings(Section):
    """Which records come to a tier: one per `every`, also the `newest`, also the `best` by retention's metric."""

    what: ClassVar[str] = "admit"

    every: Annotated[Duration | None, Default(None)]
    newest: Annotated[bool, Default(value=False)]
    best: Annotated[bool, Default(value=False)]

    def problems(self) -> Iterator[SettingProblem]:
        """Nothing would ever come."""
        if not (self.every or self.newest or self.best):
            yield SettingProblem((), "admits nothing; give every, newest or best, or say all or retained")


def _admit(value: Value, base: Path) -> str | AdmitSettings:
    if isinstance(value, dict):
        return read_section(AdmitSettings, value, base)
    if isinstance(value, str) and value in {"all", "retained"}:
        return value
    raise invalid(f"must be all, retained or {{every: 1h, newest: true, best: true}}, not {quoted(value)}")


def _admit_schema() -> JsonSchema:
    return {"anyOf": [{"enum": ["all", "retained"]}, section_schema(AdmitSettings)]}


def _admit_shown(admit: str | AdmitSettings) -> Value:
    return admit if isinstance(admit, str) else shown_section(admit)


Admit = Annotated[
    Literal["all", "retained"] | AdmitSettings, ValueKind(read=_admit, schema=_admit_schema, show=_admit_shown)
]


@dataclass(frozen=True, kw_only=True)
class ResidenceSettings(Section):
    """When a replica comes to a tier and when it may be released from it.

    Released only when no rule holds it: not among the `keep_last` newest, older
    than `keep_for`, and the slower replica proven for longer than `settle`. Where
    neither `keep_last` nor `keep_for` is given, it stays until retention takes the
    record. What is left out is as usual for the tier's class.
    """

    what: ClassVar[str] = "a tier's residence"

    admit: Annotated[Admit, Default("all")]
    keep_last: Annotated[Count | None, Default(None)]
    keep_for: Annotated[Duration | None, Default(None)]
    settle: Annotated[Delay, Default("1h")]


RESIDENCE: Final[Mapping[str, Mapping[str, Value]]] = {
    "hot": {"keep_last": 3, "settle": "10m"},
    "warm": {"admit": "all", "keep_for": "7d", "settle": "1h"},
    "cold": {"admit": "retained", "settle": "1h"},
}
"""What a tier's residence is by its class, key by key, where the file does not say."""
