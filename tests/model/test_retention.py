from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from lakemark.model.tiers.retention import Best, RetentionPolicy, apply_policy
from lakemark.model.values.instants import to_text
from tests.model.building import HOUR, Running, at, check_golden

DAY = timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")
DEFAULT = RetentionPolicy(
    keep_last=5, hourly=24, daily=30, weekly=12, monthly=12, every_steps=10_000, best=(Best(metric="val_loss", keep=3),)
)


def history(count, every=HOUR, start=None):
    """`count` records, one each `every`; the metric goes down and up again."""
    running = Running().open()
    for number in range(count):
        when = (start or at(1)) + number * every
        running.commit(1000 * (number + 1), when=when, metrics={"val_loss": abs(number - count * 0.7) / 10})
    return running


def judged(running, policy, **more):
    more.setdefault("now", running.now)
    verdict = apply_policy(list(running.state.records.values()), policy, **more)
    ids = [kept.record for kept in (*verdict.keep, *verdict.remove)]
    assert sorted(ids) == sorted(name for name, found in running.state.records.items() if found.pruned is None)
    assert all(kept.reasons for kept in (*verdict.keep, *verdict.remove))
    return verdict


def steps(running, kept):
    return [running.state.records[one.record].record.step for one in kept]


CASES = {
    "default": (lambda: history(24 * 45), DEFAULT, {}),
    "hourly": (lambda: history(200, HOUR / 4), RetentionPolicy(hourly=5), {}),
    "weekly-berlin": (lambda: history(60, DAY / 2), RetentionPolicy(weekly=4), {"zone": "Europe/Berlin"}),
    "yearly": (lambda: history(30, 40 * DAY), RetentionPolicy(yearly=2, keep_last=1), {}),
    "keep-for": (lambda: history(50, DAY), RetentionPolicy(keep_last=1, keep_for=14 * DAY), {}),
    "best-max": (lambda: history(20), RetentionPolicy(best=(Best(metric="val_loss", mode="max", keep=2),)), {}),
    "min-keep": (lambda: history(10), RetentionPolicy(keep_last=1), {"min_keep": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    make, policy, more = CASES[name]
    running = make()
    verdict = judged(running, policy, **more)
    records = {one.record: running.state.records[one.record] for one in (*verdict.keep, *verdict.remove)}
    value = {
        "keep": [
            {
                "step": records[one.record].record.step,
                "at": to_text(records[one.record].instant),
                "reasons": list(one.reasons),
            }
            | ({"until": to_text(one.until)} if one.until else {})
            for one in verdict.keep
        ],
        "removed": len(verdict.remove),
        "reasons": sorted({reason for one in verdict.remove for reason in one.reasons}),
    }
    check_golden(f"retention-{name}.json", value)


def test_newest_always_stays():
    running = history(3)
    verdict = judged(running, RetentionPolicy(every_steps=999_999), min_keep=0)
    assert steps(running, verdict.keep) == [3000]
    assert verdict.keep[0].reasons == ("the newest",)


def test_an_empty_policy_is_refused():
    with pytest.raises(ValueError, match="keep nothing"):
        RetentionPolicy()
    with pytest.raises(ValueError, match="negative"):
        RetentionPolicy(keep_last=-1, daily=3)
    with pytest.raises(ValueError, match="not min or max"):
        Best(metric="loss", mode="smallest")


def test_the_repeated_hour_is_two_hours():
    start = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)  # 01:30 in Berlin; the clock goes back at 01:00 UTC
    running = history(4, HOUR, start)
    verdict = judged(running, RetentionPolicy(hourly=4), zone="Europe/Berlin")
    local = [running.state.records[one.record].instant.astimezone(BERLIN).hour for one in verdict.keep]
    assert local == [3, 2, 2, 1][: len(local)]
    assert len(local) == 4


def test_days_begin_in_the_zone():
    start = datetime(2026, 11, 10, 22, 30, tzinfo=UTC)  # 23:30 and 00:30 in Berlin, one day in UTC
    running = history(2, HOUR, start)
    policy = RetentionPolicy(daily=5)
    assert steps(running, judged(running, policy, zone="Europe/Berlin").keep) == [2000, 1000]
    assert steps(running, judged(running, policy).keep) == [2000]


def test_the_newest_of_each_day_and_only_of_days_that_have_one():
    running = history(6, 12 * HOUR, datetime(2026, 11, 1, 6, tzinfo=UTC))
    running.commit(9000, when=datetime(2026, 11, 20, tzinfo=UTC))
    assert steps(running, judged(running, RetentionPolicy(daily=3)).keep) == [9000, 6000, 4000]


def test_a_week_belongs_to_its_iso_year():
    running = Running().open()
    for step, day in enumerate((datetime(2026, 12, 30, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC)), start=1):
        running.commit(step, when=day)
    verdict = judged(running, RetentionPolicy(weekly=2))
    assert steps(running, verdict.keep) == [2]
    assert "newest of the week 2026-W53" in verdict.keep[0].reasons


def test_future_dated_is_never_removed_and_takes_no_place():
    running = history(4)
    now = at(2.5)
    verdict = judged(running, RetentionPolicy(keep_last=1), now=now)
    assert steps(running, verdict.keep) == [4000, 3000, 2000]
    assert steps(running, verdict.remove) == [1000]


def test_a_suspect_clock_is_never_removed():
    running = Running().open()
    running.commit(1, clock="suspect")
    running.commit(2)
    assert steps(running, judged(running, RetentionPolicy(keep_last=1)).keep) == [2, 1]


def test_held_until():
    running = history(3)
    first = next(iter(running.state.records))
    until = at(100)
    running.add("held", record=first, reason="paper", until=to_text(until))
    verdict = judged(running, RetentionPolicy(keep_last=1))
    held = verdict.keep[-1]
    assert (held.record, held.until) == (first, until)
    assert held.reasons[0].startswith("held: paper (until 2026-11-05")
    assert first in {one.record for one in judged(running, RetentionPolicy(keep_last=1), now=until).remove}
    running.add("held", record=first, reason="law")
    assert judged(running, RetentionPolicy(keep_last=1), now=at(9999)).keep[-1].reasons == ("held: law",)


def test_protected_says_why():
    running = history(3)
    first = next(iter(running.state.records))
    verdict = judged(running, RetentionPolicy(keep_last=1), protected={first: "another run started from it"})
    assert verdict.keep[-1].reasons == ("another run started from it",)


def test_bad_ones_take_no_place_of_a_good_one():
    running = Running().open()
    found = [running.commit(step) for step in (1, 2, 3, 4)]
    running.add("quarantined", record=found[3].record.id, reason="bad batch")
    running.commit(3, text="again", supersedes=found[2].record.id)
    running.commit(4, text="other", conflicts_with=found[3].record.id)
    verdict = judged(running, RetentionPolicy(keep_last=2))
    assert [(running.state.records[one.record].record.step) for one in verdict.keep] == [3, 2]
    reasons = sorted(one.reasons[0].split(" ")[0] for one in verdict.remove)
    assert reasons == ["in", "no", "quarantined:", "superseded"]


def test_pruned_ones_are_not_judged_again():
    running = history(3)
    first = next(iter(running.state.records))
    running.add("pruned", items=[{"record": first, "reasons": ["old"]}])
    verdict = judged(running, RetentionPolicy(keep_last=1))
    assert first not in {one.record for one in (*verdict.keep, *verdict.remove)}


def test_best_ignores_missing_and_not_finite():
    running = Running().open()
    for step, metrics in enumerate(({"loss": 2}, {}, {"loss": 0}, {"loss": 1}, {"loss": 1}), start=1):
        found = running.commit(step, metrics=metrics)
        if step == 3:
            record = replace(found.record, metrics={"loss": float("nan")})
            running.state.records[record.id] = replace(found, record=record)
    verdict = judged(running, RetentionPolicy(best=(Best(metric="loss", keep=9),)))
    assert steps(running, verdict.keep) == [5, 4, 1]
    assert "1st of best 9 by loss (min): 1" in verdict.keep[0].reasons


def test_until_is_when_the_last_reason_ends():
    running = history(3)
    verdict = judged(running, RetentionPolicy(keep_for=10 * DAY))
    assert [one.until for one in verdict.keep][1:] == [at(2) + 10 * DAY, at(1) + 10 * DAY]
    assert verdict.keep[0].until is None


policies = st.builds(
    RetentionPolicy, keep_last=st.integers(1, 4), hourly=st.integers(0, 3), daily=st.integers(0, 3),
    weekly=st.integers(0, 3), every_steps=st.none() | st.integers(1, 9), keep_for=st.none() | st.just(DAY),
)  # fmt: skip


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=30), policies, st.integers(0, 5))
def test_invariants(hours, policy, min_keep):
    running = Running().open()
    for step, hour in enumerate(sorted(hours), start=1):
        running.commit(step, when=at(hour))
    verdict = judged(running, policy, min_keep=min_keep, zone="America/New_York")
    assert len(verdict.keep) >= min(min_keep, len(hours))
    assert (
        steps(running, verdict.keep)[: policy.keep_last]
        == sorted(range(1, len(hours) + 1), reverse=True)[: policy.keep_last]
    )
    for one in verdict.keep:
        if one.reasons != ("the newest",) and not any("min_keep" in text for text in one.reasons):
            assert one.reasons
    survivors = [running.state.records[one.record] for one in verdict.keep]
    again = apply_policy(survivors, policy, now=running.now, min_keep=min_keep, zone="America/New_York")
    assert [one.record for one in again.keep] == [one.record for one in verdict.keep]
