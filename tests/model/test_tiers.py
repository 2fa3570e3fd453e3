from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from lakemark.model.ledger.run import Place
from lakemark.model.tiers.moves import ADMIT_RETAINED, Residence, Tier, plan_moves, proven_domains
from lakemark.model.tiers.residence import Admit, Release
from lakemark.model.tiers.retention import Best
from tests.model.building import HOUR, Running, at

HOT = Tier(name="hot", tier_class="hot", kind="tree", domain="n1")
WARM = Tier(name="warm", tier_class="warm", kind="s3", domain="array")
WARM2 = Tier(name="warm2", tier_class="warm", kind="s3", domain="array2")
COLD = Tier(name="cold", tier_class="cold", kind="directory", domain="hdd")
ALL = (COLD, HOT, WARM)
RESIDENCE = {
    "hot": Residence(keep_last=1, settle=timedelta(minutes=10)),
    "warm": Residence(keep_for=timedelta(days=7), settle=HOUR),
    "cold": Residence(admit=ADMIT_RETAINED),
}
LATER = at(40 * 24)


def plan(running, now=LATER, tiers=ALL, residence=None, **more):
    more.setdefault("node", "n1")
    return plan_moves(running.state, tiers, {**RESIDENCE, **(residence or {})}, now, **more)


def run(*steps):
    running = Running().open()
    return running, [running.commit(step) for step in steps]


def moved(moves):
    return [(move.tier, move.record) for move in moves.replicate]


def why(moves, found):
    return [one.why for one in moves.waiting if one.record == found.record.id]


def proven(running, found, tier):
    running.replicate(found, tier)
    running.verify(found, tier, when=running.now + 3 * HOUR)


def test_no_tier_waits_for_another_and_the_faster_one_is_first():
    running, (first,) = run(1)
    now = running.now + HOUR
    kept = frozenset([first.record.id])
    assert moved(plan(running, now, kept=kept)) == [("warm", first.record.id), ("cold", first.record.id)]
    running.replicate(first, "warm")
    assert moved(plan(running, now, kept=kept)) == [("cold", first.record.id)]
    assert moved(plan(running, now)) == []


def test_all_tiers_of_the_nearest_class():
    running, _ = run(1)
    moves = plan(running, running.now, tiers=(HOT, WARM, WARM2))
    assert [tier for tier, _ in moved(moves)] == ["warm", "warm2"]


def test_past_its_time_a_record_goes_straight_down_and_is_not_brought_back():
    running, (first,) = run(1)
    moves = plan(running, kept=frozenset([first.record.id]))
    assert moved(moves) == [("cold", first.record.id)]
    proven(running, first, "cold")
    assert moved(plan(running, kept=frozenset([first.record.id]))) == []


def test_past_its_time_it_still_comes_to_warm_if_nothing_slower_takes_it():
    running, (first,) = run(1)
    assert moved(plan(running)) == [("warm", first.record.id)]


def test_a_damaged_replica_is_written_again_from_a_sound_one():
    running, (first,) = run(1)
    running.replicate(first, "warm")
    running.verify(first, "warm", ok=False)
    (move,) = plan(running, running.now).replicate
    assert (move.tier, move.why) == ("warm", "the replica in warm is not sound")
    running.verify(first, "hot", node="n1", ok=False)
    moves = plan(running, running.now)
    assert not moves.replicate
    assert why(moves, first) == ["no sound replica is left"]


def test_another_nodes_hot_is_neither_source_nor_released_nor_survivor():
    running, (first, _) = run(1, 2)
    moves = plan(running, running.now, node="n2")
    assert not moves.replicate
    assert not moves.release
    assert why(moves, first) == ["its only sound replica is on node n1, which copies it"]


ADMIT = {
    "all": (Admit(everything=True), [1, 2, 3, 4]),
    "newest": (Admit(newest=True), [4]),
    "best": (Admit(best=(Best(metric="loss", keep=2),)), [2, 3]),
    "every 2h": (Admit(every=2 * HOUR), [1, 3]),
    "retained": (ADMIT_RETAINED, [1]),
    "newest, best": (Admit(newest=True, best=(Best(metric="loss", mode="max"),)), [1, 4]),
}


@pytest.mark.parametrize(("admit", "steps"), ADMIT.values(), ids=ADMIT)
def test_admission(admit, steps):
    running = Running().open()
    losses = [4.0, 1.0, 2.0, 3.0]
    found = [running.commit(step, metrics={"loss": loss}) for step, loss in enumerate(losses, start=1)]
    moves = plan(
        running, running.now, tiers=(HOT, WARM), residence={"warm": Residence(admit=admit)},
        kept=frozenset([found[0].record.id]),
    )  # fmt: skip
    assert sorted(running.state.records[name].record.step for _, name in moved(moves)) == steps


def test_every_is_stable_as_new_ones_come():
    running, (first, _) = run(1, 2)
    residence = {"warm": Residence(admit=Admit(every=24 * HOUR))}
    assert moved(plan(running, running.now, residence=residence)) == [("warm", first.record.id)]
    running.commit(3)
    assert moved(plan(running, running.now, residence=residence)) == [("warm", first.record.id)]


def test_release_waits_for_its_survivor_to_settle():
    running, (first, second) = run(1, 2)
    running.replicate(first, "warm")
    written = running.now
    early = plan(running, written + timedelta(minutes=5))
    assert not early.release
    assert [(one.tier, one.until) for one in early.waiting if one.record == first.record.id] == [
        ("hot", written + timedelta(minutes=10))
    ]
    late = plan(running, written + timedelta(minutes=11))
    (release,) = late.release
    assert late.recheck == ()
    assert release.place == Place(tier="hot", node="n1")
    assert release.survivor == Place(tier="warm")
    assert "not among the 1 newest" in release.why
    assert release.record != second.record.id


def test_only_the_newest_stay_and_the_newest_always():
    running, found = run(1, 2, 3, 4)
    for one in found:
        proven(running, one, "warm")
    for keep_last, stay in ((2, [3, 4]), (0, [4]), (1, [4])):
        moves = plan(running, running.now, residence={"hot": Residence(keep_last=keep_last, settle=HOUR)})
        gone = {release.record for release in moves.release}
        assert [one.record.step for one in found if one.record.id not in gone] == stay
    assert not plan(running, running.now, residence={"hot": Residence()}).release


def test_after_a_rollback_the_old_timeline_leaves_and_the_target_stays():
    running, (first, second) = run(1, 2)
    for one in (first, second):
        proven(running, one, "warm")
    running.roll_back(first)
    moves = plan(running, running.now)
    assert [release.record for release in moves.release] == [second.record.id]


def released_from(running, found, **more):
    moves = plan(running, running.now, **more)
    return [release.place.tier for release in moves.release if release.record == found.record.id], why(moves, found)


def ready():
    running, (first, _) = run(1, 2)
    proven(running, first, "warm")
    assert released_from(running, first) == (["hot"], [])
    return running, first


def test_held():
    running, first = ready()
    running.add("held", record=first.record.id, reason="audit", until="2027-01-01T00:00:00Z")
    assert released_from(running, first) == ([], ["held: audit"])
    moves = plan(running, at(24 * 90))
    assert [release.place.tier for release in moves.release] == ["hot"]


def test_target_of_an_open_rollback():
    running, first = ready()
    target = {"record": first.record.id}
    running.add("rollback_requested", rollback="rb1", digest="d", plan={"target": target}, requester="ana@n1")
    assert released_from(running, first) == ([], ["the target of the open rollback rb1"])
    running.add("rollback_refused", rollback="rb1", by="bo@n1")
    assert released_from(running, first)[0] == ["hot"]


def test_a_newer_ledger_stops_releases():
    running, first = ready()
    running.add("sharded", unknown_means="no_delete")
    running.commit(3)
    moves = plan(running, running.now)
    assert not moves.release
    assert moves.replicate
    assert "newer version (sharded)" in why(moves, first)[0]
    running.add("frozen", unknown_means="read_only")
    assert not plan(running, running.now).replicate


def test_a_clock_behind_the_ledger_stops_releases():
    running, first = ready()
    moves = plan(running, running.now - timedelta(minutes=6))
    assert not moves.release
    assert "this clock is behind the ledger" in why(moves, first)[0]


def test_a_suspect_or_damaged_survivor_justifies_nothing():
    for suspect in (True, False):
        running, first = ready()
        running.verify(first, "warm", ok=False, suspect=suspect)
        moves = plan(running, running.now)
        assert not moves.release
        assert why(moves, first)[-1].startswith("needs a sound slower replica in 1 other failure domain")
        assert [one.place.tier for one in moves.recheck] == (["warm"] if suspect else [])


def test_one_failure_domain_is_no_survivor():
    running, first = ready()
    same = Tier(name="warm", tier_class="warm", kind="directory", domain="n1")
    assert released_from(running, first, tiers=(HOT, same))[0] == []


def test_copies_count_domains_without_the_released_one():
    running, first = ready()
    gone, reasons = released_from(running, first, copies=2)
    assert gone == []
    assert reasons == ["needs a sound slower replica in 2 other failure domain(s); has array"]
    proven(running, first, "cold")
    assert released_from(running, first, copies=2)[0] == ["hot"]
    twin = Tier(name="cold", tier_class="cold", kind="directory", domain="array")
    assert released_from(running, first, copies=2, tiers=(HOT, WARM, twin))[0] == []


def test_what_the_same_plan_releases_justifies_nothing():
    running, first = ready()
    proven(running, first, "cold")
    moves = plan(running)
    chosen = {(one.place.tier, one.survivor.tier) for one in moves.release if one.record == first.record.id}
    assert chosen == {("hot", "cold"), ("warm", "cold")}
    moves = plan(running, copies=2)
    chosen = {(one.place.tier, one.survivor.tier) for one in moves.release if one.record == first.record.id}
    assert chosen == {("hot", "warm")}


def test_warm_waits_for_its_time():
    running, first = ready()
    proven(running, first, "cold")
    found = first.instant
    before, after = found + timedelta(days=7) - HOUR, found + timedelta(days=7)
    assert "warm" not in {one.place.tier for one in plan(running, before).release}
    assert "warm" in {one.place.tier for one in plan(running, after).release}


def test_a_suspect_clock_has_no_age():
    running = Running().open()
    first = running.commit(1, clock="suspect")
    running.commit(2)
    for tier in ("warm", "cold"):
        proven(running, first, tier)
    moves = plan(running)
    assert [one.place.tier for one in moves.release] == ["hot"]
    assert "suspect" in why(moves, first)[0]


def test_superseded_conflicting_and_quarantined_move_but_are_nobodys_newest():
    running, (first, second, third) = run(1, 2, 3)
    running.add("quarantined", record=third.record.id, reason="bad batch")
    fourth = running.commit(2, text="again", supersedes=second.record.id)
    running.commit(5, text="other", conflicts_with=first.record.id)
    residence = {"warm": Residence(admit=Admit(newest=True))}
    assert moved(plan(running, running.now, residence=residence)) == [("warm", fourth.record.id)]
    assert len(moved(plan(running, running.now))) == 5
    proven(running, third, "warm")
    assert released_from(running, third)[0] == ["hot"]


def test_pruned_is_left_to_pruning():
    running, first = ready()
    running.add("pruned", items=[{"record": first.record.id, "reasons": ["old"]}])
    moves = plan(running, running.now)
    assert first.record.id not in {one.record for one in (*moves.replicate, *moves.release, *moves.waiting)}


def test_a_tier_without_residence_keeps_for_good():
    running, _ = ready()
    assert plan_moves(running.state, ALL, {}, LATER, node="n1").release == ()


def test_proven_domains():
    running, first = ready()
    assert proven_domains(running.state.records[first.record.id], ALL) == {"array"}


steps = st.lists(
    st.tuples(st.sampled_from(["replicate", "verify", "spoil", "suspect", "hold", "commit"]),
              st.integers(0, 3), st.sampled_from(["hot", "warm", "cold"]), st.integers(0, 200)),
    max_size=25,
)  # fmt: skip


@given(steps, st.integers(1, 2), st.integers(0, 30 * 24))
def test_nothing_is_released_without_enough_survivors_that_settled(history, copies, age):
    running, found = run(1, 2, 3, 4)
    for what, index, tier, hours in history:
        one, when = found[index], running.now + hours * HOUR / 10
        node = "n1" if tier == "hot" else None
        if what == "replicate" and tier != "hot":
            running.replicate(one, tier, when=when)
        elif what in ("verify", "spoil", "suspect"):
            running.verify(one, tier, when=when, node=node, ok=what == "verify", suspect=what == "suspect")
        elif what == "hold":
            running.add("held", record=one.record.id, reason="x", when=when)
        elif what == "commit":
            running.commit(10 + len(running.entries), when=when)
    now = running.now + age * HOUR
    moves = plan(running, now, copies=copies, kept=frozenset(running.state.records))
    gone = {(one.record, one.place) for one in moves.release}
    for one in moves.release:
        _check_release(running, one, gone, copies=copies, now=now)


def _check_release(running, one: Release, gone, *, copies, now):
    tiers = {tier.name: tier for tier in ALL}
    state = running.state.records[one.record]
    assert state.held is None
    left = [
        replica for place, replica in state.replicas.items()
        if replica.sound and (one.record, place) not in gone and tiers[place.tier].rank > tiers[one.place.tier].rank
    ]  # fmt: skip
    settle = RESIDENCE[one.place.tier].settle
    settled = [replica for replica in left if now > replica.replicated_at + settle]
    assert len({tiers[replica.place.tier].domain for replica in settled}) >= copies
    assert one.survivor in {replica.place for replica in settled}
