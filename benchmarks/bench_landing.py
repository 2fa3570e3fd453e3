"""Landing a checkpoint in hot, against `dvc add` on the same file system, and against a raw O_DIRECT write of the same bytes.

    python benchmarks/bench_landing.py [--mib 512] [--files 4] [--rounds 3] [--dir DIR]

Cases are interleaved; shown are medians with the spread, and the ratios that docs promise: linking >= 15 x `dvc add`,
copying >= 0.95 of a raw write.
"""

import argparse
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from lakemark.adapters.hot.store import TreeStore
from lakemark.model.checkpoints.record import record_for
from lakemark.ports import Quiet

CHUNK = 8 * 2**20
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def save(folder: Path, mib: int, files: int) -> None:
    folder.mkdir(parents=True)
    block = os.urandom(2**20)
    for number in range(files):
        with (folder / f"shard-{number:03}").open("wb") as file:
            for part in range(mib // files):
                file.write(part.to_bytes(8, "big") + block[8:])
            os.fsync(file.fileno())


def land(out: Path, hot: Path, landing: str) -> None:
    store = TreeStore(hot, name="hot", node="bench", min_free=0, landing=landing)
    store.claim("bench", now=NOW)
    landed = store.land(out, quiet_seconds=0, roles={}, progress=Quiet())
    store.adopt(landed, record_for(landed.manifest, run="bench", timeline=1, step=1, saved_at=NOW, node="bench"))


def write_raw(folder: Path, mib: int, files: int) -> None:
    """What the disk can do: from memory, past the page cache, two writers, fsynced; nothing is hashed."""
    folder.mkdir()
    data = memoryview(mmap.mmap(-1, CHUNK))
    data[:] = os.urandom(CHUNK)

    def write(number: int) -> None:
        descriptor = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        for chunk in range(mib * 2**20 // files // CHUNK):
            os.pwrite(descriptor, data, chunk * CHUNK)
        os.fsync(descriptor)
        os.close(descriptor)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(files)))


def dvc_add(out: Path, repository: Path) -> None:
    program = Path(sys.executable).parent / "dvc"
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1", "HOME": str(repository.parent)}
    subprocess.run([program, "add", "-q", out.name], cwd=repository, check=True, env=environment)


def measure(place: Path, mib: int, files: int, rounds: int) -> dict[str, list[float]]:
    out = place / "repository" / "out"
    save(out, mib, files)
    subprocess.run(["git", "init", "-q"], cwd=out.parent, check=True)
    program = Path(sys.executable).parent / "dvc"
    subprocess.run([program, "init", "-q"], cwd=out.parent, check=True, env={**os.environ, "DVC_NO_ANALYTICS": "1"})
    cases: dict[str, Callable[[], None]] = {
        "land, linked": lambda: land(out, place / "target", "auto"),
        "land, copied": lambda: land(out, place / "target", "copy"),
        "raw O_DIRECT write": lambda: write_raw(place / "target", mib, files),
        "dvc add": lambda: dvc_add(out, out.parent),
    }
    took: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            os.sync()
            began = time.perf_counter()
            case()
            took[name].append(time.perf_counter() - began)
            shutil.rmtree(place / "target", ignore_errors=True)
            shutil.rmtree(out.parent / ".dvc" / "cache", ignore_errors=True)
            shutil.rmtree(out.parent / ".dvc" / "tmp", ignore_errors=True)
            (out.parent / "out.dvc").unlink(missing_ok=True)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        took = measure(Path(folder), given.mib, given.files, given.rounds)
    print(f"{given.mib} MiB in {given.files} files, {given.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    middle = {name: statistics.median(times) for name, times in took.items()}
    for name, times in took.items():
        spread = f"{given.mib / max(times):.0f} to {given.mib / min(times):.0f}"
        print(f"{name:20} {given.mib / middle[name]:8.0f} MiB/s  ({spread})")
    print(f"linked / dvc add     {middle['dvc add'] / middle['land, linked']:8.1f} x  (to reach: 15)")
    print(f"copied / raw write   {middle['raw O_DIRECT write'] / middle['land, copied']:8.2f} x  (to reach: 0.95)")


if __name__ == "__main__":
    main()
