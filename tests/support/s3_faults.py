"""A store that fails as asked: an S3 proxy on loopback between a client and a real server, with faults for chosen requests.

    with S3Faults(seaweedfs.endpoint, seaweedfs.credentials) as proxy:
        proxy.on(lost_answer, operation="PutObject", key="*/files/*")          # the first that fits
        proxy.on(status(503, "SlowDown"), method="GET", nth=2, times=3)        # the second to the fourth
        proxy.on(quota("ceph"), method="PUT", times=None)                      # each, until `proxy.clear()`
        proxy.at_random(seed=7, share=0.05, faults=TRANSIENT)                  # the same ones whenever the seed is the same
        proxy.reading(slowly(step_bytes=1), operation="UploadPart")            # while the request's body comes
        blobs = proxy.before(seaweedfs).blobs(folder)

A fault is a function of an `Exchange`: it may ask the real server or not, and answers, changes, delays or loses the answer.
Requests are passed on as they came, `Host` too, so that signatures stay right; those that a fault changes are signed anew.
Bodies are held in memory.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

_ANSWER_SECONDS = 120
_NOT_PASSED_ON = {"transfer-encoding", "connection", "content-length", "date", "server"}


@dataclass(frozen=True)
class Request:
    """operation: S3's own name. key: with the tier's prefix, of a listing its prefix; empty for the bucket. number: from 1."""

    number: int
    method: str
    target: str
    operation: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """declared: the Content-Length that is said, where it is not the body's."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    declared: int | None = None


class Exchange:
    """One request, and what a fault may do with it. Unless it answers or breaks off, the real answer is sent."""

    def __init__(self, proxy: S3Faults, handler: Any, request: Request) -> None:
        self.proxy = proxy
        self.request = request
        self.done = False
        self._handler = handler

    def forward(self, request: Request | None = None) -> Answer:
        """The real server's answer, to the request or to another instead."""
        return self.proxy.upstream(self.request if request is None else self.proxy.signed(request))

    def send(self, answer: Answer) -> None:
        self.head(answer)
        self.write(answer.body)

    def head(self, answer: Answer) -> None:
        """Status and headers; what follows is the body, by `write`."""
        self.done = True
        handler = self._handler
        handler.send_response(answer.status)
        for name, value in answer.headers:
            if name.lower() not in _NOT_PASSED_ON:
                handler.send_header(name, value)
        length = len(answer.body) if answer.declared is None else answer.declared
        handler.send_header("Content-Length", str(length))
        handler.end_headers()
        handler.wfile.flush()

    def write(self, data: bytes) -> None:
        if self.request.method != "HEAD":
            self._handler.wfile.write(data)
            self._handler.wfile.flush()

    def hang_up(self) -> None:
        """Ends the connection as a server does that has nothing more to say."""
        self.done = True
        self._handler.close_connection = True

    def drip_head(self, answer: Answer, *, every_seconds: float) -> None:
        """Status and headers, byte by byte, until somebody hangs up; never the end of them."""
        self.done = True
        self._handler.close_connection = True
        for byte in f"HTTP/1.1 {answer.status} OK\r\nX-Slow: {'y' * 30_000}".encode():
            if not self.pause(every_seconds):
                break
            self._handler.wfile.write(bytes([byte]))
            self._handler.wfile.flush()

    def reset(self) -> None:
        """Ends it with a reset, so that what is under way is lost."""
        self.done = True
        self._handler.close_connection = True
        linger = struct.pack("ii", 1, 0)
        with suppress(OSError):
            self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._handler.connection.close()

    def pause(self, seconds: float) -> bool:
        """False where the proxy, or this rule, ended meanwhile."""
        return not self.proxy.ended.wait(seconds)


Fault = Callable[[Exchange], None]
Intake = Callable[["S3Faults", Any, int], bytes]
"""Reads so many bytes of a request's body from a stream."""


@dataclass
class _Rule:
    fault: Fault
    fits: Callable[[Request], bool]
    nth: int
    times: int | None
    seen: int = 0

    def applies(self, request: Request) -> bool:
        if not self.fits(request):
            return False
        self.seen += 1
        return self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)


class S3Faults:
    """The proxy. requests: all that came, in order. happened: (number of the request, what was done to it)."""

    def __init__(self, upstream: str, credentials: Any) -> None:
        at = urlsplit(upstream)
        self._keys = BotoCredentials(credentials.access_key_id, credentials.secret_access_key)
        self._upstream = (at.hostname or "127.0.0.1", at.port or 80)
        self.requests: list[Request] = []
        self.happened: list[tuple[int, str]] = []
        self.listings: dict[str, Answer] = {}
        self.ended = threading.Event()
        self._rules: list[_Rule] = []
        self._intakes: list[tuple[Intake, dict[str, str]]] = []
        self._random: Callable[[Request], Fault | None] = lambda _: None
        self._guard = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def before(self, server: Any) -> Any:
        """The test's server (see `services_fixtures.S3Server`) as it is seen through this proxy."""
        return replace(server, endpoint=self.endpoint)

    def on(
        self,
        fault: Fault,
        *,
        operation: str = "*",
        method: str = "*",
        key: str = "*",
        nth: int = 1,
        times: int | None = 1,
    ) -> None:
        """From the `nth` request on that fits, `times` of them (None: all) meet `fault`. The first rule that applies counts.

        operation: S3's name; key: as `Request.key`; these and method are shell patterns.
        """

        def fits(request: Request) -> bool:
            pairs = ((request.operation, operation), (request.method, method), (request.key, key))
            return all(fnmatchcase(value, pattern) for value, pattern in pairs)

        with self._guard:
            self._rules.append(_Rule(fault, fits, nth, times))

    def reading(self, intake: Intake, *, operation: str = "*", method: str = "*", key: str = "*") -> None:
        """The bodies of all requests that fit are read so, until `clear`. Answers are as ever."""
        with self._guard:
            self._intakes.append((intake, {"operation": operation, "method": method, "key": key}))

    def at_random(self, *, seed: object, share: float, faults: Sequence[Fault]) -> None:
        """Each request meets one of `faults` with probability `share`. Which, follows from the seed and from what is asked
        for the how manyth time, not from the order in which threads come."""
        counts: Counter[tuple[str, str]] = Counter()

        def draw(request: Request) -> Fault | None:
            counts[request.operation, request.key] += 1
            nth = counts[request.operation, request.key]
            random = Random(f"{seed}:{request.operation}:{request.key}:{nth}")
            return random.choice(faults) if random.random() < share else None

        with self._guard:
            self._random = draw

    def clear(self) -> None:
        """No faults from now on."""
        with self._guard:
            self._rules.clear()
            self._intakes.clear()
            self._random = lambda _: None

    def asked(self, *, operation: str = "*", key: str = "*") -> list[Request]:
        """The requests of that kind so far."""
        with self._guard:
            seen = list(self.requests)
        return [one for one in seen if fnmatchcase(one.operation, operation) and fnmatchcase(one.key, key)]

    def signed(self, request: Request) -> Request:
        """With a signature of what it is now."""
        kept = {
            name: value
            for name, value in request.headers.items()
            if name.lower()
            not in ("authorization", "x-amz-date", "x-amz-content-sha256", "content-md5", "content-length")
        }
        url = f"http://{request.headers['Host']}{request.target}"
        draft = AWSRequest(request.method, url, headers=kept, data=request.body)
        draft.context["payload_signing_enabled"] = True
        S3SigV4Auth(self._keys, "s3", "us-east-1").add_auth(draft)
        return replace(request, headers=dict(draft.headers.items()))

    # Inside

    def body(self, method: str, target: str, stream: Any, length: int) -> bytes:
        """The body of a request, read as a rule says."""
        _, operation, _, key = _meant(method, target)
        told = {"operation": operation, "method": method, "key": key}
        with self._guard:
            fits = [
                intake
                for intake, wanted in self._intakes
                if all(fnmatchcase(told[name], pattern) for name, pattern in wanted.items())
            ]
        return fits[0](self, stream, length) if fits else stream.read(length)

    def take(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[Request, Fault | None]:
        query, operation, bucket, key = _meant(method, target)
        with self._guard:
            request = Request(len(self.requests) + 1, method, target, operation, bucket, key, query, headers, body)
            self.requests.append(request)
            fault = next((rule.fault for rule in self._rules if rule.applies(request)), None) or self._random(request)
            if fault is not None:
                self.happened.append((request.number, getattr(fault, "__name__", repr(fault))))
        return request, fault

    def upstream(self, request: Request) -> Answer:
        connection = HTTPConnection(*self._upstream, timeout=_ANSWER_SECONDS)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() not in ("connection", "expect", "content-length"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            came = connection.getresponse()
            body = came.read()
            length = came.getheader("Content-Length")
            declared = int(length) if request.method == "HEAD" and length is not None else None
            return Answer(came.status, tuple(came.getheaders()), body, declared)
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that went away is none of our business."""


def _handler(proxy: S3Faults) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            try:
                body = proxy.body(self.command, self.path, self.rfile, length)
            except OSError:
                body = b""
            if len(body) < length:  # it went away
                self.close_connection = True
                return
            request, fault = proxy.take(self.command, self.path, dict(self.headers.items()), body)
            exchange = Exchange(proxy, self, request)
            try:
                if fault is not None:
                    fault(exchange)
                if not exchange.done:
                    answer = exchange.forward()
                    if request.operation == "ListObjectsV2" and answer.status == 200:
                        proxy.listings[request.target] = answer
                    exchange.send(answer)
            except (OSError, HTTPException):
                self.close_connection = True

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self.answer
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _meant(method: str, target: str) -> tuple[dict[str, str], str, str, str]:
    """Query, operation, bucket and key (of a listing its prefix) of a request."""
    at = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(at.query, keep_blank_values=True).items()}
    bucket, _, key = unquote(at.path).lstrip("/").partition("/")
    return query, _operation(method, query, has_key=bool(key)), bucket, key or query.get("prefix", "")


def _operation(method: str, query: dict[str, str], *, has_key: bool) -> str:
    if has_key:
        if "uploadId" in query:
            names = {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}
            return names.get(method, "ListParts")
        if method == "POST":
            return "CreateMultipartUpload"
        return {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "DELETE": "DeleteObject"}[method]
    for part, name in (
        ("lifecycle", "BucketLifecycle"),
        ("uploads", "ListMultipartUploads"),
        ("location", "BucketLocation"),
    ):
        if part in query:
            return name if name.startswith("List") else f"{method.title()}{name}"
    if method == "POST":
        return "DeleteObjects"
    return {"GET": "ListObjectsV2", "HEAD": "HeadBucket", "PUT": "CreateBucket"}.get(method, method)


# Faults


def status(code: int, name: str, message: str = "so it was asked", **headers: str) -> Fault:
    """An error as S3 says it; the real server is not asked."""

    def fault(exchange: Exchange) -> None:
        exchange.send(error(code, name, message, **headers))

    fault.__name__ = f"{code} {name}"
    return fault


def error(code: int, name: str, message: str = "so it was asked", **headers: str) -> Answer:
    """S3's error document. headers: with `_` for `-`."""
    text = f"<Error><Code>{name}</Code><Message>{message}</Message><Resource>/</Resource></Error>"
    said = tuple((key.replace("_", "-"), value) for key, value in headers.items())
    return Answer(
        code, (("Content-Type", "application/xml"), *said), b'<?xml version="1.0" encoding="UTF-8"?>' + text.encode()
    )


def lost_answer(exchange: Exchange) -> None:
    """It was done, and nobody hears of it. A client's retry of a conditional write then meets a 412 of its own making."""
    exchange.forward()
    exchange.reset()


def lost_request(exchange: Exchange) -> None:
    """It was not done, and nobody hears of it."""
    exchange.reset()


def failed_after_success(exchange: Exchange) -> None:
    """It was done, and a 500 says that it was not."""
    exchange.forward()
    exchange.send(error(500, "InternalError"))


def own_412(exchange: Exchange) -> None:
    """It was done, by a try of which only the second one's refusal is heard."""
    exchange.forward()
    exchange.send(error(412, "PreconditionFailed"))


def reset_in_body(exchange: Exchange) -> None:
    """Half of the answer's body comes, then a reset."""
    answer = exchange.forward()
    exchange.head(answer)
    exchange.write(answer.body[: len(answer.body) // 2])
    exchange.reset()


def cut_body(exchange: Exchange) -> None:
    """Half of the answer's body comes, then a proper end before its announced length."""
    answer = exchange.forward()
    exchange.head(answer)
    exchange.write(answer.body[: len(answer.body) // 2])
    exchange.hang_up()


def short_body(exchange: Exchange) -> None:
    """One byte less, and a length that agrees with it: nothing but the contents tells."""
    answer = exchange.forward()
    exchange.send(replace(answer, body=answer.body[:-1]))


def long_body(exchange: Exchange) -> None:
    """One byte more, and a length that agrees with it."""
    answer = exchange.forward()
    exchange.send(replace(answer, body=answer.body + b"\0"))


def other_body(body: bytes) -> Fault:
    """The real answer with another body, of a length that agrees with it."""

    def fault(exchange: Exchange) -> None:
        exchange.send(replace(exchange.forward(), body=body))

    fault.__name__ = f"other body of {len(body)} bytes"
    return fault


def flipped_body(exchange: Exchange) -> None:
    """One bit of the answer's body is another."""
    answer = exchange.forward()
    exchange.send(replace(answer, body=flip(answer.body)))


def flipped_upload(exchange: Exchange) -> None:
    """One bit of what is sent is another when it arrives. A server that checks the stated checksum refuses it."""
    request = exchange.request
    exchange.send(exchange.forward(replace(request, body=flip(request.body))))


def flipped_at_rest(exchange: Exchange) -> None:
    """One bit of what is sent is another in the store, which checks nothing: no checksum goes with it."""
    request = exchange.request
    headers = {name: value for name, value in request.headers.items() if not name.lower().startswith("x-amz-checksum")}
    exchange.send(exchange.forward(replace(request, headers=headers, body=flip(request.body))))


def flip(data: bytes) -> bytes:
    """With one bit in the middle changed."""
    changed = bytearray(data)
    if changed:
        changed[len(changed) // 2] ^= 1
    return bytes(changed)


def empty_ok(exchange: Exchange) -> None:
    """200 and nothing, without asking the real server."""
    exchange.send(Answer(200))


def empty_answer(exchange: Exchange) -> None:
    """It was done; the answer says 200 and nothing."""
    exchange.send(replace(exchange.forward(), status=200, body=b"", declared=None))


def dripping(*, step_bytes: int = 1, every_seconds: float = 0.2) -> Fault:
    """The answer's body comes in small steps, until somebody hangs up."""

    def fault(exchange: Exchange) -> None:
        answer = exchange.forward()
        exchange.head(answer)
        for at in range(0, len(answer.body), step_bytes):
            if not exchange.pause(every_seconds):
                break
            exchange.write(answer.body[at : at + step_bytes])

    fault.__name__ = f"dripping {step_bytes} bytes each {every_seconds} s"
    return fault


def dripping_head(exchange: Exchange) -> None:
    """Of the answer only its beginning comes, byte by byte: each of them in time, the whole never."""
    exchange.drip_head(Answer(200), every_seconds=0.1)


def slowly(*, step_bytes: int = 1, every_seconds: float = 0.2) -> Intake:
    """A request's body is read in small steps, as by a store that hardly takes anything."""

    def intake(proxy: S3Faults, stream: Any, length: int) -> bytes:
        got = b""
        while len(got) < length and not proxy.ended.wait(every_seconds):
            came = stream.read(min(step_bytes, length - len(got)))
            if not came:
                break
            got += came
        return got

    return intake


def silent(exchange: Exchange) -> None:
    """The connection stands and nothing comes, until the proxy ends."""
    while exchange.pause(1.0):
        pass
    exchange.reset()


def late(seconds: float) -> Fault:
    """The real answer, some time after it was asked for."""

    def fault(exchange: Exchange) -> None:
        exchange.pause(seconds)

    fault.__name__ = f"{seconds} s late"
    return fault


def stale_listing(exchange: Exchange) -> None:
    """What the same listing answered the time before, where there was one."""
    before = exchange.proxy.listings.get(exchange.request.target)
    if before is not None:
        exchange.send(before)


def truncated_listing(exchange: Exchange) -> None:
    """Half of a listing: it says that there is more, and gives no token to ask for it with."""
    answer = exchange.forward()
    body = _half(answer.body)
    body = re.sub(rb"<NextContinuationToken>.*?</NextContinuationToken>", b"", body)
    exchange.send(replace(answer, body=re.sub(rb"<IsTruncated>\w+</", b"<IsTruncated>true</", body)))


def shortened_listing(exchange: Exchange) -> None:
    """Half of a listing that says it is all."""
    answer = exchange.forward()
    exchange.send(replace(answer, body=_half(answer.body)))


def _half(body: bytes) -> bytes:
    found = list(re.finditer(rb"<Contents>.*?</Contents>", body, re.DOTALL))
    for one in reversed(found[len(found) // 2 :]):
        body = body[: one.start()] + body[one.end() :]
    return body


def without_checksums(code: int = 400, name: str = "InvalidRequest") -> Fault:
    """A store that knows no `x-amz-checksum-…` and refuses requests with one."""

    def fault(exchange: Exchange) -> None:
        named = " ".join((*exchange.request.headers, exchange.request.headers.get("x-amz-trailer", ""))).lower()
        if "x-amz-checksum-" in named or "x-amz-sdk-checksum-algorithm" in named:
            exchange.send(error(code, name, "Unsupported header 'x-amz-checksum-crc32' received for this API call."))

    fault.__name__ = f"{code} {name} for checksums"
    return fault


def without_conditions(exchange: Exchange) -> None:
    """A store that knows no `If-None-Match` and says so."""
    if any(name.lower() == "if-none-match" for name in exchange.request.headers):
        exchange.send(
            error(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
        )


def ignoring_conditions(exchange: Exchange) -> None:
    """A store that knows no `If-None-Match` and does not say so."""
    request = exchange.request
    headers = {name: value for name, value in request.headers.items() if name.lower() != "if-none-match"}
    exchange.send(exchange.forward(replace(request, headers=headers)))


def of_region(region: str) -> Fault:
    """A bucket that lies elsewhere."""

    def fault(exchange: Exchange) -> None:
        wanted = f"/{region}/s3/"
        if wanted not in exchange.request.headers.get("Authorization", ""):
            exchange.send(
                error(301, "PermanentRedirect", "Use the endpoint of the bucket.", x_amz_bucket_region=region)
            )

    fault.__name__ = f"of region {region}"
    return fault


QUOTAS = {
    "ceph": (403, "QuotaExceeded"),
    "minio": (400, "XMinioAdminBucketQuotaExceeded"),
    "minio-full": (507, "XMinioStorageFull"),
    "seaweedfs": (403, "QuotaExceeded"),
    "seaweedfs-readonly": (507, "InsufficientStorage"),
    "garage": (403, "AccessDenied"),
    "netapp": (507, "InsufficientStorage"),
    "wasabi": (403, "AccountProblem"),
    "cloudian": (403, "QosLimitExceeded"),
    "backblaze": (403, "StorageCapExceeded"),
    "dell-ecs": (403, "QuotaExceeded"),
    "huawei": (403, "InsufficientStorageSpace"),
    "another": (507, "Unheard"),
}
"""vendor -> (status, code) with which it refuses what does not fit any more."""
SAYING_SO = frozenset({"garage", "wasabi"})
"""Of them those whose words alone tell."""


def quota(vendor: str) -> Fault:
    """Every write of bytes is refused as that vendor does it when nothing more fits."""
    code, name = QUOTAS[vendor]

    def fault(exchange: Exchange) -> None:
        if exchange.request.method in ("PUT", "POST"):
            exchange.send(error(code, name, "the quota is exceeded" if vendor in SAYING_SO else "not now"))

    fault.__name__ = f"quota of {vendor}"
    return fault


class Quota:
    """A store that takes so many bytes in all of what is written through the proxy while this is in force."""

    __name__ = "quota"

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.sizes: dict[str, int] = {}
        self._guard = threading.Lock()

    def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.operation == "PutObject":
            with self._guard:
                used = sum(self.sizes.values()) - self.sizes.get(request.key, 0)
                fits = used + len(request.body) <= self.limit_bytes
                if fits:
                    self.sizes[request.key] = len(request.body)
            if not fits:
                exchange.send(error(403, "QuotaExceeded"))
        elif request.operation == "DeleteObject":
            answer = exchange.forward()
            with self._guard:
                self.sizes.pop(request.key, None)
            exchange.send(answer)


TRANSIENT: tuple[Fault, ...] = (
    lost_answer,
    lost_request,
    failed_after_success,
    status(500, "InternalError"),
    status(503, "SlowDown", Retry_After="0"),
    reset_in_body,
    cut_body,
)
"""What any store does now and then."""

WRONG: tuple[Fault, ...] = (short_body, long_body, flipped_body, flipped_upload, empty_ok, truncated_listing)
"""What no store should, and some do."""
