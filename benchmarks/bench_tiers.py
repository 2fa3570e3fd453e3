"""What letting go of checkpoints costs in a tier of many: a drop, and a pass that removes what was dropped.

    python benchmarks/bench_tiers.py [--records 1300] [--drops 50] [--dir DIR] [--only directory|s3]

The tier is filled past our code with records of two files of their own; then half of `--drops` are dropped one after the
other and removed after the grace, and the other half once more beside them: what a service does again and again. Each
line: seconds, and requests by kind (a listing counts once for each 1,000 names).
"""

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

from bench_replicate_memory import BUCKET, NOW, seaweedfs

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.disk.pool import run_all
from lakemark.adapters.dvc import layout
from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.s3.objects import S3Blobs
from lakemark.adapters.s3.place import Credentials, S3Place
from lakemark.contract.store import StoreUnderCheck
from lakemark.ports import Checkpoint
from lakemark.site import digests_of

GRACE = timedelta(hours=72)
PAGE = 1000


class Counted:
    """Blobs that count what is asked of them."""

    def __init__(self, blobs: DirectoryBlobs | S3Blobs) -> None:
        self._blobs = blobs
        self.count: Counter[str] = Counter()

    def __getattr__(self, name: str) -> object:
        found = getattr(self._blobs, name)
        if name not in ("get", "size", "create", "replace", "delete", "list"):
            return found

        def counted(*given: object, **how: object) -> object:
            answer = found(*given, **how)
            self.count[name] += 1 if name != "list" else 1 + len(answer.sizes) // PAGE
            return answer

        return counted

    def each(self, prefix: str) -> Iterator[tuple[str, int]]:
        for number, one in enumerate(self._blobs.each(prefix)):
            self.count["list"] += number % PAGE == 0
            yield one


def checkpoint(step: int) -> tuple[Checkpoint, dict[str, bytes]]:
    """A record of two files, and the objects it has in a tier, by key."""
    contents = {name: f"{name} of {step}".encode() for name in ("weights.bin", "optimizer.bin")}
    bare = StoreUnderCheck(store=None, digests=digests_of, now=NOW, run="bench").checkpoint(contents, step=step)
    objects, found = {}, {}
    for file in bare.manifest.regular:
        name = layout.dir_name(contents[file.path]).removesuffix(layout.DIR)
        objects[str(file.digest)] = name
        found[layout.object_key(name)] = contents[file.path]
    listed = layout.dir_bytes(bare.manifest, objects)
    objects["dir"] = layout.dir_name(listed)
    found[layout.object_key(objects["dir"])] = listed
    claim = layout.Claim(record=bare.record, manifest=bare.manifest, objects=objects, claimed_at=NOW)
    found[layout.claim_key(bare.record.id)] = claim.to_bytes()
    return claim.checkpoint, found


def fill(blobs: DirectoryBlobs | S3Blobs, records: int) -> None:
    def write(step: int) -> None:
        for key, data in checkpoint(step)[1].items():
            if isinstance(blobs, S3Blobs):
                blobs.create(key, data)
            else:
                path = Path(blobs.where) / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    for _ in run_all((partial(write, step) for step in range(records)), workers=8):
        pass


@contextmanager
def measured(what: str, blobs: Counted) -> Iterator[None]:
    blobs.count.clear()
    began, spent = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    asked = json.dumps(dict(sorted(blobs.count.items())))
    print(f"  {what:34} {seconds:8.2f} s  {cpu:7.2f} CPU s  {asked}", flush=True)


def measure(blobs: DirectoryBlobs | S3Blobs, records: int, drops: int) -> None:
    counted = Counted(blobs)
    store = DvcStore(counted, name="tier", tier_class="warm")
    store.claim("bench", now=NOW)
    fill(blobs, records)
    print(f"{blobs.kind}, {records} records, load {os.getloadavg()[0]:.1f}", flush=True)
    held = {one.record.id: one for one in (checkpoint(step)[0] for step in range(records))}
    gone = list(held.values())[:drops]
    with measured("first pass of a process", counted):
        store.collect(now=NOW, grace=GRACE, needed=list(held.values()))
    for turn, some in enumerate((gone[::2], gone[1::2])):
        at = NOW + timedelta(hours=turn)
        with measured(f"{len(some)} drops", counted):
            for one in some:
                store.drop(one, now=at)
                del held[one.record.id]
        with measured("is anything due?", counted):
            store.due(now=at, grace=GRACE)
        with measured("a pass before the grace is over", counted):
            store.collect(now=at, grace=GRACE, needed=list(held.values()))
    late = NOW + GRACE
    with measured("is anything due?", counted):
        assert store.due(now=late, grace=GRACE)
    with measured(f"a pass that removes {len(gone[::2])}", counted):
        assert store.collect(now=late, grace=GRACE, needed=list(held.values())) > 0
    with measured("is anything due after it?", counted):
        assert not store.due(now=late, grace=GRACE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1300)
    parser.add_argument("--drops", type=int, default=50)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--only", choices=["directory", "s3"], default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        place = Path(folder)
        if given.only != "s3":
            measure(DirectoryBlobs(place / "tier"), given.records, given.drops)
        if given.only != "directory":
            with seaweedfs(place / "seaweedfs") as (endpoint, *keys):
                where = S3Place(bucket=BUCKET, prefix="tier", endpoint=endpoint)
                journal = place / "journal"
                measure(S3Blobs(where, Credentials(*keys), journal=journal), given.records, given.drops)


if __name__ == "__main__":
    main()
