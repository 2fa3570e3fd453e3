"""Pins, branches and the data of runs, each looked after on its own, whatever became of the others."""

import threading
from dataclasses import replace

import pytest

from lakemark.errors import Denied, Misconfigured, NotFound, Refused, StoreUnavailable, Usage
from lakemark.model.back.rollback_plan import Flags
from lakemark.model.checkpoints.record import Evidence
from lakemark.ports import Patience, Strength
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_request import plan, request
from lakemark.services.data import note as data_note, pins
from lakemark.services.data.observe import head_at, observe, stands_still
from lakemark.services.health.invariants import sampled_data, violations
from lakemark.services.health.status import AMBER, RED, problems_of_data
from lakemark.services.runs.bind import Steps, bind, bind_run
from lakemark.services.runs.close_run import close_run
from lakemark.services.runs.open_run import Opening, open_run
from tests.services.world import OUT, POLICIES, RUN, files
from tests.support.memory import MemoryData


def strength(world, made):
    return world.data.pin_strength(made.repository, made.commit, branch=made.branch)


def pinned_runs(world, *names):
    """Runs on a repository of their own each; answers their pins."""
    made = []
    for name in names:
        world.data.create(name)
        world.data.commit(name, "main", {"rows": name.encode()})
        made.append(world.open(f"on-{name}", data=[f"{name}/main"], watch=None).pins[0])
    return made


def wrong(world):
    return [problem.what for problem in problems_of_data(data_note.noted(world.site()))]


@pytest.mark.parametrize("trouble", ["released", "refused", "deleted"])
def test_a_pin_that_fails_keeps_no_other_from_being_looked_after(world, trouble):
    bad, *others = pinned_runs(world, "aaa", "bbb", "ccc", "ddd")
    if trouble == "released":
        world.data.release("aaa", bad.branch)
    elif trouble == "refused":
        world.data.rights("aaa", write=False)
        world.data.merge_into("aaa", bad.branch, world.data.head("aaa", "main"))
    else:
        world.data.drop("aaa")
    for one in others:
        world.data.merge_into(one.repository, one.branch, world.data.commit(one.repository, "main", {"x": b"1"}))
    swept = world.sweep()
    assert [pins.keep(world.site(), one.repository, one.commit, run=None).strength for one in others] == ["guarded"] * 3
    assert sum(text.startswith("replaced the pin") for text in swept.said) >= 3
    if trouble != "released":
        assert any("aaa" in one.what for one in swept.pending)
        assert any("aaa" in what for what in wrong(world))
        assert not any(name in what for what in wrong(world) for name in ("bbb", "ccc", "ddd"))


def test_all_pins_that_went_at_once_are_back_after_one_pass(world):
    made = pinned_runs(world, "aaa", "bbb", "ccc")
    for one in made:
        world.data.actions(one.repository, on=False)
        world.data.merge_into(one.repository, one.branch, one.commit)
        world.data.set_branch(one.repository, one.branch, None)
        world.data.actions(one.repository, on=True)
    world.sweep()
    assert [strength(world, one) for one in made] == [Strength.GUARDED] * 3


def test_a_branch_that_can_t_be_looked_at_hides_no_other(world):
    pinned_runs(world, "aaa", "bbb")
    observe(world.site())
    world.data.drop("aaa")
    head = world.data.commit("bbb", "main", {"x": b"2"})
    looked = observe(world.site())
    assert looked.said == [f"bbb/main is at {head[:12]}"]
    assert [what for what, _ in looked.failed] == ["the data branch aaa/main"]


def test_what_is_wrong_keeps_its_since_and_goes_when_it_is_mended(world):
    (bad,) = pinned_runs(world, "aaa")
    world.data.actions("aaa", on=False)
    world.sweep()
    (since,) = {one.since for one in data_note.noted(world.site()).wrong}
    world.clock.wait(hours=1)
    world.sweep()
    assert {one.since for one in data_note.noted(world.site()).wrong} == {since}
    world.data.actions("aaa", on=True)
    world.sweep()
    assert wrong(world) == []
    assert strength(world, bad) is Strength.GUARDED


def test_a_guard_that_does_not_hold_when_tried_is_red_under_guarded(world):
    (made,) = pinned_runs(world, "aaa")
    assert wrong(world) == []
    world.data.actions("aaa", on=False)
    world.sweep()
    assert any("only plain" in what for what in wrong(world))
    world.policies = replace(POLICIES, require_pin=Strength.PLAIN)
    world.sweep()
    assert wrong(world) == []
    assert strength(world, made) is not Strength.NONE


def test_one_listing_serves_all_pins_of_a_repository(world):
    for number in range(12):
        world.change_data(10 + number)
        world.open(f"run-{number}", watch=None)
    before = world.data.listings
    world.sweep()
    assert world.data.listings == before + 1


def test_a_pass_asks_a_slow_server_so_long_and_says_what_it_did_not_ask(world):
    pinned_runs(world, *(f"r{number:02}" for number in range(30)))
    before = len(data_note.noted(world.site()).proven)
    world.data.answer_seconds, world.data.asked = 5.0, 0
    swept = world.sweep()
    assert 0 < world.data.asked <= 14
    unasked = [one for one in swept.pending if "not asked" in one.why]
    assert len(unasked) > 40
    assert all(one.transient for one in unasked)
    problems = list(problems_of_data(data_note.noted(world.site())))
    assert [problem.colour for problem in problems] == [AMBER]
    assert f"and so {len(unasked) - 1} more" in problems[0].what
    assert len(data_note.noted(world.site()).proven) >= before
    world.data.answer_seconds = 0.0
    world.sweep()
    assert wrong(world) == []


def test_a_server_that_does_not_answer_takes_back_nothing_of_what_was_found_wrong(world):
    bad, _ = pinned_runs(world, "aaa", "bbb")
    world.data.rights("aaa", write=False)
    world.data.merge_into("aaa", bad.branch, world.data.head("aaa", "main"))
    world.sweep()
    found = [problem for problem in problems_of_data(data_note.noted(world.site())) if problem.colour == RED]
    assert found
    proven = dict(data_note.noted(world.site()).proven)
    assert proven
    world.data.reachable = False
    world.sweep()
    assert [one for one in problems_of_data(data_note.noted(world.site())) if one.colour == RED] == found
    assert dict(data_note.noted(world.site()).proven) == proven
    world.data.reachable = True
    world.data.rights("aaa", write=True)
    world.sweep()
    assert wrong(world) == []


def test_pins_that_were_not_seen_before_the_server_fell_silent_are_named(world):
    for number in range(3):
        world.change_data(10 + number)
        world.open(f"run-{number}", watch=None)
    world.data.__class__ = Forgetful
    swept = world.sweep()
    assert [one.what for one in swept.pending] == ["2 of the 3 pin(s) in data"]
    assert not [text for text in swept.said if "pin" in text]


class Forgetful(MemoryData):
    """Which falls silent once it told of one pin."""

    def pins_seen(self, repository, pins, *, tries=()):
        return dict(list(super().pins_seen(repository, pins, tries=tries).items())[:1])


# Opening


class Moving(MemoryData):
    """Whose branch moves each time somebody resolves it."""

    def resolve(self, repository, ref):
        if ref == "main":
            self.commit(repository, "main", {"rows": str(len(self.all_branches(repository))).encode()})
        return super().resolve(repository, ref)


@pytest.mark.parametrize("jobs", [["J1"] * 8, [f"J{n}" for n in range(8)], [None] * 8], ids=["one job", "jobs", "none"])
def test_of_many_that_open_a_new_run_the_first_wins_and_the_others_read_its_data(world, jobs):
    world.data.__class__ = Moving
    together, made, failed = threading.Barrier(len(jobs)), [], []

    def opens(job):
        site = world.site()
        together.wait()
        try:
            made.append(open_run(site, Opening(run="new", job=job, watch=OUT)))
        except Exception as error:  # noqa: BLE001 - reported below
            failed.append(error)

    threads = [threading.Thread(target=opens, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert world.kinds("new").count("opened") == 1
    (data,) = {one.data[0].commit for one in made}
    assert {one.pins[0].commit for one in made} == {data}
    assert world.spool.read_run_file(made[0].run_file).data[0].commit == data
    assert {attempt.data[0].commit for attempt in world.state("new").attempts.values()} == {data}
    for one in made:
        assert strength(world, one.pins[0]) is Strength.GUARDED
    world.sweep()
    assert world.ledger.site().pin_of("data", data).state == "pinned"


def test_what_an_attempt_was_told_to_read_is_kept_while_its_run_is_open(world):
    first = world.open()
    world.change_data(2)
    world.repin()
    world.sweep()
    world.clock.wait(hours=100)
    world.sweep()
    assert world.ledger.site().pin_of("data", first.data[0].commit).state == "pinned"
    close_run(world.site(), RUN, reason="done")
    world.sweep()
    assert world.ledger.site().pin_of("data", first.data[0].commit).state == "unpinning"


@pytest.mark.parametrize("trouble", ["released", "merged"])
def test_opening_makes_a_new_pin_at_once_where_the_old_name_is_spent(world, trouble):
    old = world.open(job="1").pins[0]
    if trouble == "released":
        world.data.release("data", old.branch)
    else:
        world.data.merge_into("data", old.branch, world.change_data(5))
    new = world.open(job="2").pins[0]
    assert (new.commit, new.strength) == (old.commit, Strength.GUARDED)
    assert new.branch != old.branch
    states = {pin.branch: pin.state for pin in world.ledger.site().pins.values()}
    assert (states[old.branch], states[new.branch]) == ("unpinned", "pinned")


def test_a_pin_once_plain_is_guarded_when_the_repository_comes_to_allow_it(world):
    world.policies = replace(POLICIES, require_pin=Strength.PLAIN)
    world.data.actions("data", on=False)
    old = world.open(job="1").pins[0]
    assert old.strength is Strength.PLAIN
    world.data.actions("data", on=True)
    new = world.open(job="2").pins[0]
    assert (new.branch, new.strength) == (old.branch, Strength.GUARDED)


def test_where_no_pin_is_required_no_right_to_write_is_needed(world):
    world.data.rights("data", write=False)
    with pytest.raises(Denied):
        world.open()
    world.policies = replace(POLICIES, require_pin=Strength.NONE)
    made = world.open()
    assert made.pins[0].strength is Strength.NONE
    assert made.pins[0].why_plain
    world.sweep()
    assert wrong(world) == []


def test_other_data_on_an_open_run_is_refused_with_the_command(world):
    world.data.create("other")
    world.open(data=["data/main"])
    for asked in ("other/main", "data/more"):
        with pytest.raises(Refused, match="is open on data/main") as refused:
            world.open(data=[asked])
        assert f"--repin --data {asked}" in refused.value.advice
    assert world.open(job="2").data == world.open(data=["data/main"], job="3").data
    assert world.repin(data=["other/main"]).data[0].repository == "other"


def test_the_first_part_is_the_repository_and_the_rest_the_branch(world):
    with pytest.raises(NotFound, match="feature/x"):
        world.open(data=["data/feature/x"])
    for text in ("", "main", "/main", "data/"):
        with pytest.raises(Usage):
            world.open(data=[text])


def test_a_repository_made_anew_is_said_with_the_command_that_goes_on(world):
    first = world.open()
    world.saves(100)
    world.data.drop("data")
    world.data.create("data")
    world.change_data(7)
    swept = world.sweep()
    assert any(first.data[0].commit[:12] in one.why for one in swept.pending)
    assert wrong(world)
    with pytest.raises(Refused, match="is gone") as refused:
        world.open(job="2")
    assert f"lakemark run open {RUN} --repin" in refused.value.advice
    with pytest.raises(Refused, match="is gone"):
        pins.require_data(world.site(), world.state())
    lay = sorted(world.disk.walk(OUT))
    with pytest.raises(Refused, match="is gone") as refused:
        resume(world.site(), RUN, to=OUT, job="3")
    assert f"lakemark run open {RUN} --repin" in refused.value.advice
    assert sorted(world.disk.walk(OUT)) == lay, "nothing was moved before it was refused"
    again = world.repin()
    assert again.data[0].commit == world.data.head("data", "main")
    pins.require_data(world.site(), world.state())
    assert resume(world.site(), RUN, to=OUT, job="3").data[0].commit == again.data[0].commit


def test_a_server_that_is_away_does_not_say_that_data_is_gone(world):
    world.open()
    world.data.reachable = False
    before = world.state()
    assert before.interval.data, "there is something to ask about"
    pins.require_data(world.site(), before)
    assert world.state() == before


# Branches, tags and commits


def test_tags_and_commits_are_not_observed(world):
    head = world.data.head("data", "main")
    world.data.tag("data", "v1.0", head)
    world.open("on-tag", data=["data/v1.0"], watch=None)
    world.open("on-commit", data=[f"data/{head}"], watch=None)
    looked = observe(world.site())
    assert (looked.said, looked.failed) == ([], [])
    assert world.ledger.site().heads == {}
    assert [stands_still(world.site(), "data", name) for name in ("v1.0", head, "main", "none")] == [
        True,
        True,
        False,
        False,
    ]


def test_what_we_saw_of_a_branch_is_told_while_the_server_is_away(world):
    head = world.open().data[0].commit
    observe(world.site())
    world.data.reachable = False
    assert not stands_still(world.site(), "data", "main")
    assert head_at(world.site(), "data", "main", world.clock()).commit == head


class Listing(MemoryData):
    """Counts lists of branches."""

    lists = 0

    def branches(self, repository, *, prefix=""):
        Listing.lists += 1
        return super().branches(repository, prefix=prefix)


def test_one_list_serves_all_branches_of_a_repository(world):
    head = world.data.head("data", "main")
    for number in range(12):
        world.data.set_branch("data", f"branch-{number}", head)
        world.open(f"run-{number}", data=[f"data/branch-{number}"], watch=None)
    world.data.__class__ = Listing
    assert len(observe(world.site()).said) == 12
    assert Listing.lists == 1


class Proxied(MemoryData):
    """Behind something that answers 404 for any branch."""

    def head(self, repository, branch):
        return None


class Silent(Proxied):
    def branches(self, repository, *, prefix=""):
        raise StoreUnavailable("no list", advice="x")


def test_gone_is_what_the_repository_s_own_list_says(world):
    world.open()
    observe(world.site())
    world.data.__class__ = Proxied
    assert observe(world.site()).said == []
    world.data.__class__ = Silent
    looked = observe(world.site())
    assert (looked.said, len(looked.failed)) == ([], 1)
    assert world.ledger.site().heads["data", "main"][-1].commit is not None
    world.data.__class__ = MemoryData
    world.data.set_branch("data", "main", None)
    assert observe(world.site()).said == ["data/main is gone"]


# What can be read


def test_which_objects_were_read_changes_and_is_said(world):
    head = world.data.commit("data", "main", {f"part-{n:02}": b"%d" % n for n in range(39)})
    world.open()
    world.saves(100)
    records = list(world.state().records.values())
    said = {sampled_data(world.site(), records, sample=8).sampled[0]["sampled"] for _ in range(8)}
    assert len(said) > 1
    assert all(text.startswith("8 of 40 objects, seed ") for text in said)
    world.data.lose("data", head, "part-21")
    assert sampled_data(world.site(), records, sample=None).lost[0]["paths"] == ["part-21"]
    found = [bool(sampled_data(world.site(), records, sample=8).lost) for _ in range(64)]
    assert any(found)
    assert not all(found)


def test_invariants_name_every_pin(world):
    made = pinned_runs(world, "aaa", "bbb")
    world.data.drop("aaa")
    world.data.merge_into("bbb", made[1].branch, world.data.commit("bbb", "main", {"x": b"3"}))
    told = {one.what for one in violations(world.site()) if one.rule == "pinned"}
    assert told == {f"{one.repository}@{one.commit[:12]}" for one in made}


# Where nobody said, or somebody says later


def test_a_re_pin_at_a_step_tells_saves_before_it_from_those_after(world):
    first = world.open().data[0].commit
    second = world.change_data(2)
    world.repin(at_step=150)
    world.clock.wait(minutes=1)
    for step in (100, 149, 150, 200):
        world.save(step)
        world.sweep()
    found = {step: [(ref.commit, ref.evidence) for ref in world.at(step).record.data] for step in (100, 149, 150, 200)}
    assert found == {
        100: [(first, Evidence.DECLARED)],
        149: [(first, Evidence.DECLARED)],
        150: [(second, Evidence.DECLARED)],
        200: [(second, Evidence.DECLARED)],
    }
    third = world.change_data(3)
    world.repin()
    world.clock.wait(minutes=1)
    world.save(300)
    world.sweep()
    assert {ref.commit for ref in world.at(300).record.data} == {second, third}
    assert {ref.evidence for ref in world.at(300).record.data} == {Evidence.AMBIGUOUS}


@pytest.fixture
def unbound(world):
    """Four saves of which nobody knows the data."""
    world.changes = {"data": None, "default_repository": None}
    world.open()
    for step in (100, 200, 300, 400):
        world.save(step)
        world.sweep()
    world.changes = {}
    return world


def bound_steps(world, commit):
    return [step for step in (100, 200, 300, 400) if [ref.commit for ref in world.at(step).record.data] == [commit]]


def test_one_bind_says_it_of_all_whose_data_nobody_knows(unbound):
    first = unbound.data.head("data", "main")
    second = unbound.change_data(2)
    bind(unbound.site(), RUN, unbound.at(200).record.id, data=f"data/{second}", reason="that one is known")
    made = bind_run(unbound.site(), RUN, data=f"data/{first}", reason="found the mount")
    assert [one.step for one in made] == [100, 300, 400]
    assert bound_steps(unbound, first) == [100, 300, 400]
    before = unbound.state().sequence
    assert bind_run(unbound.site(), RUN, data=f"data/{first}", reason="found the mount") == ()
    assert unbound.state().sequence == before


@pytest.mark.parametrize(
    ("steps", "expected", "later"),
    [
        (Steps(first=200, last=300), [200, 300], False),
        (Steps(last=200), [100, 200], False),
        (Steps(first=300), [300, 400], True),
    ],
)
def test_one_bind_says_it_of_a_stretch_of_steps(unbound, steps, expected, later):
    commit = unbound.data.head("data", "main")
    made = bind_run(unbound.site(), RUN, data=f"data/{commit}", reason="the log says so", steps=steps)
    assert [one.step for one in made] == expected == bound_steps(unbound, commit)
    unbound.clock.wait(minutes=1)
    unbound.save(500)
    unbound.sweep()
    assert [ref.commit for ref in unbound.at(500).record.data] == ([commit] if later else [])


def test_what_was_declared_for_the_run_is_what_its_running_process_saves_with(world):
    world.open()
    world.change_data(2)
    world.repin()
    world.clock.wait(minutes=1)
    world.save(100)
    world.sweep()
    assert {ref.evidence for ref in world.at(100).record.data} == {Evidence.AMBIGUOUS}
    commit = world.data.head("data", "main")
    bind_run(world.site(), RUN, data=f"data/{commit}", reason="its log says so")
    world.clock.wait(minutes=1)
    world.save(200)
    world.sweep()
    for step in (100, 200):
        assert [(ref.commit, ref.evidence) for ref in world.at(step).record.data] == [(commit, Evidence.DECLARED)]


def test_a_site_without_data_rolls_the_model_back_alone_and_says_so(world):
    world.changes = {"data": None, "default_repository": None}
    world.open()
    world.saves(100, 200)
    made = plan(world.site(), world.wish(100, flags=Flags(while_running=True)))
    assert made.flags.model_only
    assert any("versions no data" in note for note in made.notes)
    with pytest.raises(Refused, match="versions no data"):
        plan(world.site(), world.wish(100, flags=Flags(while_running=True, data_only=True)))
    done = world.roll_back(100)
    assert (done.data, done.timeline) == ((), 2)
    assert files(world.disk, done.checkpoint_dir)
    with pytest.raises(Misconfigured) as raised:
        bind_run(world.site(), RUN, data=f"data/{'a' * 64}", reason="x")
    assert "Nothing has to be bound" in raised.value.advice
    assert request(world.site(), world.wish(100)).id == request(world.site(), world.wish(100)).id


def test_data_that_a_slow_server_was_not_asked_for_is_counted_as_unread(world):
    for number in range(30):
        world.change_data(100 + number)
        run, out = f"run-{number}", OUT / f"{number}"
        world.open(run, watch=out)
        world.clock.wait(minutes=1)
        world.trainer(run, out).save(100)
    world.sweep()
    records = [found for run in world.ledger.runs() for found in world.state(run).records.values()]
    assert sampled_data(world.site(), records, sample=8).unread == 0
    world.data.answer_seconds, world.data.asked = 5.0, 0
    patience = Patience()
    found = sampled_data(world.site(), records, sample=8, patience=patience)
    assert (found.lost, len(found.sampled), found.unread) == ([], 12, 18)
    assert "not asked" in str(found.why)
    assert [one.rule for one in violations(world.site(), patience)] == ["reachable"]
    assert world.data.asked <= 40
