"""A site of real adapters in one folder: Git ledger, hot tree, two DVC directories, this node's journal, a lakeFS server."""

import os
import signal
import traceback
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.git import ledger as git, make
from lakemark.adapters.git.pointer import Remote
from lakemark.adapters.hot.store import TreeStore
from lakemark.adapters.node.files import LocalFiles
from lakemark.adapters.node.journal import SqliteJournal
from lakemark.adapters.node.notes import LocalNotes
from lakemark.adapters.node.pointers import LocalPointers
from lakemark.adapters.node.restorer import LocalRestorer
from lakemark.adapters.node.run_files import LocalSpool
from lakemark.formats import recogniser
from lakemark.index import Index
from lakemark.model.tiers.residence import Residence
from lakemark.ports import Policies, Quiet, Site, Strength
from lakemark.services.ledger import checkpoint
from lakemark.services.tiers.register import register_all

SETTLED = Residence(keep_last=1, settle=timedelta(0))


@dataclass
class Clock:
    """Now, moved by hand."""

    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **span) -> None:
        self.now += timedelta(**span)


def make_site(home: Path, data, clock: Clock, *, progress=None, actor="ana@node-a", s3=None) -> Site:
    """The site in `home`; where it is missing it is made, and its tiers registered, as `init` does.

    s3: (blobs, remote) of the warm tier, which is a directory otherwise.
    """
    fresh = not (home / "ledger.git").exists()
    make.init(home / "ledger.git")
    remotes = {name: Remote(name=name, url=str(home / name), directory=True) for name in ("warm", "cold")}
    blobs = {name: DirectoryBlobs(home / name) for name in ("warm", "cold")}
    if s3 is not None:
        blobs["warm"], remotes["warm"] = s3
    ledger = git.GitLedger(home / "ledger.git", remotes=remotes, cache=Index(home / "index.sqlite"))
    hot = TreeStore(home / "hot", name="hot", node="node-a", min_free=0)
    tiers = {"hot": hot}
    for name in ("warm", "cold"):
        tiers[name] = DvcStore(blobs[name], name=name, tier_class=name)
    residence = {"hot": SETTLED, "warm": Residence(), "cold": Residence()}
    site = Site(
        name="test",
        node="node-a",
        actor=actor,
        home=home,
        ledger=ledger,
        hot=hot,
        tiers=tiers,
        data=data,
        files=LocalFiles(),
        restorer=LocalRestorer(),
        pointers=LocalPointers(),
        spool=LocalSpool(),
        notes=LocalNotes(),
        journal=SqliteJournal(home / "journal.sqlite"),
        recogniser=recogniser(),
        now=clock,
        policies=Policies(residence=residence, require_pin=Strength.GUARDED, quiet_seconds=0.0),
        restore_root=home / "restores",
        simulated_clock=True,
        progress=progress or Quiet(),
    )
    if fresh:
        register_all(replace(site, progress=Quiet()))
    return site


class Steps(Quiet):
    """Counts named steps and, at the one asked for, kills its process as `kill -9` does."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.seen: list[str] = []
        self._kill_at = kill_at

    def step(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(work, number: int | None) -> tuple[bool, list[str]]:
    """Runs `work(steps)` in a forked child that is killed at step `number`: (whether it was, the steps it passed)."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            steps = Steps(number)
            work(steps)
            os.write(writer, "\n".join(steps.seen).encode())
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the child must not return into the test runner
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        passed = stream.read().decode().split("\n")
    _, status = os.waitpid(child, 0)
    dead = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert dead or os.waitstatus_to_exitcode(status) == 0, "the child failed otherwise"
    return dead, [name for name in passed if name]


def write_checkpoint(path: Path, text: str) -> Path:
    """A small checkpoint with a hidden file, a link, an executable and an empty directory."""
    (path / "deep" / "empty").mkdir(parents=True)
    (path / "weights.bin").write_bytes(text.encode() * 500)
    (path / "deep" / ".hidden").write_text(f"{text} hidden")
    (path / "run me.sh").write_text("#!/bin/sh\n")
    (path / "run me.sh").chmod(0o755)
    (path / "zero").touch()
    (path / "best").symlink_to("weights.bin")
    return path


def broken_promises(site: Site, acknowledged: set[str]) -> list[str]:
    """What of the laws does not hold: an acknowledged record lost, a sound replica that does not verify."""
    wrong = []
    known = {}
    for run in site.ledger.runs():
        known |= site.ledger.run(run).records
    wrong += [f"the acknowledged record {identity[:12]} is lost" for identity in acknowledged - known.keys()]
    for found in known.values():
        if not found.replicas:
            wrong.append(f"{found.record.step} has no replica")
        for place in [place for place, replica in found.replicas.items() if replica.sound]:
            held = checkpoint(site, found, tier=None if place.node else place.tier)
            damages = site.tiers[place.tier].verify(held, progress=Quiet())
            wrong += [f"{found.record.step} in {place.tier}: {damage.path} {damage.why}" for damage in damages]
    for name, store in site.tiers.items():
        listing = store.records()
        claimed = {i for i, found in known.items() if store.place in found.replicas}
        extra = set(listing.records) - claimed
        if name == "hot":
            wrong += [f"hot holds {identity[:12]}, which nobody claims" for identity in extra]
    return wrong
