"""A ledger may say any date of the calendar, and spans of a policy are as long as somebody writes them: nothing overflows."""

from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings, strategies as st

from lakemark.model.back.rollback import may_approve
from lakemark.model.ledger.run import Place, RollbackState
from lakemark.model.runs.activity import still_writing
from lakemark.model.tiers.moves import plan_moves
from lakemark.model.tiers.residence import Admit, Residence, Tier
from lakemark.model.tiers.retention import RetentionPolicy, apply_policy
from lakemark.model.tiers.sharing import alone_by_link
from lakemark.model.values.instants import from_text, later, to_text
from tests.model.building import Running

FIRST, LAST = datetime(1000, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
NEAR = st.timedeltas(timedelta(0), timedelta(days=2))
INSTANTS = st.one_of(
    st.datetimes(FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None), timezones=st.just(UTC)),
    NEAR.map(lambda span: FIRST + span),
    NEAR.map(lambda span: LAST - span),
)
SPANS = st.one_of(
    st.timedeltas(timedelta(0), timedelta(days=30)), st.just(timedelta.max), st.just(timedelta(days=999_999))
)
ZONES = st.sampled_from(["UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin"])


@given(
    instant=INSTANTS, span=st.one_of(SPANS, SPANS.map(lambda span: -span if span < timedelta.max else timedelta.min))
)
def test_a_sum_stays_within_the_calendar(instant, span):
    found = later(instant, span)
    assert (found >= instant) == (span >= timedelta(0))
    assert from_text(to_text(max(found, FIRST))) == max(found, FIRST)


@example(
    times=[(LAST - timedelta(hours=hours), "ok") for hours in (3, 2, 1)],
    now=LAST,
    spans=(timedelta(days=30), timedelta(0), timedelta(hours=1)),
    zone="Pacific/Kiritimati",
)
@settings(deadline=None)
@given(
    times=st.lists(st.tuples(INSTANTS, st.sampled_from(["ok", "suspect"])), min_size=1, max_size=6),
    now=INSTANTS,
    spans=st.tuples(SPANS, SPANS, SPANS),
    zone=ZONES,
)
def test_no_date_of_a_ledger_ends_a_decision(times, now, spans, zone):
    settle, keep_for, every = spans
    running = Running().open()
    for number, (when, clock) in enumerate(times, 1):
        running.replicate(running.commit(number, when=when, clock=clock), "warm", when=when)
    state, records = running.state, list(running.state.records.values())
    policy = RetentionPolicy(keep_for=keep_for, hourly=2, daily=2, weekly=2, monthly=2, yearly=2, keep_last=1)
    verdict = apply_policy(records, policy, now=now, zone=zone)
    assert len(verdict.keep) + len(verdict.remove) == len(records)
    tiers = [
        Tier(name="hot", tier_class="hot", kind="tree", domain="n1"),
        Tier(name="warm", tier_class="warm", kind="s3", domain="array"),
        Tier(name="cold", tier_class="cold", kind="directory", domain="hdd"),
    ]
    admit = Admit(every=max(every, timedelta(seconds=1)))
    rules = {
        "hot": Residence(keep_last=1, settle=settle, keep_for=keep_for),
        "warm": Residence(settle=settle, keep_for=keep_for, admit=admit),
    }
    plan_moves(state, tiers, rules, now, node="n1")
    still_writing(state, now)
    list(alone_by_link(state, Place(tier="hot", node="n1"), now, rpo=settle, slower=["warm"]))


@given(asked=INSTANTS, now=INSTANTS, expires=INSTANTS, span=SPANS)
def test_no_date_of_a_request_ends_its_approval(asked, now, expires, span):
    request = RollbackState(
        id="rb-1", digest="d" * 64, plan={}, requester="ana@a", reason=None, requested_at=asked, expires_at=expires,
        sequence=1,
    )  # fmt: skip
    may_approve(request, "ana@b", now=now, plan_digest=request.digest, alone_after=span)
    may_approve(request, "ben@b", now=now, plan_digest=request.digest, alone_after=None)
