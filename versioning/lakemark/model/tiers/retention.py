"""Retention: which records a policy keeps, each with its reasons in words.

Calendar periods are those of an IANA zone: an hour that a clock change repeats is two hours, one it skips is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

from lakemark.model.ledger.entry import Clock
from lakemark.model.ledger.run import RecordState
from lakemark.model.values.instants import duration_text, in_zone, later
from lakemark.model.values.wording import instant

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The `keep` records with the best value of `metric`; mode: `min`, the smaller the better, or `max`."""

    metric: str
    mode: str = "min"
    keep: int = 1

    def __post_init__(self) -> None:
        if self.mode not in ("min", "max"):
            raise ValueError(f"the mode of {self.metric} is {self.mode!r}, not min or max")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """A record stays if any rule keeps it. A policy without rules is a ValueError: nothing keeps nothing by accident.

    hourly … yearly: the newest record of each of the last so many periods that have one. every_steps: steps divisible
    by it. keep_for: everything younger.
    """

    keep_last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0
    every_steps: int | None = None
    best: tuple[Best, ...] = ()
    keep_for: timedelta | None = None

    def __post_init__(self) -> None:
        counts = (self.keep_last, self.hourly, self.daily, self.weekly, self.monthly, self.yearly)
        if min(counts) < 0:
            raise ValueError("a retention policy has a negative count")
        if not (any(counts) or self.every_steps or self.best or self.keep_for):
            raise ValueError("a retention policy without any rule would keep nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A record and why it stays, or goes. until: when the last of its reasons ends, where that can be known."""

    record: str
    reasons: tuple[str, ...]
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionVerdict:
    """Every record that was not pruned before, in exactly one of both, newest first."""

    keep: tuple[Kept, ...] = ()
    remove: tuple[Kept, ...] = ()


@dataclass(slots=True)
class _Reasons:
    lasting: list[str] = field(default_factory=list)
    ending: list[tuple[str, datetime]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lasting or self.ending)

    def kept(self, record: str) -> Kept:
        # One reason without an end keeps it for good; of the others the last to end counts.
        until = None if self.lasting or not self.ending else max(at for _, at in self.ending)
        return Kept(record=record, reasons=(*self.lasting, *(text for text, _ in self.ending)), until=until)


def apply_policy(
    records: Sequence[RecordState],
    policy: RetentionPolicy,
    *,
    now: datetime,
    zone: str = "UTC",
    min_keep: int = 1,
    protected: Mapping[str, str] = NOTHING,
) -> RetentionVerdict:
    """What `policy` keeps of `records`, the records of one lineage or of one timeline that was left behind.

    protected: record id -> why it stays whatever the policy says. Always kept: the newest that may be resumed from,
    what is held, what is dated after `now` or under a suspect clock, and at least `min_keep`. Superseded, conflicting
    and quarantined records use up no place of a good one. Already pruned ones are in neither list.
    """
    left = sorted(
        (found for found in records if found.pruned is None),
        # By step and not by time: a clock that was wrong must not make an old record the newest.
        key=lambda found: (found.record.step, found.sequence),
        reverse=True,
    )
    reasons = {found.record.id: _Reasons() for found in left}
    for found in left:
        _unconditional(found, reasons[found.record.id], now=now, protected=protected)
    # A record that nobody may go on from must not take a good one's place in a rule.
    counted = [found for found in left if _counts(found, now)]
    for found, text in _rules(counted, policy, _zone(zone)):
        reasons[found.record.id].lasting.append(text)
    if policy.keep_for is not None:
        for found in left:
            ends = later(found.instant, policy.keep_for)
            # Of the future it is kept anyway, and for another reason.
            if found.instant <= now < ends:
                text = f"younger than {duration_text(policy.keep_for)}"
                reasons[found.record.id].ending.append((text, ends))
    # Last: it adds only what all rules together left missing.
    _fill(counted, reasons, min_keep)
    return RetentionVerdict(
        keep=tuple(reasons[found.record.id].kept(found.record.id) for found in left if reasons[found.record.id]),
        remove=tuple(
            Kept(record=found.record.id, reasons=(_why_not(found),)) for found in left if not reasons[found.record.id]
        ),
    )


def holds(found: RecordState, now: datetime) -> bool:
    """Whether a person's hold is in force at `now`."""
    return found.held is not None and (found.held_until is None or now < found.held_until)


def best_of(records: Sequence[RecordState], best: Best) -> list[RecordState]:
    """The best by a metric, best first; of equals the greater step. Records without it, or with NaN, are left out."""
    sign = 1 if best.mode == "min" else -1
    scored = [
        (sign * value, -found.record.step, -found.sequence, found)
        for found in records
        # NaN compares with nothing: it would be best or worst by accident.
        if (value := found.record.metrics.get(best.metric)) is not None and math.isfinite(value)
    ]
    # Not by the record itself, which has no order.
    return [found for *_, found in sorted(scored, key=lambda row: row[:3])][: best.keep]


def _unconditional(found: RecordState, reasons: _Reasons, *, now: datetime, protected: Mapping[str, str]) -> None:
    why = protected.get(found.record.id)
    if why is not None:
        reasons.lasting.append(why)
    if holds(found, now):
        text = f"held: {found.held}"
        if found.held_until is None:
            reasons.lasting.append(text)
        else:
            reasons.ending.append((f"{text} (until {instant(found.held_until)})", found.held_until))
    if found.instant > now:
        reasons.lasting.append(f"dated {instant(found.instant)}, in the future of this clock")
    if found.clock == Clock.SUSPECT:
        # Its age may be anything: it goes when somebody says so, not by a rule.
        reasons.lasting.append("recorded while its node's clock was suspect: its age is not known")


def _counts(found: RecordState, now: datetime) -> bool:
    return found.stands and found.quarantined is None and found.instant <= now


def _rules(counted: Sequence[RecordState], policy: RetentionPolicy, zone: tzinfo) -> Iterator[tuple[RecordState, str]]:
    if counted:
        # Whatever the policy: `keep_last: 0` must not leave a run without anything to resume from.
        yield counted[0], "the newest"
    for place, found in enumerate(counted[: policy.keep_last], start=1):
        yield found, f"{_ordinal(place)} of keep_last {policy.keep_last}"
    for name, count, period in _calendar(policy, zone):
        for found, text in _newest_of_each(counted, count, period):
            yield found, f"newest of the {name} {text}"
    if policy.every_steps:
        for found in counted:
            if found.record.step % policy.every_steps == 0:
                yield found, f"step divisible by {policy.every_steps}"
    for best in policy.best:
        for place, found in enumerate(best_of(counted, best), start=1):
            value = found.record.metrics[best.metric]
            yield found, f"{_ordinal(place)} of best {best.keep} by {best.metric} ({best.mode}): {value:g}"


def _newest_of_each(
    counted: Sequence[RecordState], count: int, period: Callable[[datetime], tuple[Hashable, str]]
) -> Iterator[tuple[RecordState, str]]:
    seen: dict[Hashable, tuple[RecordState, str]] = {}
    # The first seen is the one of the greatest step: the newest of its period.
    for found in counted if count else ():
        key, text = period(found.instant)
        seen.setdefault(key, (found, text))
    # Periods by time: after a rollback a greater step may be of an earlier day.
    newest_first = sorted(seen.values(), key=lambda pair: pair[0].instant, reverse=True)
    yield from newest_first[:count]


def _calendar(
    policy: RetentionPolicy, zone: tzinfo
) -> tuple[tuple[str, int, Callable[[datetime], tuple[Hashable, str]]], ...]:
    def hour(at: datetime) -> tuple[Hashable, str]:
        local = in_zone(at, zone)
        # With the offset: the hour that the end of summer time repeats is two.
        return (local.date(), local.hour, local.utcoffset()), local.strftime("%Y-%m-%d %H:00 %z")

    def day(at: datetime) -> tuple[Hashable, str]:
        text = in_zone(at, zone).date().isoformat()
        return text, text

    def week(at: datetime) -> tuple[Hashable, str]:
        # ISO's year, which at its ends is not the calendar's: the last days of December may be week 1.
        year, number, _ = in_zone(at, zone).isocalendar()
        return (year, number), f"{year}-W{number:02}"

    def month(at: datetime) -> tuple[Hashable, str]:
        text = in_zone(at, zone).strftime("%Y-%m")
        return text, text

    def year(at: datetime) -> tuple[Hashable, str]:
        text = str(in_zone(at, zone).year)
        return text, text

    return (
        ("hour", policy.hourly, hour),
        ("day", policy.daily, day),
        ("week", policy.weekly, week),
        ("month", policy.monthly, month),
        ("year", policy.yearly, year),
    )


def _fill(counted: Sequence[RecordState], reasons: Mapping[str, _Reasons], min_keep: int) -> None:
    # Only good records count towards it: held bad ones do not make it safe.
    missing = min_keep - sum(bool(reasons[found.record.id]) for found in counted)
    for found in counted:
        if missing > 0 and not reasons[found.record.id]:
            reasons[found.record.id].lasting.append(f"min_keep {min_keep}")
            missing -= 1


def _why_not(found: RecordState) -> str:
    if found.superseded_by is not None:
        return f"superseded by {found.superseded_by[:12]}"
    if found.conflicts_with is not None:
        return f"in conflict with {found.conflicts_with[:12]}"
    if found.quarantined is not None:
        return f"quarantined: {found.quarantined}"
    return "no rule keeps it"


def _ordinal(place: int) -> str:
    suffix = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)
