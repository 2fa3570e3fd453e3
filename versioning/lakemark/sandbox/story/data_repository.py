"""Writing data versions for the demo: what a data team does with lakeFS, by its plain API."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from lakemark.errors import StoreUnavailable
from lakemark.sandbox.loopback import HttpAnswer, Origin, url


@dataclass(frozen=True)
class DataRepository:
    """A repository on a lakeFS server on loopback."""

    origin: Origin
    name: str

    @classmethod
    def at(cls, endpoint: str, name: str, keys: Mapping[str, str]) -> DataRepository:
        """The repository behind `endpoint`, with `keys` of LAKEFS_ACCESS_KEY_ID and LAKEFS_SECRET_ACCESS_KEY."""
        port = urlsplit(endpoint).port or 80
        return cls(Origin(port, keys["LAKEFS_ACCESS_KEY_ID"], keys["LAKEFS_SECRET_ACCESS_KEY"]), name)

    @property
    def environ(self) -> dict[str, str]:
        """What a program that reads with `lakemark.data` is told."""
        names = ("LAKEFS_ENDPOINT", "LAKEFS_ACCESS_KEY_ID", "LAKEFS_SECRET_ACCESS_KEY")
        return dict(zip(names, (url(self.origin.port), self.origin.user or "", self.origin.password), strict=True))

    def create(self, namespace: str) -> None:
        """Makes the repository, with its default branch `main`; `namespace` is where its objects lie."""
        body = {"name": self.name, "storage_namespace": namespace, "default_branch": "main"}
        answer = self.origin.ask("POST", "/api/v1/repositories", body=body)
        if not answer.ok:
            raise StoreUnavailable(
                f"lakeFS answers {answer.status} to making {self.name}: {answer.body[:200].decode(errors='replace')}",
                advice="Check LAKEFS_ENDPOINT, its keys and LAKEFS_NAMESPACES.",
            )

    def commit(self, branch: str, files: Mapping[str, bytes], *, message: str) -> str:
        """Uploads `files` to `branch` and commits them; answers the commit's id."""
        for path, content in files.items():
            boundary = uuid.uuid4().hex
            body = (
                # As lakeFS's own clients upload: a form with one field `content`.
                f'--{boundary}\r\nContent-Disposition: form-data; name="content"; filename="f"\r\n'
                f"Content-Type: application/octet-stream\r\n\r\n"
            ).encode() + content
            body += f"\r\n--{boundary}--\r\n".encode()
            headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
            self._ask("POST", f"/branches/{branch}/objects?path={quote(path)}", body=body, headers=headers)
        answer = self._ask("POST", f"/branches/{branch}/commits", body={"message": message})
        return str(_object(answer)["id"])

    def head(self, branch: str) -> str:
        """The id of the branch's newest commit."""
        return str(_object(self._ask("GET", f"/branches/{branch}"))["commit_id"])

    def digests(self, ref: str) -> dict[str, str]:
        """Path -> sha256 of every object's bytes at `ref`, read now."""
        listing = _object(self._ask("GET", f"/refs/{ref}/objects/ls?amount=1000"))
        # A pin's guard is no data.
        paths = [row["path"] for row in listing["results"] if not row["path"].startswith("_lakefs_actions/")]
        return {
            path: sha256(self._ask("GET", f"/refs/{ref}/objects?path={quote(path)}").body).hexdigest() for path in paths
        }

    def _ask(self, method: str, path: str, *, body: object = None, headers: dict[str, str] | None = None) -> HttpAnswer:
        answer = self.origin.ask(method, f"/api/v1/repositories/{self.name}{path}", body=body, headers=headers)
        if not answer.ok:
            raise StoreUnavailable(
                f"lakeFS answers {answer.status} to {method} {path}: {answer.body[:200].decode(errors='replace')}",
                advice="See lakefs.log in the sandbox's logs.",
            )
        return answer


def _object(answer: HttpAnswer) -> dict[str, Any]:
    value = answer.json()
    return value if isinstance(value, dict) else {}
