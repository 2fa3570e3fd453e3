"""status asks what a commit, a sink or a rollback would ask, and says by name what is wrong."""

import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from lakemark.adapters.s3.question import Asked, get, signed

CLOSED, HANGING = "closed", "hanging"
NO_RECORD = b'{"message": "no such thing"}'


@contextmanager
def answering(status, body=b"", content_type="application/json"):
    """A server that answers everything alike; `hanging`: that takes connections and says nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def hanging():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def closed(free_port):
    yield f"http://127.0.0.1:{free_port()}"


def problems(cli, **environ):
    done = cli("status", "--json", environ=environ)
    found = {one["what"]: one for one in done.json["problems"]}
    assert all(one["next"] for one in found.values())
    assert (done.code == 4) == any(one["colour"] == "red" for one in found.values())
    return done, [what for what, one in found.items() if one["colour"] == "red"]


KEYS = {
    "LAKEFS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "LAKEFS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "LAKEMARK_S3_ACCESS_KEY_ID": "nobody",
    "LAKEMARK_S3_SECRET_ACCESS_KEY": "nobody's",
}

ANSWERS = [
    pytest.param(401, NO_RECORD, "refuses the", id="401"),
    pytest.param(403, NO_RECORD, "refuses the", id="403"),
    pytest.param(500, NO_RECORD, "answers 500", id="500"),
    pytest.param(404, NO_RECORD, "has no", id="404"),
]


@pytest.mark.parametrize(
    ("status", "body", "said"), [*ANSWERS, pytest.param(200, b"<html>", "is no lakeFS", id="html")]
)
def test_a_lakefs_that_answers_and_can_resolve_nothing_is_red(trained, status, body, said):
    with answering(status, body) as url:
        trained.settings("data: none", f"data: {{endpoint: {url}, repository: data, branch: main}}")
        _, (what,) = problems(trained, **KEYS)
        assert what.startswith(f"lakefs at {url} {said}")


@pytest.mark.parametrize("how", [CLOSED, HANGING])
def test_a_lakefs_that_does_not_answer_is_red_and_keeps_nobody_waiting(trained, how, free_port):
    with hanging() if how == HANGING else closed(free_port) as url:
        trained.settings("data: none", f"data: {{endpoint: {url}, repository: data, branch: main}}")
        _, (what,) = problems(trained, **KEYS)
        assert "does not answer" in what


def test_a_lakefs_that_resolves_the_branch_is_green(trained):
    with answering(200, b'{"id": "main", "commit_id": "ab"}') as url:
        trained.settings("data: none", f"data: {{endpoint: {url}, repository: data, branch: main}}")
        done, red = problems(trained, **KEYS)
        assert red == []
        assert {one["name"]: one["ok"] for one in done.json["services"]} == {"lakefs": True}


def test_missing_keys_are_red(trained):
    with answering(200, b'{"id": "main", "commit_id": "ab"}') as url:
        trained.settings("data: none", f"data: {{endpoint: {url}, repository: data, branch: main}}")
        _, (what,) = problems(trained)
        assert "LAKEFS_ACCESS_KEY_ID" in what


@pytest.mark.parametrize(
    ("status", "said"), [(403, "refuses the keys `s3`"), (500, "answers 500"), (503, "answers 503")]
)
def test_a_store_that_answers_and_takes_nothing_is_red(trained, status, said):
    with answering(status, b"<Error/>", "application/xml") as url:
        trained.tier(
            f"warm: {{class: warm, kind: s3, url: s3://bucket/prefix, endpoint: {url}, credentials: s3, domain: array}}"
        )
        _, (what,) = problems(trained, **KEYS)
        assert what.startswith(f"s3 (warm) at {url} {said}")


@pytest.mark.parametrize(
    ("status", "body", "said"), [(401, b"{}", "refuses the password"), (200, b"<html>", "not as Prefect")]
)
def test_a_prefect_that_is_none_is_red(trained, status, body, said):
    with answering(status, body) as url:
        _, (what,) = problems(trained, PREFECT_API_URL=f"{url}/api")
        assert said in what


def test_a_bucket_made_anew_is_no_tier(trained, seaweedfs):
    keys = {
        "LAKEMARK_S3_ACCESS_KEY_ID": seaweedfs.credentials.access_key_id,
        "LAKEMARK_S3_SECRET_ACCESS_KEY": seaweedfs.credentials.secret_access_key,
    }
    place = f"url: s3://{seaweedfs.bucket}/{trained.home.name}-anew, endpoint: {seaweedfs.endpoint}"
    trained.tier(f"warm: {{class: warm, kind: s3, {place}, credentials: s3, domain: array}}")
    trained.ok("tier", "init", "warm", environ=keys)
    _, red = problems(trained, **keys)
    assert red == []
    prefix = f"{trained.home.name}-anew/"
    client = seaweedfs.client()
    for one in client.list_objects_v2(Bucket=seaweedfs.bucket, Prefix=prefix)["Contents"]:
        client.delete_object(Bucket=seaweedfs.bucket, Key=one["Key"])
    _, (what,) = problems(trained, **keys)
    assert "has no identity of tier" in what
    _, (what,) = problems(trained, **keys | {"LAKEMARK_S3_SECRET_ACCESS_KEY": "wrong"})
    assert "refuses the keys `s3` (403)" in what


@pytest.mark.parametrize("token", [None, "of-a-session"])
def test_the_signature_is_the_sdk_s(token):
    asked = Asked(
        endpoint="https://h.example.org:9000", bucket="examplebucket", key="a/te st.txt", region="us-east-1",
        access_key_id="AKIAIOSFODNN7EXAMPLE", secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        session_token=token,
    )  # fmt: skip
    path = "/examplebucket/a/te%20st.txt"
    request = AWSRequest("GET", f"https://h.example.org:9000{path}")
    S3SigV4Auth(Credentials(asked.access_key_id, asked.secret_access_key, token), "s3", "us-east-1").add_auth(request)
    at = datetime.strptime(request.context["timestamp"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    ours = signed(asked, host="h.example.org:9000", path=path, at=at)
    assert ours["Authorization"] == request.headers["Authorization"]


def test_no_answer_is_an_error_of_the_network(free_port):
    asked = Asked(endpoint=f"http://127.0.0.1:{free_port()}", bucket="b", key="k", region="us-east-1")
    with pytest.raises(OSError, match="refused"):
        get(asked, at=datetime.now(UTC), within_seconds=1)
    assert "secret" not in repr(asked)


def test_a_journal_that_is_none_is_red(trained):
    trained.ok("status")
    # Closed by whoever opened it: else what its log still holds would cover the garbage.
    log = trained.home / "ledger.journal.sqlite-wal"
    assert not log.exists() or log.stat().st_size == 0
    (trained.home / "ledger.journal.sqlite").write_bytes(b"garbage, " * 4096)
    done, red = problems(trained)
    assert done.code == 4
    assert any(what.startswith("the journal can't be written") for what in red)


def fill(path):
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 65536)


def test_a_disk_that_is_full_or_read_only_is_red(trained, tmp_path, require_root):
    image, at = tmp_path / "image", trained.home / "small"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, at], check=True)
    try:
        shutil.move(trained.home / "ledger.git", at / "ledger.git")
        (trained.home / "ledger.git").symlink_to(at / "ledger.git")
        assert problems(trained)[1] == []
        fill(at / "fill")
        _, red = problems(trained)
        assert "the ledger can't be written: No space left on device" in red
        (at / "fill").unlink()
        subprocess.run(["mount", "-o", "remount,ro", at], check=True)
        _, red = problems(trained)
        assert "the ledger can't be written: Read-only file system" in red
    finally:
        subprocess.run(["umount", at], check=True)


def test_a_trainer_that_is_silent_asks_whether_it_is_over_and_one_that_lives_is_red(trained):
    trained.ok("run", "open", "r1", "--watch", trained.home / "out")
    trained.settings("rpo: 30m", "rpo: 1s")
    time.sleep(1.1)  # until the newest save is older than that
    (trained.home / "out" / "train.log").write_text("step 301\n")
    done, red = problems(trained)
    old = time.time() - 900
    assert [what for what in red if "was last saved" in what]
    for path in [trained.home / "out", *(trained.home / "out").iterdir()]:
        os.utime(path, (old, old))
    done, red = problems(trained)
    assert red == []
    (silent,) = [one for one in done.json["problems"] if "was last saved" in one["what"]]
    assert "run close r1" in silent["next"]
    trained.ok("run", "close", "r1", "--reason", "over")
    done, red = problems(trained)
    assert done.json["problems"] == []


def test_a_watched_directory_that_is_gone_is_red_once_it_had_saves(trained):
    trained.ok("run", "open", "r1", "--watch", trained.home / "out")
    trained.ok("run", "open", "fresh", "--watch", trained.home / "later")
    (trained.home / "out").rename(trained.home / "elsewhere")
    done, red = problems(trained)
    assert [what for what in red if "the directory of r1" in what]
    (waits,) = [one for one in done.json["problems"] if "the directory of fresh" in one["what"]]
    assert waits["colour"] == "amber"


def test_an_announced_save_is_amber_only_when_it_waits(trained):
    spool = trained.home / "spool" / "r1"
    spool.mkdir(parents=True)
    announced = spool / "00400-x.json"
    announced.write_text("{}")
    document = trained.ok("status")
    assert document["waiting"] == [str(announced)]
    before = document["problems"]
    assert not any("announced" in one["what"] for one in before)
    os.utime(announced, (time.time() - 900,) * 2)
    (late,) = [one for one in trained.ok("status")["problems"] if one not in before]
    assert "wait to be committed" in late["what"]


def test_services_of_the_sandbox_are_listed_once(empty):
    empty.ok("init", "site", "--profile", "laptop")
    home = Path(empty.home) / "site"
    assert (home / "lakemark.yaml").exists()
    names = [one["name"] for one in empty("--config", "site", "status", "--json").json["services"]]
    assert sorted(names) == sorted(set(names)) == ["lakefs", "prefect", "s3 (warm)"]
