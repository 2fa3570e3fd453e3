"""Stores of each kind in empty places, as the contract's checks want them."""

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from lakemark.adapters.disk.digests import Digester
from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.dvc import layout as dvc_layout
from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.hot.store import TreeStore
from lakemark.contract.store import LEDGER, StoreUnderCheck

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def digests(content, part_size_bytes):
    digester = Digester(part_size_bytes)
    digester.update(memoryview(content))
    found = digester.finish()
    return found.digest, found.parts


def flip(path: Path, offset: int = 0) -> None:
    """One byte of a file of ours, whatever its mode says."""
    mode = path.stat().st_mode
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    path.chmod(mode)


class Trees:
    def __init__(self, folder: Path):
        self.folder = folder

    def store(self, name="hot", **how):
        return TreeStore(self.folder / name, name="hot", node="node-a", min_free=0, **how)

    def foreign(self):
        (self.folder / "foreign").mkdir(exist_ok=True)
        (self.folder / "foreign" / "thesis.tex").write_text("mine")
        return self.store("foreign")

    def corrupt(self, store, checkpoint, path):
        flip(store.path(checkpoint.record) / path)


class Directories:
    def __init__(self, folder: Path):
        self.folder = folder

    def store(self, name="cold", **how):
        return DvcStore(DirectoryBlobs(self.folder / name), name="cold", tier_class="cold", **how)

    def foreign(self):
        (self.folder / "foreign").mkdir(exist_ok=True)
        (self.folder / "foreign" / "thesis.tex").write_text("mine")
        return self.store("foreign")

    def corrupt(self, store, checkpoint, path):
        digest = next(file.digest for file in checkpoint.manifest.files if file.path == path)
        flip(self.folder / "cold" / dvc_layout.object_key(checkpoint.objects[digest]))


class Buckets:
    def __init__(self, server, folder: Path):
        self.server = server
        self.folder = folder
        self.prefix = f"tier-{secrets.token_hex(6)}"

    def store(self, name="warm", **how):
        blobs = self.server.blobs(self.folder / "journal", prefix=f"{self.prefix}/{name}")
        return DvcStore(blobs, name="warm", tier_class="warm", **how)

    def foreign(self):
        store = self.store("foreign")
        store.blobs.replace("thesis.tex", b"mine")
        return store

    def corrupt(self, store, checkpoint, path):
        digest = next(file.digest for file in checkpoint.manifest.files if file.path == path)
        key = dvc_layout.object_key(checkpoint.objects[digest])
        data = bytearray(store.blobs.get(key))
        data[0] ^= 1
        store.blobs.replace(key, bytes(data))


def shelf_of(places) -> StoreUnderCheck:
    store = places.store()
    store.claim(LEDGER, now=NOW)
    return StoreUnderCheck(
        store=store,
        digests=digests,
        again=places.store,
        elsewhere=lambda: places.store(f"other-{os.urandom(4).hex()}"),
        foreign=places.foreign,
        corrupt=lambda checkpoint, path: places.corrupt(store, checkpoint, path),
        now=NOW,
    )
