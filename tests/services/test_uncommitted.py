"""Whole saves that could not be committed: red at once, never moved out of the way in silence, never forgotten."""

import json
import os
from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import NotFound, Refused
from lakemark.services.back.resume import resume
from lakemark.services.health.saves import problems_of_refused, problems_without_record
from lakemark.services.health.status import RED, Rules
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.saves.layout import ASIDE
from lakemark.services.saves.waiting import WaitingSave, place_of
from tests.formats.builders import torch_zip
from tests.services.crashing import KillAt, Killed
from tests.services.on_disk import RUN as YARD_RUN
from tests.services.world import OUT, RUN, World, files


def no_room(world):
    world.hot.free_share, world.hot.min_free_share = 0.05, 0.1


def room(world):
    world.hot.free_share = 1.0


def away(world):
    world.kept, world.hot._tier.identity = world.hot._tier.identity, None


def back(world):
    world.hot._tier.identity = world.kept


def another(world):
    world.kept, world.hot._tier.identity = (
        world.hot._tier.identity,
        replace(world.hot._tier.identity, id="another tier's"),
    )


LACKING = [(no_room, room), (away, back), (another, back)]


def stuck(world, lack):
    """Step 100 is a record and safe in warm; 200 is whole, quiet, and can't be taken."""
    world.open()
    world.saves(100)
    world.save(200)
    world.clock.wait(minutes=1)
    lack(world)


@pytest.mark.parametrize(("lack", "mend"), LACKING, ids=["no room", "away", "another disk"])
def test_resume_refuses_to_go_below_a_whole_save_that_can_t_be_committed(world, lack, mend):
    stuck(world, lack)
    before, expected = world.kinds(), files(world.disk, OUT / "step-200")
    with pytest.raises(Refused, match="step 200 lies there and is not committed") as raised:
        resume(world.site(), RUN, to=OUT, job="7")
    assert raised.value.exit_code == 7
    assert raised.value.advice.endswith(f"lakemark resume {RUN} --to {OUT} --without-step 200")
    assert world.kinds() == before
    assert files(world.disk, OUT / "step-200") == expected
    mend(world)
    assert resume(world.site(), RUN, to=OUT, job="7").found.record.step == 200


@pytest.mark.parametrize(("lack", "mend"), LACKING, ids=["no room", "away", "another disk"])
def test_resume_names_a_save_that_can_t_be_committed_where_there_is_no_record(world, lack, mend):
    """A trainer that is told that there is nothing starts anew, and writes over it."""
    world.open()
    world.save(200)
    world.clock.wait(minutes=1)
    lack(world)
    with pytest.raises(Refused, match="no record to resume from, and step 200 lies there and is not committed"):
        resume(world.site(), RUN, to=OUT, job="7")
    with pytest.raises(NotFound):
        resume(world.site(), RUN, to=OUT, job="7", without_steps=[200])
    mend(world)
    assert resume(world.site(), RUN, to=OUT, job="7").found.record.step == 200


@pytest.mark.parametrize(("lack", "mend"), LACKING[:1], ids=["no room"])
def test_without_that_step_it_goes_on_says_so_and_remembers_nothing(world, lack, mend):
    stuck(world, lack)
    done = resume(world.site(), RUN, to=OUT, job="7", without_steps=[200])
    assert done.found.record.step == 100
    assert [one.step for one in done.uncommitted] == [200]
    assert any(note.startswith("step 200 is not committed") for note in done.notes)
    aside = OUT / ASIDE / "7" / "step-200"
    assert done.moved_aside == (aside,)
    assert all(world.journal.known(file) is None for file in world.disk.identities(aside))
    mend(world)
    world.disk.rename(aside, OUT / "step-200")
    world.sweep()
    assert [found.record.step for found in world.state().records.values()] == [100, 200]


def test_only_the_named_step_is_gone_on_without(world):
    stuck(world, no_room)
    world.save(300)
    world.clock.wait(minutes=1)
    with pytest.raises(Refused, match="step 300 lies there"):
        resume(world.site(), RUN, to=OUT, job="7", without_steps=[200])


def test_a_save_that_is_still_written_is_not_moved_away_from_its_writer(world):
    world.open()
    world.saves(100)
    world.save(200)
    with pytest.raises(Refused, match="step 200 lies there"):
        resume(world.site(), RUN, to=OUT, job="7")
    world.clock.wait(minutes=1)
    assert resume(world.site(), RUN, to=OUT, job="7").found.record.step == 200


def test_whole_saves_of_a_directory_that_was_never_the_run_s_are_not_moved_either(world):
    world.open()
    world.saves(100)
    other = OUT.with_name("elsewhere")
    world.save(500, out=other)
    world.clock.wait(minutes=1)
    with pytest.raises(Refused, match="step 500 lies there and is not committed"):
        resume(world.site(), RUN, to=other, job="7")
    assert world.disk.exists(other / "step-500")


def test_half_written_saves_of_no_record_are_moved_and_can_come_back(world):
    world.open()
    world.saves(100)
    half = OUT / "step-200"
    world.disk.write(half / "model.tmp", b"half")
    world.clock.wait(minutes=1)
    done = resume(world.site(), RUN, to=OUT, job="7")
    (aside,) = done.moved_aside
    world.disk.remove(aside)
    world.save(200)
    world.sweep()
    assert world.latest().record.step == 200


def test_killed_anywhere_what_is_no_record_is_never_taken_for_one():
    for number in range(1, 60):
        world = World()
        stuck(world, no_room)
        try:
            resume(world.site(progress=KillAt(number)), RUN, to=OUT, job="7", without_steps=[200])
        except Killed:
            world.restart()
        else:
            assert number > 5
            return
        room(world)
        aside = OUT / ASIDE / "7" / "step-200"
        if world.disk.exists(aside):
            world.disk.rename(aside, OUT / "step-200")
        world.sweep()
        assert sorted(found.record.step for found in world.state().records.values()) == [100, 200]
    pytest.fail("it never came to an end")


# What can never be taken as it is


def leads_out(path):
    (path / "tokenizer").symlink_to("/models/base")


def not_utf8(path):
    with open(os.fsencode(path) + b"/w\xff.bin", "wb") as file:
        file.write(b"x")


def git_folder(path):
    (path / ".git").mkdir()
    (path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


def fifo(path):
    os.mkfifo(path / "pipe")


SPOILT = [leads_out, not_utf8, git_folder, fifo]
SAID = {
    leads_out: "Replace the link by the file it names",
    not_utf8: "Rename the file",
    git_folder: "Save the checkpoint without that file",
    fifo: "Save the checkpoint without it.",
}


def saved(yard, *steps):
    for step in steps:
        path = yard.out / f"step-{step}"
        path.mkdir(parents=True)
        (path / "model.pt").write_bytes(
            torch_zip(("model", "optimizer", "lr_scheduler", "rng_state"), payload=bytes(step))
        )
    return path


def noted(yard, run=YARD_RUN):
    return WaitingSave.read(json.loads(place_of(yard.site().home, run).read_bytes()))


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_a_save_that_can_t_be_taken_is_red_at_the_first_refusal_with_what_helps(yard, spoil):
    yard.open()
    spoil(saved(yard, 1, 2, 3))
    swept = yard.sweep()
    assert [done.record.step for done in swept.committed] == [1, 2]
    assert [one.what for one in swept.pending] == [str(yard.out / "step-3")]
    (problem,) = problems_of_refused(YARD_RUN, noted(yard))
    assert problem.colour == RED
    assert "step-3" in problem.what
    assert problem.next.startswith(SAID[spoil])


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_resume_names_a_save_that_can_t_be_taken(yard, spoil):
    yard.open()
    path = saved(yard, 1, 2, 3)
    spoil(path)
    yard.sweep()
    with pytest.raises(Refused, match="step 3 lies there and is not committed") as raised:
        resume(yard.site(), YARD_RUN, to=yard.out, job="7")
    assert SAID[spoil] in raised.value.advice
    assert path.exists()
    done = resume(yard.site(), YARD_RUN, to=yard.out, job="7", without_steps=[3])
    assert (done.found.record.step, [one.step for one in done.uncommitted]) == (2, [3])


def rules(yard, **later):
    return Rules(
        now=yard.site().now() + timedelta(**later),
        rpo=timedelta(minutes=30),
        idle_after=timedelta(days=2),
        domains={},
        copies=1,
        data=False,
    )


@pytest.mark.parametrize("spoil", [leads_out, None], ids=["refused", "unfinished"])
def test_a_run_that_saves_and_has_no_record_is_red_after_a_while(yard, spoil):
    yard.open()
    path = saved(yard, 1)
    if spoil:
        spoil(path)
    else:
        (path / "optim.pt.tmp").write_bytes(b"half")
    yard.sweep()
    state = yard.state()
    assert list(problems_without_record(state, noted(yard), rules(yard), announced=0)) == []
    (problem,) = problems_without_record(state, noted(yard), rules(yard, hours=1), announced=0)
    assert problem.colour == RED
    assert "no record at all" in problem.what
    assert list(problems_without_record(state, (), rules(yard, hours=1), announced=0)) == []
    assert list(problems_without_record(state, (), rules(yard, hours=1), announced=2))


def test_a_mended_save_is_committed_and_said_no_more(yard):
    yard.open()
    path = saved(yard, 1)
    leads_out(path)
    yard.sweep()
    (path / "tokenizer").unlink()
    assert [done.record.step for done in yard.sweep().committed] == [1]
    assert noted(yard) == ()


def test_of_a_note_that_an_older_version_wrote_all_wait_for_room():
    row = {"path": "/a", "since": "2026-11-26T12:00:00Z", "why": "full"}
    (read,) = WaitingSave.read({"format": "lakemark.waiting/1", "saves": [row]})
    assert (read.sort, read.advice) == ("room", "")
    assert list(problems_of_refused(RUN, [read])) == []


def test_the_files_of_a_commit_are_those_of_its_record_alone(world):
    """`remember` is only ever told of files that are in the record it names, or were copied from it."""
    world.open()
    path = world.save(100)
    record = commit(world.site(), Commit(path=path, run=RUN, step=100)).record
    assert {world.journal.known(file) for file in world.disk.identities(path)} == {record.id}
