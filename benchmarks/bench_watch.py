"""What the node's service costs a trainer: the time of its steps with `lakemark watch` beside it and without.

    python benchmarks/bench_watch.py [--steps 400] [--every 100] [--mib 256] [--rounds 3] [--dir DIR] [--nice 10] [--cpus N]

A step is a few matrix products, about 20 ms on one core; every so many steps the trainer writes a checkpoint, as `torch.save`
does, and announces it. Rounds with and without the service take turns in one run. The service links, hashes and fsyncs each
save and copies it to a second tier, on the same disk and the same cores. Shown are percentiles of all steps and their ratios,
and how long saves took the trainer.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lakemark.trainer import Run

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # numpy reads them when it is imported
import numpy as np

CHUNK = 4 * 2**20
SITE = """\
site: bench
node: bench
data: none
tiers: {{hot: {{class: hot, kind: tree, path: hot, min_free: 1%}}, cold: {{class: cold, kind: directory, path: cold}}}}
residence: {{hot: {{keep_last: 2, settle: 1m}}, cold: {{admit: all}}}}
limits: {{cpus: {cpus}, nice: {nice}, io_class: idle, bandwidth: null}}
"""


class Steps:
    """A step of about `seconds`, by repeating a product of matrices as often as this machine can in that time."""

    def __init__(self, seconds: float) -> None:
        self._a = np.random.default_rng(1).random((128, 128))
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < 0.5:
            self._a @ self._a
            count += 1
        self._times = max(1, int(count * seconds / 0.5))

    def one(self) -> float:
        begun = time.perf_counter()
        for _ in range(self._times):
            self._a @ self._a
        return time.perf_counter() - begun


def lakemark(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "lakemark.cli", *words, "--config", str(home / "lakemark.yaml")]


def save(out: Path, step: int, mib: int, block: memoryview) -> Path:
    """By a temporary name; the oldest but two go, as trainers rotate."""
    draft, path = out / f".tmp-{step}", out / f"step-{step}"
    draft.mkdir()
    with (draft / "model.bin").open("wb") as file:
        for number in range(mib * 2**20 // CHUNK):
            file.write(number.to_bytes(8, "big"))
            file.write(block[8:])
    draft.rename(path)
    for old in sorted(out.glob("step-*"), key=lambda at: int(at.name[5:]))[:-2]:
        shutil.rmtree(old)
    return path


def train(home: Path, given: argparse.Namespace, steps: Steps) -> tuple[list[float], list[float]]:
    """(seconds of each step, seconds of each save)."""
    out, block = home / "out", memoryview(os.urandom(CHUNK))
    out.mkdir()
    run = Run.open("bench", environ={"LAKEMARK_HOME": str(home)})
    took, saved = [], []
    for number in range(1, given.steps + 1):
        took.append(steps.one())
        if number % given.every == 0:
            begun = time.perf_counter()
            run.saved(save(out, number, given.mib, block), step=number)
            saved.append(time.perf_counter() - begun)
    return took, saved


def one_round(
    folder: Path, given: argparse.Namespace, steps: Steps, *, service: bool
) -> tuple[list[float], list[float], int]:
    """And how many saves the service had committed when training ended."""
    home = folder / "site"
    home.mkdir()
    (home / "lakemark.yaml").write_text(SITE.format(cpus=given.cpus, nice=given.nice))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LAKEMARK_")}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environ}
    subprocess.run(lakemark(home, "init", str(home)), check=True, **quiet)
    subprocess.run(lakemark(home, "run", "open", "bench"), check=True, **quiet)
    process, state = None, home / "ledger.watch.json"
    if service:
        process = subprocess.Popen(lakemark(home, "watch"), **quiet)
        while not state.exists():
            time.sleep(0.05)
    os.sync()
    try:
        took, saved = train(home, given, steps)
    finally:
        if process is not None:
            process.terminate()
            process.wait()
    committed = json.loads(state.read_text())["committed"] if service else 0
    shutil.rmtree(home)
    return took, saved, committed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nice", type=int, default=10)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    steps = Steps(0.020)
    took: dict[bool, list[float]] = {False: [], True: []}
    saves: dict[bool, list[float]] = {False: [], True: []}
    committed = 0
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        for _ in range(given.rounds):
            for service in (False, True):
                step, save_, done = one_round(Path(folder), given, steps, service=service)
                took[service] += step
                saves[service] += save_
                committed += done
    print(
        f"{given.rounds} rounds of {given.steps} steps, {given.mib} MiB every {given.every}, load {os.getloadavg()[0]:.1f}"
    )
    print(f"{committed} of {len(saves[True])} saves were committed while training went on")
    cuts = {service: statistics.quantiles(times, n=100) for service, times in took.items()}
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99)):
        off, on = cuts[False][percent - 1], cuts[True][percent - 1]
        print(f"step {name}   off {off * 1e3:7.2f} ms   on {on * 1e3:7.2f} ms   on / off {on / off:5.3f}")
    off, on = (statistics.median(saves[service]) for service in (False, True))
    print(f"save p50   off {off * 1e3:7.0f} ms   on {on * 1e3:7.0f} ms   on / off {on / off:5.3f}")
    off, on = (sum(took[service]) + sum(saves[service]) for service in (False, True))
    print(f"all of it  off {off:7.2f} s    on {on:7.2f} s    on / off {on / off:5.3f}")


if __name__ == "__main__":
    main()
