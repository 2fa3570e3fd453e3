"""Saves that were cut off between two files, or stripped later, in families of which nothing says what a save consists of."""

import pytest

from lakemark.model.runs.timeline import latest
from tests.formats.builders import save, torch_zip
from tests.services.on_disk import RUN, Yard

RANKS = tuple(f"model_rank_{rank}.bin" for rank in range(4))
PARTS = tuple(f"stage_{part}/weights.bin" for part in range(3))


def write(yard, step, *names):
    path = yard.out / f"step-{step}"
    for name in names:
        save(path / name, f"{name} of step {step}".encode())
    return path


@pytest.fixture
def trained(yard) -> Yard:
    """Two steps with three files of tensors each, committed."""
    yard.open()
    for step in (1, 2):
        write(yard, step, "model.bin", "optim.bin", "ema.bin", "notes.txt")
    yard.sweep()
    return yard


@pytest.mark.parametrize(
    ("whole", "cut", "said"),
    [
        (("a.bin", "b.bin", "c.bin"), ("a.bin", "b.bin"), "c.bin"),
        (("model.bin", "ema.bin"), ("model.bin",), "ema.bin"),
        (("model.pt", "data.pt", "log.txt"), ("model.pt", "log.txt"), "data.pt"),
        (RANKS, RANKS[:3], "1 of model_rank_#.bin"),
        (PARTS, PARTS[:2], "1 of stage_#/weights.bin"),
    ],
)
def test_a_save_that_was_cut_off_waits_and_is_named(yard, whole, cut, said):
    yard.open()
    for step in (1, 2):
        write(yard, step, *whole)
    yard.sweep()
    path = write(yard, 3, *cut)
    for _ in range(2):
        swept = yard.sweep()
        assert swept.committed == []
        assert [(where, f"it lacks {said}, which" in why) for where, why in swept.incomplete] == [(path, True)]
    assert yard.steps() == [1, 2]
    write(yard, 3, *whole)
    assert [done.record.step for done in yard.sweep().committed] == [3]
    assert set(yard.paths(3)) == set(whole)


def test_what_the_next_save_lacks_too_is_written_no_more(trained):
    write(trained, 3, "model.bin", "optim.bin")
    assert trained.sweep().committed == []
    write(trained, 4, "model.bin", "optim.bin")
    swept = trained.sweep()
    assert [done.record.step for done in swept.committed] == [3, 4]
    assert f"{RUN}@3: it lacks ema.bin, which every earlier save of this attempt has" in swept.said
    assert not any(said.startswith(f"{RUN}@4") for said in swept.said)
    write(trained, 5, "model.bin")
    assert trained.sweep().committed == []


def test_the_next_save_may_be_a_record_already(trained):
    write(trained, 3, "model.bin", "optim.bin")
    trained.commit(write(trained, 4, "model.bin", "optim.bin"), 4)
    assert [done.record.step for done in trained.sweep().committed] == [3]


def test_a_person_s_commit_is_taken_and_told(trained):
    made = trained.commit(write(trained, 3, "model.bin", "optim.bin"), 3)
    assert made.new
    assert "it lacks ema.bin, which every earlier save of this attempt has" in made.notes


@pytest.mark.parametrize("suffix", ["pt", "bin"])
def test_a_person_s_commit_of_fewer_ranks_is_taken_and_told(yard, suffix):
    yard.open()
    for step in (1, 2):
        for rank in range(4):
            save(yard.out / f"step-{step}/model_rank_{rank}.{suffix}", torch_zip(("model",)))
    yard.sweep()
    for rank in range(3):
        save(yard.out / f"step-3/model_rank_{rank}.{suffix}", torch_zip(("model",)))
    assert yard.sweep().committed == []
    made = yard.commit(yard.out / "step-3", 3)
    assert f"it lacks 1 of model_rank_#.{suffix}, which every earlier save of this attempt has" in made.notes
    assert yard.steps() == [1, 2, 3]


def test_another_start_may_write_fewer(trained):
    trained.open()
    write(trained, 3, "model.bin", "optim.bin")
    assert [done.record.step for done in trained.sweep().committed] == [3]


def test_what_grew_beside_a_save_later_is_no_part_of_the_next(trained):
    save(trained.out / "step-2" / "predictions.bin", b"of an evaluation")
    trained.sweep()
    assert "predictions.bin" in trained.paths(2)
    assert trained.at(2).record.supersedes is not None
    save(trained.out / "step-1" / "predictions.bin", b"of an evaluation, too")
    trained.sweep()
    write(trained, 3, "model.bin", "optim.bin", "ema.bin", "notes.txt")
    assert [done.record.step for done in trained.sweep().committed] == [3]


@pytest.mark.parametrize("rewritten", ["notes.txt", "optim.bin"])
def test_what_was_stripped_later_is_another_state_and_nobody_s_newest(trained, rewritten):
    whole = trained.at(2).record
    (trained.out / "step-2" / "ema.bin").unlink()
    assert trained.sweep().committed == []
    save(trained.out / "step-2" / rewritten, b"written again")
    trained.sweep()
    stripped = trained.at(2)
    assert (stripped.record.supersedes, stripped.conflicts_with) == (None, whole.id)
    state = trained.state()
    assert (state.timeline, latest(state).record.id) == (1, whole.id)
    assert state.records[whole.id].superseded_by is None
    assert trained.sweep().committed == []


def test_an_old_step_that_was_converted_in_part_opens_no_timeline(trained):
    """As by a script that writes the weights of old steps in another precision while later ones stand."""
    whole = trained.at(1).record
    save(trained.out / "step-1" / "model.bin", b"in half the precision")
    trained.sweep()
    state = trained.state()
    assert trained.at(1).conflicts_with == whole.id
    assert (state.timeline, latest(state).record.step) == (1, 2)
