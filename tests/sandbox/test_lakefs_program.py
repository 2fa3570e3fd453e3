"""The stand-in as a program, and as lakeFS's own client sees it."""

import io
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from tests.sandbox.serving import ACCESS_KEY, KEYS, SECRET_KEY, Server

pytestmark = pytest.mark.xdist_group("lakefs-program")


def run(directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "lakemark.sandbox.lakefs", "--dir", str(directory), "--port", "0"]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_it_starts_empty_and_ends_on_sigterm(tmp_path: Path):
    server = Server(tmp_path / "new" / "lakefs")
    assert server.http.get("/repositories").json()["results"] == []
    server.end(signal.SIGTERM)
    assert server.process.returncode in {0, -signal.SIGTERM}


def test_it_does_not_start_without_keys(tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if name not in KEYS}
    ended = run(tmp_path, environment | {"LAKEFS_ACCESS_KEY_ID": "x"})
    assert ended.returncode == 2
    assert "LAKEFS_SECRET_ACCESS_KEY" in ended.stderr


def test_two_servers_do_not_share_a_directory(server: Server):
    ended = run(server.directory, os.environ | KEYS)
    assert ended.returncode == 2
    assert "another server runs" in ended.stderr


def test_it_listens_on_the_loopback_address_alone(server: Server):
    port = int(server.endpoint.rsplit(":", 1)[1])
    listening = "0A"
    rows = [line.split() for family in ("tcp", "tcp6") for line in Path(f"/proc/net/{family}").read_text().splitlines()]
    places = [row[1] for row in rows if row[3] == listening and row[1].endswith(f":{port:04X}")]
    assert places == [f"0100007F:{port:04X}"]


@pytest.mark.parametrize("auth", [None, ("AKIATEST", "wrong"), ("other", "secret")], ids=str)
def test_every_request_but_the_health_check_needs_the_keys(server: Server, auth):
    with httpx.Client(base_url=server.endpoint + "/api/v1", auth=auth, trust_env=False) as stranger:
        assert stranger.get("/healthcheck").status_code == 204
        asked = [
            ("GET", "/repositories"),
            ("GET", "/repositories/x/branches/main"),
            ("PUT", "/repositories/x/branches/main"),
        ]
        asked += [("POST", "/repositories/x/branches/main/objects?path=a"), ("GET", "/config/version")]
        assert {stranger.request(method, path).status_code for method, path in asked} == {401}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/repositories", b"{"),
        ("POST", "/repositories", b"[]"),
        ("POST", "/repositories", b'{"name": 1, "storage_namespace": "local://x"}'),
        ("POST", "/repositories/{name}/branches", b'{"name": "x"}'),
        ("POST", "/repositories/{name}/branches/main/commits", b'{"message": "x", "metadata": {"a": 1}}'),
        ("POST", "/repositories/{name}/branches/main/commits", b'{"message": "x", "date": "today"}'),
        ("PUT", "/repositories/{name}/branches/main", b'{"type": "frobnicate"}'),
        ("PUT", "/repositories/{name}/settings/branch_protection", b'{"pattern": "x"}'),
        ("PUT", "/repositories/{name}/settings/gc_rules", b'{"default_retention_days": 1, "branches": [{}]}'),
        ("GET", "/repositories/{name}/refs/main/objects", b""),
        ("GET", "/repositories/{name}/refs/main/commits?amount=many", b""),
        ("GET", "/repositories/{name}/refs/main/diff/main?type=four_dot", b""),
        ("GET", "/repositories/{name}/branches?show_hidden=maybe", b""),
    ],
)
def test_what_makes_no_sense_is_refused_with_400(repository, method, path, body):
    answer = repository.server.http.request(method, path.replace("{name}", repository.name), content=body)
    assert answer.status_code == 400
    assert answer.json()["message"]


def test_a_deleted_repository_is_gone_and_its_place_stays_taken(server: Server, repository):
    assert repository.send("DELETE", "").status_code == 204
    assert repository.send("GET", "").status_code == 404
    assert repository.send("GET", "/branches/main").status_code == 404
    again = {"name": repository.name, "storage_namespace": f"local://{repository.name}"}
    assert server.http.post("/repositories", json=again).status_code == 400


def test_lakefs_own_client_works_against_it(server: Server, repository):
    from lakefs_client import ApiException, Configuration, models
    from lakefs_client.client import LakeFSClient

    lakefs = LakeFSClient(Configuration(host=server.endpoint, username=ACCESS_KEY, password=SECRET_KEY))
    name = repository.name + "-client"
    asked = models.RepositoryCreation(name=name, storage_namespace=f"local://{name}", default_branch="main")
    assert lakefs.repositories_api.create_repository(asked).id == name
    data = bytes(range(256)) * 2000
    stats = lakefs.objects_api.upload_object(name, "main", "a/b.bin", content=io.BytesIO(data))
    assert stats.size_bytes == len(data)
    with pytest.raises(ApiException) as refused:
        lakefs.objects_api.upload_object(name, "main", "a/b.bin", content=io.BytesIO(b""), if_none_match="*")
    assert refused.value.status == 412
    first = lakefs.commits_api.commit(
        name, "main", models.CommitCreation(message="one", metadata={"k": "v"}, date=1_700_000_000)
    )
    assert (first.metadata, first.creation_date) == ({"k": "v"}, 1_700_000_000)
    lakefs.objects_api.upload_object(name, "main", "a/c.bin", content=io.BytesIO(b"c"))
    second = lakefs.commits_api.commit(name, "main", models.CommitCreation(message="two"))
    pin = models.BranchCreation(name="pin-1", source=first.id, hidden=True)
    assert lakefs.branches_api.create_branch(name, pin) == first.id
    assert [each.id for each in lakefs.branches_api.list_branches(name).results] == ["main"]
    assert [each.id for each in lakefs.branches_api.list_branches(name, show_hidden=True).results] == ["main", "pin-1"]
    assert lakefs.branches_api.get_branch(name, "pin-1").commit_id == first.id
    log = lakefs.refs_api.log_commits(name, "main", first_parent=True, amount=1)
    assert ([each.message for each in log.results], log.pagination.has_more) == (["two"], True)
    since = datetime(2024, 1, 1, tzinfo=UTC)
    assert [each.message for each in lakefs.refs_api.log_commits(name, "main", since=since).results] == ["two"]
    diff = lakefs.refs_api.diff_refs(name, first.id, second.id, type="two_dot").results
    assert [(each.type, each.path) for each in diff] == [("added", "a/c.bin")]
    got = lakefs.objects_api.get_object(name, first.id, "a/b.bin", range="bytes=256-511", _preload_content=False)
    assert (got.status, got.read()) == (206, bytes(range(256)))
    whole = lakefs.objects_api.get_object(name, first.id, "a/b.bin", _preload_content=False)
    assert whole.read() == data
    restore = models.CommitCreation(message="restore")
    restored = lakefs.commits_api.commit(name, "main", restore, source_metarange=first.meta_range_id)
    assert restored.meta_range_id == first.meta_range_id
    assert lakefs.refs_api.diff_refs(name, first.id, "main", type="two_dot").results == []
    tag = models.TagCreation(id="v1", ref=first.id)
    assert lakefs.tags_api.create_tag(name, tag).commit_id == first.id
    lakefs.repositories_api.set_branch_protection_rules(name, [models.BranchProtectionRule(pattern="pin-*")])
    assert [each.pattern for each in lakefs.repositories_api.get_branch_protection_rules(name)] == ["pin-*"]
    with pytest.raises(ApiException) as refused:
        lakefs.objects_api.upload_object(name, "pin-1", "large", content=io.BytesIO(bytes(8_000_000)))
    assert refused.value.status == 403
    rules = models.GarbageCollectionRules(default_retention_days=7, branches=[])
    lakefs.repositories_api.set_gc_rules(name, rules)
    assert lakefs.repositories_api.get_gc_rules(name, _check_return_type=False)["branches"] is None
    lakefs.branches_api.delete_branch(name, "pin-1")
    lakefs.repositories_api.delete_repository(name)
