"""Servers that tests share: started once for each worker, on loopback, ended with it."""

import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from lakemark.adapters.s3.place import Credentials, S3Place
from lakemark.sandbox import loopback, seaweedfs as weed
from tests.lakefs_scratch import LakefsServer

LAKEFS_SERVERS = ["lakefs", "lakefs_endpoint"] if os.environ.get("LAKEFS_ENDPOINT") else ["lakefs"]
"""Fixtures to run a contract on: the stand-in, and a server of one's own if the environment names it."""


@pytest.fixture(scope="session")
def lakefs(tmp_path_factory):
    """The lakeFS stand-in: endpoint, access_key_id, secret_access_key, data(), scratch()."""
    directory = tmp_path_factory.mktemp("lakefs")
    keys = {"LAKEFS_ACCESS_KEY_ID": "AKIAtests", "LAKEFS_SECRET_ACCESS_KEY": secrets.token_hex(16)}
    command = [sys.executable, "-m", "lakemark.sandbox.lakefs", "--dir", str(directory), "--port", "0"]
    process = subprocess.Popen(command, env={**os.environ, **keys}, stdout=subprocess.PIPE, text=True)
    try:
        endpoint = process.stdout.readline().strip()
        assert endpoint.startswith("http://127.0.0.1:"), f"the stand-in did not start: {process.poll()}"

        def find_bytes(address: str) -> Path:
            name = address.rsplit("/", 1)[1]
            return directory / "objects" / name[:2] / name

        yield LakefsServer(endpoint, *keys.values(), find_bytes=find_bytes, directory=directory)
    finally:
        process.terminate()
        process.wait(timeout=180)
        process.stdout.close()


@pytest.fixture(scope="session")
def lakefs_endpoint():
    """The lakeFS server that LAKEFS_ENDPOINT names, with its keys in the environment.

    LAKEFS_NAMESPACES is where its repositories may lie, LAKEFS_BLOCKS the directory of its local block store.
    """
    blocks = os.environ.get("LAKEFS_BLOCKS")

    def find_bytes(address: str) -> Path | None:
        return Path(blocks) / address.removeprefix("local://") if blocks else None

    return LakefsServer(
        os.environ["LAKEFS_ENDPOINT"],
        os.environ["LAKEFS_ACCESS_KEY_ID"],
        os.environ["LAKEFS_SECRET_ACCESS_KEY"],
        find_bytes=find_bytes,
        namespaces=os.environ.get("LAKEFS_NAMESPACES", "local://"),
    )


@dataclass(frozen=True)
class S3Server:
    """A bucket of its own on SeaweedFS, with the keys to it."""

    endpoint: str
    bucket: str
    credentials: Credentials
    environment: dict

    def blobs(self, journal: Path, prefix: str | None = None):
        """A prefix of the bucket, by default a new one."""
        from lakemark.adapters.s3.objects import S3Blobs  # a second to import, which most tests need not spend

        place = S3Place(bucket=self.bucket, prefix=prefix or f"tier-{secrets.token_hex(6)}", endpoint=self.endpoint)
        return S3Blobs(place, self.credentials, journal=journal)

    def client(self):
        """boto3's own, for looking at the bucket past our code."""
        import boto3

        keys = {
            "aws_access_key_id": self.credentials.access_key_id,
            "aws_secret_access_key": self.credentials.secret_access_key,
        }
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", **keys)


def _serving(process, ports, bucket):
    deadline = time.monotonic() + 240
    while (missing := weed.waits_for(ports, bucket)) is not None:
        assert process.poll() is None, "SeaweedFS ended before it served"
        assert time.monotonic() < deadline, f"SeaweedFS is still waiting for {missing}"
        time.sleep(0.1)


def read_descriptions_once():
    """Else each client reads the vendor's descriptions of its services anew, which is most of what a short test costs."""
    import botocore.session

    if not hasattr(botocore.session.create_loader, "cache_info"):
        botocore.session.create_loader = cache(botocore.session.create_loader)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory, require_command):
    """A real S3 server: endpoint, bucket, credentials, blobs(), client()."""
    require_command("weed")
    read_descriptions_once()
    folder = tmp_path_factory.mktemp("seaweedfs")
    credentials = Credentials("tests", secrets.token_hex(16))
    ports = weed.ports(folder / "ports", loopback.free_ports(1)[0], avoid=())
    environment = weed.environment(
        os.environ, access_key=credentials.access_key_id, secret_key=credentials.secret_access_key
    )
    log = (folder / "log").open("wb")
    command = weed.command(folder / "data", ports)
    (folder / "data").mkdir()
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        _serving(process, ports, "tests")
        yield S3Server(loopback.url(ports.s3), "tests", credentials, environment)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # what it holds is thrown away; a gentle end takes half a minute
        process.wait(timeout=180)
        log.close()
        weed.forget_sockets(ports)


@pytest.fixture
def s3_faults(seaweedfs):
    """A proxy before `seaweedfs` whose requests fail as the test says: see `support.s3_faults`."""
    from tests.support.s3_faults import S3Faults  # botocore takes a while, which most tests need not spend

    with S3Faults(seaweedfs.endpoint, seaweedfs.credentials) as proxy:
        yield proxy
