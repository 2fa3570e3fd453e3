"""A site of real adapters on this machine's disk, with its real clock, and folders as trainers leave them."""

import json
import os
import tarfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from lakemark.ports import Policies
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.register import register_all
from tests.faults.site_on_disk import make_site
from tests.formats.builders import safetensors, save, torch_zip

RUN = "llama"
CASES = Path(__file__).parents[1] / "formats" / "cases" / "checkpoints.tar.gz"


def now():
    return datetime.now(UTC)


class Yard:
    """`out` is where trainers save. `site()`: the node's site; files count as finished at once unless a test says not.

    s3: (blobs, remote) of the warm tier, which is a directory otherwise.
    """

    def __init__(self, home, *, s3=None):
        self.home, self.s3 = home, s3
        self.out = home / "train" / "out"
        self.out.mkdir(parents=True)

    @cached_property
    def _site(self):
        site = make_site(self.home / "site", None, now, s3=self.s3)
        return replace(site, simulated_clock=False, policies=Policies(quiet_seconds=0.0))

    def site(self, **changes):
        return replace(self._site, **changes)

    def open(self, run=RUN, **asked):
        asked.setdefault("watch", self.out)
        register_all(self.site())
        return open_run(self.site(), Opening(run=run, **asked))

    def sweep(self, **changes):
        return sweep(self.site(**changes), move=False)

    def commit(self, path, step, **asked):
        return commit(self.site(), Commit(path=path, run=RUN, step=step, **asked))

    def state(self, run=RUN):
        return self._site.ledger.run(run)

    def steps(self, run=RUN):
        """Of the records that stand, in order of step."""
        return sorted(found.record.step for found in self.state(run).records.values() if found.stands)

    def at(self, step):
        """The newest record of a step."""
        rows = [found for found in self.state().records.values() if found.record.step == step]
        return max(rows, key=lambda found: found.sequence)

    def manifest(self, step):
        return self._site.ledger.manifest(RUN, self.at(step).record.id)

    def paths(self, step):
        return [file.path for file in self.manifest(step).files]

    def in_hot(self):
        return set(self._site.hot.records().records)

    def unpack(self, case, into=None):
        """A folder of real checkpoints, in `out`."""
        into = into or self.out
        with tarfile.open(CASES) as archive:
            for member in archive.getmembers():
                if member.name.startswith(f"./{case}/"):
                    member.name = member.name.removeprefix(f"./{case}/")
                    archive.extract(member, into, filter="tar")
        return into


def age(path, **span):
    """Everything at or under `path` was written so long ago."""
    then = (now() - timedelta(**span)).timestamp()
    for inside in (*sorted(path.rglob("*"), reverse=True), path):
        if not inside.is_symlink():
            os.utime(inside, (then, then))
    return path


def hf(folder, step, *, without=(), **files):
    """A checkpoint of the Hugging Face Trainer."""
    path = folder / f"checkpoint-{step}"
    whole = {
        "config.json": "{}",
        "model.safetensors": safetensors(size=64 + step % 7) + b"",
        "training_args.bin": torch_zip(("args",)),
        "optimizer.pt": torch_zip(("state", "param_groups"), payload=os.urandom(256)),
        "scheduler.pt": torch_zip(("last_epoch",), payload=os.urandom(16)),
        "rng_state.pth": torch_zip(("python", "numpy", "cpu"), payload=os.urandom(16)),
        "trainer_state.json": json.dumps({"global_step": step, "log_history": []}),
    }
    for name, content in (whole | files).items():
        if name not in without:
            save(path / name, content)
    return path


def plain(folder, step, **files):
    """A checkpoint of no framework in particular."""
    path = folder / f"step-{step}"
    for name, content in (files or {"model": f"weights {step}", "optim": f"moments {step}"}).items():
        save(path / f"{name}.bin", content)
    return path


def until(condition, *, seconds=180):
    """Polls."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be so"
        time.sleep(0.02)
