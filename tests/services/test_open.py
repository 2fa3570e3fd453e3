"""Opening a run, re-pinning it, keeping data alive, and looking at its branches."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import Misconfigured, NotFound, Refused, StoreUnavailable, Usage
from lakemark.model.ledger.entry import Draft
from lakemark.ports import Strength
from lakemark.services.back.rollback_request import request
from lakemark.services.data import pins
from lakemark.services.data.observe import head_at, observe
from lakemark.services.runs.bind import bind_run
from lakemark.services.runs.close_run import close_run, reopen_run
from tests.services.world import OUT, POLICIES, RUN, World, files


def pin_states(world):
    return [pin.state for pin in world.ledger.site().pins.values()]


def test_open_resolves_pins_and_tells_the_trainer(world):
    head = world.data.head("data", "main")
    made = world.open(job="1")
    assert [(ref.repository, ref.branch, ref.commit) for ref in made.data] == [("data", "main", head)]
    assert made.pins[0].strength is Strength.GUARDED
    told = world.spool.read_run_file(made.run_file)
    assert (told.run, told.timeline, told.attempt, told.resume) == (RUN, 1, made.attempt, None)
    assert told.data[0].commit == head
    assert world.journal.directory(OUT).attempt == made.attempt


def test_an_only_copy_is_un_shared_before_another_attempt_may_overwrite_it(world):
    world.shelves["warm"].reachable = world.shelves["cold"].reachable = False
    world.open(job="1")
    world.saves(100)
    record = world.at(100).record.id
    expected = files(world.disk, OUT / "step-100")
    world.open(job="2")
    world.disk.write(OUT / "step-100" / "model.bin", b"overwritten in place")
    assert files(world.disk, world.hot.path(world.hot.load(record).record)) == expected


def test_the_same_job_is_the_same_attempt_and_another_is_not(world):
    first = world.open(job="1")
    before = world.state().sequence
    assert world.open(job="1") == first
    assert world.state().sequence == before
    world.change_data(2)
    second = world.open(job="2")
    assert second.attempt != first.attempt
    assert second.data == first.data


def test_repin_takes_the_present_head_and_goes_on_in_the_attempt(world):
    first = world.open()
    head = world.change_data(2)
    second = world.repin(at_step=50)
    assert second.attempt == first.attempt
    assert [(ref.commit, ref.from_step) for ref in second.data] == [(head, 50)]
    assert len(world.state().intervals) == 2
    world.repin()
    assert len(world.state().intervals) == 2


def test_what_can_t_be_opened_says_why(world):
    for name in ("Llama", "site", "a b", "x.lock"):
        with pytest.raises(Usage):
            world.open(name)
    with pytest.raises(NotFound, match="never opened"):
        world.repin()
    with pytest.raises(NotFound):
        world.open(data=["data/nobranch"])
    world.open(data=["data/main"])
    with pytest.raises(Refused, match="is open on"):
        world.open(data=["data/other"])
    world.data.reachable = False
    with pytest.raises(StoreUnavailable):
        world.open("other")
    assert world.ledger.runs() == (RUN,)
    bare = World()
    bare.changes = {"data": None}
    with pytest.raises(Misconfigured):
        bare.open(data=["data/main"])


def test_a_directory_named_later_is_watched_from_then_on(world):
    world.open(watch=None)
    world.save(100)
    assert world.sweep().committed == []
    world.clock.wait(minutes=1)
    world.open(job="2")
    assert world.state().watch == {"node-a": str(OUT)}
    world.save(200)
    swept = world.sweep()
    assert [made.record.step for made in swept.committed] == [200]
    # What lay there before the run was opened on it may be anybody's.
    assert [(one.step, str(one.whose)) for one in swept.left] == [(100, "older than the run")]
    before = world.kinds().count("opened")
    world.open(job="3")
    assert world.kinds().count("opened") == before


def test_a_pin_is_recorded_before_it_is_made(world):
    world.data.create("other")

    class Dies(BaseException):
        pass

    class Killer:
        def step(self, name):
            if name == "pin.recorded":
                raise Dies

        def expect(self, what, size_bytes):
            pass

        def advance(self, size_bytes):
            pass

    world.open()
    head = world.change_data(2)
    with pytest.raises(Dies):
        pins.keep(world.site(progress=Killer()), "data", head, run=RUN)
    (pin,) = [pin for pin in world.ledger.site().pins.values() if pin.commit == head]
    assert pin.state == "pinned"
    assert world.data.pin_strength("data", head, branch=pin.branch) is Strength.NONE
    world.repin()
    assert world.data.pin_strength("data", head, branch=pin.branch) is Strength.GUARDED


def test_a_weak_pin_is_refused_where_the_site_wants_a_strong_one():
    world = World(guarding=False)
    with pytest.raises(Refused, match="only plain"):
        world.open()
    assert world.ledger.runs() == ()
    world.policies = replace(POLICIES, require_pin=Strength.PLAIN)
    assert world.open().pins[0].strength is Strength.PLAIN


def test_a_pin_that_somebody_took_away_is_made_again(world):
    world = World(guarding=False, policies=replace(POLICIES, require_pin=Strength.PLAIN))
    made = world.open()
    world.data.set_branch("data", made.pins[0].branch, None)
    assert "made the pin again of data@" in " ".join(world.sweep().said)
    assert world.data.head("data", made.pins[0].branch) is not None
    assert world.sweep().said == []
    world.data.set_branch("data", made.pins[0].branch, world.change_data(7))
    world.sweep()
    assert sorted(pin_states(world)) == ["pinned", "unpinned"]


def test_one_pin_serves_all_and_goes_after_the_grace_when_nothing_needs_it(world):
    made = world.open()
    world.saves(100, 200)
    assert len(world.ledger.site().pins) == 1
    assert pins.needed(world.site())[("data", made.data[0].commit)][0] == f"run {RUN}"
    close_run(world.site(), RUN, reason="done")
    world.sweep()
    assert pin_states(world) == ["pinned"]
    items = [{"record": identity, "reasons": ["old"]} for identity in world.state().records]
    world.ledger.append(RUN, lambda _: Draft(kind="pruned", body={"items": items}), world.site().stamp("prune"))
    world.sweep()
    assert pin_states(world) == ["unpinning"]
    world.clock.wait(hours=71)
    world.sweep()
    assert world.data.head("data", made.pins[0].branch) is not None
    world.clock.wait(hours=2)
    world.sweep()
    assert pin_states(world) == ["unpinned"]
    assert world.data.head("data", made.pins[0].branch) is None
    assert world.sweep().said == []


def test_needed_again_within_the_grace_it_stays_and_afterwards_a_new_branch_is_made(world):
    made = world.open()
    close_run(world.site(), RUN, reason="done")
    world.sweep()
    assert pin_states(world) == ["unpinning"]
    reopen_run(world.site(), RUN, reason="not done")
    world.sweep()
    assert pin_states(world) == ["pinned"]
    assert list(world.ledger.site().pins) == [made.pins[0].branch]
    close_run(world.site(), RUN, reason="done")
    world.sweep()
    world.clock.wait(hours=73)
    world.sweep()
    reopen_run(world.site(), RUN, reason="again")
    fresh = world.open(job="9")
    assert fresh.pins[0].branch != made.pins[0].branch
    assert world.data.head("data", made.pins[0].branch) is None
    assert sorted(pin_states(world)) == ["pinned", "unpinned"]


def test_an_open_rollback_needs_its_data(world):
    world.open()
    world.saves(100)
    world.change_data(2)
    world.repin()
    world.saves(200)
    world.clock.wait(hours=1)
    asked = request(world.site(), world.wish(100))
    key = ("data", world.at(100).record.data[0].commit)
    assert f"rollback {asked.id}" in pins.needed(world.site())[key]


def test_an_unpinned_branch_is_removed_by_whoever_comes_by_after_a_crash(world):
    made = world.open()
    close_run(world.site(), RUN, reason="done")
    world.sweep()
    world.clock.wait(hours=73)

    class Dies(BaseException):
        pass

    class Killer:
        def step(self, name):
            if name == "pin.forgotten":
                raise Dies

        def expect(self, what, size_bytes):
            pass

        def advance(self, size_bytes):
            pass

    with pytest.raises(Dies):
        world.sweep(progress=Killer())
    assert world.data.head("data", made.pins[0].branch) is not None
    world.sweep()
    assert world.data.head("data", made.pins[0].branch) is None


def test_bind_wants_a_full_commit_that_exists(world):
    world.open()
    for data in ("data/main", "data", f"/{'a' * 64}", f"data/{'A' * 64}"):
        with pytest.raises(Usage):
            bind_run(world.site(), RUN, data=data, reason="x")
    with pytest.raises(NotFound):
        bind_run(world.site(), RUN, data=f"data/{'a' * 64}", reason="x")


def test_what_a_branch_was_at_by_our_own_looks(world):
    first = world.data.head("data", "main")
    world.open()
    at = {"before": world.clock() - timedelta(days=1)}
    world.clock.wait(minutes=1)
    observe(world.site())
    at["looked"] = world.clock()
    world.clock.wait(minutes=5)
    observe(world.site())
    at["looked again"] = world.clock()
    world.clock.wait(minutes=5)
    second = world.change_data(2)
    at["moved"] = world.clock()
    world.clock.wait(minutes=5)
    assert observe(world.site()).said == [f"data/main is at {second[:12]}"]
    world.clock.wait(minutes=5)
    world.data.set_branch("data", "main", None)
    assert observe(world.site()).said == ["data/main is gone"]
    site = world.site()
    assert head_at(site, "data", "main", at["looked again"]).precision == "observed"
    assert head_at(site, "data", "main", at["looked again"]).commit == first
    between = head_at(site, "data", "main", at["moved"])
    assert between.commit == first
    assert "may have moved between" in between.precision
    assert head_at(site, "data", "main", world.clock()).commit is None
    assert observe(world.site()).said == []


def test_before_any_look_of_ours_it_is_an_estimate(world):
    world.open()
    found = head_at(world.site(), "data", "main", world.clock())
    assert found.precision.startswith("estimated")


def test_a_look_that_died_before_its_entry_does_not_vouch_for_the_old_head(world):
    first = world.data.head("data", "main")
    world.open()
    observe(world.site())
    world.clock.wait(minutes=5)
    second = world.change_data(2)
    moved = world.clock()
    world.clock.wait(minutes=5)

    class Dies(BaseException):
        pass

    class Ledger:
        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            return getattr(self.real, name)

        def append_site(self, decide, stamp):
            raise Dies

    with pytest.raises(Dies):
        observe(world.site(ledger=Ledger(world.ledger)))
    died = world.clock()
    world.clock.wait(minutes=5)
    observe(world.site())
    for at in (moved, died):
        assert "may have moved" in head_at(world.site(), "data", "main", at).precision
    assert first != second
