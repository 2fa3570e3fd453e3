"""A server that answers the few requests of `cli.prefect_api` as Prefect does, with its password, CSRF and its hiccups."""

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from lakemark.sandbox.declared import declared


def deployment(one):
    """As the server tells of it where all is well."""
    return {
        "id": f"id-{one.name}",
        "name": one.name,
        "entrypoint": one.entrypoint,
        "status": "READY",
        "paused": False,
        "tags": ["lakemark"],
        "schedules": [{"active": True}] if one.scheduled else [],
        "work_queue_name": one.queue,
    }


class Server:
    """auth: `user:password`, or None for an open server. hiccups: answers that resuming gives before it works."""

    def __init__(self, *, auth="lakemark:secret", csrf=True, cors=None, hiccups=()):
        self.auth, self.csrf, self.cors, self.hiccups = auth, csrf, cors, list(hiccups)
        self.tokens, self.runs, self.answers, self.made = {}, {}, [], []
        self.state = "PAUSED"
        self.url = ""
        self.deployments = [deployment(one) for one in declared(Path(__file__).parents[2] / "prefect.yaml")]
        self.queues = [
            {"name": name, "priority": rank, "status": "READY", "is_paused": False}
            for rank, name in enumerate(("urgent", "node-node-a", "default"), start=1)
        ]

    def may(self, headers):
        if self.auth is None:
            return True
        return headers.get("Authorization") == "Basic " + base64.b64encode(self.auth.encode()).decode()

    def carries_token(self, headers):
        given = (headers.get("Prefect-Csrf-Client"), headers.get("Prefect-Csrf-Token"))
        return not self.csrf or given in self.tokens.items()

    def get(self, path, query):
        if path == "/api/csrf-token":
            if not self.csrf:
                return 422, {}
            token = self.tokens[query["client"][0]] = f"token-{len(self.tokens)}"
            return 200, {"token": token}
        if path == "/api/admin/version":
            return 200, "3.9.1"
        if path == "/api/deployments/name/rollback/rollback":
            return 200, {"id": "d1"}
        return 404, {}

    def post(self, path, body):
        if path == "/api/deployments/d1/create_flow_run":
            key = body["idempotency_key"]
            run = self.runs.setdefault(key, {"id": f"run-{len(self.runs)}", "tags": body["tags"]})
            self.made.append(body)
            return 201, run
        if path == "/api/deployments/filter":
            named = body["deployments"].get("name", {}).get("any_")
            return 200, [one for one in self.deployments if named is None or one["name"] in named]
        if path == "/api/work_pools/lakemark/queues/filter":
            return 200, sorted(self.queues, key=lambda one: one["priority"])
        if path == "/api/flow_runs/filter":
            wanted = body.get("flow_runs", {})
            tags = set(wanted.get("tags", {}).get("all_", []))
            ids = wanted.get("id", {}).get("any_")
            found = [
                run for run in self.runs.values() if tags <= set(run["tags"]) and (ids is None or run["id"] in ids)
            ]
            return 200, [{**run, "state_type": self.state} for run in found]
        if path.endswith("/resume"):
            if self.hiccups:
                return self.hiccups.pop(0)
            self.answers.append(body["run_input"])
            self.state = "COMPLETED"
            return 200, {"status": "ACCEPT", "details": {}}
        return 404, {}


@contextmanager
def serving(server):
    """The server on a free loopback port; `server.url` is its API."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def answer(self, status, value):
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if server.cors and self.headers.get("Origin"):
                self.send_header("Access-Control-Allow-Origin", server.cors)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            parts = urlsplit(self.path)
            allowed = server.may(self.headers)
            self.answer(*(server.get(parts.path, parse_qs(parts.query)) if allowed else (401, {})))

        def do_OPTIONS(self):
            self.answer(200, {})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            if not server.may(self.headers):
                return self.answer(401, {})
            if not server.carries_token(self.headers):
                return self.answer(403, {})
            return self.answer(*server.post(urlsplit(self.path).path, body))

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{web.server_port}/api"
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
