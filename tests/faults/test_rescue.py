"""Reading and rescuing never need to write where they read from: a disk that turned read-only, a ledger that takes nothing."""

import os
import subprocess
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lakemark.errors import NoRoom
from lakemark.model.ledger.run import Place
from lakemark.services.back.restore import restore
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.accept import Commit
from lakemark.services.saves.commit import commit
from lakemark.services.tiers.verify import verify
from tests.faults.site_on_disk import Clock, make_site

RUN = "r1"
WARM, COLD = Place(tier="warm"), Place(tier="cold")


@contextmanager
def read_only(place):
    """The file system at `place` takes no writes any more, as after an error of its disk."""
    subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def home(tmp_path):
    return tmp_path


@pytest.fixture
def site(home):
    made = make_site(home, None, Clock())
    open_run(made, Opening(run=RUN, watch=home / "out"))
    return made


def save(home, step):
    place = home / "out" / f"step-{step}"
    place.mkdir(parents=True)
    (place / "weights.bin").write_bytes(b"w%d" % step * 500)
    (place / "optimizer.bin").write_bytes(b"o%d" % step * 500)
    return place


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("landing", ["link", "copy"])
def test_what_only_a_read_only_hot_has_is_sunk_and_restored(site, home, landing):
    site = replace(site, hot=type(site.hot)(home / "hot", name="hot", node="node-a", min_free=0, landing=landing))
    site = replace(site, tiers={**site.tiers, "hot": site.hot})
    place = save(home, 100)
    record = commit(site, Commit(path=place, run=RUN, step=100)).record
    right = contents(place)
    with read_only(home / "hot"):
        # The trainer rotates its own name away: hot's stamps moved and can't be renewed.
        (place / "weights.bin").unlink()
        save(home, 200)
        done = sweep(site)
        state = site.ledger.run(RUN).records[record.id]
        assert {WARM, COLD} <= set(state.replicas), done.pending
        assert state.replicas[site.hot.place].sound
        assert any("ead-only" in one.why for one in done.pending)
        restore(site, RUN, record.id, to=home / "back", tier="hot")
        assert contents(home / "back") == right
        seen = verify(site, [state])
        assert [look.ok for look in seen.looks] == [True] * 3


class Full:
    """A ledger whose disk is full: everything can be read, nothing appended."""

    def __init__(self, ledger):
        self.ledger = ledger

    def __getattr__(self, name):
        return getattr(self.ledger, name)

    def append(self, run, decide, stamp):
        raise NoRoom("ledger.git: No space left on device", advice="Make room.")

    append_site = append


def test_a_ledger_that_takes_nothing_keeps_nobody_from_reading(site, home):
    place = save(home, 100)
    record = commit(site, Commit(path=place, run=RUN, step=100)).record
    sweep(site)
    objects = [path for path in (home / "warm" / "files").rglob("*") if path.is_file()]
    victim = next(path for path in objects if path.read_bytes() == b"o100" * 500)
    victim.chmod(0o644)
    victim.write_bytes(b"rotten")
    right = contents(place)
    full = replace(site, ledger=Full(site.ledger))
    state = full.ledger.run(RUN).records[record.id]
    seen = verify(full, [state])
    assert [look.place.tier for look in seen.damaged] == ["warm"]
    assert [type(error) for error in seen.unrecorded] == [NoRoom]
    site.hot.drop(site.hot.load(record.id), now=site.now())
    done = restore(full, RUN, record.id, to=home / "back")
    assert contents(home / "back") == right
    assert done.restored.files_by_place == {"warm": 1, "cold": 1}
    assert [type(error) for error in done.unrecorded] == [NoRoom, NoRoom]
    with pytest.raises(Exception, match="optimizer"):
        restore(full, RUN, record.id, to=home / "none", tier="warm")
