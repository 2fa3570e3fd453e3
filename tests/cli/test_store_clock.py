"""An entry is `clock: suspect` where this node's clock was more than five minutes off a store's when it was written."""

import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.register import register_tier
from lakemark.settings import load
from lakemark.site import Parts, site_of


@contextmanager
def store(off):
    """A store that has nothing, and whose clock is `off` ours."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response_only(404)
            self.send_header("Date", format_datetime(datetime.now(UTC) + off, usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_PUT = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parts(home, endpoint):
    (home / "lakemark.yaml").write_text(
        "site: s\nnode: n\ndata: none\nledger: {path: ledger.git}\ntiers:\n  hot: {class: hot, kind: tree, path: hot}\n"
        f"  warm: {{class: warm, kind: s3, url: s3://bucket/warm, endpoint: '{endpoint}', region: us-east-1, credentials: s3}}\n"
    )
    environ = {"LAKEMARK_S3_ACCESS_KEY_ID": "key", "LAKEMARK_S3_SECRET_ACCESS_KEY": "secret"}
    return Parts(load(home / "lakemark.yaml", environ=environ, cwd=home, hostname="n"), environ)


@pytest.mark.parametrize(("minutes", "said"), [(0, "ok"), (4, "ok"), (-20, "suspect"), (20, "suspect")])
def test_an_entry_says_that_its_clock_was_off_a_store_s(tmp_path, minutes, said):
    from lakemark.adapters.git.make import init

    init(tmp_path / "ledger.git")
    with store(timedelta(minutes=minutes)) as endpoint:
        assert parts(tmp_path, endpoint).store("warm").identity() is None
    # Another process, and the store is down: commits ask nobody.
    site = site_of(parts(tmp_path, endpoint))
    (tmp_path / "save").mkdir()
    (tmp_path / "save" / "model.bin").write_text("weights")
    register_tier(site, site.hot)
    open_run(site, Opening(run="llama"))
    commit(site, Commit(path=tmp_path / "save", run="llama", step=1))
    entries = [entry for entry, _ in site.ledger.entries("llama")]
    assert {entry.clock for entry in entries} == {said}
    (record,) = site.ledger.run("llama").records.values()
    assert record.clock == said
