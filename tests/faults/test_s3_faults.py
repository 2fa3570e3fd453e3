"""The proxy passes on what it is given, and each of its faults does what it is called."""

import botocore.exceptions
import pytest
from botocore.config import Config

from tests.support import s3_faults as faults

pytestmark = pytest.mark.xdist_group("seaweedfs")
ONCE = Config(retries={"total_max_attempts": 1}, read_timeout=5, response_checksum_validation="when_required")


@pytest.fixture
def client(seaweedfs, s3_faults):
    import boto3

    keys = seaweedfs.credentials
    return boto3.client(
        "s3",
        endpoint_url=s3_faults.endpoint,
        region_name="us-east-1",
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        config=ONCE,
    )


@pytest.fixture
def at(seaweedfs, request):
    return {"Bucket": seaweedfs.bucket, "Key": f"faults/{abs(hash(request.node.name))}"}


def code(error):
    return error.value.response["Error"]["Code"]


def test_without_faults_nothing_differs(client, at, s3_faults):
    client.put_object(**at, Body=b"bytes" * 1000)
    assert client.get_object(**at)["Body"].read() == b"bytes" * 1000
    assert client.head_object(**at)["ContentLength"] == 5000
    assert at["Key"] in [
        one["Key"] for one in client.list_objects_v2(Bucket=at["Bucket"], Prefix="faults/")["Contents"]
    ]
    client.delete_object(**at)
    made = [one.operation for one in s3_faults.requests]
    assert made == ["PutObject", "GetObject", "HeadObject", "ListObjectsV2", "DeleteObject"]
    assert s3_faults.happened == []


def test_a_rule_is_for_chosen_requests(client, at, s3_faults):
    s3_faults.on(faults.status(503, "SlowDown"), operation="PutObject", key="faults/*", nth=2, times=1)
    client.put_object(**at, Body=b"1")
    with pytest.raises(botocore.exceptions.ClientError) as error:
        client.put_object(**at, Body=b"2")
    assert code(error) == "SlowDown"
    client.put_object(**at, Body=b"3")
    assert client.get_object(**at)["Body"].read() == b"3"
    assert s3_faults.happened == [(2, "503 SlowDown")]


def test_a_lost_answer_is_of_what_was_done(client, at, s3_faults):
    s3_faults.on(faults.lost_answer, method="PUT")
    with pytest.raises(botocore.exceptions.HTTPClientError):
        client.put_object(**at, Body=b"done")
    assert client.get_object(**at)["Body"].read() == b"done"
    with pytest.raises(botocore.exceptions.ClientError) as error:
        client.put_object(**at, Body=b"again", IfNoneMatch="*")
    assert code(error) == "PreconditionFailed"


@pytest.mark.parametrize("fault", [faults.reset_in_body, faults.cut_body])
def test_a_body_breaks_off(client, at, s3_faults, fault):
    client.put_object(**at, Body=b"bytes" * 100_000)
    s3_faults.on(fault, operation="GetObject")
    with pytest.raises((botocore.exceptions.BotoCoreError, OSError)):
        client.get_object(**at)["Body"].read()


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (faults.short_body, b"byte"),
        (faults.long_body, b"bytes\0"),
        (faults.flipped_body, b"byues"),
        (faults.empty_answer, b""),
    ],
)
def test_a_body_is_another(client, at, s3_faults, fault, seen):
    client.put_object(**at, Body=b"bytes")
    s3_faults.on(fault, operation="GetObject")
    assert client.get_object(**at)["Body"].read() == seen
    assert client.get_object(**at)["Body"].read() == b"bytes"


def test_what_is_sent_arrives_otherwise(client, at, s3_faults):
    s3_faults.on(faults.flipped_upload, operation="PutObject")
    with pytest.raises(botocore.exceptions.ClientError):
        client.put_object(**at, Body=b"bytes", ChecksumAlgorithm="CRC32")
    s3_faults.on(faults.flipped_at_rest, operation="PutObject")
    client.put_object(**at, Body=b"bytes", ChecksumAlgorithm="CRC32")
    assert client.get_object(**at)["Body"].read() == b"byues"


def test_a_listing_lies(client, at, s3_faults):
    names = [f"{at['Key']}/{number}" for number in range(4)]
    for name in names:
        client.put_object(Bucket=at["Bucket"], Key=name, Body=b"x")
    wanted = {"Bucket": at["Bucket"], "Prefix": f"{at['Key']}/"}
    s3_faults.on(faults.truncated_listing, nth=2, operation="ListObjectsV2")
    s3_faults.on(faults.shortened_listing, nth=2, operation="ListObjectsV2")
    s3_faults.on(faults.stale_listing, nth=2, operation="ListObjectsV2")
    assert len(client.list_objects_v2(**wanted)["Contents"]) == 4
    truncated = client.list_objects_v2(**wanted)
    assert truncated["IsTruncated"]
    assert "NextContinuationToken" not in truncated
    assert len(truncated["Contents"]) == 2
    short = client.list_objects_v2(**wanted)
    assert (short["IsTruncated"], len(short["Contents"])) == (False, 2)
    client.delete_object(Bucket=at["Bucket"], Key=names[0])
    assert len(client.list_objects_v2(**wanted)["Contents"]) == 4
    assert len(client.list_objects_v2(**wanted)["Contents"]) == 3


def test_a_store_lacks_what_others_have(client, at, s3_faults):
    s3_faults.on(faults.without_checksums(), times=None)
    with pytest.raises(botocore.exceptions.ClientError) as error:
        client.put_object(**at, Body=b"x", ChecksumAlgorithm="CRC32")
    assert code(error) == "InvalidRequest"
    s3_faults.clear()
    s3_faults.on(faults.without_conditions, times=None)
    with pytest.raises(botocore.exceptions.ClientError) as error:
        client.put_object(**at, Body=b"x", IfNoneMatch="*")
    assert code(error) == "NotImplemented"
    client.put_object(**at, Body=b"x")
    s3_faults.clear()
    s3_faults.on(faults.ignoring_conditions, times=None)
    client.put_object(**at, Body=b"y", IfNoneMatch="*")
    assert client.get_object(**at)["Body"].read() == b"y"


@pytest.mark.parametrize("vendor", sorted(faults.QUOTAS))
def test_a_full_store_refuses_writes_alone(client, at, s3_faults, vendor):
    client.put_object(**at, Body=b"x")
    s3_faults.on(faults.quota(vendor), times=None)
    with pytest.raises(botocore.exceptions.ClientError) as error:
        client.put_object(**at, Body=b"y")
    assert code(error) == faults.QUOTAS[vendor][1]
    assert client.get_object(**at)["Body"].read() == b"x"
    client.delete_object(**at)


def test_a_seed_makes_the_same_faults(client, at, s3_faults):
    def tried():
        seen = []
        s3_faults.at_random(seed=3, share=0.5, faults=[faults.status(500, "InternalError"), faults.lost_request])
        for _ in range(12):
            try:
                client.put_object(Bucket=at["Bucket"], Key="faults/random", Body=b"x")
                seen.append("done")
            except botocore.exceptions.ClientError as error:
                seen.append(error.response["Error"]["Code"])
            except botocore.exceptions.HTTPClientError:
                seen.append("lost")
        return seen

    first = tried()
    assert set(first) == {"done", "InternalError", "lost"}
    assert tried() == first


def test_a_drip_and_a_silence_end_with_the_proxy(client, at, s3_faults):
    client.put_object(**at, Body=b"bytes")
    s3_faults.on(faults.dripping(step_bytes=2, every_seconds=0.01), operation="GetObject")
    assert client.get_object(**at)["Body"].read() == b"bytes"
    s3_faults.on(faults.silent, operation="HeadObject")
    with pytest.raises(botocore.exceptions.ReadTimeoutError):
        client.head_object(**at)
