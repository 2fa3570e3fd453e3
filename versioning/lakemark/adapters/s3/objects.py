"""Objects in an S3 bucket, through boto3's low-level calls. The only module that imports boto3, botocore and urllib3.

A few connections, buffers of 16 MiB that are used again, checksums stated and conditional creation; what an interrupted
multipart upload left is removed by our own journal only, and only where its key does not exist.
"""

from __future__ import annotations

import base64
import io
import json
import secrets
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

import boto3
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's own
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ResponseStreamingError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from lakemark.adapters.disk.digests import Readable, read_into
from lakemark.adapters.disk.files import fsync_directory, os_errors, write_new
from lakemark.adapters.disk.objects import ANSWER_SECONDS, Names, TooSlow
from lakemark.adapters.disk.pool import Buffers, run_all
from lakemark.adapters.disk.workbench import Workbench
from lakemark.adapters.s3.calls import SPARE_SECONDS, Allowed, Silence, Watched, watch
from lakemark.adapters.s3.place import Credentials, NotOffered, S3Place, as_ours
from lakemark.adapters.s3.streams import Body, Part, Rate
from lakemark.errors import AnswerDamaged, Corrupt, Denied, Misconfigured, NotFound, StoreUnavailable, quoted, raised_in
from lakemark.ports.store import Expiry, TierUsage

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import CreateMultipartUploadOutputTypeDef

T = TypeVar("T")

WORKERS: Final = 4
# Memory is parts times workers; larger parts were measured to bring nothing more.
PART_BYTES: Final = 16 * 2**20
# S3 takes at most 10,000.
_MOST_PARTS: Final = 9000
_NOT_IMPLEMENTED: Final = 501
# Stores that do not know the header say so in many ways; asked again without it, one that meant something else repeats itself.
_NO_CHECKSUMS: Final = frozenset(
    {
        "InvalidRequest",
        "InvalidArgument",
        "BadRequest",
        "NotImplemented",
        "XNotImplemented",
        "SignatureDoesNotMatch",
        "400",
    }
)
_CONNECT_SECONDS: Final = 10
# 412: the key is there. 409: another write of it is under way, which the SDK does not try again.
_THERE: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})


class _Late(threading.local):
    """Before a removal is sent, asks whoever wants it whether it still does."""

    check: Callable[[], None] | None = None

    def __call__(self, **_: object) -> None:
        if self.check is not None:
            self.check()


class _Told:
    """After each answer, tells the time that it came with."""

    def __init__(self, heard: Callable[[str | None], None]) -> None:
        self._heard = heard

    def __call__(self, parsed: Mapping[str, Any], **_: object) -> None:
        self._heard(parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))


class _Connection(Watched, AWSHTTPConnection):  # type: ignore[misc]  # as botocore's own are put together
    """Over TCP alone."""


class _SafeConnection(Watched, AWSHTTPSConnection):  # type: ignore[misc]
    """Over TLS."""


class _Connections(AWSHTTPConnectionPool):
    ConnectionCls = _Connection


class _SafeConnections(AWSHTTPSConnectionPool):
    ConnectionCls = _SafeConnection


class S3Blobs:
    """Implements `Blobs`. journal: a directory of this node where multipart uploads under way are noted.

    heard: told of each answer the `Date` it came with, also of refusals: a store says what time it is above all when a
    signature's is off.
    """

    kind: Final = "s3"

    def __init__(
        self,
        place: S3Place,
        credentials: Credentials | None,
        *,
        journal: Path,
        heard: Callable[[str | None], None] | None = None,
    ) -> None:
        self.where = f"s3://{place.bucket}/{place.prefix}"
        self._place = place
        self._root = f"{place.prefix}/" if place.prefix else ""
        self._allowed = Allowed(minimum_rate=place.minimum_rate, stall_seconds=place.stall_seconds)
        self._silence = Silence(place.stall_seconds)
        self._client = _client(place, credentials, self._allowed, self._silence)
        self._checksums = True
        self._late = _Late()
        # Others wait no longer than this for a removal that was sent: one still on its way then could meet a new object.
        soon = replace(self._allowed, stall_seconds=min(place.stall_seconds, ANSWER_SECONDS - _CONNECT_SECONDS))
        self._deleting = _client(place, credentials, soon, self._silence)
        # Of all that a request goes through, the last before it is sent: at each try, after each wait for the one before.
        self._deleting.meta.events.register_last("before-send.s3.DeleteObject", self._late)
        if heard is not None:
            for client in (self._client, self._deleting):
                client.meta.events.register("after-call.s3", _Told(heard))
        self._bench = Workbench(journal)
        self._buffers = Buffers(WORKERS + 1, PART_BYTES)

    def prepare(self) -> None:
        """Buckets are made by people."""

    def get(self, key: str) -> bytes | None:
        for again in (True, True, False):
            try:
                with self.open(key) as stream:
                    return stream.read()
            except NotFound:
                return None
            except TooSlow:
                raise
            except StoreUnavailable:
                # The SDK tries a request again, but not an answer that breaks off.
                if not again:
                    raise
        return None

    def size(self, key: str) -> int | None:
        try:
            with self._errors(key):
                return int(_told(self._client.head_object(**self._at(key)), "ContentLength"))
        except NotFound:
            return None

    def absent(self, key: str) -> bool:
        # HEAD alone says nothing: its 404 has no body, and may be a gateway's.
        return self.size(key) is None and all(found != key for found, _ in self.each(key))

    def create(self, key: str, data: bytes) -> bool:
        return self._put(key, memoryview(data), overwrite=False)

    def replace(self, key: str, data: bytes) -> None:
        self._put(key, memoryview(data), overwrite=True)

    def write(self, key: str, stream: Readable, size_bytes: int, *, overwrite: bool) -> bool:
        if self.takes_all_workers(size_bytes):
            return self._write_parts(key, stream, size_bytes, overwrite=overwrite)
        with self._buffers.take() as buffer:
            got = read_into(stream, buffer)
            # Before it is sent: only at its end does the stream say whether its bytes were right.
            _require_end(stream)
            return self._put(key, buffer[:got], overwrite=overwrite)

    def takes_all_workers(self, size_bytes: int) -> bool:
        return size_bytes > PART_BYTES

    def open(self, key: str, *, start: int = 0, length: int | None = None) -> BinaryIO:
        wanted: dict[str, Any] = self._at(key)
        if start or length is not None:
            wanted["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
        with self._errors(key):
            answer = self._client.get_object(**wanted)
            _told(answer, "ETag")
            # Told by the answer itself, so that a connection that ends early is seen and not taken for the object's end.
            size_bytes = int(_told(answer, "ContentLength"))
        rate = Rate(self._place.minimum_rate, self._place.stall_seconds)
        body = Body(cast("Any", answer["Body"]), size_bytes, partial(self._errors, key), rate=rate)
        return cast("BinaryIO", io.BufferedReader(body, 2**20))

    def delete(self, key: str, *, unless_late: Callable[[], None] | None = None) -> None:
        with self._errors(key):
            if unless_late is None:
                self._client.delete_object(**self._at(key))
                return
            # By thread: the hook that asks it belongs to the client, which all threads share.
            self._late.check = unless_late
            try:
                self._deleting.delete_object(**self._at(key))
            finally:
                self._late.check = None

    def require_no_removal(self) -> None:
        """Nothing tells of one: the store's answer is waited for no longer than others wait."""

    def list(self, prefix: str, *, limit: int | None = None) -> Names:
        return Names.of(self.each(prefix), limit=limit)

    def each(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Without the empty objects by which consoles and mounts show a folder: nobody put anything there."""
        wanted: dict[str, Any] = {"Bucket": self._place.bucket, "Prefix": self._root + prefix}
        while True:
            with self._errors(prefix):
                page = self._client.list_objects_v2(**wanted)
            if not page.keys() & {"IsTruncated", "KeyCount", "Name"}:
                raise _odd(f"{self.where}/{prefix}", "a listing that says nothing")
            for found in page.get("Contents", ()):
                key, size_bytes = _told(found, "Key"), int(_told(found, "Size"))
                if not (key.endswith("/") and not size_bytes):
                    yield key.removeprefix(self._root), size_bytes
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == wanted.get("ContinuationToken"):
                # Deletions rest on listings: what can't be gone on with is no end.
                raise _odd(f"{self.where}/{prefix}", "a listing that goes on, and no word of how to ask for the rest")
            wanted["ContinuationToken"] = token

    def tidy(self) -> int:
        """Aborts uploads whose process is gone, unless their key exists: aborting could then take its bytes away."""
        count = 0
        with os_errors(self.where):
            for place in self._bench.dead():
                note = place / "upload.json"
                if note.exists():
                    self._abort_unless_there(json.loads(note.read_bytes()))
                self._bench.end(place.name)
                count += 1
        return count

    def space(self) -> TierUsage:
        return TierUsage(used_bytes=None, capacity_bytes=None)

    def takes_wrong_checksum(self, key: str) -> bool:
        """A right one comes first: a store that refuses every write is not one that checks. One without checksums takes none."""
        self._put(key, memoryview(b"right"), overwrite=True)
        if not self._checksums:
            self.delete(key)
            return False
        try:
            with self._errors(key):
                self._client.put_object(**self._at(key), Body=b"right", ChecksumCRC32=_crc(memoryview(b"wrong")))
        except (Corrupt, Misconfigured):
            self.delete(key)
            return False
        self.delete(key)
        return True

    def clock(self, key: str) -> datetime | None:
        with self._errors(key):
            answer = self._client.head_object(**self._at(key))
        text = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return parsedate_to_datetime(text) if text else None

    def expires(self) -> Expiry | None:
        try:
            with self._errors(""):
                rules = self._client.get_bucket_lifecycle_configuration(Bucket=self._place.bucket)["Rules"]
        except (NotFound, NotOffered):
            return None
        except Denied as error:
            # Unknown is not "none": a rule nobody sees removes as much.
            return None if self._place.never_expires else Expiry(rule=str(error), known=False)
        except KeyError:
            return Expiry(rule=f"{self.where} answers without rules", known=False)
        for rule in rules:
            # Rules made long ago have the prefix outside of a filter.
            under = str(rule.get("Filter", {}).get("Prefix", rule.get("Prefix", "")))
            touches = under.startswith(self._root) or self._root.startswith(under)
            if rule.get("Status") == "Enabled" and "Expiration" in rule and touches:
                return Expiry(rule=str(rule.get("ID", "unnamed")))
        return None

    # Inside

    def _at(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._place.bucket, "Key": self._root + key}

    def _extra(self, key: str, *, overwrite: bool) -> dict[str, Any]:
        extra: dict[str, Any] = {} if overwrite else {"IfNoneMatch": "*"}
        return extra | self._keeping(key)

    def _keeping(self, key: str) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if key.startswith("files/"):
            if self._place.storage_class:
                # Of objects alone: claims and notes are read at every pass, and a cold class bills each reading.
                extra["StorageClass"] = self._place.storage_class
            if self._place.retain_until:
                extra |= {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": self._place.retain_until}
        return extra

    def _put(self, key: str, data: memoryview, *, overwrite: bool) -> bool:
        """Whether it was written; False where the key is there and is to stay. Raises NotOffered where the store can't say so."""

        def put(**checksum: Any) -> bool:  # noqa: ANN401 - boto3's words
            try:
                body = cast("Any", Part(data, step_bytes=self._allowed.step_bytes))
                answer = self._client.put_object(
                    **self._at(key), **self._extra(key, overwrite=overwrite), **checksum, Body=body
                )
            except ClientError as error:
                if _code(error) in _THERE:
                    return False
                raise
            _told(answer, "ETag")
            return True

        with self._errors(key):
            try:
                return self._checked(put, {"ChecksumCRC32": _crc(data)})
            except ClientError as error:
                if not overwrite and _status(error) == _NOT_IMPLEMENTED and self._writes_without_condition():
                    raise NotOffered(
                        f"{self.where} knows no conditional writes: to If-None-Match it says {_status(error)} {_code(error)}",
                        advice="A tier needs them, so that two writers can't take each other's place: use a store that has them.",
                    ) from error
                raise

    def _checked(self, ask: Callable[..., T], checksum: dict[str, str]) -> T:
        """With a checksum, unless the store takes none: what counts is read back anyway. Raises what it says in the end."""
        if not self._checksums:
            return ask()
        try:
            return ask(**checksum)
        except ClientError as error:
            if _code(error) not in _NO_CHECKSUMS:
                raise
            try:
                done = ask()
            except ClientError:
                raise error from None
            # Remembered only once it took the same request without one: the refusal was about the checksum.
            self._checksums = False
            return done

    def _writes_without_condition(self) -> bool:
        """Whether the condition is what was refused; tried with a name of its own, as the key must not come to be by it."""
        probe = f"lakemark/probe/{secrets.token_hex(8)}"
        try:
            self._client.put_object(**self._at(probe), Body=b"")
        except ClientError:
            return False
        self._client.delete_object(**self._at(probe))
        return True

    def _write_parts(self, key: str, stream: Readable, size_bytes: int, *, overwrite: bool) -> bool:
        part_bytes = max(PART_BYTES, -(-size_bytes // _MOST_PARTS // PART_BYTES) * PART_BYTES)
        buffers = self._buffers if part_bytes == PART_BYTES else Buffers(WORKERS + 1, part_bytes)
        with os_errors(self.where):
            place = self._bench.begin()
            upload = self._begin_upload(key, place)
        try:
            parts = list(run_all(self._parts(upload, stream, buffers), workers=WORKERS))
        except BaseException:
            # A second failure here leaves the note behind for `tidy`.
            self._abort_unless_there(upload)
            self._bench.end(place.name)
            raise
        # They come as they are done; S3 wants them in order.
        parts.sort(key=lambda part: int(part["PartNumber"]))
        created = self._complete(key, upload, parts, overwrite=overwrite)
        self._bench.end(place.name)
        return created

    def _begin_upload(self, key: str, place: Path) -> dict[str, str]:
        def begin(**checksum: Any) -> CreateMultipartUploadOutputTypeDef:  # noqa: ANN401 - boto3's words
            return self._client.create_multipart_upload(**self._at(key), **self._keeping(key), **checksum)

        with self._errors(key):
            made = self._checked(begin, {"ChecksumAlgorithm": "CRC32"})
            upload = {"key": key, "upload_id": str(_told(made, "UploadId"))}
        # Before the first part is sent: a kill before this line leaves an upload without bytes, which costs nothing.
        write_new(place / "upload.json", json.dumps(upload).encode())
        fsync_directory(place)
        return upload

    def _parts(
        self, upload: dict[str, str], stream: Readable, buffers: Buffers
    ) -> Iterator[Callable[[], dict[str, Any]]]:
        """Reads in order; a part is sent by whoever is free. Ends once the stream has, and has been found right."""
        number, got = 0, buffers.size_bytes
        while got == buffers.size_bytes:
            # Reading waits here until a part was sent: so no more than these buffers are in memory, however fast the source is.
            buffer = buffers.acquire()
            try:
                got = read_into(stream, buffer)
                if not got:
                    buffers.release(buffer)
                    return
            except BaseException:
                buffers.release(buffer)
                raise
            number += 1
            yield partial(self._send, upload, number, (buffer, got), buffers)

    def _send(
        self, upload: dict[str, str], number: int, data: tuple[memoryview, int], buffers: Buffers
    ) -> dict[str, Any]:
        buffer, length = data
        try:
            check = {"ChecksumCRC32": _crc(buffer[:length])} if self._checksums else {}
            with self._errors(upload["key"]):
                sent = self._client.upload_part(
                    **self._at(upload["key"]),
                    **cast("Any", check),
                    UploadId=upload["upload_id"],
                    PartNumber=number,
                    Body=cast("Any", Part(buffer[:length], step_bytes=self._allowed.step_bytes)),
                )
                return {"PartNumber": number, "ETag": _told(sent, "ETag"), **check}
        finally:
            buffers.release(buffer)

    def _complete(self, key: str, upload: dict[str, str], parts: Sequence[dict[str, Any]], *, overwrite: bool) -> bool:
        condition: dict[str, Any] = {} if overwrite else {"IfNoneMatch": "*"}
        with self._errors(key):
            try:
                done = self._client.complete_multipart_upload(
                    **self._at(key),
                    **condition,
                    UploadId=upload["upload_id"],
                    MultipartUpload={"Parts": cast("Any", parts)},
                )
                return "ETag" in done  # a 200 with nothing in it says nothing: what is there is read back
            except ClientError as error:
                if _code(error) not in _THERE | {"NoSuchUpload"}:
                    raise
                # Our own lost success, or another writer's: what is there is read back either way.
                return False

    def _abort_unless_there(self, upload: dict[str, str]) -> None:
        key = upload["key"]
        # The answer to a completion may have got lost: some stores then take the object away with the upload.
        if not self.absent(key):
            return
        try:
            with self._errors(key):
                self._client.abort_multipart_upload(**self._at(key), UploadId=upload["upload_id"])
        except NotFound:
            return

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            where, region = f"{self.where}/{key}", _region(error)
            raise as_ours(_code(error), _status(error), where=where, text=str(error), region=region) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise Misconfigured(
                f"{self.where}: {error}", advice="Set the tier's `credentials` and its two environment variables."
            ) from error
        except SSLError as error:
            raise Misconfigured(
                f"{self.where}: {quoted(str(error))}", advice="Give the tier the `ca_bundle` of who signed its server."
            ) from error
        # A page that is no XML: a proxy's or a portal's, in the store's place.
        except ResponseParserError as error:
            raise _odd(f"{self.where}/{key}", quoted(str(error))) from error
        except (ConnectionError, HTTPClientError, ResponseStreamingError, IncompleteReadError, HTTPError) as error:
            raise StoreUnavailable(
                f"{self.where} does not answer: {quoted(str(error))}",
                advice="Try again; check the endpoint and network.",
            ) from error
        except ParamValidationError as error:
            if "Invalid bucket name" not in str(error):
                raise  # we asked for something that S3 has not: no setting mends that
            raise Misconfigured(f"{self.where}: {quoted(str(error))}", advice="Mend the tier's `url`.") from error
        except BotoCoreError as error:
            raise Misconfigured(
                f"{self.where}: {quoted(str(error))}", advice="Mend the tier's `endpoint`, `region` or `ca_bundle`."
            ) from error


def _client(place: S3Place, credentials: Credentials | None, allowed: Allowed, silence: Silence) -> S3Client:
    """Whose calls take no longer than is allowed."""
    made = _plain_client(place, credentials, read_timeout=allowed.stall_seconds + SPARE_SECONDS)
    # The SDK has no setting for whose connections it uses; a call that is too slow must lose the one it waits for.
    session = made._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001
    session._pool_classes_by_scheme.update(http=_Connections, https=_SafeConnections)  # noqa: SLF001
    watch(made.meta.events, f"s3://{place.bucket}/{place.prefix}", allowed, silence)
    return made


def _plain_client(place: S3Place, credentials: Credentials | None, *, read_timeout: float) -> S3Client:
    styles = {None: "auto", True: "path", False: "virtual"}
    s3: dict[str, Any] = {"addressing_style": styles[place.path_style]}
    if place.is_loopback:
        # Nobody is in between; hashing every body would cost more than sending it.
        s3["payload_signing_enabled"] = False
    keys = {}
    if credentials is not None:
        keys = {
            "aws_access_key_id": credentials.access_key_id,
            "aws_secret_access_key": credentials.secret_access_key,
            "aws_session_token": credentials.session_token,
        }
    try:
        return boto3.session.Session(region_name=place.region, **cast("Any", keys)).client(
            "s3",
            endpoint_url=place.endpoint,
            verify=None if place.ca_bundle is None else str(place.ca_bundle),
            config=Config(
                s3=cast("Any", s3),
                retries={"mode": "standard", "total_max_attempts": 4},
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=read_timeout,
                # Enough for reading and writing at once: a connection beyond them would be made and thrown away at each call.
                max_pool_connections=2 * WORKERS,
                tcp_keepalive=True,
                # The SDK's default adds one wherever we state none, behind the body, which older stores do not understand.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    except (BotoCoreError, ValueError) as error:
        if not (raised_in(error, "botocore") or raised_in(error, "boto3")):
            raise
        raise Misconfigured(
            f"s3://{place.bucket}: {quoted(str(error))}", advice="Mend the tier's `endpoint`, `region` or `ca_bundle`."
        ) from error


def _require_end(stream: Readable) -> None:
    """Lets the stream say that it ended as it should."""
    rest = read_into(stream, memoryview(bytearray(1)))
    if rest:
        raise Corrupt("a file grew while it was read", advice="Take the checkpoint from another replica.")


def _crc(data: memoryview) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def _told(answer: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - whatever the answer says
    """What an answer has to say. Raises AnswerDamaged where it does not."""
    if name not in answer:
        raise _odd("the store", f"an answer without {name}")
    return answer[name]


def _odd(where: str, what: str) -> AnswerDamaged:
    return AnswerDamaged(
        f"{where} answered with {what}",
        advice="Try again; if it stays, something between here and the store answers in its place: check the `endpoint`.",
    )


def _status(error: ClientError) -> int | None:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")


def _region(error: ClientError) -> str | None:
    """As the store tells where the bucket is."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    told = error.response.get("Error", {})
    return headers.get("x-amz-bucket-region") or told.get("Region")  # type: ignore[return-value]


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
