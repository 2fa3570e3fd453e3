"""What a durable append costs as the ledger grows, packing included; and what a new process pays to know the run.

Prints milliseconds per append in windows of entries, and each window's ratio to the first. `--entries` says how far.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lakemark.adapters.git.ledger import GitLedger, Remote
from lakemark.adapters.git.make import init
from lakemark.index import Index
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import record_for
from lakemark.model.ledger.entry import Attachments, Draft, Stamp

RUN = "bench"
START = datetime(2026, 11, 26, tzinfo=UTC)
REMOTES = {"warm": Remote(name="warm", url="s3://lakemark/warm", endpoint="http://127.0.0.1:8333")}


def drafts(number: int) -> list[Draft]:
    """A commit and its replica: the two entries that every checkpoint gets."""
    digest = f"{number:064x}"
    manifest = Manifest(files=tuple(File(path=f"part-{part}", size_bytes=number, digest=digest) for part in range(20)))
    record = record_for(manifest, run=RUN, timeline=1, step=number, saved_at=START, node="node-a")
    objects = {digest: digest[32:], "dir": digest[32:]}
    return [
        Draft(
            kind="committed", timeline=1, contents=Attachments(record=record, manifest=manifest), body={"tier": "hot"}
        ),
        Draft(
            kind="replicated",
            timeline=1,
            record=record.id,
            contents=Attachments(objects=objects),
            body={"tier": "warm", "node": None, "verified_at": "2026-11-26T00:00:00Z"},
        ),
    ]


def append(ledger: GitLedger, number: int, which: int) -> float:
    draft = drafts(number)[which]
    stamp = Stamp(at=START + timedelta(minutes=number), node="node-a", actor="ana", request=f"{which}:{number}")
    started = time.perf_counter()
    ledger.append(RUN, lambda _: draft, stamp)
    return 1000 * (time.perf_counter() - started)


def synced_file(folder: Path) -> float:
    """One small file, fsynced with its folder: the disk's own price."""
    started = time.perf_counter()
    with (folder / "probe").open("wb") as file:
        file.write(b"x" * 500)
        file.flush()
        os.fsync(file.fileno())
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return 1000 * (time.perf_counter() - started)


def report(label: str, times: list[float], base: float | None) -> float:
    mean = statistics.fmean(times)
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    ratio = "" if base is None else f"  ratio of means {mean / base:.2f}"
    print(f"{label:>16}: p50 {p50:6.2f}  p99 {p99:7.2f}  max {max(times):8.1f}  mean {mean:6.2f} ms{ratio}")
    return mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; the default is a temporary folder")
    entries = parser.parse_args().entries
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as name:
        folder = Path(name)
        probe = [synced_file(folder) for _ in range(100)]
        print(f"a synced file of 500 bytes: p50 {statistics.median(probe):.2f} ms")
        init(folder / "ledger.git")
        ledger = GitLedger(folder / "ledger.git", remotes=REMOTES)
        times = [append(ledger, number // 2, number % 2) for number in range(entries)]
        windows = [start for start in (10, 1_000, 5_000, 20_000, 100_000) if start + 10 <= entries] + [entries]
        base = None
        for start in sorted(set(windows)):
            low, high = (start, start + 500) if start < entries else (max(0, entries - 1000), entries)
            mean = report(f"{low}..{high}", times[low:high], base)
            base = base or mean
        # As passes do it: what was read must stay as it was, whatever is appended next.
        started, more = time.process_time(), range(entries, entries + 500)
        for number in more:
            ledger.run(RUN)
            append(ledger, number // 2, number % 2)
        print(f"with a read before each: {1000 * (time.process_time() - started) / len(more):.2f} CPU ms")
        packs = len(list((folder / "ledger.git/objects/pack").glob("*.pack")))
        print(f"packs {packs}, alarms {ledger.alarms}")
        cache = Index(folder / "index.sqlite")
        for label, known in (("without cache", None), ("filling it", cache), ("from cache", cache)):
            started = time.process_time()
            sequence = GitLedger(folder / "ledger.git", cache=known).run(RUN).sequence
            print(
                f"a new process' first look, {label}: {time.process_time() - started:.2f} CPU s for {sequence} entries"
            )


if __name__ == "__main__":
    sys.exit(main())
