"""`dvc pull`, as somebody without lakemark runs it, brings the files' bytes back; and DVC itself would name them so."""

import os
import subprocess
import textwrap

import pytest

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.dvc.store import DvcStore
from lakemark.contract.store import source
from lakemark.ports import Quiet
from tests.adapters.test_dvc import checkpoint_of
from tests.contract.store_places import NOW

CONTENTS = {
    "weights.bin": bytes(range(256)) * 4000,
    "x/b": b"order",
    "x.b": b"of",
    "x-": b"names",
    "deep/er/ünï code.txt": b"line\r\nline\n",
    "bin/run": b"#!/bin/sh\n",
    "empty": b"",
    ".hidden": b"h",
    "twin": bytes(range(256)) * 4000,
}


@pytest.fixture
def clone(tmp_path, require_command):
    """A Git repository and a function that runs dvc in it, with nothing of this machine's own configuration."""
    place = tmp_path / "clone"
    place.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(tmp_path / "site"),
        "DVC_GLOBAL_CONFIG_DIR": str(tmp_path / "global"),
        "DVC_SYSTEM_CONFIG_DIR": str(tmp_path / "system"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    subprocess.run(["git", "init", "-q"], cwd=place, check=True, env=environment)

    def dvc(*arguments, **more):
        command = [require_command("dvc"), *arguments]
        done = subprocess.run(
            command, cwd=place, env={**environment, **more}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return place, dvc


def put(store):
    store.claim("ledger", now=NOW)
    checkpoint = checkpoint_of(CONTENTS)
    return store.put(checkpoint, source(CONTENTS), now=NOW, progress=Quiet()).objects["dir"]


def point(place, directory, config):
    (place / ".dvc").mkdir(exist_ok=True)
    (place / ".dvc" / "config").write_text(textwrap.dedent(config))
    size = sum(map(len, CONTENTS.values()))
    pointer = f"outs:\n- md5: {directory}\n  size: {size}\n  nfiles: {len(CONTENTS)}\n  hash: md5\n  path: checkpoint\n"
    (place / "checkpoint.dvc").write_text(pointer)


def pulled(place):
    root = place / "checkpoint"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_from_a_directory(tmp_path, clone):
    place, dvc = clone
    cold = tmp_path / "cold"
    directory = put(DvcStore(DirectoryBlobs(cold), name="cold", tier_class="cold"))
    point(place, directory, f"['remote \"cold\"']\n    url = {cold}\n    verify = true\n")
    dvc("pull", "-q", "-r", "cold")
    assert pulled(place) == CONTENTS
    assert "up to date" in dvc("status")
    # DVC's own name for the same files: a second opinion on the directory object, byte for byte.
    (place / "checkpoint.dvc").unlink()
    dvc("add", "-q", "checkpoint")
    assert f"md5: {directory}\n" in (place / "checkpoint.dvc").read_text()


@pytest.mark.xdist_group("seaweedfs")
def test_from_a_bucket(seaweedfs, tmp_path, clone):
    place, dvc = clone
    blobs = seaweedfs.blobs(tmp_path / "journal")
    directory = put(DvcStore(blobs, name="warm", tier_class="warm"))
    config = f"""\
        ['remote "warm"']
            url = {blobs.where}
            endpointurl = {seaweedfs.endpoint}
            region = us-east-1
            verify = true
        """
    point(place, directory, config)
    keys = {
        "AWS_ACCESS_KEY_ID": seaweedfs.credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": seaweedfs.credentials.secret_access_key,
    }
    dvc("pull", "-q", "-r", "warm", **keys)
    assert pulled(place) == CONTENTS
