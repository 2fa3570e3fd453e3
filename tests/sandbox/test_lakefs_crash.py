"""A server killed at any instant comes back with everything that it acknowledged."""

import itertools
import signal
import threading
from pathlib import Path

import httpx
import pytest

from tests.sandbox.serving import Repository, Server

pytestmark = pytest.mark.xdist_group("lakefs-crash")

WRITERS = 3
ACKNOWLEDGED_BEFORE_THE_KILL = 12


class Writer(threading.Thread):
    """Uploads and commits on a branch of its own until the server is gone; remembers what was answered."""

    def __init__(self, repository: Repository, branch: str) -> None:
        super().__init__()
        self.repository = repository
        self.branch = branch
        self.uploaded: dict[str, bytes] = {}
        self.commits: list[str] = []
        self.acknowledged = 0

    def run(self) -> None:
        try:
            for number in itertools.count():
                path, content = f"{self.branch}/{number}", f"{self.branch} {number} ".encode() * 5000
                if self.repository.upload(self.branch, path, content).status_code == 201:
                    self.uploaded[path] = content
                    self.acknowledged += 1
                if number % 3 == 2:
                    self.commits.append(self.repository.commit(self.branch, f"{number}").json()["id"])
                    self.acknowledged += 1
        except httpx.TransportError:
            return


def rounds(directory: Path, number: int) -> None:
    server = Server(directory)
    repository = server.repository(f"data-{number}")
    writers = [Writer(repository, f"writer-{each}") for each in range(WRITERS)]
    for writer in writers:
        repository.branch(writer.branch, "main")
        writer.start()
    while sum(writer.acknowledged for writer in writers) < ACKNOWLEDGED_BEFORE_THE_KILL:
        assert all(writer.is_alive() for writer in writers)
    server.process.send_signal(signal.SIGKILL)
    for writer in writers:
        writer.join()
    server.end(signal.SIGKILL)
    with Server(directory) as again:
        check(Repository(again, repository.name), writers)
        left = list(again.directory.joinpath("incoming").iterdir())
        assert left == []


def check(repository: Repository, writers: list[Writer]) -> None:
    for writer in writers:
        for path, content in writer.uploaded.items():
            assert repository.get(writer.branch, path).content == content
        line = [commit["id"] for commit in repository.log(writer.branch, first_parent=True)]
        own = line[:-1]
        # What was acknowledged is there in order; one more may have been under way.
        assert list(reversed(own))[: len(writer.commits)] == writer.commits
        assert len(own) - len(writer.commits) <= 1
        staged = {each["path"] for each in repository.send("GET", f"/branches/{writer.branch}/diff").json()["results"]}
        assert staged | set(repository.paths(f"{writer.branch}@")) >= set(writer.uploaded)
        assert repository.committed(writer.branch, {"after": b"1"})["parents"] == line[:1]


def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path):
    for number in range(3):
        rounds(tmp_path / "lakefs", number)


def test_a_restart_shows_the_same_state(tmp_path: Path):
    def state(repository: Repository) -> list[object]:
        asked = ("/branches?show_hidden=true", "/tags", "/settings/branch_protection", "/settings/gc_rules")
        answers = [repository.send("GET", path) for path in asked]
        return [
            *((answer.status_code, answer.json(), answer.headers.get("etag")) for answer in answers),
            repository.log("main"),
            repository.send("GET", "/refs/main/objects/ls").json(),
            repository.send("GET", "/branches/main/diff").json(),
            repository.get("main", "a").content,
        ]

    server = Server(tmp_path)
    repository = server.repository("data")
    commit = repository.committed("main", {"a": b"1"}, metadata={"k": "v"})
    repository.branch("pin-1", commit["id"], hidden=True)
    repository.send("POST", "/tags", json={"id": "v1", "ref": commit["id"]})
    repository.send("PUT", "/settings/branch_protection", json=[{"pattern": "pin-*"}])
    repository.send("PUT", "/settings/gc_rules", json={"default_retention_days": 3, "branches": []})
    repository.upload("main", "b", b"staged")
    repository.send("DELETE", "/branches/main/objects", params={"path": "none"})
    before = state(repository)
    server.end(signal.SIGKILL)
    with Server(tmp_path) as again:
        assert state(Repository(again, "data")) == before
        assert Repository(again, "data").upload("pin-1", "x", b"x").status_code == 403
