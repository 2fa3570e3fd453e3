"""Kills a process at each of its steps on the disk, one after the other, and looks at what is left.

A step is an operation that Python announces to audit hooks: a file opened for writing, a rename, a link, a removal. As a
program: `kill_sweep.py SCENARIO FOLDER`; it prints how many deaths were survived, or fails.
"""

import io
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.dvc.removals import Patience
from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.hot.store import TreeStore
from lakemark.model.checkpoints.record import record_for
from lakemark.ports import Checkpoint, Quiet

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
STEPS = {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.utime"}
QUIET = Quiet()
OLD, NEW = b"old" * 1000, b"newer" * 1000


def dies_at(step, work):
    """Runs `work` in a child that kills itself before its `step`th step; False where it ended before that."""
    child = os.fork()
    if child == 0:
        left = step

        def hook(event, args):
            nonlocal left
            writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
            if event in STEPS or writes:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work failed by itself"
    return os.WIFSIGNALED(status)


def sweep(fresh, work, judge):
    step = 0
    while True:
        step += 1
        scene = fresh(step)
        died = dies_at(step, lambda scene=scene: work(scene))
        judge(scene, died=died)
        if not died:
            return step - 1


class Hot:
    """A trainer's checkpoint and an empty hot tier on one disk."""

    def __init__(self, folder, landing="auto"):
        self.landing = landing
        self.folder = folder
        self.out = folder / "out"
        (self.out / "deep").mkdir(parents=True)
        (self.out / "weights.bin").write_bytes(b"w" * 100_000)
        (self.out / "deep" / "rng").write_bytes(b"r")
        (self.out / "link").symlink_to("weights.bin")
        self.store().claim("ledger", now=NOW)

    def store(self):
        return TreeStore(self.folder / "hot", name="hot", node="n", min_free=0, landing=self.landing)

    def commit(self):
        store = self.store()
        landed = store.land(self.out, quiet_seconds=0, roles={}, progress=QUIET)
        record = record_for(landed.manifest, run="run", timeline=1, step=7, saved_at=NOW, node="n")
        store.adopt(landed, record)
        return Checkpoint(record=record, manifest=landed.manifest)

    def unfinished(self):
        return sorted(path.name for path in (self.folder / "hot" / ".lakemark" / "incoming").glob("[!.]*"))

    def names(self):
        return sorted(str(path.relative_to(self.folder / "hot")) for path in (self.folder / "hot").rglob("*"))


def judge_commit(scene, *, died):
    store = scene.store()
    store.clean()
    held = store.records().records
    assert held or died
    for record in held:
        assert store.verify(store.load(record), progress=QUIET) == ()
    if not held:
        assert [name for name in scene.names() if "weights" in name or "rng" in name] == [], scene.names()
    checkpoint = scene.commit()
    assert store.verify(checkpoint, progress=QUIET) == ()
    assert store.records().records == (checkpoint.record.id,)
    assert scene.unfinished() == []
    assert (scene.out / "weights.bin").read_bytes() == b"w" * 100_000


def judge_drop(scene, *, died):
    store = scene.store()
    store.clean()
    if store.holds(scene.checkpoint.record.id):
        assert died
        assert store.verify(scene.checkpoint, progress=QUIET) == ()
        store.drop(scene.checkpoint, now=NOW)
    assert [name for name in scene.names() if "weights" in name] == []
    assert scene.unfinished() == []


def judge_unshare(scene, *, died):
    store = scene.store()
    store.clean()
    assert store.verify(scene.checkpoint, progress=QUIET) == ()
    assert store.changed(scene.checkpoint.record.id) == ()
    store.unshare(scene.checkpoint.record.id, progress=QUIET)
    (scene.out / "weights.bin").write_bytes(b"x" * 100_000)
    assert store.verify(scene.checkpoint, progress=QUIET) == ()
    assert store.changed(scene.checkpoint.record.id) == ()


class Cold:
    """A hot tier that holds a checkpoint, and an empty cold one."""

    def __init__(self, folder):
        self.folder = folder
        self.hot = Hot(folder)
        self.checkpoint = self.hot.commit()
        self.store().claim("ledger", now=NOW)

    def store(self):
        """Its waiting takes no time: whoever made others wait is dead."""
        waited = [0.0]
        patience = Patience(lambda: sum(waited), lambda: sum(waited), waited.append)
        return DvcStore(DirectoryBlobs(self.folder / "cold"), name="cold", tier_class="cold", patience=patience)

    def put(self):
        source = self.hot.store()
        return self.store().put(
            self.checkpoint, lambda file: source.open(self.checkpoint, file), now=NOW, progress=QUIET
        )

    def files(self):
        return sorted(
            str(path.relative_to(self.folder / "cold"))
            for path in (self.folder / "cold").rglob("*")
            if path.is_file() and path.name != ".lock"
        )


def judge_put(scene, *, died):
    store = scene.store()
    listed = store.records().records
    assert bool(listed) == store.holds(scene.checkpoint.record.id)
    assert listed or died
    if listed:
        assert store.verify(scene.checkpoint, progress=QUIET) == ()
    scene.put()
    assert scene.store().verify(scene.checkpoint, progress=QUIET) == ()
    store.collect(now=NOW, grace=timedelta(), needed=[scene.checkpoint])
    assert not [name for name in scene.files() if name.startswith("lakemark/tmp")], scene.files()
    assert len(scene.files()) == 5, scene.files()


def judge_removal(scene, *, died, others=()):
    store = scene.store()
    if store.holds(scene.checkpoint.record.id):
        assert store.verify(scene.checkpoint, progress=QUIET) == ()
    store.drop(scene.checkpoint, now=NOW)
    for days in (1, 2, 3):
        store.collect(now=NOW + timedelta(days=days), grace=timedelta(hours=1), needed=[])
    assert scene.files() == ["lakemark-tier.json", *others], scene.files()
    scene.put()
    assert scene.store().verify(scene.checkpoint, progress=QUIET) == ()


def with_checkpoint(scene):
    scene.checkpoint = scene.commit()
    return scene


def with_replica(scene):
    scene.put()
    return scene


def drop_and_collect(scene):
    store = scene.store()
    store.drop(scene.checkpoint, now=NOW)
    store.collect(now=NOW + timedelta(days=1), grace=timedelta(hours=1), needed=[])


def keeping(scene, bundle):
    for store in (scene.hot.store(), scene.store()):
        store.keep_ledger(io.BytesIO(bundle))


def with_copies(scene):
    keeping(scene, OLD)
    return scene


def judge_copies(scene, *, died):
    for store in (scene.hot.store(), scene.store()):
        with store.open_ledger() as copy:
            assert copy.read() in ((OLD, NEW) if died else (NEW,))
    keeping(scene, NEW)
    judge_removal(scene, died=died, others=["lakemark/ledger.bundle"])


def main():
    scenario, folder = sys.argv[1], Path(sys.argv[2])
    scenarios = {
        "land": (Hot, Hot.commit, judge_commit),
        "copy": (lambda place: Hot(place, "copy"), Hot.commit, judge_commit),
        "drop": (
            lambda place: with_checkpoint(Hot(place)),
            lambda scene: scene.store().drop(scene.checkpoint, now=NOW),
            judge_drop,
        ),
        "unshare": (
            lambda place: with_checkpoint(Hot(place)),
            lambda scene: scene.store().unshare(scene.checkpoint.record.id, progress=QUIET),
            judge_unshare,
        ),
        "put": (Cold, Cold.put, judge_put),
        "ledger": (lambda place: with_copies(Cold(place)), lambda scene: keeping(scene, NEW), judge_copies),
        "remove": (lambda place: with_replica(Cold(place)), drop_and_collect, judge_removal),
    }
    fresh, work, judge = scenarios[scenario]

    def at(step):
        place = folder / str(step)
        place.mkdir()
        return fresh(place)

    sys.stdout.write(f"{sweep(at, work, judge)}\n")


if __name__ == "__main__":
    main()
