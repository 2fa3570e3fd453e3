"""Runs the stand-in as its users do: as a process of its own, spoken to over HTTP."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import httpx

ACCESS_KEY, SECRET_KEY = "AKIATEST", "secret"
KEYS = {"LAKEFS_ACCESS_KEY_ID": ACCESS_KEY, "LAKEFS_SECRET_ACCESS_KEY": SECRET_KEY}


class Server:
    """A server on a directory, on a free loopback port, and a client of it that holds the keys."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakemark.sandbox.lakefs", "--dir", str(directory), "--port", "0"],
            env=os.environ | KEYS,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.endpoint = self.process.stdout.readline().strip()
        assert self.endpoint.startswith("http://127.0.0.1:"), f"it did not start: {self.endpoint!r}"
        self.http = httpx.Client(
            base_url=self.endpoint + "/api/v1", auth=(ACCESS_KEY, SECRET_KEY), timeout=60, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> None:
        self.http.close()
        self.process.send_signal(how)
        self.process.wait(180)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def repository(self, name: str) -> "Repository":
        answer = self.http.post("/repositories", json={"name": name, "storage_namespace": f"local://{name}"})
        assert answer.status_code == 201, answer.text
        return Repository(self, name)


class Repository:
    """One repository; every method answers with the response, or with what a 2xx one holds."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name

    def send(self, method: str, path: str, **asked: Any) -> httpx.Response:
        return self.server.http.request(method, f"/repositories/{self.name}{path}", **asked)

    def upload(self, branch: str, path: str, content: bytes, **headers: str) -> httpx.Response:
        form = {"content": (path.rsplit("/", 1)[-1], content, "application/octet-stream")}
        where = f"/branches/{branch}/objects"
        return self.send("POST", where, params={"path": path}, files=form, headers=headers)

    def commit(self, branch: str, message: str, tree: str | None = None, **fields: Any) -> httpx.Response:
        params = {} if tree is None else {"source_metarange": tree}
        return self.send("POST", f"/branches/{branch}/commits", params=params, json={"message": message} | fields)

    def committed(self, branch: str, files: dict[str, bytes], **fields: Any) -> dict[str, Any]:
        for path, content in files.items():
            assert self.upload(branch, path, content).status_code == 201
        answer = self.commit(branch, f"change {', '.join(files)}", **fields)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def branch(self, name: str, source: str, *, hidden: bool = False) -> httpx.Response:
        return self.send("POST", "/branches", json={"name": name, "source": source, "hidden": hidden})

    def head(self, branch: str) -> dict[str, Any]:
        return self.send("GET", f"/commits/{branch}").json()

    def get(self, ref: str, path: str, **headers: str) -> httpx.Response:
        return self.send("GET", f"/refs/{ref}/objects", params={"path": path}, headers=headers)

    def paths(self, ref: str, **params: str) -> list[str]:
        return [each["path"] for each in self.send("GET", f"/refs/{ref}/objects/ls", params=params).json()["results"]]

    def log(self, ref: str, **params: Any) -> list[dict[str, Any]]:
        answer = self.send("GET", f"/refs/{ref}/commits", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"]

    def diff(self, left: str, right: str, kind: str = "two_dot") -> list[tuple[str, str]]:
        found = self.send("GET", f"/refs/{left}/diff/{right}", params={"type": kind}).json()["results"]
        return [(each["type"], each["path"]) for each in found]
