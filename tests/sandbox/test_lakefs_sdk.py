"""What lakeFS's own Python SDK (`lakefs` 0.16) asks of a server, in its order, with what a real 1.84.0 answered."""

import pytest

from tests.sandbox.serving import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("lakefs-sdk")) as running:
        yield running


@pytest.fixture(scope="module")
def repository(server):
    return server.repository("sdk-repo")


def test_it_asks_for_the_configuration_before_it_reads_or_writes(server):
    config = server.http.get("/config").json()
    assert config["version_config"]["version"].startswith("1.84.0")
    assert config["storage_config_list"] == []
    storage = config["storage_config"]
    assert (storage["pre_sign_support"], storage["blockstore_type"]) == (False, "local")
    assert server.http.get("/config/storage").json() == storage
    assert server.http.get("/config/version").json() == config["version_config"]


def test_the_configuration_is_for_those_with_keys(server):
    assert server.http.get("/config", auth=("who", "ever")).status_code == 401


def test_it_writes_copies_and_commits(server, repository):
    path = "/repositories/sdk-repo"
    assert server.http.get(f"{path}/metadata").json() == {}
    sent = server.http.post(
        f"{path}/branches/main/objects?path=train/a.txt", files={"content": b"hello"}, headers={"x-lakefs-meta-k": "v"}
    )
    assert sent.status_code == 201, sent.text
    copied = server.http.post(
        f"{path}/branches/main/objects/copy?dest_path=train/b.txt", json={"src_path": "train/a.txt", "src_ref": "main"}
    )
    assert copied.status_code == 201
    assert {**copied.json(), "mtime": 0} == {**sent.json(), "path": "train/b.txt", "mtime": 0}
    assert server.http.post(f"{path}/branches/main/commits", json={"message": "both"}).status_code == 201
    assert server.http.get(f"{path}/refs/main/objects?path=train/b.txt").content == b"hello"
    missing = server.http.post(
        f"{path}/branches/main/objects/copy?dest_path=x", json={"src_path": "no", "src_ref": "main"}
    )
    assert (missing.status_code, missing.json()) == (404, {"message": "not found"})


@pytest.mark.parametrize(
    ("path", "body", "argument"),
    [
        ("branches", {"name": "", "source": "main"}, "branch"),
        ("branches", {"name": "", "source": "nowhere"}, "branch"),
        ("branches", {"name": "fine", "source": ""}, "ref"),
        ("tags", {"id": "", "ref": "main"}, "tagID"),
    ],
)
def test_an_empty_name_is_the_server_s_own_failure(server, repository, path, body, argument):
    answer = server.http.post(f"/repositories/sdk-repo/{path}", json=body)
    assert answer.status_code == 500
    assert answer.json() == {"message": f"argument {argument}: required value: validation error"}


def test_an_empty_default_branch_is_main(server):
    wanted = {"name": "no-branch-named", "storage_namespace": "local://no-branch-named", "default_branch": ""}
    assert server.http.post("/repositories", json=wanted).json()["default_branch"] == "main"
