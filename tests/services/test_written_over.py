"""One path that is saved to again and again: what was announced of it is said of those bytes alone."""

import json
import os
import shutil
from datetime import datetime, timedelta

import pytest

from lakemark.adapters.hot.store import TreeStore
from lakemark.ports import Quiet
from lakemark.services.ledger import committed
from lakemark.trainer import Ranks, Run
from tests.formats.builders import save, torch_zip
from tests.services.on_disk import RUN, hf, plain


class Trainer:
    """Announces as a trainer's process does."""

    def __init__(self, yard):
        self.yard = yard
        self.run = Run.open(RUN, environ={"LAKEMARK_RUN_FILE": str(yard.open().run_file)})

    def saves(self, step, content, *, name="last.bin", **said):
        path = save(self.yard.out / name, content)
        self.run.saved(path, step=step, **said)
        return path

    @property
    def waiting(self):
        site = self.yard.site()
        return sorted(one.step for one in site.spool.spooled(site.spool_of(RUN)))


@pytest.fixture
def trainer(yard):
    return Trainer(yard)


def lightning(step):
    return torch_zip(values={"global_step": step, "state_dict": {"w": [1.5]}, "optimizer_states": [{}]})


def contents(yard, step):
    site = yard.site()
    tree = site.hot.path(site.hot.load(yard.at(step).record.id).record)
    return b"".join(path.read_bytes() for path in sorted(tree.rglob("*")) if path.is_file())


def test_a_path_overwritten_in_place_is_not_the_step_announced_before(trainer, yard):
    path = trainer.saves(100, b"of step 100", metrics={"val_loss": 1.5})
    path.write_bytes(b"of step 200")
    swept = yard.sweep()
    assert swept.committed == []
    ((where, why),) = swept.incomplete
    assert where == path
    assert "step 100 was overwritten before it was committed (last.bin was written again)" in why
    assert "does not say its step" in why
    assert trainer.waiting == [100]
    trainer.run.saved(path, step=200)
    assert [done.record.step for done in yard.sweep().committed] == [200]
    assert contents(yard, 200) == b"of step 200"
    assert yard.at(200).record.metrics == {}
    assert (yard.steps(), trainer.waiting) == ([200], [])


def test_a_path_replaced_by_rename_is_the_step_that_its_file_says(trainer, yard):
    path = trainer.saves(8, lightning(8), name="epoch=1.ckpt", metrics={"val_loss": 1.5})
    stat = path.stat()
    fresh = save(yard.home / "fresh", lightning(16))
    assert fresh.stat().st_size == stat.st_size
    os.utime(fresh, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # a clock that is coarse
    fresh.rename(path)
    (done,) = yard.sweep().committed
    assert (done.record.step, done.record.metrics) == (16, {})
    (note,) = (note for note in committed(yard.site(), yard.at(16)).notes or () if "step 8" in note)
    assert note == "step 8 was overwritten before it was committed (epoch=1.ckpt was written again)"
    assert trainer.waiting == []
    assert yard.sweep().committed == []


@pytest.mark.parametrize("landing", ["link", "copy"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_path_overwritten_while_it_is_landed(trainer, yard, landing, in_place):
    path = trainer.saves(100, b"of step 100")

    class Meanwhile(Quiet):
        def expect(self, what, size_bytes):
            if not in_place:
                path.unlink()
            path.write_bytes(b"of step 200")

    root = yard.site().hot.root
    hot = TreeStore(root, name="hot", node="node-a", landing=landing, min_free=0)
    swept = yard.sweep(hot=hot, progress=Meanwhile())
    assert swept.committed == []
    assert "while it was landed" in swept.incomplete[0][1]
    swept = yard.sweep(hot=hot)
    assert swept.committed == []
    assert "step 100 was overwritten before it was committed" in swept.incomplete[0][1]
    trainer.run.saved(path, step=200)
    yard.sweep(hot=hot)
    assert (yard.steps(), contents(yard, 200), trainer.waiting) == ([200], b"of step 200", [])


def test_what_overwrote_it_may_be_committed_by_then(trainer, yard):
    path = trainer.saves(8, lightning(8), name="epoch=1.ckpt")
    save(path, lightning(16))
    yard.commit(path, 16)
    swept = yard.sweep()
    assert swept.committed == []
    assert [why.endswith("; what lies there now is committed") for _, why in swept.incomplete] == [True]
    assert (yard.steps(), trainer.waiting) == ([16], [])


def test_a_step_announced_before_it_is_written_is_not_the_one_before(trainer, yard):
    path = trainer.saves(100, b"of step 100")
    yard.sweep()
    trainer.run.saved(path, step=200)
    swept = yard.sweep()
    assert swept.committed == []
    assert "is still step 100: step 200 was announced before it was written" in swept.incomplete[0][1]
    path.unlink()
    path.write_bytes(b"of step 200")
    assert yard.sweep().committed == []
    trainer.run.saved(path, step=200)
    yard.sweep()
    assert (contents(yard, 100), contents(yard, 200)) == (b"of step 100", b"of step 200")
    assert (yard.steps(), trainer.waiting) == ([100, 200], [])


def test_of_two_announcements_of_the_same_bytes_the_first_is_theirs(trainer, yard):
    path = trainer.saves(100, b"of step 100")
    trainer.run.saved(path, step=200)
    assert [done.record.step for done in yard.sweep().committed] == [100]
    assert trainer.waiting == [200]
    trainer.saves(300, b"of step 300")
    yard.sweep()
    assert (yard.steps(), trainer.waiting) == ([100, 300], [])


def test_what_is_announced_before_anything_lies_there_is_waited_for(trainer, yard):
    path = yard.out / "step-5"
    trainer.run.saved(path, step=5)
    swept = yard.sweep()
    assert [why for _, why in swept.incomplete] == ["step 5 was announced before anything lay there"]
    assert trainer.waiting == [5]
    plain(yard.out, 5)
    yard.sweep()
    assert (yard.steps(), trainer.waiting) == ([5], [])
    trainer.run.saved(plain(yard.out, 6), step=6)
    shutil.rmtree(yard.out / "step-6")
    assert [why for _, why in yard.sweep().incomplete] == ["step 6 was gone before it was committed"]
    assert trainer.waiting == []


@pytest.mark.parametrize("inside", ["model.bin", "shards/first/model.bin"])
def test_a_folder_is_told_by_the_files_in_it(trainer, yard, inside):
    path = yard.out / "latest"
    for name in (inside, "steady.bin"):
        save(path / name, b"of step 100")
    trainer.run.saved(path, step=100)
    save(path / inside, b"of step 200")
    assert yard.sweep().committed == []
    trainer.run.saved(path, step=200)
    (path / "notes.txt").write_text("what is added later changes nothing")
    assert [done.record.step for done in yard.sweep().committed] == [200]


def test_other_ranks_go_on_writing(trainer, yard):
    path = hf(yard.out, 7, without=("rng_state.pth",), **{"rng_state_0.pth": torch_zip(("python", "numpy", "cpu"))})
    trainer.run.saved(path, step=7, ranks=Ranks(world=2, files=("rng_state_{rank}.pth",)))
    save(path / "optimizer.pt", torch_zip(("state", "param_groups"), payload=b"more"))
    save(path / "rng_state_1.pth", torch_zip(("python", "numpy", "cpu")))
    assert [done.record.step for done in yard.sweep().committed] == [7]
    again = hf(yard.out, 8, without=("rng_state.pth",), **{"rng_state_0.pth": torch_zip(("python", "numpy", "cpu"))})
    reused = again.rename(yard.out / "latest")
    trainer.run.saved(reused, step=8, ranks=Ranks(world=2, files=("rng_state_{rank}.pth",)))
    save(reused / "rng_state_0.pth", torch_zip(("python", "numpy", "cpu"), payload=b"later"))
    save(reused / "rng_state_1.pth", torch_zip(("python", "numpy", "cpu")))
    swept = yard.sweep()
    assert swept.committed == []
    assert "(rng_state_0.pth was written again)" in swept.incomplete[0][1]


def test_a_beginning_of_names_is_told_by_its_index(trainer, yard):
    yard.unpack("keras_tf/tfckpt")
    trainer.run.saved(yard.out / "ckpt-50", step=55)
    yard.sweep()
    assert 55 in yard.steps()
    trainer.run.saved(yard.out / "ckpt-100", step=155)
    index = yard.out / "ckpt-100.index"
    index.write_bytes(index.read_bytes())
    swept = yard.sweep()
    assert 155 not in {*yard.steps(), *(done.record.step for done in swept.committed)}


def test_a_person_may_say_what_it_is(trainer, yard):
    path = trainer.saves(100, b"of step 100", name="model.pt", metrics={"val_loss": 1.5})
    path.write_bytes(b"of another time")
    done = yard.commit(path, 100)
    assert done.record.metrics == {}
    assert done.notes == ("step 100 was announced of other files (model.pt was written again)",)
    yard.sweep()
    assert (yard.steps(), trainer.waiting) == ([100], [])


@pytest.mark.parametrize(
    "names", [("model_100.pt", "optim_100.pt"), ("epoch=0-step=100.ckpt", "epoch=0-step=100-EMA.ckpt")]
)
def test_one_of_several_files_is_announced(trainer, yard, names):
    paths = [save(yard.out / name, lightning(100)) for name in names]
    trainer.run.saved(paths[0], step=100, metrics={"val_loss": 1.5})
    assert [done.record.metrics for done in yard.sweep().committed] == [{"val_loss": 1.5}]
    assert (yard.paths(100), trainer.waiting) == (sorted(names), [])


def test_one_of_several_files_that_is_written_again(trainer, yard):
    paths = [save(yard.out / name, lightning(100)) for name in ("model_100.pt", "optim_100.pt")]
    trainer.run.saved(paths[0], step=100, metrics={"val_loss": 1.5})
    save(paths[0], lightning(101))
    assert [done.record.metrics for done in yard.sweep().committed] == [{}]
    assert trainer.waiting == []


def test_the_clock_went_back_between_two_announcements(trainer, yard):
    trainer.saves(100, b"of step 100")
    (spooled,) = yard.site().spool_of(RUN).glob("*.json")
    said = json.loads(spooled.read_text())
    later = datetime.fromisoformat(said["saved_at"]) + timedelta(days=1)
    spooled.write_text(json.dumps(said | {"saved_at": later.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}))
    trainer.saves(200, b"of step 200")
    assert [done.record.step for done in yard.sweep().committed] == [200]
    assert (contents(yard, 200), trainer.waiting) == (b"of step 200", [])


def test_a_log_beside_the_state_may_grow(trainer, yard):
    path = yard.out / "final"
    save(path / "model.bin", b"of step 100")
    log = save(path / "logs" / "train.log", b"step 100\n")
    trainer.run.saved(path, step=100)
    with log.open("ab") as stream:
        stream.write(b"done\n")
    assert [done.record.step for done in yard.sweep().committed] == [100]
    trainer.run.saved(path, step=200)
    log.write_bytes(b"anew")
    assert yard.sweep().committed == []


def test_what_was_announced_before_it_was_written_has_to_be_whole(trainer, yard):
    folder = yard.out / "checkpoint-8"
    folder.mkdir()
    for path in (yard.out / "checkpoint-7", folder):
        trainer.run.saved(path, step=int(path.name.removeprefix("checkpoint-")))
        hf(yard.out, int(path.name.removeprefix("checkpoint-")), without=("trainer_state.json",))
    swept = yard.sweep()
    assert swept.committed == []
    assert ["no trainer_state.json" in why for _, why in swept.incomplete] == [True, True]
    for step in (7, 8):
        hf(yard.out, step)
    assert [done.record.step for done in yard.sweep().committed] == [7, 8]


def test_a_rank_file_that_is_a_link_is_not_looked_at(trainer, yard):
    path = hf(yard.out, 7, without=("rng_state.pth",), **{"rng_state_1.pth": torch_zip(("python", "numpy", "cpu"))})
    save(path / "real.pth", torch_zip(("python", "numpy", "cpu")))
    (path / "rng_state_0.pth").symlink_to("real.pth")
    trainer.run.saved(path, step=7, ranks=Ranks(world=2, files=("rng_state_{rank}.pth",)))
    swept = yard.sweep()
    assert not any("is gone" in why for _, why in swept.incomplete)
