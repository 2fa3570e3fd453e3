"""What the node's service keeps in memory, and what its passes cost, as its runs come to have many checkpoints.

    python benchmarks/bench_watch_memory.py [--records 1000] [--runs 4] [--window 250] [--files 30] [--kept N] [--folder DIR]

One process does all the service's passes, over real stores: saves are found, committed, copied to a second tier and released
from hot, run after run; then one run is left alone and the next one trains. After each window of saves it prints resident
memory, and the processor seconds of a pass over everything in which there is nothing to do. A folder in memory (/dev/shm)
keeps the disk's waiting out of it.
"""

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lakemark.adapters.git.ledger import GitLedger
from lakemark.background import lookout
from lakemark.services.node.watch import Watch
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.site import Parts, configuration, site_of

START = datetime(2026, 11, 26, tzinfo=UTC)
SITE = """\
site: bench
node: bench
data: none
tiers: {hot: {class: hot, kind: tree, path: hot, min_free: 1%}, cold: {class: cold, kind: directory, path: cold, min_free: 1%}}
residence: {hot: {keep_last: 2, settle: 1m}, cold: {admit: all}}
"""


class Now:
    """The site's clock, which the benchmark moves."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> datetime:
        return self.at


def memory() -> tuple[int, int]:
    """MiB of this process: of its own, and of files that are mapped."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            found[name] = int(value.split()[0]) // 1024
    return found["RssAnon"], found["RssFile"]


def save(out: Path, step: int, files: int, at: datetime) -> None:
    folder = out / f"step-{step}"
    folder.mkdir()
    for number in range(files):
        (folder / f"part-{number:02}.bin").write_bytes(f"{step} {number}".encode())
    for path in (*folder.iterdir(), folder):
        os.utime(path, (at.timestamp(), at.timestamp()))
    for old in sorted(out.glob("step-*"), key=lambda path: int(path.name[5:]))[:-2]:
        shutil.rmtree(old)


def idle(watch: Watch) -> float:
    """Processor seconds of a pass over everything."""
    begun = time.process_time()
    for work in (watch.announced, watch.found, watch.tended, watch.moved):
        work(None)
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--window", type=int, default=250)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--kept", type=int, default=0, help="records whose runs stay in memory; 0: as in the service")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        measure(Path(name), given)


def measure(home: Path, given: argparse.Namespace) -> None:
    (home / "lakemark.yaml").write_text(SITE)
    subprocess.run([sys.executable, "-m", "lakemark.cli", "init", str(home)], check=True, capture_output=True)
    now = Now()
    parts = Parts(configuration(home / "lakemark.yaml", environ={}), {})
    site = site_of(parts)
    if given.kept:
        site = replace(site, ledger=GitLedger(home / "ledger.git", cache=parts.index, kept_records=given.kept))
    site = replace(site, now=now, simulated_clock=True, policies=replace(site.policies, quiet_seconds=0.0))
    watch = Watch(site, lookout(hints=False), say=lambda _: None)
    begun = time.perf_counter()
    for count in range(1, given.records + 1):
        number = (count - 1) * given.runs // given.records
        out = home / "out" / str(number)
        if not out.exists():
            out.mkdir(parents=True)
            open_run(site, Opening(run=f"run-{number}", watch=out))
        now.at += timedelta(minutes=2)
        save(out, count, given.files, now.at)
        now.at += timedelta(minutes=1)
        watch.found(frozenset({f"run-{number}"}))
        watch.moved(None)
        if count % given.window == 0:
            seconds, begun = time.perf_counter() - begun, time.perf_counter()
            gc.collect()
            own, mapped = memory()
            now.at += timedelta(minutes=2)
            quick = idle(watch)
            now.at += timedelta(minutes=20)
            whole = idle(watch)
            done = watch.totals
            print(
                f"{count:6} saved, {done.committed} committed, {done.released} released in {seconds:6.1f} s:"
                f" own {own} MiB, mapped {mapped} MiB; a pass {quick:.2f} s, a whole one {whole:.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
