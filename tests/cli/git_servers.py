"""Git served on loopback by git's own programs: `git daemon`, and `git http-backend` behind Python's http.server."""

import gzip
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def over_files(root, port):
    """What is below `root`, by file:// URLs; there is no server that could be away."""
    yield f"file://{root}"


@contextmanager
def over_git(root, port):
    """What is below `root`, from `git daemon` at this port."""
    command = ["git", "daemon", "--listen=127.0.0.1", f"--port={port}", f"--base-path={root}", "--export-all"]
    process = subprocess.Popen([*command, "--reuseaddr", root], stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        _listens(process, port)
        yield f"git://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=180)


@contextmanager
def over_http(root, port):
    """What is below `root`, from `git http-backend` at this port. `/denied` is answered with 403, `/secret` with 401."""

    class Handler(_Backend):
        directory = str(root)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Backend(BaseHTTPRequestHandler):
    """Hands each request to git's CGI program."""

    directory = ""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        status = {"denied": 403, "secret": 401}.get(path.split("/")[1])
        if status is not None:
            self.send_response(status)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        environ = os.environ | {
            "GIT_PROJECT_ROOT": self.directory,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_):
        """Says nothing."""


def _listens(process, port):
    deadline = time.monotonic() + 180
    while True:
        assert process.poll() is None, "git daemon ended"
        assert time.monotonic() < deadline, "git daemon does not listen"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
