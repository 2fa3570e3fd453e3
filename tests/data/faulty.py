"""A lakeFS server that fails on demand: enough of its API for a reader, and a list of what goes wrong next."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

COMMIT = "c" * 64


class Faulty:
    """objects: path -> bytes. faults: what the next requests for bytes meet, in order. ranges: those that were asked for."""

    def __init__(self, objects):
        self.objects = objects
        self.faults = []
        self.ranges = []
        self.requests = 0
        self.endpoint = ""

    def stats(self, path):
        content = self.objects[path]
        checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return {
            "path": path,
            "path_type": "object",
            "physical_address": f"local://data/{checksum}",
            "checksum": checksum,
            "size_bytes": len(content),
            "mtime": 1_700_000_000,
        }


def _handler(served):  # noqa: C901 - one class, in the closure of what it serves
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            served.requests += 1
            at = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(at.query, keep_blank_values=True).items()}
            if at.path.endswith("/stat"):
                known = asked["path"] in served.objects
                return self.say(
                    200 if known else 404, served.stats(asked["path"]) if known else {"message": "not found"}
                )
            if at.path.endswith("/ls"):
                found = [served.stats(path) for path in sorted(served.objects) if path.startswith(asked["prefix"])]
                return self.say(200, {"results": found, "pagination": {"has_more": False, "next_offset": ""}})
            if "/commits/" in at.path:
                return self.say(200, {"id": COMMIT})
            return self.bytes(asked["path"])

        def bytes(self, path):
            served.ranges.append(self.headers.get("Range"))
            fault = served.faults.pop(0) if served.faults else None
            if isinstance(fault, int):
                return self.say(fault, {"message": "so it was asked"}, **{"Retry-After": "0"})
            if fault == "no answer":
                self.close_connection = True
                return None
            content = served.objects[path]
            first, _, last = (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")
            start, end = int(first), int(last or len(content) - 1) + 1
            body = content[start:end]
            if fault == "short":
                body = body[: len(body) // 2]
            tag = "other" if fault == "other bytes" else served.stats(path)["checksum"]
            said = f"bytes {start + (fault == 'other range')}-{end - 1}/{len(content)}"
            self.send_response(200 if fault == "no range" else 206)
            self.send_header("ETag", f'"{tag}"')
            if fault != "no range":
                self.send_header("Content-Range", said)
            self.send_header("Content-Length", str(end - start))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = fault == "short"
            return None

        def say(self, status, value, **headers):
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            for name, said in headers.items():
                self.send_header(name, said)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    return Handler


@contextmanager
def serving(objects):
    served = Faulty(objects)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(served))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        served.endpoint = f"http://127.0.0.1:{server.server_port}"
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
