"""What commits wait for beside everything else: committers on one run, sweeps and the node's service, all at once.

    python benchmarks/bench_commit_load.py [--committers 8] [--commits 100] [--sweeps 4] [--quick] [--dir DIR]

Each committer is a process that saves small checkpoints and commits them, one after the other; each sweeper a process that
sweeps again and again as long as they do, and `lakemark watch` runs beside them. A process' first commit is shown apart: it
loads the modules and opens the site, while all the others start too, and says nothing of what commits wait for. The rest
begins once every committer has done it. Shown are their median and 99th percentile and their ratio, and how many sweeps
began and ended. The goal: a ratio of at most 5, and every sweep ends.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL = 5.0
SITE = """\
site: bench
node: bench
data: none
tiers: {hot: {class: hot, kind: tree, path: hot, min_free: 1%}, cold: {class: cold, kind: directory, path: cold}}
residence: {hot: {keep_last: 5, settle: 1s}, cold: {admit: all}}
"""
RUN = "bench"
FILES = 3
LONGEST_SWEEP_SECONDS = 600.0


def lakemark(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "lakemark.cli", *words, "--config", str(home / "lakemark.yaml")]


def commit_them(home: Path, number: int, count: int) -> None:
    """A committer: prints the seconds that its first commit took, waits for a line, and prints those of `count` more."""
    from lakemark.services.saves.commit import Commit, commit
    from lakemark.site import open_site

    site = open_site(home / "lakemark.yaml")
    seconds = []
    for index in range(count + 1):
        step = index * 1000 + number
        path = home / "out" / f"{number}" / f"step-{step}"
        path.mkdir(parents=True)
        for name in range(FILES):
            (path / f"part-{name}.bin").write_bytes(f"{step} {name} ".encode() * 500)
        begun = time.perf_counter()
        commit(site, Commit(path=path, run=RUN, step=step, quiet_seconds=0.0))
        seconds.append(time.perf_counter() - begun)
        if not index:
            print(seconds.pop(), flush=True)
            sys.stdin.readline()
    sys.stdout.write(json.dumps(seconds))


def sweep_them(home: Path, until: Path) -> None:
    """A sweeper: prints the seconds that each sweep took, until the file is there."""
    seconds = []
    while not until.exists():
        begun = time.perf_counter()
        subprocess.run(
            lakemark(home, "sweep", "--quiet"), check=True, capture_output=True, timeout=LONGEST_SWEEP_SECONDS
        )
        seconds.append(time.perf_counter() - begun)
    sys.stdout.write(json.dumps(seconds))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(home: Path, given: argparse.Namespace) -> None:
    (home / "lakemark.yaml").write_text(SITE, encoding="utf-8")
    subprocess.run(lakemark(home, "doctor"), check=False, capture_output=True)
    for words in (("init", str(home)), ("run", "open", RUN, "--watch", str(home / "watched"))):
        (home / "watched").mkdir(exist_ok=True)
        subprocess.run(lakemark(home, *words), check=True, capture_output=True)
    over = home / "over"
    me = [sys.executable, __file__, "--dir", str(home)]
    watch = subprocess.Popen(lakemark(home, "watch", "--quiet"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sweepers = [
        subprocess.Popen([*me, "--sweeper", str(over)], stdout=subprocess.PIPE, text=True) for _ in range(given.sweeps)
    ]
    committers = [
        subprocess.Popen(
            [*me, "--committer", str(number), "--commits", str(given.commits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(given.committers)
    ]
    first = [float(one.stdout.readline()) for one in committers if one.stdout is not None]
    for one in committers:
        if one.stdin is not None:
            one.stdin.write("go on\n")
            one.stdin.flush()
    commits = [seconds for one in committers for seconds in json.loads(one.communicate()[0] or "[]")]
    over.touch()
    sweeps = [json.loads(one.communicate()[0] or "[]") for one in sweepers]
    watch.terminate()
    watch.wait()
    ended = all(one.returncode == 0 for one in sweepers) and all(sweeps)
    median, late = statistics.median(commits), percentile(commits, 0.99)
    wanted = given.committers * given.commits
    print(
        f"{len(commits)} of {wanted} commits by {given.committers} processes, {given.sweeps} sweeping, watch beside them"
    )
    print(
        f"median {1000 * median:7.1f} ms   p99 {1000 * late:7.1f} ms   ratio {late / median:.2f} (at most {GOAL:.0f})"
    )
    print(f"each process' first, which loads its modules: {min(first):.1f} to {max(first):.1f} s")
    flat = [seconds for one in sweeps for seconds in one]
    print(
        f"{len(flat)} sweeps ended, {'all that began' if ended else 'NOT all that began'}: longest {max(flat, default=0):.1f} s"
    )
    met = ended and late <= GOAL * median and len(commits) == wanted
    print("goal met" if met else "goal NOT met")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--committers", type=int, default=8)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--sweeps", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="15 commits each")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--committer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sweeper", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.committer is not None:
        commit_them(given.dir, given.committer, given.commits)
        return 0
    if given.sweeper is not None:
        sweep_them(given.dir, given.sweeper)
        return 0
    if given.quick:
        given.commits = 15
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        measure(Path(folder), given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
