"""What people type to name a record, an instant, or what to go back to.

    RECORD  id:HEX · 8 or more hex digits with a letter · RUN@STEP · RUN@latest · RUN@WHEN · RUN@best:METRIC · RUN~1@400
    WHEN    3d, 90m (ago, exact) · ISO 8601 with an offset
    TARGET  WHEN · STEP · RECORD · latest · best:METRIC · before-data:COMMIT · before-quarantine:ID

Letter case does not matter. All-decimal text is a step. Text that does not parse or names several things is Usage; what
parses and names nothing is NotFound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from lakemark.errors import NoRecordAsOf, NotFound, Usage, quoted
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import as_of, latest, lineage, usable
from lakemark.model.values.instants import OutOfCalendar, duration, from_text
from lakemark.model.values.names import original, run_for

# Fewer digits of an id are too easily two records'.
SHORTEST_PREFIX: Final = 8
_ID: Final = re.compile(r"id:([0-9a-f]{1,64})", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)
# As long as a step can be in names of checkpoints.
_STEP: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_LOOKS_LIKE_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}", re.ASCII)
_CANDIDATES: Final = 5


@dataclass(frozen=True, slots=True)
class Prefix:
    """A record by the first digits of its id, lower-case."""

    hex: str


@dataclass(frozen=True, slots=True)
class AtStep:
    """The record at `step` in the lineage of `timeline` (None: the current); `run` as it was written."""

    run: str
    timeline: int | None
    step: int


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest record of a lineage that is neither quarantined nor pruned."""

    run: str
    timeline: int | None = None


@dataclass(frozen=True, slots=True)
class AtTime:
    """As of an instant (UTC)."""

    run: str
    timeline: int | None
    instant: datetime


@dataclass(frozen=True, slots=True)
class BestOf:
    """The record of a lineage with the best value of `metric`."""

    run: str
    metric: str
    timeline: int | None = None


@dataclass(frozen=True, slots=True)
class BeforeData:
    """The newest record from before the lineage first used data `commit` (its first digits suffice)."""

    run: str
    commit: str


@dataclass(frozen=True, slots=True)
class BeforeQuarantine:
    """The newest record from before `record` (the first digits of a quarantined record's id)."""

    run: str
    record: str


Selector: TypeAlias = Prefix | AtStep | Latest | AtTime | BestOf
TargetSelector: TypeAlias = Selector | BeforeData | BeforeQuarantine


def parse_when(text: str, *, now: datetime) -> datetime:
    """The instant WHEN names, in UTC. Raises Usage: also for a time without an offset and for one before year 1."""
    plain = _plain(text)
    try:
        # A duration first: none of them is an instant, and the other way round.
        return now - duration(plain)
    except OverflowError:
        raise _unreadable(text, "reaches back before the calendar begins") from None
    except ValueError:
        pass
    try:
        return from_text(plain)
    except OutOfCalendar:
        raise _unreadable(text, "is not in the calendar") from None
    except ValueError as error:
        rule = "is neither a duration such as 3d nor ISO 8601 with an offset such as 2026-11-26T12:00:00Z"
        # Who wrote a date is told what it lacks, not what else could be written.
        if _LOOKS_LIKE_TIME.match(plain):
            rule = f"needs a time and an offset, such as 2026-11-26T12:00:00Z or …+01:00 ({error})"
        raise _unreadable(text, rule) from None


def parse_record(text: str, *, now: datetime) -> Selector:
    """What RECORD names. Raises Usage."""
    plain = _plain(text)
    # RUN@… first: neither ids nor steps have an @.
    name, mark, what = plain.partition("@")
    if mark:
        run, timeline = _run_and_timeline(name, text)
        return _in_run(run, timeline, what, now=now)
    found = _ID.fullmatch(plain.lower())
    if found:
        return Prefix(found[1])
    # Before hex digits: eight decimal ones may be either, and a step of no run must not become some record.
    if _STEP.fullmatch(plain):
        raise _unreadable(text, f"is a step, of no run: write RUN@{plain}, or id:{plain} for an id of digits only")
    if _HEX.fullmatch(plain.lower()):
        return Prefix(plain.lower())
    raise _unreadable(
        text, f"names no record: write RUN@STEP, RUN@latest, RUN@3d, or {SHORTEST_PREFIX}+ digits of its id"
    )


def parse_target(text: str, run: str, *, now: datetime) -> TargetSelector:
    """What a rollback of `run` goes back to. Raises Usage. A RECORD may be another run's: see `resolve_target`."""
    plain = _plain(text)
    kind, mark, rest = plain.partition(":")
    kind = kind.lower()
    if mark and kind == "before-data":
        return BeforeData(run, _digits(rest, text))
    if mark and kind == "before-quarantine":
        return BeforeQuarantine(run, _digits(rest.lower().removeprefix("id:"), text))
    # A full RECORD; it may name another run, which `resolve_target` refuses.
    if "@" in plain or kind == "id":
        return parse_record(text, now=now)
    # In a run that is given, digits alone are a step.
    if _HEX.fullmatch(plain.lower()) and not _STEP.fullmatch(plain):
        return Prefix(plain.lower())
    return _in_run(run, None, plain, now=now)


def resolve(
    selector: TargetSelector, states: Mapping[str, RunState], *, modes: Mapping[str, str] | None = None
) -> RecordState:
    """The record a selector names, pruned and quarantined ones included where a step or id names them.

    states: by run; only a `Prefix` looks at all of them. modes: metric -> `min` (default) or `max`.
    Raises NotFound, NoRecordAsOf, and Usage (with candidates) where several records answer.
    """
    match selector:
        case Prefix(hex=digits):
            return _by_prefix(digits, states)
        case AtStep(run=run, timeline=timeline, step=step):
            return _at_step(_state(run, timeline, states), timeline, step)
        case Latest(run=run, timeline=timeline):
            return _latest(_state(run, timeline, states), timeline)
        case AtTime(run=run, timeline=timeline, instant=instant):
            return as_of(_state(run, timeline, states), instant, timeline)
        case BestOf(run=run, metric=metric, timeline=timeline):
            return _best(_state(run, timeline, states), timeline, metric, modes or {})
        case BeforeData(run=run, commit=commit):
            return _before_data(_state(run, None, states), commit)
        case BeforeQuarantine(run=run, record=record):
            return _before_quarantine(_state(run, None, states), record)


def resolve_target(selector: TargetSelector, state: RunState, *, modes: Mapping[str, str] | None = None) -> RecordState:
    """The same within one run: a record of another one is Usage."""
    if not isinstance(selector, Prefix) and _written(selector.run, {state.run: state}) is None:
        raise Usage(f"{quoted(selector.run)} is not {state.run}", advice="A rollback stays within its run.")
    return resolve(selector, {state.run: state}, modes=modes)


def run_of(written: str, states: Mapping[str, RunState]) -> RunState:
    """The run a name means: the very one, else the one that differs from it only in case. Raises NotFound, Usage (several)."""
    found = _written(written, states)
    if found is None:
        names = sorted(states)
        known = ", ".join(names[:_CANDIDATES]) + (", …" if len(names) > _CANDIDATES else "")
        raise NotFound(
            f"there is no run {quoted(written)}" + (f"; there are {known}" if known else "; there is none yet"),
            advice="See `lakemark run ls`, or open it with `lakemark run open`.",
        )
    return found


def _written(written: str, states: Mapping[str, RunState]) -> RunState | None:
    # As it was written before any spelling of it: `run-1` and `Run-1` may both be there.
    for name in (written, _mapped(written)):
        found = states.get(name) if name else None
        if found is not None and found.exists:
            return found
    alike = [name for name in states if original(name).lower() == written.lower() and states[name].exists]
    if len(alike) > 1:
        shown = " and ".join(quoted(original(name)) for name in sorted(alike))
        raise Usage(f"{quoted(written)} may be {shown}", advice="Write the run's name as it was opened.")
    return states[alike[0]] if alike else None


def _mapped(written: str) -> str | None:
    try:
        return run_for(written)
    except ValueError:
        return None


def _plain(text: str) -> str:
    plain = text.strip()
    # int() takes them, and a person could not see which digits were read.
    if any(letter.isdigit() and not letter.isascii() for letter in plain):
        raise _unreadable(text, "has digits other than 0 to 9")
    if not plain or not plain.isprintable():
        raise _unreadable(text, "is empty or has control characters")
    return plain


def _run_and_timeline(name: str, text: str) -> tuple[str, int | None]:
    run, mark, number = name.partition("~")
    if not run or (mark and not (_STEP.fullmatch(number) and int(number) >= 1)):
        raise _unreadable(text, "must be RUN@… or RUN~TIMELINE@…, with a timeline from 1")
    return run, int(number) if mark else None


def _in_run(run: str, timeline: int | None, what: str, *, now: datetime) -> Selector:
    lowered = what.lower()
    if lowered == "latest":
        return Latest(run, timeline)
    if lowered.startswith("best:"):
        metric = what[len("best:") :]
        if not metric:
            raise _unreadable(what, "names no metric: write best:val_loss")
        return BestOf(run, metric, timeline)
    if _STEP.fullmatch(what):
        return AtStep(run, timeline, int(what))
    return AtTime(run, timeline, parse_when(what, now=now))


def _digits(text: str, whole: str) -> str:
    lowered = text.strip().lower()
    if not _HEX.fullmatch(lowered):
        raise _unreadable(whole, f"must end with {SHORTEST_PREFIX} to 64 hex digits")
    return lowered


def _state(run: str, timeline: int | None, states: Mapping[str, RunState]) -> RunState:
    state = run_of(run, states)
    if timeline is not None and timeline not in state.timelines:
        known = ", ".join(str(number) for number in sorted(state.timelines))
        raise NotFound(f"{state.run} has no timeline {timeline}; it has {known}", advice="See `lakemark run show`.")
    return state


def _by_prefix(digits: str, states: Mapping[str, RunState]) -> RecordState:
    found = [
        record for state in states.values() for identity, record in state.records.items() if identity.startswith(digits)
    ]
    return _only(found, f"id:{digits}")


def _at_step(state: RunState, timeline: int | None, step: int) -> RecordState:
    found = next(lineage(state, timeline, step=step), None)
    if found is not None:
        return found
    steps = sorted(found.record.step for found in lineage(state, timeline))
    near = sorted(sorted(steps, key=lambda have: abs(have - step))[:_CANDIDATES])
    have = f"; nearest are {', '.join(str(have) for have in near)}" if near else "; it has no records"
    # A step of a timeline that was left behind is meant often after a rollback.
    elsewhere = [number for number, rows in sorted(state.by_step.items()) if any(row[0] == step for row in rows)]
    also = f"; timeline {elsewhere[0]} has one: {state.run}~{elsewhere[0]}@{step}" if elsewhere else ""
    raise NotFound(
        f"{state.run} has no record of step {step} in this lineage{have}{also}",
        advice=f"See `lakemark ls {state.run}`.",
    )


def _latest(state: RunState, timeline: int | None) -> RecordState:
    found = latest(state, timeline)
    if found is None:
        raise NotFound(
            f"{state.run} has no record that is neither pruned nor quarantined",
            advice=f"See `lakemark ls {state.run} --all-timelines --pruned`.",
        )
    return found


def _best(state: RunState, timeline: int | None, metric: str, modes: Mapping[str, str]) -> RecordState:
    usable_ones = [found for found in lineage(state, timeline) if usable(found)]
    names = {name for found in usable_ones for name in found.record.metrics}
    alike = sorted(name for name in names if name.lower() == metric.lower())
    # The very name wins over those that differ in case.
    if metric in names:
        alike = [metric]
    if len(alike) != 1:
        known = ", ".join(sorted(names)) or "none"
        error = Usage if alike else NotFound
        raise error(
            f"{quoted(metric)} names {len(alike)} metrics of {state.run}; it has {known}",
            advice="Write the metric as the trainer did.",
        )
    sign = -1 if modes.get(alike[0], "min") == "max" else 1
    scored = [
        found
        for found in usable_ones
        if (value := found.record.metrics.get(alike[0])) is not None and math.isfinite(value)
    ]
    if not scored:
        raise NotFound(f"{alike[0]} of {state.run} is nowhere a finite number", advice="Choose a step or a time.")
    # Of equals the later step: it was trained longer for the same.
    return min(scored, key=lambda found: (sign * found.record.metrics[alike[0]], -found.record.step))


def _before_data(state: RunState, commit: str) -> RecordState:
    with_it = [found for found in lineage(state) if any(ref.commit.startswith(commit) for ref in found.record.data)]
    commits = sorted({ref.commit for found in with_it for ref in found.record.data if ref.commit.startswith(commit)})
    if not with_it:
        raise NotFound(
            f"no record in the lineage of {state.run} was trained with data {commit[:12]}",
            advice=f"See which data each used: `lakemark ls {state.run}`.",
        )
    if len(commits) > 1:
        raise Usage(f"data {commit} is ambiguous: {', '.join(commits[:_CANDIDATES])}", advice="Give more digits.")
    # All of the lineage counts: the data may have been left and come back to.
    first = min(found.record.step for found in with_it)
    return _before(state, first, f"data {commit[:12]}, first used for step {first}")


def _before_quarantine(state: RunState, record: str) -> RecordState:
    found = _only([found for name, found in state.records.items() if name.startswith(record)], f"id:{record}")
    if found.quarantined is None:
        raise Usage(
            f"record {found.record.id[:12]} (step {found.record.step}) is not quarantined",
            advice="Name the step itself, or quarantine the record first.",
        )
    return _before(state, found.record.step, f"the quarantined record of step {found.record.step}")


def _before(state: RunState, step: int, what: str) -> RecordState:
    found = next((found for found in lineage(state) if found.record.step < step and usable(found)), None)
    if found is None:
        raise NoRecordAsOf(
            f"{state.run} has no usable record before {what}", advice="Start afresh, or choose another record."
        )
    return found


def _only(found: list[RecordState], what: str) -> RecordState:
    if not found:
        raise NotFound(f"no record matches {what}", advice="See `lakemark ls`.")
    if len(found) > 1:
        rows = ", ".join(sorted(_described(found)))
        raise Usage(f"{what} is ambiguous: {rows}", advice="Give more digits of the id.")
    return found[0]


def _described(found: list[RecordState]) -> Iterator[str]:
    for state in found[:_CANDIDATES]:
        yield f"{state.record.id[:16]} ({state.record.run} step {state.record.step})"


def _unreadable(text: str, rule: str) -> Usage:
    return Usage(f"{quoted(text)} {rule}", advice="RECORD and WHEN are explained by `lakemark ls --help`.")
