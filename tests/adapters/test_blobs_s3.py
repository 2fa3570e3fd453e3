"""S3 on a real server, and the refusals and failures of servers that are away, closed to us, or careless."""

import io
import secrets
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakemark.adapters.disk.digests import Digester, VerifiedStream
from lakemark.adapters.disk.objects import TooLate
from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.s3.objects import PART_BYTES, S3Blobs
from lakemark.adapters.s3.place import Credentials, NotOffered, S3Place, as_ours
from lakemark.contract import Broken, blobs
from lakemark.contract.store import source
from lakemark.errors import Corrupt, Denied, Misconfigured, NoRoom, NotFound, Refused, StoreUnavailable
from lakemark.model.checkpoints.manifest import File
from lakemark.ports import Expiry, Quiet
from tests.adapters.test_dvc import checkpoint_of
from tests.contract.store_places import NOW
from tests.support.s3_faults import lost_request, status as answering

pytestmark = pytest.mark.xdist_group("seaweedfs")
QUIET = Quiet()
BIG = 2 * PART_BYTES + 12_345


def file_of(content, path="weights.bin"):
    digester = Digester()
    digester.update(memoryview(content))
    found = digester.finish()
    return File(path=path, size_bytes=len(content), digest=found.digest, parts=found.parts)


def verified(content, file):
    return VerifiedStream(io.BytesIO(content), file, part_size_bytes=64 * 2**20)


@pytest.fixture
def bucket(seaweedfs, tmp_path):
    return seaweedfs.blobs(tmp_path / "journal")


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, BIG])
def test_every_size_comes_back(bucket, size):
    content = secrets.token_bytes(997) * (size // 997 + 1)
    content = content[:size]
    assert bucket.write("files/md5/ab/c", verified(content, file_of(content)), size, overwrite=False)
    with bucket.open("files/md5/ab/c") as stream:
        assert stream.read() == content
    assert bucket.size("files/md5/ab/c") == size
    if size > 10:
        with bucket.open("files/md5/ab/c", start=size - 7, length=5) as stream:
            assert stream.read(5) == content[-7:-2]


@pytest.mark.parametrize("size", [1000, BIG])
def test_what_exists_is_not_written_over_unless_asked(bucket, size):
    first, second = b"1" * size, b"2" * size
    assert bucket.write("files/x", verified(first, file_of(first)), size, overwrite=False)
    assert not bucket.write("files/x", verified(second, file_of(second)), size, overwrite=False)
    with bucket.open("files/x") as stream:
        assert stream.read(10) == first[:10]
    assert bucket.write("files/x", verified(second, file_of(second)), size, overwrite=True)
    with bucket.open("files/x") as stream:
        assert stream.read() == second


@pytest.mark.parametrize("size", [1000, BIG])
def test_wrong_bytes_never_become_visible(bucket, seaweedfs, size):
    content = b"1" * size
    wrong = content[:-1] + b"2"
    for lie in (wrong, content[:-1], content + b"1"):
        with pytest.raises(Corrupt):
            bucket.write("files/x", verified(lie, file_of(content)), size, overwrite=False)
        assert bucket.get("files/x") is None
    uploads = seaweedfs.client().list_multipart_uploads(Bucket=seaweedfs.bucket, Prefix=bucket._root)
    assert uploads.get("Uploads", []) == []


def test_a_killed_uploads_parts_are_aborted_by_the_next(bucket, seaweedfs, tmp_path):
    script = textwrap.dedent("""
        import io, os, sys
        from pathlib import Path
        from lakemark.adapters.s3.objects import S3Blobs, PART_BYTES
        from lakemark.adapters.s3.place import Credentials, S3Place
        endpoint, bucket, prefix, key, secret, journal = sys.argv[1:]
        class Dying(io.RawIOBase):
            sent = 0
            def readable(self): return True
            def readinto(self, buffer):
                self.sent += len(buffer)
                if self.sent > 3 * PART_BYTES:
                    os.kill(os.getpid(), 9)
                return len(buffer)
        place = S3Place(bucket=bucket, prefix=prefix, endpoint=endpoint)
        blobs = S3Blobs(place, Credentials(key, secret), journal=Path(journal))
        blobs.write(sys.stdin.readline().strip(), Dying(), 10 * PART_BYTES, overwrite=False)
    """)
    prefix = bucket._root.rstrip("/")
    keys = (seaweedfs.credentials.access_key_id, seaweedfs.credentials.secret_access_key)
    command = [sys.executable, "-c", script, seaweedfs.endpoint, seaweedfs.bucket, prefix, *keys, tmp_path / "journal"]
    client = seaweedfs.client()
    for key in ("files/absent", "files/there"):
        done = subprocess.run(command, input=f"{key}\n", text=True, check=False)
        assert done.returncode == -9

    def uploads():
        found = client.list_multipart_uploads(Bucket=seaweedfs.bucket, Prefix=f"{prefix}/").get("Uploads", [])
        return sorted(upload["Key"] for upload in found)

    assert uploads() == [f"{prefix}/files/absent", f"{prefix}/files/there"]
    bucket.create("files/there", b"whole")
    assert bucket.tidy() == 2
    assert uploads() == [f"{prefix}/files/there"]
    assert bucket.get("files/there") == b"whole"
    assert list((tmp_path / "journal").glob("[!.]*")) == []


def test_an_upload_is_not_aborted_because_anything_says_404(seaweedfs, s3_faults, tmp_path):
    """Where the key is there, aborting could take its bytes away: only the listing says that it is not."""
    blobs = s3_faults.before(seaweedfs).blobs(tmp_path)
    upload = blobs._begin_upload("files/there", blobs._bench.begin())
    blobs.create("files/there", b"whole")
    s3_faults.on(answering(404, "NoSuchKey"), method="HEAD", times=None)
    blobs._abort_unless_there(upload)
    assert not s3_faults.asked(operation="AbortMultipartUpload")
    s3_faults.clear()
    blobs.delete("files/there")
    blobs._abort_unless_there(upload)
    assert s3_faults.asked(operation="AbortMultipartUpload")


def test_a_living_upload_is_left_alone(bucket, seaweedfs, tmp_path):
    started, go_on = threading.Event(), threading.Event()

    class Waiting(io.RawIOBase):
        left = BIG

        def readable(self):
            return True

        def readinto(self, buffer):
            started.set()
            assert go_on.wait(180)
            count = min(len(buffer), self.left)
            self.left -= count
            return count

    results = []
    writer = threading.Thread(target=lambda: results.append(bucket.write("files/x", Waiting(), BIG, overwrite=False)))
    writer.start()
    assert started.wait(180)
    assert seaweedfs.blobs(tmp_path / "journal", prefix=bucket._root.rstrip("/")).tidy() == 0
    go_on.set()
    writer.join()
    assert results == [True]
    assert bucket.size("files/x") == BIG


def test_refusals_are_ours(seaweedfs, tmp_path):
    place = S3Place(bucket=seaweedfs.bucket, prefix="p", endpoint=seaweedfs.endpoint)
    wrong_secret = replace(seaweedfs.credentials, secret_access_key="no")
    for credentials in (wrong_secret, Credentials("nobody", "no")):
        with pytest.raises(Denied):
            S3Blobs(place, credentials, journal=tmp_path).get("x")
        with pytest.raises(Denied):
            S3Blobs(place, credentials, journal=tmp_path).create("x", b"")
    missing = S3Blobs(replace(place, bucket="no-such-bucket"), seaweedfs.credentials, journal=tmp_path)
    for deed in (lambda: missing.get("x"), lambda: missing.create("x", b""), lambda: missing.list("")):
        with pytest.raises(Misconfigured):
            deed()
    with pytest.raises(Misconfigured, match="endpoint"):
        S3Blobs(replace(place, endpoint="not a url"), seaweedfs.credentials, journal=tmp_path)
    with pytest.raises(NotFound):
        seaweedfs.blobs(tmp_path).open("nothing")


def test_a_server_that_is_away_is_unavailable(tmp_path, free_port):
    place = S3Place(bucket="b", prefix="p", endpoint=f"http://127.0.0.1:{free_port()}")
    store = DvcStore(S3Blobs(place, Credentials("a", "b"), journal=tmp_path), name="warm", tier_class="warm")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        store.identity()


def test_codes_mean_what_a_handler_does():
    meanings = {
        ("NoSuchKey", 404): NotFound,
        ("AccessDenied", 403): Denied,
        ("SomethingNew", 403): Denied,
        ("NoSuchBucket", 404): Misconfigured,
        ("SlowDown", 503): StoreUnavailable,
        ("InternalError", 500): StoreUnavailable,
        ("TooManyRequests", 429): StoreUnavailable,
        ("RequestTimeTooSkewed", 403): Refused,
        ("QuotaExceeded", 403): NoRoom,
        ("BadDigest", 400): Corrupt,
        ("InvalidRange", 416): Corrupt,
        ("NotImplemented", 400): NotOffered,
    }
    for (code, status), kind in meanings.items():
        error = as_ours(code, status, where="s3://b/k", text="x")
        assert type(error) is kind
        assert error.advice


def test_secrets_are_not_shown():
    assert "hush" not in repr(Credentials("key", "hush", "hush"))


def test_a_bucket_rule_that_expires_objects_is_seen(bucket, seaweedfs):
    assert bucket.expires() is None
    client, root = seaweedfs.client(), bucket._root
    rules = [
        {"ID": "elsewhere", "Status": "Enabled", "Filter": {"Prefix": "elsewhere/"}, "Expiration": {"Days": 1}},
        {"ID": "ours", "Status": "Enabled", "Filter": {"Prefix": root}, "Expiration": {"Days": 30}},
    ]
    try:
        for shown, expected in ((rules[:1], None), (rules, "ours")):
            client.put_bucket_lifecycle_configuration(Bucket=seaweedfs.bucket, LifecycleConfiguration={"Rules": shown})
            assert bucket.expires() == (expected and Expiry(rule=expected))
    finally:
        client.delete_bucket_lifecycle(Bucket=seaweedfs.bucket)


def test_a_large_file_goes_and_comes_in_parts(seaweedfs, tmp_path):
    store = DvcStore(seaweedfs.blobs(tmp_path / "journal"), name="warm", tier_class="warm")
    store.claim("ledger", now=NOW)
    content = secrets.token_bytes(1009) * (BIG // 1009 + 1)
    contents = {"weights.bin": content, "small": b"s"}
    checkpoint = checkpoint_of({"small": b"s"})
    manifest = replace(
        checkpoint.manifest,
        files=(file_of(content), file_of(b"s", "small")),
        part_size_bytes=64 * 2**20,
    )
    record = replace(checkpoint.record, content=manifest.content)
    checkpoint = replace(checkpoint, manifest=manifest, record=record)
    stored = store.put(checkpoint, source(contents), now=NOW, progress=QUIET)
    assert stored.written_bytes == len(content) + 1
    assert store.verify(checkpoint, progress=QUIET) == ()
    assert list((tmp_path / "journal").glob("[!.]*")) == []


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def careless_server(tmp_path, require_command, free_port):
    """rclone's S3: it ignores conditions and stated checksums."""
    (tmp_path / "served" / "tests").mkdir(parents=True)
    port = free_port()
    command = [
        require_command("rclone"),
        "serve",
        "s3",
        "--addr",
        f"127.0.0.1:{port}",
        "--auth-key",
        "careless,secret",
        "served",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 180
        while not _listens(port):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        place = S3Place(bucket="tests", prefix="p", endpoint=f"http://127.0.0.1:{port}", path_style=True)
        yield S3Blobs(place, Credentials("careless", "secret"), journal=tmp_path / "journal")
    finally:
        process.terminate()
        process.wait(timeout=180)


def test_a_careless_server_is_found_out(careless_server):
    found = set()
    for check in blobs.CHECKS:
        try:
            check.run(careless_server)
        except Broken:
            found.add(check.name)
    assert found == {"create", "checksum"}


def test_a_careless_servers_bytes_are_still_read_back(careless_server):
    store = DvcStore(careless_server, name="warm", tier_class="warm")
    store.claim("ledger", now=NOW)
    contents = {"a": b"a" * 5000, "b": b"b"}
    checkpoint = checkpoint_of(contents)
    store.put(checkpoint, source(contents), now=NOW, progress=QUIET)
    assert store.verify(checkpoint, progress=QUIET) == ()


def test_the_store_tells_its_time(bucket):
    bucket.replace("here", b"x")
    assert abs(datetime.now(UTC) - bucket.clock("here")) < timedelta(minutes=5)
    with pytest.raises(NotFound):
        bucket.clock("nowhere")


def test_a_removal_looks_whether_it_is_late_before_each_try(seaweedfs, s3_faults, tmp_path):
    """The first try is lost; the wait before the second is what makes it late."""
    bucket = s3_faults.before(seaweedfs).blobs(tmp_path / "journal")
    bucket.create("files/x", b"x")
    s3_faults.on(lost_request, operation="DeleteObject")
    looks = []

    def late():
        looks.append(len(s3_faults.asked(operation="DeleteObject")))
        if len(looks) > 1:
            raise TooLate("late", advice="Begin anew.")

    with pytest.raises(TooLate):
        bucket.delete("files/x", unless_late=late)
    assert looks == [0, 1]
    assert bucket.get("files/x") == b"x"
    bucket.delete("files/x", unless_late=lambda: None)
    assert bucket.get("files/x") is None
