from pathlib import Path

import pytest

from lakemark.errors import Misconfigured
from lakemark.sandbox import prefect

FOLDER = Path("/somewhere/prefect")


def environment(role):
    return prefect.prefect_environment(role, folder=FOLDER, port=20200, auth="lakemark:word")


@pytest.mark.parametrize("role", ["server", "worker", "client"])
def test_everyone_has_the_same_home_and_sends_nothing_home(role):
    found = environment(role)
    assert found["PREFECT_HOME"] == "/somewhere/prefect"
    assert found["DO_NOT_TRACK"] == "1"
    assert found["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"


def test_the_server_is_on_loopback_and_guarded():
    assert (
        environment("server").items()
        >= {
            "PREFECT_SERVER_API_HOST": "127.0.0.1",
            "PREFECT_SERVER_API_PORT": "20200",
            "PREFECT_SERVER_API_AUTH_STRING": "lakemark:word",
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "http://127.0.0.1:20200",
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
            "PREFECT_SERVER_UI_API_URL": "http://127.0.0.1:20200/api",
        }.items()
    )
    assert "PREFECT_API_AUTH_STRING" not in environment("server")


@pytest.mark.parametrize("role", ["worker", "client"])
def test_who_asks_has_the_address_the_password_and_retries_500(role):
    found = environment(role)
    assert found["PREFECT_API_URL"] == "http://127.0.0.1:20200/api"
    assert found["PREFECT_API_AUTH_STRING"] == "lakemark:word"
    assert found["PREFECT_CLIENT_RETRY_EXTRA_CODES"] == "500"
    assert found.get("PREFECT_WORKER_QUERY_SECONDS") == ("1" if role == "worker" else None)


def test_the_worker_polls_its_node_first():
    assert prefect.queues("node-a") == ("node-node-a", "urgent", "default")
    command = prefect.worker_command("node-a")
    assert [command[at + 1] for at, word in enumerate(command) if word == "--work-queue"] == list(
        prefect.queues("node-a")
    )


def test_flow_runs_find_their_home_and_the_flows():
    found = prefect.worker_environment({"PYTHONPATH": "/mine"}, home=Path("/h"), node="n", project=Path("/p"))
    assert found == {"PYTHONPATH": "/p:/mine", "LAKEMARK_HOME": "/h", "LAKEMARK_NODE": "n"}
    assert "PYTHONPATH" not in prefect.worker_environment({}, home=Path("/h"), node="n", project=None)


@pytest.mark.parametrize("url", ["https://api.prefect.cloud/api", "http://10.0.0.1:4200/api", "http://127.0.0.1/api"])
def test_the_sandbox_only_asks_its_own_server(url):
    with pytest.raises(Misconfigured, match="PREFECT_API_URL"):
        prefect.Api.at(url, "a:b")
