"""What a store answers that it should not: each is said in our words, and none is taken for what it is not."""

import io
import time
from dataclasses import replace

import pytest

from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.s3.objects import PART_BYTES, S3Blobs
from lakemark.adapters.s3.place import S3Place, as_ours
from lakemark.contract.store import LEDGER, source
from lakemark.errors import (
    AnswerDamaged,
    Corrupt,
    Denied,
    LakemarkError,
    Misconfigured,
    NoRoom,
    Refused,
    StoreUnavailable,
)
from lakemark.ports import Expiry, Quiet
from tests.adapters.test_dvc import CONTENTS, checkpoint_of, put
from tests.contract.store_places import NOW
from tests.support import s3_faults as faults

pytestmark = pytest.mark.xdist_group("seaweedfs")
QUIET = Quiet()
HURRY = {"minimum_rate": 2**20, "stall_seconds": 0.5}


@pytest.fixture
def bucket(seaweedfs, s3_faults, tmp_path):
    return s3_faults.before(seaweedfs).blobs(tmp_path / "journal")


@pytest.fixture
def warm(bucket):
    store = DvcStore(bucket, name="warm", tier_class="warm")
    store.claim(LEDGER, now=NOW)
    return store


SOON = {"minimum_rate": 2**22, "stall_seconds": 1.0}


def patient(server, tmp_path):
    """The same place as `hurried`, for what is no part of the question: a busy machine may take its time."""
    return S3Blobs(
        S3Place(bucket=server.bucket, prefix=tmp_path.name, endpoint=server.endpoint),
        server.credentials,
        journal=tmp_path / "journal",
    )


def in_the_end(deed, *, seconds=180):
    """What it answers once the store is quick enough: who is hurried gives up on a busy machine, too."""
    ends = time.monotonic() + seconds
    while True:
        try:
            return deed()
        except StoreUnavailable:
            assert time.monotonic() < ends, "the store stays given up"
            time.sleep(0.1)


def hurried(server, tmp_path, **how):
    """Blobs that wait half a second for a megabyte."""
    place = S3Place(bucket=server.bucket, prefix=tmp_path.name, endpoint=server.endpoint, **(HURRY | how))
    return S3Blobs(place, server.credentials, journal=tmp_path / "journal")


def test_a_listing_that_breaks_off_without_a_token_is_no_end(bucket, s3_faults):
    for number in range(6):
        bucket.create(f"files/{number}", b"x")
    s3_faults.on(faults.truncated_listing, operation="ListObjectsV2")
    with pytest.raises(AnswerDamaged, match="no word of how to ask for the rest"):
        bucket.list("files/")
    assert len(bucket.list("files/").sizes) == 6


def test_nothing_is_deleted_by_a_listing_that_breaks_off(warm, s3_faults):
    kept = put(warm, step=2)
    warm.drop(put(warm, {"other": b"o" * 40}), now=NOW)
    late = NOW.replace(year=2027)
    s3_faults.on(faults.truncated_listing, operation="ListObjectsV2", key="*lakemark/records/", times=None)
    with pytest.raises(AnswerDamaged):
        warm.collect(now=late, grace=late - NOW - (late - NOW) / 2, needed=[])
    with pytest.raises(AnswerDamaged):
        warm.claimed()
    assert s3_faults.asked(operation="DeleteObject", key="*/files/*") == []
    s3_faults.clear()
    assert warm.verify(kept, progress=QUIET) == ()


@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "PutObject", "UploadPart", "HeadObject", "GetObject"])
def test_an_answer_with_nothing_in_it_is_an_error_of_ours(bucket, s3_faults, operation):
    size = 2 * PART_BYTES if operation in ("CreateMultipartUpload", "UploadPart") else 10
    bucket.create("files/there", b"x")
    s3_faults.on(faults.empty_ok, operation=operation)
    works = {"HeadObject": lambda: bucket.size("files/there"), "GetObject": lambda: bucket.get("files/there")}
    write = works.get(operation, lambda: bucket.write("files/new", io.BytesIO(b"n" * size), size, overwrite=False))
    if operation == "HeadObject":  # a length of nothing is what it says
        assert write() == 0
        return
    with pytest.raises(AnswerDamaged):
        write()
    assert bucket.get("files/new") is None


def test_an_empty_listing_is_not_taken_for_an_empty_place(bucket, s3_faults):
    bucket.create("files/there", b"x")
    s3_faults.on(faults.empty_ok, operation="ListObjectsV2")
    with pytest.raises(AnswerDamaged, match="says nothing"):
        bucket.list("")


def test_an_error_that_breaks_off_is_an_error_of_ours(bucket, s3_faults):
    def broken_error(exchange):
        answer = faults.error(400, "InvalidRequest", "x" * 5000)
        exchange.head(answer)
        exchange.write(answer.body[:100])
        exchange.hang_up()

    bucket.create("files/there", b"x")
    s3_faults.on(broken_error, operation="GetObject", times=None)
    with pytest.raises(LakemarkError):
        bucket.get("files/there")


def test_an_answer_that_is_no_xml_is_an_error_of_ours(bucket, s3_faults):
    s3_faults.on(faults.other_body(b"<html>proxy login"), operation="ListObjectsV2", times=None)
    with pytest.raises((AnswerDamaged, StoreUnavailable)):
        bucket.list("")


@pytest.mark.parametrize("fault", [faults.reset_in_body, faults.cut_body, faults.short_body, faults.flipped_body])
def test_one_wrong_reading_is_no_damage(warm, s3_faults, fault):
    kept = put(warm)
    s3_faults.on(fault, operation="GetObject", key="*/files/md5/*")
    assert warm.verify(kept, progress=QUIET) == ()
    assert len(s3_faults.happened) == 1


def test_a_wrong_reading_that_stays_is_damage(warm, s3_faults):
    kept = put(warm)
    name = kept.objects[str(next(file.digest for file in kept.manifest.regular if file.path == "bin/run"))]
    s3_faults.on(faults.flipped_body, operation="GetObject", key=f"*/{name[2:]}", times=None)
    assert [one.path for one in warm.verify(kept, progress=QUIET)] == ["bin/run"]


def test_what_drips_is_given_up(seaweedfs, s3_faults, tmp_path):
    bucket = hurried(s3_faults.before(seaweedfs), tmp_path)
    patient(seaweedfs, tmp_path).replace("files/x", b"x" * 100_000)
    s3_faults.on(faults.dripping(step_bytes=1, every_seconds=0.05), operation="GetObject", times=None)
    with pytest.raises(StoreUnavailable, match="a second"):
        bucket.get("files/x")
    s3_faults.clear()
    assert in_the_end(lambda: bucket.get("files/x")) == b"x" * 100_000


def test_bytes_a_caller_is_slow_to_take_are_not_the_store_s_fault(seaweedfs, s3_faults, tmp_path):
    bucket = hurried(s3_faults.before(seaweedfs), tmp_path, minimum_rate=2**22)
    patient(seaweedfs, tmp_path).replace("files/x", b"x" * 3_000_000)
    with bucket.open("files/x") as stream:
        got = b""
        while chunk := stream.read(500_000):
            got += chunk
            s3_faults.ended.wait(0.3)
    assert len(got) == 3_000_000


def large(bucket):
    return bucket.write("files/large", io.BytesIO(b"n" * 2 * PART_BYTES), 2 * PART_BYTES, overwrite=False)


DEEDS = {
    "GetObject": lambda bucket: bucket.get("files/x"),
    "HeadObject": lambda bucket: bucket.size("files/x"),
    "ListObjectsV2": lambda bucket: bucket.list("files/"),
    "DeleteObject": lambda bucket: bucket.delete("files/x"),
    "PutObject": lambda bucket: bucket.replace("files/x", b"x" * 1000),
    "CreateMultipartUpload": large,
    "UploadPart": large,
    "CompleteMultipartUpload": large,
    "GetBucketLifecycle": lambda bucket: bucket.expires(),
}
"""One of each kind of request that a tier makes."""


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        *((operation, faults.silent) for operation in DEEDS),
        *((operation, faults.dripping_head) for operation in ("HeadObject", "PutObject", "DeleteObject", "UploadPart")),
    ],
)
def test_no_request_waits_for_ever_for_its_answer(seaweedfs, s3_faults, tmp_path, operation, fault):
    """A store that takes all that it is sent and then says nothing, or a byte now and then, which is never the last."""
    bucket = hurried(s3_faults.before(seaweedfs), tmp_path, **SOON)
    s3_faults.on(fault, operation=operation, times=None)
    with pytest.raises(StoreUnavailable, match="gave no answer") as error:
        DEEDS[operation](bucket)
    assert "limits.stall" in error.value.advice
    # One that is silent is waited for once: to ask again would only double the wait.
    assert len(s3_faults.asked(operation=operation)) <= (2 if operation == "UploadPart" else 1)


def test_who_asks_a_silent_store_next_is_spared_the_wait(seaweedfs, s3_faults, tmp_path):
    bucket = hurried(s3_faults.before(seaweedfs), tmp_path, stall_seconds=2.0)
    s3_faults.on(faults.silent, operation="HeadObject", times=None)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="gave no answer"):
            bucket.size("files/x")
    assert len(s3_faults.asked(operation="HeadObject")) == 1


def test_a_listing_that_drips_is_given_up(seaweedfs, s3_faults, tmp_path):
    bucket = hurried(s3_faults.before(seaweedfs), tmp_path, **SOON)
    s3_faults.on(faults.dripping(every_seconds=0.1), operation="ListObjectsV2", times=None)
    with pytest.raises(StoreUnavailable, match="gave no answer"):
        bucket.list("files/")


def test_a_store_that_hardly_takes_what_it_is_sent_is_given_up(seaweedfs, s3_faults, tmp_path):
    bucket = hurried(s3_faults.before(seaweedfs), tmp_path, **SOON)
    s3_faults.reading(faults.slowly(), operation="UploadPart")
    with pytest.raises(StoreUnavailable, match=r"took \d+ bytes in .* a second") as error:
        large(bucket)
    assert "limits.minimum_rate" in error.value.advice
    s3_faults.clear()
    in_the_end(lambda: large(bucket))
    assert in_the_end(lambda: bucket.size("files/large")) == 2 * PART_BYTES


def test_a_store_that_takes_its_time_and_goes_on_is_waited_for(seaweedfs, s3_faults, tmp_path):
    """Slower than a stall in all, and never slower than the least rate: what counts is that it goes on."""
    bucket = hurried(s3_faults.before(seaweedfs), tmp_path, minimum_rate=2**20, stall_seconds=1.0)
    s3_faults.reading(faults.slowly(step_bytes=2**20, every_seconds=0.1), operation="UploadPart")
    assert large(bucket)
    assert bucket.size("files/large") == 2 * PART_BYTES


# Lifecycle rules


def test_rules_that_may_not_be_read_are_not_taken_for_none(seaweedfs, s3_faults, tmp_path):
    s3_faults.on(faults.status(403, "AccessDenied"), operation="GetBucketLifecycle", times=None)
    bucket = s3_faults.before(seaweedfs).blobs(tmp_path / "journal")
    found = bucket.expires()
    assert found is not None
    assert not found.known
    assert "AccessDenied" in found.rule
    assured = hurried(s3_faults.before(seaweedfs), tmp_path, never_expires=True)
    assert assured.expires() is None


def test_the_site_s_word_does_not_outweigh_a_rule_that_is_seen(seaweedfs, s3_faults, tmp_path):
    rules = b"<LifecycleConfiguration><Rule><ID>all</ID><Status>Enabled</Status><Prefix></Prefix>"
    rules += b"<Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>"
    s3_faults.on(
        lambda exchange: exchange.send(faults.Answer(200, (), rules)), operation="GetBucketLifecycle", times=None
    )
    assert hurried(s3_faults.before(seaweedfs), tmp_path, never_expires=True).expires() == Expiry(rule="all")


def test_a_store_without_lifecycles_has_no_rule(bucket, s3_faults):
    s3_faults.on(faults.status(501, "NotImplemented"), operation="GetBucketLifecycle", times=None)
    assert bucket.expires() is None


# What a store lacks


@pytest.mark.parametrize(
    ("code", "name"), [(400, "InvalidRequest"), (403, "SignatureDoesNotMatch"), (501, "NotImplemented")]
)
@pytest.mark.parametrize("size", [100, 2 * PART_BYTES])
def test_a_store_without_checksums_is_used_without(bucket, s3_faults, code, name, size):
    s3_faults.on(faults.without_checksums(code, name), times=None)
    content = b"c" * size
    assert bucket.write("files/x", io.BytesIO(content), size, overwrite=False)
    assert bucket.get("files/x") == content
    assert not bucket.takes_wrong_checksum("files/y")
    assert bucket.get("files/y") is None


def test_keys_that_are_wrong_are_not_taken_for_missing_checksums(seaweedfs, s3_faults, tmp_path):
    server = s3_faults.before(seaweedfs)
    wrong = replace(server, credentials=replace(server.credentials, secret_access_key="wrong"))
    with pytest.raises(Denied):
        wrong.blobs(tmp_path / "journal").create("files/x", b"x")


def test_a_refusal_that_went_by_costs_no_checksums(bucket, s3_faults):
    """What is refused with and without them says nothing of them."""
    s3_faults.on(faults.status(403, "SignatureDoesNotMatch"), method="PUT", times=2)
    with pytest.raises(Denied):
        bucket.create("files/x", b"x")
    assert bucket.create("files/x", b"x")
    sent = s3_faults.asked(operation="PutObject")
    assert "x-amz-checksum-crc32" in {name.lower() for name in sent[-1].headers}


def test_what_was_said_first_is_told_where_the_write_without_a_checksum_fails_too(bucket, s3_faults):
    """Else a missing right to write plainly would be told of somebody whose request was refused for something else."""
    s3_faults.on(faults.status(400, "InvalidRequest", "the first word"), method="PUT")
    s3_faults.on(faults.status(403, "AccessDenied", "the second word"), method="PUT", times=None)
    with pytest.raises(Misconfigured, match="the first word") as error:
        bucket.create("files/x", b"x")
    assert "second" not in str(error.value)
    assert len(s3_faults.asked(operation="PutObject")) == 2


def test_a_store_that_refuses_all_writes_has_no_right_checksums(bucket, s3_faults):
    s3_faults.on(faults.status(400, "InvalidRequest"), method="PUT", times=None)
    with pytest.raises(Misconfigured):
        bucket.takes_wrong_checksum("files/x")


def test_a_store_without_conditions_is_named_as_configuration(bucket, s3_faults):
    s3_faults.on(faults.without_conditions, times=None)
    with pytest.raises(Misconfigured, match="no conditional writes: to If-None-Match it says 501") as error:
        bucket.create("files/x", b"x")
    assert "use a store that has them" in error.value.advice


@pytest.mark.parametrize("code", ["PermanentRedirect", "AuthorizationHeaderMalformed"])
def test_another_region_is_named(code):
    error = as_ours(code, 301, where="s3://b/k", text="elsewhere", region="eu-central-1")
    assert type(error) is Misconfigured
    assert error.advice == "Set the tier's `region: eu-central-1`."


def test_a_bucket_elsewhere_is_found_or_named(bucket, s3_faults):
    s3_faults.on(faults.of_region("eu-central-1"), times=None)
    try:
        bucket.create("files/x", b"x")
    except Misconfigured as error:
        assert "eu-central-1" in error.advice  # noqa: PT017 - either is right


# Full


@pytest.mark.parametrize("vendor", sorted(faults.QUOTAS))
def test_full_is_said_as_full(bucket, s3_faults, vendor):
    bucket.create("files/x", b"x")
    s3_faults.on(faults.quota(vendor), times=None)
    with pytest.raises(NoRoom) as error:
        bucket.create("files/y", b"y")
    assert (error.value.kind, error.value.exit_code) == ("Refused", 7)
    assert bucket.get("files/x") == b"x"
    bucket.delete("files/x")


@pytest.mark.parametrize("key", ["", "files/", "lakemark/records/"])
def test_the_marker_of_a_folder_is_no_stranger(bucket, seaweedfs, key):
    seaweedfs.client().put_object(Bucket=seaweedfs.bucket, Key=bucket._root + key, Body=b"")
    assert bucket.list("").sizes == {}
    store = DvcStore(bucket, name="warm", tier_class="warm")
    store.claim(LEDGER, now=NOW)
    kept = put(store)
    assert store.claimed().records == (kept.record.id,)


@pytest.mark.parametrize("seed", range(4))
def test_a_put_under_drawn_faults_is_whole_or_says_so(warm, s3_faults, seed):
    """Whatever goes wrong on the way: an acknowledged put is whole, and the next one heals the rest."""
    s3_faults.at_random(seed=seed, share=0.15, faults=[*faults.TRANSIENT, *faults.WRONG])
    checkpoint = checkpoint_of(CONTENTS, 1)
    acknowledged = None
    for _ in range(6):
        try:
            acknowledged = warm.put(checkpoint, source(CONTENTS), now=NOW, progress=QUIET)
        except (StoreUnavailable, Corrupt, Misconfigured, Refused):
            continue
        break
    s3_faults.clear()
    acknowledged = acknowledged or warm.put(checkpoint, source(CONTENTS), now=NOW, progress=QUIET)
    other = DvcStore(warm.blobs, name="warm", tier_class="warm")
    assert other.verify(replace(checkpoint, objects=acknowledged.objects), progress=QUIET) == ()
