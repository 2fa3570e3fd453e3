"""What roles say decides what is committed: resumable or not, a role lost, files of another save in between."""

import pytest

from lakemark.errors import Incomplete
from lakemark.services.saves.commit import Commit, commit
from tests.services.named_roles import NamedRoles
from tests.services.world import OUT, RUN

ALL = ("weights", "optimizer", "scheduler", "rng")


@pytest.fixture
def world(world):
    world.changes = {"recogniser": NamedRoles(world)}
    world.open()
    return world


def save(world, step, *roles, kind="step", out=OUT):
    path = out / f"{kind}-{step}"
    world.disk.remove(path)
    for role in roles:
        world.disk.write(path / (role if "." in role or "-" in role else f"{role}.bin"), f"{role} {step}".encode())
    world.clock.wait(minutes=10)
    return path


def committed(swept):
    return [done.record.step for done in swept.committed]


def test_what_is_known_of_the_roles_is_recorded(world):
    save(world, 1, *ALL, "config")
    save(world, 2, *ALL[:2], "maybe-rng", "maybe-scheduler", kind="other")
    save(world, 3, *ALL[:2], "maybe-rng", kind="third")
    world.sweep()
    first, second, third = (world.at(step).record for step in (1, 2, 3))
    assert (first.framework, first.resumable, first.gaps) == ("step", True, ())
    assert first.roles == (*ALL, "config")
    assert (second.resumable, second.gaps) == (None, ())
    assert (third.resumable, third.gaps) == (False, ("no scheduler",))
    assert {file.path: file.role for file in world.ledger.manifest(RUN, first.id).regular}["rng.bin"] == "rng"


def test_weights_alone_are_committed_and_said_to_be_weights(world):
    save(world, 1, *ALL)
    save(world, 2, "weights", "trainer")
    swept = world.sweep()
    assert committed(swept) == [1, 2]
    record = world.at(2).record
    assert (record.resumable, record.gaps) == (False, ("no optimizer", "no scheduler", "no rng"))
    assert f"{RUN}@2: weights only: not resumable" in swept.said
    entry = [entry for entry, _ in world.ledger.entries(RUN) if entry.kind == "committed"][-1]
    assert entry.body["notes"][0] == "weights only: not resumable"
    assert "--needs-no optimizer scheduler rng" in entry.body["notes"][1]


def test_a_step_that_lost_a_role_is_not_committed_and_says_which(world):
    for step in (1, 2):
        save(world, step, *ALL, "dataloader")
    path = save(world, 3, *ALL)
    for _ in range(2):
        swept = world.sweep()
        (listed,) = swept.incomplete
        assert listed[0] == path
        assert "lost dataloader, which every earlier step has" in listed[1]
    assert world.latest().record.step == 2
    assert world.hot.records().records == tuple(sorted(found.record.id for found in world.state().records.values()))
    with pytest.raises(Incomplete, match="lost dataloader"):
        commit(world.site(), Commit(path=path, run=RUN, step=3))
    world.disk.write(path / "dataloader.bin", b"late")
    assert committed(world.sweep()) == [3]


def test_another_framework_and_an_earlier_lineage_say_nothing(world):
    save(world, 1, *ALL, "dataloader")
    save(world, 2, *ALL, kind="export")
    assert committed(world.sweep()) == [1, 2]


def test_a_role_that_nobody_saves_any_more_is_no_loss(world):
    save(world, 1, *ALL, "dataloader")
    world.sweep()
    save(world, 2, *ALL)
    assert committed(world.sweep()) == []
    save(world, 3, *ALL)
    swept = world.sweep()
    assert committed(swept) == [2, 3]  # the trainer goes on without it
    assert f"{RUN}@2: no dataloader any more, which every earlier step has" in swept.said
    save(world, 4, *ALL[:3])
    assert committed(world.sweep()) == []


def test_the_trainer_s_own_word_goes(world):
    save(world, 1, *ALL, "dataloader")
    world.sweep()
    trainer = world.trainer()
    path = save(world, 2, *ALL)
    trainer.announce(path, 2)
    assert committed(world.sweep()) == []
    trainer.announce(path, 2, present=ALL)
    swept = world.sweep()
    assert committed(swept) == [2]
    assert any("no dataloader any more" in said for said in swept.said)


def test_of_a_framework_nobody_knows_the_trainer_s_roles_are_all(world):
    trainer = world.trainer()
    path = save(world, 1, "a.bin", "b.bin", "maybe-rng", kind="generic")
    trainer.announce(path, 1, roles={"a.bin": "weights", "b.bin": "optimizer"})
    world.sweep()
    assert world.at(1).record.gaps == ("no scheduler", "no rng")
    path = save(world, 2, "a.bin", "c.bin", "maybe-rng", kind="generic")
    trainer.announce(path, 2, present=("weights", "optimizer", "scheduler"))
    world.sweep()
    assert (world.at(2).record.resumable, world.at(2).record.roles) == (None, ("weights", "optimizer", "scheduler"))


def test_before_anything_is_committed_the_steps_beside_it_are_looked_at(world):
    save(world, 1, *ALL, "dataloader")
    path = save(world, 2, *ALL)
    with pytest.raises(Incomplete, match="lost dataloader"):
        commit(world.site(), Commit(path=path, run=RUN, step=2))
    assert commit(world.site(), Commit(path=OUT / "step-1", run=RUN, step=1)).new


# Files of another save


def test_leftovers_of_a_save_that_broke_off_are_not_swept_in(world):
    save(world, 1, *ALL)
    world.sweep()
    save(world, 2, "weights-loss=0.123.pt", "optimizer.bin")
    world.clock.wait(minutes=30)
    path = OUT / "step-2"
    world.disk.replace(path / "optimizer.bin", b"again")
    world.disk.write(path / "weights-loss=0.119.pt", b"again")
    world.disk.write(path / "scheduler.bin", b"again")
    world.disk.write(path / "rng.bin", b"again")
    for _ in range(2):
        (listed,) = world.sweep().incomplete
        assert listed[0] == path
        assert listed[1].startswith("suspect: 'weights-loss=0.123.pt'")
    assert world.hot.records().records == (world.at(1).record.id,)
    made = commit(world.site(), Commit(path=path, run=RUN, step=2))
    assert made.new
    assert any("weights-loss=0.123.pt" in note for note in made.notes)
    assert world.sweep().incomplete == []


def test_leftovers_older_than_the_save_before(world):
    save(world, 2, "weights-0.bin")
    save(world, 1, *ALL)
    world.sweep()
    first = world.at(1).record
    path = save(world, 2, *ALL)
    old = world.disk.write(path / "weights-0.bin", b"old")
    old.mtime_ns = int((first.saved_at.timestamp() - 3600) * 1e9)
    (listed,) = world.sweep().incomplete
    assert "'weights-0.bin': older than the save before" in listed[1]
    world.disk.remove(path / "weights-0.bin")
    assert committed(world.sweep()) == [2]


def test_files_that_are_carried_from_step_to_step_are_not_leftovers(world):
    """Frozen weights that a trainer copies into every step, times and all."""
    for step in (1, 2, 3):
        path = save(world, step, "optimizer", "scheduler", "rng", "weights")
        node = world.disk.write(path / "weights-frozen.bin", b"frozen")
        node.mtime_ns = int((world.clock().timestamp() - 5 * 86400) * 1e9)
        swept = world.sweep()
        if step == 1:
            assert "suspect" in swept.incomplete[0][1]
            commit(world.site(), Commit(path=path, run=RUN, step=1))
        else:
            assert committed(swept) == [step], swept.incomplete
    path = save(world, 4, "optimizer", "scheduler", "rng", "weights")
    node = world.disk.write(path / "weights-frozen.bin", b"FROZEN")  # as long, but another's
    node.mtime_ns = int((world.clock().timestamp() - 5 * 86400) * 1e9)
    held = set(world.hot.records().records)
    (listed,) = world.sweep().incomplete
    assert "suspect" in listed[1]
    assert set(world.hot.records().records) == held
    world.restart()
    assert world.hot.clean() == 0


def test_configuration_of_any_age_is_fine(world):
    save(world, 1, *ALL)
    world.sweep()
    path = save(world, 2, *ALL, "config")
    world.disk.inode(path / "config.bin").mtime_ns = 0
    assert committed(world.sweep()) == [2]
