"""Rounds in threads, their agenda and back-off; what is said once; the service as a whole, on adapters in memory."""

import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemark.services.node.problems import Problems
from lakemark.services.node.rounds import ALL, Agenda, Backoff, Done, Round
from lakemark.services.node.watch import Watch
from lakemark.services.node.watch_service import Pacemaker, Service
from lakemark.services.tiers.demote import Pending
from tests.services.world import OUT, RUN
from tests.support.memory.lookout import MemoryLookout

AT = datetime(2026, 11, 26, 12, tzinfo=UTC)
STATE = Path("/home/ledger.watch.json")


def until(holds, *, seconds=180):
    """Polls; a test that waits in vain fails."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)


# Agenda and back-off


def test_everything_is_due_at_first_and_then_every_so_often():
    agenda = Agenda(every=30)
    assert agenda.take(5.0) is None
    assert agenda.take(5.0) == frozenset()
    assert agenda.next_at() == 35
    assert agenda.take(34.9) == frozenset()
    assert agenda.take(35.0) is None


def test_parts_are_due_when_they_are_asked_for():
    agenda = Agenda(every=30)
    agenda.take(0)
    agenda.ask("a", at=7)
    agenda.ask("a", at=9)
    agenda.ask("b", at=3)
    assert agenda.next_at() == 3
    assert agenda.take(3) == {"b"}
    assert agenda.take(8) == {"a"}
    assert agenda.take(8) == frozenset()


def test_everything_includes_the_parts_that_are_due_and_not_those_of_later():
    agenda = Agenda(every=30)
    agenda.ask("a", at=0)
    agenda.ask("b", at=20)
    assert agenda.take(1) is None
    assert agenda.take(19) == frozenset()
    assert agenda.take(20) == {"b"}


def test_nothing_comes_before_the_back_off_ends():
    agenda = Agenda(every=30, not_before=100)
    agenda.ask("a", at=0)
    assert agenda.take(99) == frozenset()
    assert agenda.next_at() == 100
    assert agenda.take(100) is None


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0), (1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (5000, 300)])
def test_the_back_off_doubles_and_has_a_bound(failures, seconds):
    assert Backoff(least=30, most=300, jitter=lambda: 0.0).seconds(failures) == seconds
    assert Backoff(least=30, most=300, jitter=lambda: 0.999).seconds(failures) >= seconds / 2


# Rounds


@contextmanager
def running(work, **more):
    ended = []
    more = {"every": 3600, "seconds": time.monotonic, "ended": lambda name, error: ended.append(error)} | more
    one = Round("test", work, **more)
    one.start()
    try:
        yield one, ended
    finally:
        one.stop()
        assert one.is_over(30)


def test_a_round_does_everything_then_what_it_is_asked_for():
    seen = []
    with running(lambda parts: seen.append(parts) or Done()) as (one, _):
        until(lambda: seen == [None])
        one.ask("a")
        until(lambda: seen == [None, {"a"}])
        one.ask(ALL)
        until(lambda: seen == [None, {"a"}, None])


def test_what_was_asked_for_meanwhile_is_done_after():
    seen, go = [], threading.Event()

    def work(parts):
        seen.append(parts)
        go.wait(180)
        return Done()

    with running(work) as (one, _):
        until(lambda: seen == [None])
        one.ask("a")
        go.set()
        until(lambda: seen == [None, {"a"}])


def test_parts_that_were_busy_come_again():
    seen = []

    def work(parts):
        seen.append(parts)
        return Done(again=frozenset(["a"]) if len(seen) == 1 else frozenset())

    with running(work, again_after=0.01):
        until(lambda: seen == [None, {"a"}])


def test_a_round_outlives_every_error_and_says_when_it_is_well_again():
    seen = []

    def work(parts):
        seen.append(parts)
        if len(seen) == 1:
            raise ZeroDivisionError("unforeseen")
        return Done()

    with running(work) as (one, ended):
        until(lambda: len(ended) == 1)
        assert isinstance(ended[0], ZeroDivisionError)
        one.ask("a")
        until(lambda: ended[1:] == [None])


def test_out_of_reach_is_tried_again_later_each_time():
    wanted = []

    class Noted(Backoff):
        def seconds(self, failures):
            wanted.append(failures)
            return super().seconds(failures)

    done = iter([*[Done(transient=True)] * 3, Done(), *[Done(transient=True)] * 1000])
    with running(lambda _: next(done), backoff=Noted(least=0.001, most=0.004, jitter=lambda: 0.0), every=0.001):
        until(lambda: len(wanted) > 5)
    assert wanted[:6] == [1, 2, 3, 0, 1, 2]


def test_a_round_that_stops_begins_nothing_more():
    seen = []
    with running(lambda parts: seen.append(parts) or Done()) as (one, _):
        until(lambda: seen == [None])
        one.stop()
        assert one.is_over(30)
        one.ask("a")
    assert seen == [None]


# Problems


def note(problems, *found, scope="s", minutes=0, **more):
    return problems.note(scope, found, at=AT + timedelta(minutes=minutes), **more)


def test_a_problem_is_said_when_it_comes_when_it_changes_and_when_it_is_over():
    problems = Problems()
    away = Pending(what="tier warm", why="no answer")
    assert note(problems, away) == ["tier warm: no answer"]
    assert note(problems, away) == []
    assert note(problems, Pending(what="tier warm", why="denied")) == ["tier warm: denied"]
    assert note(problems) == ["over: tier warm"]
    assert note(problems) == []
    assert problems.listed() == []


def test_numbers_in_a_message_are_no_change():
    problems = Problems()
    assert note(problems, Pending(what="w", why="port 4711, request 0a1b2c3d4e5f")) != []
    assert note(problems, Pending(what="w", why="port 815, request ffffffffffff")) == []
    assert [one.why for one in problems.listed()] == ["port 815, request ffffffffffff"]


def test_what_is_planned_is_no_problem():
    problems = Problems()
    assert note(problems, Pending(what="w", why="settles", planned=True)) == []
    assert problems.count() == 0


def test_a_look_at_a_part_ends_nothing():
    problems = Problems()
    note(problems, Pending(what="w", why="y"))
    assert note(problems, whole=False) == []
    assert problems.count() == 1


def test_patience():
    problems = Problems()
    waits = {"patience": timedelta(minutes=10)}
    found = Pending(what="w", why="half")
    assert note(problems, found, **waits) == []
    assert note(problems, found, minutes=9, **waits) == []
    assert problems.listed() == []
    assert note(problems, found, minutes=10, **waits) == ["w: half"]
    assert note(problems, found, minutes=11, **waits) == []
    assert note(problems, minutes=12, **waits) == ["over: w"]


def test_what_was_not_said_is_not_said_to_be_over():
    problems = Problems()
    note(problems, Pending(what="w", why="half"), patience=timedelta(minutes=10))
    assert note(problems, minutes=1) == []


def test_one_trouble_in_two_scopes_is_said_once_and_is_over_with_the_last():
    problems = Problems()
    away = Pending(what="tier warm", why="no answer")
    assert note(problems, away, scope="a") != []
    assert note(problems, away, scope="b") == []
    assert note(problems, scope="a") == []
    assert note(problems, scope="b") == ["over: tier warm"]


def test_the_list_is_bounded():
    problems = Problems()
    note(problems, *(Pending(what=f"w{number}", why="y") for number in range(500)))
    assert len(problems.listed()) == 50
    assert problems.count() == 500


# The service


class Beside:
    """A service that runs in a thread, as its process would."""

    def __init__(self, world, **pace):
        self.said, self.beats = [], []
        self.lookout = WaitingLookout(world.disk)
        site = world.site(seconds=time.monotonic)
        self.watch = Watch(site, self.lookout, say=self.said.append)
        made = Pacemaker(**{"every": timedelta(hours=1), "quiet": timedelta(0), "grace": timedelta(seconds=30)} | pace)
        self.service = Service(self.watch, made, state=STATE, beat=self.beats.append)
        self.whole = None
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        self.whole = self.service.run()

    def __enter__(self):
        self._thread.start()
        until(lambda: self.lookout.followed)
        return self

    def __exit__(self, *_):
        self.service.stop()
        self._thread.join(180)
        assert not self._thread.is_alive()


class WaitingLookout(MemoryLookout):
    """One that waits, until it is woken or a hint comes."""

    def __init__(self, disk):
        super().__init__(disk)
        self._awake = threading.Event()

    def wait(self, seconds):
        self._awake.wait(min(seconds, 1))
        self._awake.clear()
        return super().wait(0)

    def wake(self):
        self._awake.set()

    def hint(self, folder):
        super().hint(folder)
        self._awake.set()


def tiers(world, step):
    return {
        place.tier for found in world.state().records.values() if found.record.step == step for place in found.replicas
    }


def idle(beside):
    return all(one.ended_at is not None and one.busy_since is None for one in beside.service._rounds)


def test_hints_wake_it_long_before_its_turn(world):
    world.open()
    with Beside(world) as beside:
        until(lambda: idle(beside))
        world.trainer().save(100)
        beside.lookout.hint(world.site().spool_of(RUN))
        until(lambda: [found.record.step for found in world.state().records.values()] == [100])
        until(lambda: tiers(world, 100) == {"hot", "warm", "cold"})
        world.save(200)
        world.clock.wait(seconds=10)
        beside.lookout.hint(OUT)
        until(lambda: tiers(world, 200) == {"hot", "warm", "cold"})
    assert beside.whole


def test_without_any_hint_its_turn_comes(world):
    world.open()
    with Beside(world, every=timedelta(seconds=0.05)):
        world.trainer().save(100)
        until(lambda: [found.record.step for found in world.state().records.values()] == [100])


def test_a_run_that_is_opened_meanwhile_is_followed_at_a_hint(world):
    with Beside(world) as beside:
        until(lambda: idle(beside))
        world.open("late", watch=OUT)
        beside.lookout.hint(world.site().home / "runs")
        until(lambda: OUT in beside.lookout.followed)


def test_what_was_announced_before_its_folder_was_followed_is_not_left_for_the_next_turn(world):
    with Beside(world) as beside:
        until(lambda: idle(beside))
        world.open("late", watch=None)
        world.trainer("late").save(100)
        beside.service._followed.ask()
        until(lambda: len(world.state("late").records) == 1)


def test_trouble_with_hints_is_said_once(world):
    with Beside(world, every=timedelta(seconds=0.02)) as beside:
        beside.lookout.trouble = "2 of 9 folders give hints"
        until(lambda: "2 of 9 folders give hints" in beside.said)
        count = len(beside.beats)
        until(lambda: len(beside.beats) > count + 3)
        assert beside.said.count("2 of 9 folders give hints") == 1
        beside.lookout.trouble = None
        until(lambda: "all folders give hints" in beside.said)


def test_its_state_file_says_how_it_goes(world):
    world.open()
    world.shelves["warm"].reachable = False
    with Beside(world, every=timedelta(seconds=0.05)) as beside:
        world.trainer().save(100)
        until(lambda: world.notes.json.get(STATE, {}).get("problems"))
        state = world.notes.json[STATE]
        assert (state["node"], state["stopped"], state["hints"]) == ("node-a", False, None)
        assert {one["what"] for one in state["problems"]} >= {"tier warm"}
        rounds = {"announced", "found", "tended", "to warm", "to cold", "moved", "followed"}
        assert {one["name"] for one in state["rounds"]} == rounds
        until(lambda: world.notes.json[STATE]["committed"] == 1)
    assert world.notes.json[STATE]["stopped"]
    assert beside.beats


def test_a_state_file_that_can_t_be_written_ends_nothing(world):
    world.open()

    def full(path, value):
        raise OSError("no space")

    with Beside(world, every=timedelta(seconds=0.02)) as beside:
        beside.watch.site.notes.save = full
        until(lambda: any("state file" in line for line in beside.said))
        world.trainer().save(100)
        until(lambda: [found.record.step for found in world.state().records.values()] == [100])


def test_what_is_not_done_within_the_grace_is_abandoned(world):
    world.open()
    go = threading.Event()
    with Beside(world, grace=timedelta(seconds=0.05)) as beside:
        until(lambda: idle(beside))
        beside.service._moved._work = lambda _: go.wait(600) and Done()
        beside.service._moved.ask()
        until(lambda: beside.service._moved.busy_since is not None)
    assert beside.whole is False
    go.set()


def test_slow_stores_do_not_keep_commits_waiting(world):
    """S3 takes its time for as long as the test likes; announced saves are committed all the same."""
    world.open()
    go = threading.Event()
    with Beside(world) as beside:
        until(lambda: idle(beside))
        real = beside.watch.site.tiers["warm"].put
        beside.watch.site.tiers["warm"].put = lambda *given, **more: go.wait(600) and real(*given, **more)
        trainer = world.trainer()
        for step in (100, 200, 300):
            trainer.save(step)
            beside.lookout.hint(world.site().spool_of(RUN))
            until(lambda step=step: step in {found.record.step for found in world.state().records.values()})
        assert all("warm" not in {place.tier for place in found.replicas} for found in world.state().records.values())
        go.set()
        until(lambda: all(len(found.replicas) == 3 for found in world.state().records.values()))


@pytest.mark.parametrize("slow", ["warm", "cold"])
def test_a_slow_tier_keeps_new_saves_from_no_other(world, slow):
    """Saves that come while one tier is busy for as long as the test likes are sunk to the other one meanwhile."""
    other = {"warm": "cold", "cold": "warm"}[slow]
    world.open()
    go = threading.Event()

    def tiers():
        return [{place.tier for place in found.replicas} - {"hot"} for found in world.state().records.values()]

    with Beside(world) as beside:
        until(lambda: idle(beside))
        real = beside.watch.site.tiers[slow].put
        beside.watch.site.tiers[slow].put = lambda *given, **more: go.wait(600) and real(*given, **more)
        trainer = world.trainer()
        for count, step in enumerate((100, 200, 300), start=1):
            trainer.save(step)
            beside.lookout.hint(world.site().spool_of(RUN))
            until(lambda count=count: tiers() == [{other}] * count)
        until(lambda: [one["name"] for one in _busy(world, beside)] == [f"to {slow}"])
        go.set()
        until(lambda: tiers() == [{"warm", "cold"}] * 3)


def _busy(world, beside):
    beside.service.tell()
    rounds = world.notes.json[STATE]["rounds"]
    return [one for one in rounds if one["busy_since"] is not None and one["name"].startswith("to ")]
