"""Real checkpoints of frameworks in a run's directory, on a site of real adapters: committed, then resumed from an older one."""

import shutil
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from lakemark.ports import Approval
from lakemark.services.back.resume import resume
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from tests.faults.site_on_disk import Clock, make_site

RUN = "llama"
ARCHIVE = Path(__file__).parents[1] / "formats" / "cases" / "checkpoints.tar.gz"
NESTED = Path("exp_2024_v3/checkpoints")


def unpack(into, case):
    """One folder of the archive, as `into`."""
    into.mkdir(parents=True)
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            name = member.name.removeprefix("./")
            if name.startswith(f"{case}/"):
                archive.extract(member.replace(name=name.removeprefix(f"{case}/")), into, filter="tar")
    return into


class Bench:
    """A run that was trained in `out`; checkpoints lie in `out/exp_2024_v3/checkpoints`."""

    def __init__(self, home, case, *, nested=NESTED, prepare=None):
        self.home, self.clock = home, Clock()
        self.out = home / "out"
        self.place = unpack(self.out / nested, case)
        if prepare is not None:
            prepare(self.place)
        here = self.site()
        sweep(here)
        open_run(here, Opening(run=RUN, watch=self.out))
        self.clock.pass_(hours=6)
        self.swept = sweep(here)
        self.before = contents(self.out)

    def site(self, progress=None):
        made = make_site(self.home, None, self.clock, progress=progress)
        return replace(made, policies=replace(made.policies, approval=Approval(required=False)))

    def record(self, step):
        records = self.site().ledger.run(RUN).records.values()
        return next(found.record.id for found in records if found.record.step == step)

    def resume(self, step=None, *, to=None, site=None, **asked):
        asked.setdefault("job", "7")
        asked.setdefault("without", ("optimizer", "scheduler", "rng"))
        record = None if step is None else self.record(step)
        return resume(site or self.site(), RUN, to=to or self.out, record=record, **asked)

    def lose(self, *names):
        """What the trainer's own rotation, or a dead disk, takes away."""
        for name in names:
            path = self.place / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def found(self):
        return list(self.site().recogniser.find(self.out))

    def aside(self, job="7"):
        return self.out / ".lakemark-aside" / job


def contents(root):
    """Bytes of every regular file below `root`, how often each is there."""
    return Counter(path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def tree(path):
    """Relative path -> bytes or link's target, of a folder; of a file its bytes alone."""
    if path.is_file():
        return path.read_bytes()
    return {
        str(one.relative_to(path)): one.readlink() if one.is_symlink() else one.read_bytes() if one.is_file() else None
        for one in path.rglob("*")
    }
