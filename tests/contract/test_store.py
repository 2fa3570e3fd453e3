"""Every store keeps what `ports.store` promises; and the checks see one that does not."""

import io
import shutil
from datetime import datetime

import pytest

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.contract import Broken, blobs, store
from lakemark.ports import Damage, Expiry, Listing, Quiet, Stored, TierUsage
from tests.contract.store_places import NOW, Buckets, Directories, Trees, shelf_of
from tests.support.contract import hot

by_name = pytest.mark.parametrize("check", store.CHECKS, ids=lambda check: check.name)
LANDINGS = ("auto", "reflink", "link", "copy")


@by_name
def test_a_hot_tree_keeps(tmp_path, check):
    check.run(shelf_of(Trees(tmp_path)))


@by_name
def test_a_directory_keeps(tmp_path, check):
    check.run(shelf_of(Directories(tmp_path)))


@pytest.mark.xdist_group("seaweedfs")
@by_name
def test_a_bucket_keeps(seaweedfs, tmp_path, check):
    check.run(shelf_of(Buckets(seaweedfs, tmp_path)))


@pytest.mark.parametrize("check", hot.CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("landing", LANDINGS)
def test_hot_keeps(tmp_path, landing, check):
    hot_store = Trees(tmp_path).store(landing=landing)
    hot_store.claim(store.LEDGER, now=NOW)
    check.run(hot.Bench(store=hot_store, folder=tmp_path / "out", now=NOW))


@pytest.mark.parametrize("check", blobs.CHECKS, ids=lambda check: check.name)
def test_a_directory_is_fit(tmp_path, check):
    (tmp_path / "lakemark-tier.json").write_bytes(b"{}")  # a place that is empty might just not be mounted
    made = DirectoryBlobs(tmp_path)
    check.run(made)
    assert list(made.list("").sizes) == ["lakemark-tier.json"]


@pytest.mark.xdist_group("seaweedfs")
@pytest.mark.parametrize("check", blobs.CHECKS, ids=lambda check: check.name)
def test_a_bucket_is_fit(seaweedfs, tmp_path, check):
    made = seaweedfs.blobs(tmp_path)
    check.run(made)
    assert made.list("").sizes == {}


@pytest.mark.parametrize("place", [Trees, Directories])
def test_probes_leave_a_used_store_as_it_was(tmp_path, place):
    shelf = shelf_of(place(tmp_path))
    contents = store.contents_of()
    kept, _ = shelf.put(shelf.checkpoint(contents), contents)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for check in store.CHECKS:
        if check.probe:
            check.run(shelf)
    shutil.rmtree(tmp_path / "foreign")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before
    assert shelf.sound(kept)


class Careless:
    """Says yes to everything, keeps bytes by path alone, and lets anybody in."""

    name, tier_class, kind, domain = "warm", "warm", "directory", "warm"
    kept = None

    def __init__(self):
        self.bytes = {}
        self.kept = set()

    def identity(self):
        return None

    def claim(self, ledger, *, now):
        return None

    def holds(self, record):
        return True

    def put(self, checkpoint, source, *, now, progress):
        for file in checkpoint.manifest.regular:
            with source(file) as stream:
                self.bytes[file.path] = stream.read()
        self.kept.add(checkpoint.record.id)
        return Stored(verified_at=now, proof="none", written_bytes=1)

    def open(self, checkpoint, file, *, start=0, length=None):
        return io.BytesIO(self.bytes.get(file.path, b"")[:-1])

    def verify(self, checkpoint, *, progress):
        return (Damage(path="x", why="always"),) if self.bytes else ()

    def drop(self, checkpoint, *, now):
        self.bytes.clear()
        return 1

    def due(self, *, now, grace):
        return True

    def collect(self, *, now, grace, needed):
        return 1

    def claimed(self):
        return self.records()

    def strangers(self):
        return ("zz",)

    def records(self):
        return Listing(records=tuple(self.kept), complete=True)

    def usage(self):
        return TierUsage(used_bytes=-1, capacity_bytes=None)

    def expires(self):
        return Expiry(rule="after-a-week")

    def clock(self):
        return datetime(2026, 11, 26, 12)  # noqa: DTZ001 - the fault

    def keep_ledger(self, bundle):
        pass

    def open_ledger(self):
        return io.BytesIO()


@by_name
def test_the_checks_see_a_careless_store(tmp_path, check):
    shelf = store.StoreUnderCheck(
        store=Careless(),
        digests=lambda content, size: ("0" * 64, ()),
        again=Careless,
        elsewhere=Careless,
        foreign=Careless,
        corrupt=lambda checkpoint, path: None,
    )
    with pytest.raises(Broken):
        check.run(shelf)


class CarelessBlobs:
    def __init__(self):
        self.bytes = {}

    def get(self, key):
        return self.bytes.get(key)

    def absent(self, key):
        return key not in self.bytes

    def create(self, key, data):
        self.bytes[key] = data
        return True

    replace = create

    def delete(self, key, *, unless_late=None):
        pass

    def require_no_removal(self):
        pass

    def list(self, prefix, *, limit=None):
        return Listing(records=(), complete=False)

    def takes_wrong_checksum(self, key):
        return True

    def open(self, key, *, start=0, length=None):
        return io.BytesIO(self.bytes[key])


@pytest.mark.parametrize("check", blobs.CHECKS, ids=lambda check: check.name)
def test_the_checks_see_careless_blobs(check):
    if check.name == "list":
        return
    with pytest.raises(Broken):
        check.run(CarelessBlobs())


def test_progress_hears_every_byte(tmp_path):
    class Counting(Quiet):
        def __init__(self):
            self.expected = self.done = 0

        def expect(self, what, size_bytes):
            self.expected += size_bytes

        def advance(self, size_bytes):
            self.done += size_bytes

    for place in (Trees(tmp_path), Directories(tmp_path)):
        shelf = shelf_of(place)
        contents = store.contents_of()
        progress = Counting()
        checkpoint = shelf.checkpoint(contents)
        shelf.store.put(checkpoint, store.source(contents), now=NOW, progress=progress)
        assert progress.done == progress.expected >= checkpoint.manifest.size_bytes
