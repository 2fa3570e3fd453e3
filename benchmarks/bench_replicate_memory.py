"""Peak memory of replicating a checkpoint from hot to a directory and to S3, each in a process of its own.

    python benchmarks/bench_replicate_memory.py [--mib 1024] [--dir DIR]

The limit is 200 MiB, however large the checkpoint: bounded workers, buffers that are used again.
"""

import argparse
import os
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

LIMIT_MIB = 200
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
BUCKET = "bench"


@contextmanager
def seaweedfs(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(endpoint, access key, secret) of a server that lives as long as the block."""
    from lakemark.sandbox import loopback, seaweedfs as weed

    (folder / "data").mkdir(parents=True)
    ports = weed.ports(folder / "ports", loopback.free_ports(1)[0], avoid=())
    secret = secrets.token_hex(16)
    environment = weed.environment(os.environ, access_key="bench", secret_key=secret)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            weed.command(folder / "data", ports), env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while weed.waits_for(ports, BUCKET) is not None:
                time.sleep(0.1)
            yield loopback.url(ports.s3), "bench", secret
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            weed.forget_sockets(ports)


def replicate(hot: Path, target: list[str]) -> None:
    """In the measured process: commit what hot's neighbour holds, then put it."""
    from lakemark.adapters.disk.directory_objects import DirectoryBlobs
    from lakemark.adapters.dvc.store import DvcStore
    from lakemark.adapters.hot.store import TreeStore
    from lakemark.model.checkpoints.record import record_for
    from lakemark.ports import Checkpoint, Quiet

    store = TreeStore(hot, name="hot", node="bench", min_free=0)
    store.claim("bench", now=NOW)
    landed = store.land(hot.parent / "out", quiet_seconds=0, roles={}, progress=Quiet())
    record = record_for(landed.manifest, run="bench", timeline=1, step=1, saved_at=NOW, node="bench")
    store.adopt(landed, record)
    checkpoint = Checkpoint(record=record, manifest=landed.manifest)
    if len(target) == 1:
        blobs = DirectoryBlobs(Path(target[0]))
    else:
        from lakemark.adapters.s3.objects import S3Blobs
        from lakemark.adapters.s3.place import Credentials, S3Place

        place = S3Place(bucket=BUCKET, prefix="warm", endpoint=target[0])
        blobs = S3Blobs(place, Credentials(*target[1:]), journal=hot.parent / "journal")
    tier = DvcStore(blobs, name="tier", tier_class="warm")
    tier.claim("bench", now=NOW)
    began = time.perf_counter()
    tier.put(checkpoint, lambda file: store.open(checkpoint, file), now=NOW, progress=Quiet())
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = landed.manifest.size_bytes / 2**20 / seconds
    print(
        f"{blobs.kind:10} peak {peak:6.0f} MiB of {LIMIT_MIB}, {seconds:6.1f} s ({rate:.0f} MiB/s, read back)",
        flush=True,
    )
    store.drop(checkpoint, now=NOW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--replicate", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replicate:
        replicate(given.dir, given.replicate)
        return
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        place = Path(folder)
        (place / "out").mkdir()
        block = os.urandom(2**20)
        with (place / "out" / "weights.bin").open("wb") as file:
            for part in range(given.mib):
                file.write(part.to_bytes(8, "big") + block[8:])
        print(f"one file of {given.mib} MiB, load {os.getloadavg()[0]:.1f}", flush=True)
        command = [sys.executable, __file__, "--dir", str(place / "hot"), "--replicate"]
        subprocess.run([*command, str(place / "cold")], check=True)
        with seaweedfs(place / "seaweedfs") as server:
            subprocess.run([*command, *server], check=True)


if __name__ == "__main__":
    main()
