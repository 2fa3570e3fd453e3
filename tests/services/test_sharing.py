"""What exit 0 acknowledged survives the trainer's next save: what it saves over in place is copied, never linked."""

import os
from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.model.tiers.sharing import names_step
from lakemark.ports import Objectives, Quiet
from lakemark.services.back.restore import restore
from lakemark.services.ledger import checkpoint
from lakemark.services.node.sweep import sweep
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.unshare import unshare_due
from tests.services.on_disk import hf
from tests.services.world import OUT, RUN, World


def in_place(path, content):
    """As `torch.save(…, "model.pt")` writes: the same inode again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "xb") as stream:
        stream.write(content)
        stream.truncate()


@pytest.mark.parametrize("name", ["model.pt", "last.ckpt", "backup/weights.bin", "run-7/model.pt"])
def test_a_file_name_saved_over_in_place_keeps_every_step(yard, tmp_path, name):
    yard.open()
    path = yard.out / name
    for step in (1, 2, 3):
        in_place(path, f"weights of step {step}".encode() * 50)
        yard.commit(path, step)
    in_place(path, b"the next epoch")
    for step in (1, 2, 3):
        found = yard.at(step)
        assert not found.replicas[yard.site().hot.place].linked
        back = restore(yard.site(), RUN, found.record.id, to=tmp_path / f"back-{step}").restored.path
        assert (back / path.name).read_bytes() == f"weights of step {step}".encode() * 50


def test_a_path_with_a_step_of_its_own_is_linked_once_and_copied_when_it_is_saved_over(yard):
    """Hugging Face's Trainer, started from scratch, rewrites `checkpoint-500` in the same inodes."""
    yard.open()
    path = hf(yard.out, 500)
    first = yard.commit(path, 500).record.id
    assert yard.at(500).replicas[yard.site().hot.place].linked
    for file in sorted(path.iterdir()):
        in_place(file, file.read_bytes()[::-1] if file.suffix == ".bin" and file.stem == "rng" else file.read_bytes())
    in_place(path / "scheduler.pt", (path / "scheduler.pt").read_bytes())
    os.truncate(path / "trainer_state.json", 0)
    in_place(path / "trainer_state.json", b'{"global_step": 500, "log_history": [1]}')
    again = commit(yard.site(), Commit(path=path, run=RUN, step=500, supersede=True)).record.id
    assert again != first
    found = yard.state().records[again]
    assert not found.replicas[yard.site().hot.place].linked
    in_place(path / "trainer_state.json", b'{"global_step": 500, "log_history": [2]}')
    assert not yard.site().hot.verify(checkpoint(yard.site(), found), progress=Quiet())


@pytest.mark.parametrize(
    ("name", "step", "says"),
    [
        ("step-100", 100, True),
        ("iter_0000500", 500, True),
        ("epoch=1-step=500.ckpt", 500, True),
        ("500", 500, True),
        ("model.pt", 500, False),
        ("last-v1.ckpt", 500, False),
        ("checkpoint_000003", 4, False),
        ("step-1000", 100, False),
        ("step-\u0665", 5, False),
    ],
)
def test_which_names_say_a_step(name, step, says):
    assert names_step([name], step) is says
    assert names_step([name, "rng"], step) is False


# A linked replica that is the only copy


def alone(world, **policies):
    world.policies = replace(world.policies, **policies)
    world.open()
    for shelf in world.shelves.values():
        shelf.reachable = False
    world.trainer().save(100)
    world.clock.wait(seconds=10)


def overwritten(world):
    """The trainer writes into its own file."""
    path = OUT / "step-100" / "model.bin"
    node = world.disk.inode(path)
    node.data, node.mtime_ns = b"of another epoch", node.mtime_ns + 10**9
    found = world.at(100)
    return bool(world.hot.verify(checkpoint(world.site(), found), progress=Quiet()))


def test_while_all_slower_tiers_are_away_it_is_un_shared_at_once():
    world = World()
    alone(world)
    swept = sweep(world.site())
    assert [done.record.step for done in swept.committed] == [100]
    assert not world.at(100).replicas[world.hot.place].linked
    assert not overwritten(world)
    world.forget(100)
    world.sweep()
    assert world.kinds() == ["opened", "attempt", "committed", "verified"]


def test_while_the_slower_tiers_take_nothing_it_is_un_shared_at_once():
    """They are passed by like ones that are away."""
    world = World()
    alone(world, objectives=Objectives(rpo=timedelta(minutes=30)), residence={})
    world.shelves["warm"].reachable = True
    site = world.site()
    sweep(replace(site, tiers={"hot": site.hot, "warm": Full(site.tiers["warm"])}))
    assert not world.at(100).replicas[world.hot.place].linked
    assert not overwritten(world)


def test_after_the_time_that_may_be_lost_it_is_un_shared():
    """A slower tier is there, and has not got it yet."""
    world = World()
    alone(world, objectives=Objectives(rpo=timedelta(minutes=30)), residence={})
    sweep(world.site(), move=False)
    assert unshare_due(world.site(), RUN, slower=["warm"]) == []
    assert world.at(100).replicas[world.hot.place].linked
    world.clock.wait(minutes=31)
    assert unshare_due(world.site(), RUN, slower=["warm"]) == []
    assert not world.at(100).replicas[world.hot.place].linked
    assert not overwritten(world)


class Full:
    """A store that takes nothing."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, *_, **__):
        from lakemark.errors import NoRoom

        raise NoRoom("the tier is full", advice="Make room.")


def test_one_with_a_slower_copy_stays_linked():
    world = World()
    world.open()
    world.trainer().save(100)
    world.sweep()
    world.clock.wait(days=1)
    world.sweep()
    assert world.at(100).replicas[world.hot.place].linked


def test_where_there_is_no_room_for_a_copy_that_is_said_and_nothing_is_lost(yard):
    yard.open()
    yard.commit(hf(yard.out, 10), 10)
    site = yard.site()
    from lakemark.adapters.hot.store import TreeStore

    hot = TreeStore(yard.home / "site" / "hot", name="hot", node="node-a", min_free=2**62)
    swept = sweep(replace(site, hot=hot, tiers={"hot": hot}), find=False)
    assert any("a copy of our own" in one.what for one in swept.pending)
    assert yard.at(10).replicas[hot.place].linked
