"""One story for every example: kill the trainer in the middle of a save, go back with the data, resume, and compare.

    python -m examples.drive [NAME …] [--dir DIR]

Each `examples/NAME/train.py` is a training script as its framework's users write it. This does what a cluster and its
people do around it, by the command line alone: opens the run on a lakeFS branch, lets the node's service find the saves,
kills -9, moves the data on, requests, approves and applies a rollback, resumes. What it reports is read back.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples import checks
from examples.checks import Check
from examples.killing import Trainer
from examples.scripts import EXAMPLES, Example
from examples.stage import Site, digests, rows


def story(site: Site, example: Example) -> list[Check]:
    """Does all of it, and answers what was found. Raises Broken where a step can't be done."""
    run = example.name
    folder = site.home / "train" / run
    out, final, wanted = folder / "out", folder / "final.npz", folder / "wanted.npz"
    out.mkdir(parents=True)
    data = site.repository()
    then = data.commit("main", {"train/rows.npz": rows(1), "name": run.encode()}, message=f"Data for {run}")
    objects = data.digests(then)
    opened = site.lakemark("run", "open", run, "--data", f"{data.name}/main", "--watch", str(out))
    run_file = Path(opened["run_file"])

    beside = _apart(run_file, folder)
    with (
        Trainer.started(site, example, run_file=beside, out=folder / "reference", final=wanted) as reference,
        Trainer.started(site, example, run_file=run_file, out=out, final=final) as trainer,
    ):
        half = trainer.kill_in_a_save()
        dead = checks.killed(half, final)
        reference.finished()
    found = site.lakemark("inspect", str(out))["found"]
    saved = {row["path"]: digests(Path(row["path"])) for row in found if row["verdict"] == "complete"}
    before = site.settled(run, saved)

    now = data.commit("main", {"train/rows.npz": rows(2)}, message="Data, the next edition")
    target = before[-2]
    applied = _roll_back(site, run, target, to=folder / "back")
    resumed = site.lakemark("resume", run, "--to", str(out), "--job", "second-job")
    back = checks.restored([applied["checkpoint_dir"], resumed["path"]], saved.get(resumed["path"], {}))
    ready = checks.ready(resumed, run_file, out=out, step=target["step"], then=then)

    with Trainer.started(site, example, run_file=run_file, out=out, final=final) as trainer:
        trainer.finished()
    again = [row["path"] for row in site.lakemark("inspect", str(out))["found"] if row["verdict"] == "complete"]
    after = site.settled(run, dict.fromkeys(again))
    every = site.records(run, everything=True)
    return [
        dead,
        checks.only_whole(half, found, before, out=out),
        checks.judged(example, every),
        back,
        checks.data_went_back(data, applied, then=then, now=now, objects=objects),
        ready,
        checks.same_weights(example, final, wanted),
        checks.went_on(example, before, after, every, timeline=resumed["timeline"], then=then, saves=len(again)),
    ]


def _apart(run_file: Path, folder: Path) -> Path:
    """The same run and data, for the uninterrupted trainer: what it announces goes elsewhere."""
    beside = folder / "reference.json"
    beside.write_text(json.dumps(json.loads(run_file.read_text()) | {"spool": str(folder / "spool")}))
    return beside


def _roll_back(site: Site, run: str, record: Mapping[str, Any], *, to: Path) -> dict[str, Any]:
    """One asks, another approves, and it is applied."""
    wish = ["--to", f"id:{record['record']}", "--reason", "the node died in a save", "--while-running"]
    asked = site.lakemark("rollback", "request", run, *wish)
    identity = str(asked["rollback"])
    plan = site.lakemark("rollback", "show", identity)
    site.lakemark("rollback", "approve", identity, "--digest", str(plan["plan"])[:12], by="bea")
    return site.lakemark("rollback", "apply", identity, "--dir", str(to))


def table(name: str, found: Sequence[Check], seconds: float) -> str:
    """As people read it."""
    head = f"{name}: {sum(check.ok for check in found)} of {len(found)} hold ({seconds:.0f} s)"
    lines = [f"  {'ok    ' if check.ok else 'BROKEN'} {check.name}: {check.detail}" for check in found]
    return "\n".join([head, *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m examples.drive", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(EXAMPLES)}; by default all")
    parser.add_argument("--dir", type=Path, help="an empty or absent folder to do it in; by default a temporary one")
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.names) - set(EXAMPLES))
    if unknown:
        parser.error(f"there is no example {unknown[0]}")
    chosen = [EXAMPLES[name] for name in asked.names] or [one for one in EXAMPLES.values() if one.installed]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ok = True
    with (
        tempfile.TemporaryDirectory(prefix="lakemark-examples-") as scratch,
        Site.started((asked.dir or Path(scratch)).resolve()) as site,
    ):
        for example in chosen:
            began = time.monotonic()
            found = story(site, example)
            sys.stdout.write(table(example.name, found, time.monotonic() - began) + "\n")
            ok = ok and all(check.ok for check in found)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
