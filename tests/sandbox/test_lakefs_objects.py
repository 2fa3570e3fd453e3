"""Objects: bytes in, bytes out, and what is answered once the bytes are gone."""

import base64
import hashlib
import http.client
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.sandbox.serving import ACCESS_KEY, SECRET_KEY, Repository, Server

pytestmark = pytest.mark.xdist_group("lakefs-objects")

MIB = 1024 * 1024


def bytes_on_disk(repository: Repository, ref: str, path: str) -> Path:
    """The file that holds an object's bytes; removing it is what a garbage collection does."""
    stat = repository.send("GET", f"/refs/{ref}/objects/stat", params={"path": path}).json()
    (found,) = repository.server.directory.joinpath("objects").rglob(stat["physical_address"].rsplit("/", 1)[1])
    return found


def test_collected_bytes_are_gone_while_all_else_says_they_are_there(repository: Repository):
    commit = repository.committed("main", {"a": b"bytes", "b": b"other"})
    bytes_on_disk(repository, commit["id"], "a").unlink()
    where = f"/refs/{commit['id']}/objects"
    assert repository.send("GET", where + "/stat", params={"path": "a"}).status_code == 200
    assert repository.send("HEAD", where, params={"path": "a"}).status_code == 200
    assert repository.paths(commit["id"]) == ["a", "b"]
    assert repository.get(commit["id"], "a").status_code == 410
    assert repository.get(commit["id"], "a", Range="bytes=0-0").status_code == 410
    assert repository.get(commit["id"], "b").content == b"other"


def test_the_bytes_are_a_file_and_the_address_names_it(repository: Repository):
    repository.upload("main", "a", b"bytes")
    assert bytes_on_disk(repository, "main", "a").read_bytes() == b"bytes"


@pytest.mark.parametrize(
    ("asked", "status", "answered"),
    [
        ("bytes=0-", 206, (b"0123456789", "bytes 0-9/10")),
        ("bytes=3-5", 206, (b"345", "bytes 3-5/10")),
        ("bytes=-4", 206, (b"6789", "bytes 6-9/10")),
        ("bytes=-40", 206, (b"0123456789", "bytes 0-9/10")),
        ("bytes=8-100", 206, (b"89", "bytes 8-9/10")),
        ("bytes=10-", 416, (None, "bytes */10")),
        ("bytes=-0", 416, (None, "bytes */10")),
        ("bytes=5-2", 416, (None, None)),
        ("bytes=0-0,2-2", 416, (None, None)),
        ("bytes=x", 400, (None, None)),
    ],
)
def test_ranges(repository: Repository, asked, status, answered):
    content, content_range = answered
    repository.upload("main", "a", b"0123456789")
    answer = repository.get("main", "a", Range=asked)
    assert (answer.status_code, answer.headers.get("content-range")) == (status, content_range)
    if content is not None:
        assert answer.content == content
    assert (
        repository.send("HEAD", "/refs/main/objects", params={"path": "a"}, headers={"Range": asked}).status_code
        == status
    )


def test_an_object_of_no_bytes(repository: Repository):
    assert repository.upload("main", "empty", b"").json()["size_bytes"] == 0
    assert repository.get("main", "empty").content == b""
    assert repository.get("main", "empty", Range="bytes=0-0").status_code == 416


def test_a_known_etag_saves_the_bytes(repository: Repository):
    repository.upload("main", "a", b"bytes")
    etag = repository.get("main", "a").headers["etag"]
    assert etag == f'"{hashlib.md5(b"bytes").hexdigest()}"'
    assert repository.get("main", "a", **{"If-None-Match": etag}).status_code == 304


def test_a_raw_body_is_an_upload_too(repository: Repository):
    where = "/branches/main/objects"
    answer = repository.send(
        "POST", where, params={"path": "a"}, content=b"raw", headers={"content-type": "text/plain"}
    )
    assert (answer.status_code, answer.json()["content_type"]) == (201, "text/plain")
    assert repository.get("main", "a").headers["content-type"] == "text/plain"


def test_user_metadata_is_kept_and_left_out_on_request(repository: Repository):
    repository.upload("main", "a", b"x", **{"x-lakefs-meta-rows": "100"})
    repository.commit("main", "x")
    where = "/refs/main/objects/stat"
    assert repository.send("GET", where, params={"path": "a"}).json()["metadata"] == {"rows": "100"}
    without = {"path": "a", "user_metadata": "false"}
    assert repository.send("GET", where, params=without).json()["metadata"] == {}


def test_a_form_without_content_is_refused(repository: Repository):
    answer = repository.send("POST", "/branches/main/objects", params={"path": "a"}, files={"other": b"x"})
    assert answer.status_code == 500
    assert repository.get("main", "a").status_code == 404


def test_the_form_may_have_other_fields_and_a_name_that_looks_like_a_boundary(repository: Repository):
    content = b"--b\r\n--b--\r\n" * 3
    files = [("note", b"first"), ("content", ("b", content)), ("content", ("c", b"second"))]
    answer = repository.send("POST", "/branches/main/objects", params={"path": "dir with space/ü&=?"}, files=files)
    assert answer.status_code == 201, answer.text
    assert repository.get("main", "dir with space/ü&=?").content == content


def test_one_of_many_that_ask_for_an_absent_path_gets_it(repository: Repository):
    def attempt(number: int) -> int:
        return repository.upload("main", "lock", b"%d" % number, **{"If-None-Match": "*"}).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(attempt, range(24)))
    assert statuses == [201] + [412] * 23


def test_refused_uploads_leave_no_bytes(server: Server, repository: Repository):
    def count() -> int:
        return sum(
            1 for path in server.directory.rglob("*") if path.is_file() and path.suffix == "" and path.name != "lock"
        )

    repository.upload("main", "a", b"x")
    before = count()
    assert repository.upload("main", "a", b"y", **{"If-None-Match": "*"}).status_code == 412
    assert repository.upload("none", "a", b"y").status_code == 404
    repository.send("PUT", "/settings/branch_protection", json=[{"pattern": "main"}])
    assert repository.upload("main", "b", bytes(MIB)).status_code == 403
    assert count() == before


def connection_for_upload(repository: Repository, path: str, size_bytes: int) -> http.client.HTTPConnection:
    """A connection on which an upload has been announced and none of it sent."""
    login = base64.b64encode(f"{ACCESS_KEY}:{SECRET_KEY}".encode()).decode()
    connection = http.client.HTTPConnection(urlsplit(repository.server.endpoint).netloc, timeout=60)
    connection.putrequest("POST", f"/api/v1/repositories/{repository.name}/branches/main/objects?path={path}")
    connection.putheader("Authorization", f"Basic {login}")
    connection.putheader("Content-Type", "application/octet-stream")
    connection.putheader("Content-Length", str(size_bytes))
    connection.endheaders()
    return connection


def test_an_upload_cut_off_is_no_object(server: Server, repository: Repository):
    connection = connection_for_upload(repository, "cut", 8 * MIB)
    connection.send(bytes(MIB))
    connection.close()
    assert repository.upload("main", "after", b"x").status_code == 201
    assert repository.paths("main") == ["after"]
    incoming = server.directory / "incoming"
    deadline = time.monotonic() + 180
    while list(incoming.iterdir()) and time.monotonic() < deadline:
        repository.paths("main")
    assert list(incoming.iterdir()) == []


def test_a_client_that_reads_only_after_sending_all_learns_that_it_was_refused(repository: Repository):
    repository.send("PUT", "/settings/branch_protection", json=[{"pattern": "main"}])
    connection = connection_for_upload(repository, "large", 32 * MIB)
    for _ in range(32):
        connection.send(bytes(MIB))
    with connection.getresponse() as answer:
        assert answer.status == 403
    connection.close()


def peak_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


def test_large_objects_pass_through_in_bounded_memory(server: Server, repository: Repository):
    block = hashlib.sha256(b"block").digest() * (MIB // 32)
    digest = hashlib.md5(usedforsecurity=False)
    repository.upload("main", "warm", block)
    before = peak_bytes(server)

    def blocks() -> Any:
        for _ in range(96):
            digest.update(block)
            yield block

    params = {"path": "large"}
    answer = repository.send("POST", "/branches/main/objects", params=params, content=blocks())
    assert (answer.status_code, answer.json()["checksum"]) == (201, digest.hexdigest())
    got = hashlib.md5(usedforsecurity=False)
    where = f"/repositories/{repository.name}/refs/main/objects"
    with server.http.stream("GET", where, params=params) as stream:
        for chunk in stream.iter_bytes():
            got.update(chunk)
    assert got.hexdigest() == digest.hexdigest()
    assert peak_bytes(server) - before < 32 * MIB


def test_staged_objects_lie_over_committed_ones(repository: Repository):
    commit = repository.committed("main", {"a": b"1", "b": b"1", "d/1": b"1", "d/2": b"1"})
    repository.upload("main", "a", b"2")
    repository.upload("main", "c", b"2")
    for path in ("b", "none"):
        assert repository.send("DELETE", "/branches/main/objects", params={"path": path}).status_code == 204
    assert repository.paths("main") == ["a", "c", "d/1", "d/2"]
    assert repository.paths("main", delimiter="/") == ["a", "c", "d/"]
    assert repository.paths("main", delimiter="/", after="c", amount="1") == ["d/"]
    assert repository.paths("main", delimiter="/", after="d/") == []
    assert repository.paths("main@") == repository.paths(commit["id"]) == ["a", "b", "d/1", "d/2"]
    assert [repository.get(ref, "a").content for ref in ("main", "main@", commit["id"])] == [b"2", b"1", b"1"]
    assert repository.get("main", "b").status_code == 404
    staged = repository.send("GET", "/branches/main/diff").json()["results"]
    assert [(each["type"], each["path"]) for each in staged] == [("changed", "a"), ("removed", "b"), ("added", "c")]
    repository.send("PUT", "/branches/main", json={"type": "object", "path": "b"})
    assert repository.paths("main") == ["a", "b", "c", "d/1", "d/2"]
    repository.send("PUT", "/branches/main", json={"type": "reset"})
    assert repository.send("GET", "/branches/main/diff").json()["results"] == []


def test_readers_see_whole_commits_while_they_are_made(repository: Repository):
    repository.committed("main", {"a": b"0", "b": b"0"})
    done = threading.Event()

    def write() -> None:
        for number in range(1, 8):
            repository.committed("main", {"a": b"%d" % number, "b": b"%d" % number})
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not done.is_set() and not writing.done():
            commit = repository.head("main")["id"]
            assert repository.get(commit, "a").content == repository.get(commit, "b").content
        writing.result()
