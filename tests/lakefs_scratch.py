"""A repository of a test's own on a lakeFS server, and an ordinary client that writes to it."""

import io
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import lakefs_client
from lakefs_client import models
from lakefs_client.client import LakeFSClient

from lakemark.adapters.lakefs.versions import LakeFSVersions
from lakemark.ports.data import DataVersions

TIMEOUT = (5, 60)


@dataclass(frozen=True, slots=True)
class LakefsServer:
    """Where a server listens, its keys, and where its objects' bytes lie if that is known."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    find_bytes: Callable[[str], Path | None] = field(repr=False, default=lambda _address: None)
    directory: Path | None = None
    namespaces: str = "local://"

    def client(self) -> LakeFSClient:
        keys = {"username": self.access_key_id, "password": self.secret_access_key}
        return LakeFSClient(lakefs_client.Configuration(host=self.endpoint, **keys))

    def data(self, **settings) -> LakeFSVersions:
        return LakeFSVersions(self.endpoint, self.access_key_id, self.secret_access_key, **settings)

    def scratch(self, data: DataVersions | None = None) -> "LakefsScratch":
        """A new repository with one commit of three objects on `main`."""
        repository = f"t-{secrets.token_hex(6)}"
        made = LakefsScratch(self, self.client(), repository, data or self.data())
        wanted = models.RepositoryCreation(
            name=repository, storage_namespace=f"{self.namespaces}{repository}", default_branch="main"
        )
        made.client.repositories_api.create_repository(wanted, _request_timeout=TIMEOUT)
        made.put("main", {f"train/{n}": f"bytes of {n}".encode() for n in range(3)}, message="first")
        return made


@dataclass(frozen=True, slots=True)
class LakefsScratch:
    """`lakemark.contract.data.Scratch` on a lakeFS server."""

    server: LakefsServer
    client: LakeFSClient
    repository: str
    data: DataVersions
    branch: str = "main"

    def put(self, branch: str, changes: Mapping[str, bytes | None], *, message: str = "x", **fields) -> str:
        for path, content in changes.items():
            if content is None:
                self.client.objects_api.delete_object(self.repository, branch, path, _request_timeout=TIMEOUT)
            else:
                self.stage(branch, path, content)
        wanted = models.CommitCreation(message=message, **fields)
        return self.client.commits_api.commit(self.repository, branch, wanted, _request_timeout=TIMEOUT).id

    def stage(self, branch: str, path: str, content: bytes) -> None:
        self.client.objects_api.upload_object(
            self.repository, branch, path, content=io.BytesIO(content), _request_timeout=TIMEOUT
        )

    def make_branch(self, name: str, commit: str, *, hidden: bool = False) -> None:
        wanted = models.BranchCreation(name=name, source=commit, hidden=hidden)
        self.client.branches_api.create_branch(self.repository, wanted, _request_timeout=TIMEOUT)

    def make_tag(self, name: str, commit: str) -> None:
        wanted = models.TagCreation(id=name, ref=commit)
        self.client.tags_api.create_tag(self.repository, wanted, _request_timeout=TIMEOUT)

    def branches(self) -> dict[str, str]:
        """All branches, hidden ones too, and their heads."""
        found = self.client.branches_api.list_branches(
            self.repository, show_hidden=True, amount=1000, _request_timeout=TIMEOUT
        )
        return {branch.id: branch.commit_id for branch in found.results}

    def status(self, call, *given, **named) -> int:
        """The status a request is answered with; 200 for any success."""
        try:
            call(*given, _request_timeout=TIMEOUT, **named)
        except lakefs_client.ApiException as error:
            return error.status
        return 200

    def attack(self, branch: str) -> dict[str, bool]:
        side = f"side-{secrets.token_hex(4)}"
        self.make_branch(side, self.client.branches_api.get_branch(self.repository, "main").commit_id)
        other = self.put(side, {side: b"x"})
        api, repository = self.client, self.repository
        attempts = {
            "write": (api.objects_api.upload_object, branch, "intruder"),
            "delete an object of": (api.objects_api.delete_object, branch, "train/0"),
            "commit to": (api.commits_api.commit, branch, models.CommitCreation(message="x", allow_empty=True)),
            "reset": (api.branches_api.reset_branch, branch, models.ResetCreation(type="reset")),
            "hard reset": (api.experimental_api.hard_reset_branch, branch, other),
            "revert": (api.branches_api.revert_branch, branch, models.RevertCreation(ref=branch, parent_number=0)),
            "pick onto": (api.branches_api.cherry_pick, branch, models.CherryPickCreation(ref=other)),
            "delete": (api.branches_api.delete_branch, branch),
            "merge": (api.refs_api.merge_into_branch, side, branch),
        }
        named = {"write": {"content": io.BytesIO(b"x")}}
        refused = {403, 412}
        return {
            what: self.status(call, repository, *given, **named.get(what, {})) in refused
            for what, (call, *given) in attempts.items()
        }

    def collect(self, commit: str, path: str) -> bool:
        address = self.client.objects_api.stat_object(self.repository, commit, path).physical_address
        place = self.server.find_bytes(address)
        if place is None:
            return False
        place.unlink()
        return True


def answers(endpoint: str) -> bool:
    host, port = endpoint.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
