"""Prefect mirrors what the ledger decides; without it, or in spite of it, the decision stands."""

import pytest

from lakemark.cli.prefect_api import PrefectApi
from lakemark.errors import Denied, Misconfigured, StoreUnavailable
from tests.cli.prefect_server import Server, serving

ASK = ("rollback", "request", "r1", "--to", "100", "--model-only", "--while-running", "--reason", "the loss rises")


@pytest.fixture
def site(trained):
    trained.settings("required: false", "required: true")
    return trained


def environ(server, **more):
    return {"PREFECT_API_URL": server.url, "PREFECT_API_AUTH_STRING": "lakemark:secret"} | more


def test_a_request_makes_the_run_that_waits(site):
    with serving(Server()) as server:
        document = site.ok(*ASK, environ=environ(server))
        assert document["flow_run"] == "run-0"
        assert document["url"] == server.url.removesuffix("/api") + "/runs/flow-run/run-0"
        (made,) = server.made
        assert made["tags"] == [f"rollback:{document['rollback']}"]
        assert made["idempotency_key"] == f"rollback:{document['rollback']}"
        assert made["parameters"]["request"] == {
            "run": "r1",
            "to": f"id:{document['plan']['target']['record']}",
            "reason": "the loss rises",
            "requester": "ana@node-a",
            "rollback": document["rollback"],
            "model_only": True,
            "data_only": False,
            "move_branch": False,
            "while_running": True,
        }
        assert site.ok(*ASK, environ=environ(server))["flow_run"] == "run-0"
    entries = [one["kind"] for one in site.ok("log", "r1")["entries"]]
    assert entries.count("rollback_requested") == 1


HICCUPS = [
    (404, {"detail": "not found"}),
    (200, {"status": "REJECT", "details": {"reason": "Run input schema not found."}}),
    (500, {"exception_message": "database is locked"}),
]


@pytest.mark.parametrize("hiccups", [(), HICCUPS], ids=["at once", "after hiccups"])
def test_an_approval_lets_the_run_go_on(site, someone, hiccups):
    with serving(Server(hiccups=hiccups)) as server:
        asked = site.ok(*ASK, environ=environ(server))
        digest = asked["plan"]["plan"][:12]
        told = site.ok(
            "rollback", "approve", asked["rollback"], "--digest", digest, environ=environ(server, **someone("bea"))
        )
        assert (told["state"], told["flow_run"]) == ("approved", "run-0")
        assert server.answers == [{"decision": "approve", "approver": "bea@node-a", "plan_digest": digest}]


def test_a_refusal_too(site, someone):
    with serving(Server()) as server:
        asked = site.ok(*ASK, environ=environ(server))
        site.ok("rollback", "refuse", asked["rollback"], "--reason", "no", environ=environ(server, **someone("bea")))
        assert [one["decision"] for one in server.answers] == ["refuse"]


def test_a_run_that_has_not_started_reads_the_ledger_itself(site, someone):
    with serving(Server()) as server:
        server.state = "SCHEDULED"
        asked = site.ok(*ASK, environ=environ(server))
        bea = environ(server, **someone("bea"))
        done = site("rollback", "approve", asked["rollback"], "--digest", asked["plan"]["plan"][:12], environ=bea)
        assert (done.code, server.answers) == (0, [])
        assert "did not go on" not in done.err


def test_with_prefect_down_the_decision_stands(site, someone, free_port):
    down = {"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api"}
    done = site(*ASK, "--json", environ=down)
    assert done.code == 0
    assert (done.json["flow_run"], done.json["url"]) == (None, None)
    assert "The request stands" in done.err
    name, digest = done.json["rollback"], done.json["plan"]["plan"][:12]
    approved = site("rollback", "approve", name, "--digest", digest, "--json", environ=down | someone("bea"))
    assert (approved.code, approved.json["state"]) == (0, "approved")
    assert "The decision stands" in approved.err
    assert site.ok("rollback", "apply", name, environ=down)["timeline"] == 2


def test_a_wrong_password_is_denied_and_the_request_stands(site):
    with serving(Server()) as server:
        wrong = environ(server, PREFECT_API_AUTH_STRING="lakemark:wrong")
        done = site(*ASK, "--json", environ=wrong)
        assert (done.code, done.json["flow_run"]) == (0, None)
        assert "refuses PREFECT_API_AUTH_STRING" in done.err
        with pytest.raises(Denied):
            PrefectApi(server.url, "lakemark:wrong").ask("POST", "/flow_runs/filter", {})


def test_a_server_without_csrf_needs_no_token():
    with serving(Server(csrf=False)) as server:
        assert PrefectApi(server.url, "lakemark:secret").runs_of("rb-1", None) == []


def test_a_token_that_ended_is_asked_for_again():
    with serving(Server()) as server:
        api = PrefectApi(server.url, "lakemark:secret")
        assert api.runs_of("rb-1", None) == []
        server.tokens.clear()
        assert api.runs_of("rb-1", None) == []


def test_addresses_that_are_none(free_port):
    with pytest.raises(Misconfigured):
        PrefectApi("ftp://somewhere/api").ask("GET", "/admin/version")
    with pytest.raises(StoreUnavailable):
        PrefectApi(f"http://127.0.0.1:{free_port()}/api").ask("GET", "/admin/version")
    assert PrefectApi.of({}) is None


def checks(site, server, **more):
    done = site("doctor", "--json", environ=environ(server, **more))
    return {one["name"]: one for one in done.json["checks"] if one["name"].startswith("prefect")}


def test_doctor_is_content_with_a_guarded_server(site):
    with serving(Server()) as server:
        found = checks(site, server)
        assert {name: one["ok"] for name, one in found.items()} == dict.fromkeys(
            ["prefect", "prefect password", "prefect csrf", "prefect cors"], True
        )


@pytest.mark.parametrize(
    ("how", "red"),
    [
        ({"auth": None}, ["prefect password"]),
        ({"auth": None, "csrf": False}, ["prefect password", "prefect csrf", "prefect cors"]),
        ({"csrf": False}, ["prefect csrf"]),
        ({"cors": "*"}, ["prefect cors"]),
    ],
)
def test_doctor_finds_what_is_open(site, how, red):
    with serving(Server(**how)) as server:
        found = checks(site, server)
        assert [name for name, one in found.items() if not one["ok"]] == red
        assert all(found[name]["advice"] for name in red)
