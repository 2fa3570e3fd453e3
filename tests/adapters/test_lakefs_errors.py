import http.server
import json
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest

from lakemark.adapters.lakefs.errors import error_for, said
from lakemark.adapters.lakefs.versions import LakeFSVersions
from lakemark.errors import (
    Conflict,
    DataGone,
    Denied,
    Misconfigured,
    NotFound,
    Refused,
    StoreUnavailable,
    Usage,
)
from lakemark.ports import Patience

COMMIT = "ab" * 32


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "branch id: invalid value", Usage),
        (401, "error authenticating request", Denied),
        (403, "insufficient permissions", Denied),
        (403, "cannot write to protected branch", Refused),
        (403, "read-only repository", Refused),
        (404, "branch not found", NotFound),
        (408, "", StoreUnavailable),
        (409, "branch already exists", Conflict),
        (410, "data not found", DataGone),
        (412, "pre-delete-branch hook aborted", Refused),
        (423, "", StoreUnavailable),
        (429, "too many tries", StoreUnavailable),
        (500, "branch is currently locked, try again later", StoreUnavailable),
        (500, "parsing file _lakefs_actions/x.yaml: invalid action", Refused),
        (500, "argument branch: required value: validation error", Usage),
        (503, "slow down", StoreUnavailable),
        (507, "", StoreUnavailable),
    ],
)
def test_statuses(status, message, kind):
    error = error_for(status, message, about="branch 'x'")
    assert type(error) is kind
    assert "branch 'x'" in error.message
    assert error.advice


def test_a_missing_repository_is_told_from_a_missing_commit():
    repository = error_for(404, "repository not found", about="commit c of data repository 'r'")
    commit = error_for(404, "commit not found", about="commit c of data repository 'r'")
    assert "no such data repository" in repository.message
    assert repository.message != commit.message


@pytest.mark.parametrize("body", [None, "", "<html>\n", b"\xff", '{"message": 3}', '["x"]', '{"message":"a\\nb"}'])
def test_what_the_server_said_is_one_line(body):
    assert "\n" not in said(body)


@pytest.fixture
def answering():
    """A function that serves the same answer to every request and gives the server's address."""
    servers = []

    def serve(body, *, content_type="application/json", length=None, status=200, location=None):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                if location:
                    self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def data(endpoint, **settings):
    return LakeFSVersions(endpoint, "key", "secret", **settings)


def test_nobody_listens(free_port):
    with pytest.raises(StoreUnavailable, match="does not answer"):
        data(f"http://127.0.0.1:{free_port()}").head("data", "main")


def test_a_server_that_never_answers_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match="does not answer"):
            data(endpoint, timeout_seconds=(0.2, 0.2)).head("data", "main")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"<html>hello</html>", "text/html"), (b"[1]", "application/json"), (b'{"id": 3}', "application/json")],
)
def test_another_server_is_misconfigured(answering, body, content_type):
    with pytest.raises(Misconfigured, match="does not answer as a lakeFS server"):
        data(answering(body, content_type=content_type)).head("data", "main")


@pytest.mark.parametrize("endpoint", ["http://", "http://[", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_misconfigured(endpoint):
    with pytest.raises(Misconfigured):
        data(endpoint).head("data", "main")


def test_keys_do_not_follow_a_redirect(answering):
    elsewhere = answering(json.dumps({"id": "main", "commit_id": COMMIT}).encode())
    assert data(elsewhere).head("data", "main") == COMMIT
    with pytest.raises(StoreUnavailable):
        data(answering(b"", status=302, location=elsewhere)).head("data", "main")


def test_a_body_that_breaks_off_is_no_body(answering):
    endpoint = answering(b"half", content_type="application/octet-stream", length=8)
    chunks = data(endpoint).read("data", COMMIT, "x")
    with pytest.raises(StoreUnavailable):
        list(chunks)


def test_wrong_keys_are_denied(lakefs):
    with pytest.raises(Denied) as caught:
        LakeFSVersions(lakefs.endpoint, "AKIAnobody", "wrong").head("data", "main")
    assert "LAKEFS_SECRET_ACCESS_KEY" in caught.value.advice
    assert "wrong" not in json.dumps(caught.value.as_json())


def test_reading_leaves_no_temporary_file(lakefs, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch = lakefs.scratch()
    head = scratch.data.head(scratch.repository, "main")
    assert b"".join(scratch.data.read(scratch.repository, head, "train/1")) == b"bytes of 1"
    assert scratch.data.readable(scratch.repository, head, sample=3, seed=1).lost == ()
    assert list(Path(tmp_path).iterdir()) == []


@pytest.fixture
def moody():
    """A function that serves answers in turn, each (status, body), "break", "silence" or "half", and counts what was sent."""
    servers = []

    def serve(*answers, pause=0.0):
        asked, left = [], list(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self):
                asked.append(self.command)
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = left.pop(0) if len(left) > 1 else left[0]
                if answer == "break":
                    self.close_connection = True
                    return
                if answer == "silence" or pause:
                    done.wait(pause or 30)
                if answer == "half":
                    self.send_response(200)
                    self.send_header("Content-Length", "8")
                    self.end_headers()
                    self.wfile.write(b"half")
                    self.wfile.flush()
                    done.wait(30)
                if answer in ("silence", "half"):
                    self.close_connection = True
                    return
                status, value = answer
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        for method in ("GET", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.respond)
        done = threading.Event()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread, done))
        return f"http://127.0.0.1:{server.server_address[1]}", asked

    yield serve
    for server, thread, done in servers:
        done.set()
        server.shutdown()
        thread.join()
        server.server_close()


MAIN = (200, {"id": "main", "commit_id": COMMIT})


@pytest.mark.parametrize(
    "failure", [(500, {"message": "x"}), (503, {"message": "x"}), (429, {"message": "x"}), "break"]
)
def test_what_only_reads_is_asked_again_and_what_writes_is_not(moody, failure):
    endpoint, asked = moody(failure, failure, MAIN)
    assert data(endpoint).head("data", "main") == COMMIT
    assert asked == ["GET"] * 3
    endpoint, asked = moody(failure)
    with pytest.raises(StoreUnavailable):
        data(endpoint).branch_at("data", "new", COMMIT)
    assert asked == ["POST"]


def test_a_failure_that_stays_is_told_after_three_tries(moody):
    endpoint, asked = moody((500, {"message": "x"}))
    with pytest.raises(StoreUnavailable):
        data(endpoint).head("data", "main")
    assert asked == ["GET"] * 3


def test_silence_is_waited_for_once_and_nobody_else_waits_for_it(moody):
    endpoint, asked = moody("silence")
    here = data(endpoint, timeout_seconds=(5, 0.3))
    for message in ("does not answer", "a moment ago", "a moment ago"):
        with pytest.raises(StoreUnavailable, match=message):
            here.head("data", "main")
    assert asked == ["GET"]


def test_all_that_one_call_asks_is_over_in_time_however_slowly_each_is_answered(moody):
    endpoint, asked = moody(MAIN, pause=0.1)
    here = data(endpoint)

    def a_hundred():
        with here.within(0.5):
            for _ in range(100):
                here.head("data", "main")

    with pytest.raises(StoreUnavailable, match="too slowly"):
        a_hundred()
    assert len(asked) < 100
    assert here.head("data", "main") == COMMIT


def test_all_calls_together_are_waited_for_no_longer_than_somebody_waits(moody):
    """Each call is answered well within its own time."""
    endpoint, asked = moody(MAIN, pause=0.1)
    here = data(endpoint, patience_seconds=0.5)

    def a_hundred():
        for _ in range(100):
            here.head("data", "main")

    with pytest.raises(StoreUnavailable, match="too slowly"):
        a_hundred()
    assert 0 < len(asked) < 100
    before = len(asked)
    with pytest.raises(StoreUnavailable, match="too slowly"):
        here.head("data", "main")
    assert len(asked) == before


def test_a_pass_stops_asking_a_server_that_answers_slowly_and_another_begins_anew(moody):
    endpoint, asked = moody(MAIN, pause=0.35)
    here, patience = data(endpoint), Patience(0.3)

    def a_hundred():
        with here.patient(patience):
            for _ in range(100):
                here.head("data", "main")

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="too slowly"):
            a_hundred()
        assert 0 < len(asked) <= 5
    with here.patient(Patience(0.3)):
        assert here.head("data", "main") == COMMIT
    assert here.head("data", "main") == COMMIT


def test_a_pass_waits_for_silence_no_longer_than_its_patience(moody):
    endpoint, asked = moody("silence")
    here = data(endpoint)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="too slowly"), here.patient(Patience(0.2)):
        here.head("data", "main")
    assert time.monotonic() - began < 5
    assert asked == ["GET"]


def test_quick_answers_cost_a_pass_nothing_of_its_patience(moody):
    endpoint, asked = moody(MAIN)
    here, patience = data(endpoint), Patience(0.001)
    with here.patient(patience):
        for _ in range(30):
            here.head("data", "main")
    assert len(asked) == 30


def test_waiting_for_the_bytes_of_an_object_counts_as_waiting(moody):
    endpoint, _ = moody("half")
    here, patience = data(endpoint), Patience(0.2)
    began = time.monotonic()
    with here.patient(patience):
        chunks = here.read("data", COMMIT, "x")
        with pytest.raises(StoreUnavailable):
            list(chunks)
    assert time.monotonic() - began < 5
    assert patience.left_seconds <= 0


def test_a_right_that_is_missing_is_no_wrong_key(moody):
    endpoint, _ = moody((401, {"message": "insufficient permissions"}))
    with pytest.raises(Denied) as denied:
        data(endpoint).head("data", "main")
    assert "no right" in denied.value.advice
    endpoint, _ = moody((401, {"message": "error authenticating request"}))
    with pytest.raises(Denied) as denied:
        data(endpoint).head("data", "main")
    assert "LAKEFS_ACCESS_KEY_ID" in denied.value.advice
