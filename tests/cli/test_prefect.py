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
        assert made["parameters"] == {
            "run": "r1",
            "to": f"id:{document['target']['record']}",
            "reason": "the loss rises",
            "requester": "ana@node-a",
            "rollback": document["rollback"],
            "model_only": True,
            "data_only": False,
            "move_branch": False,
            "while_running": True,
        }
        assert site.ok(*ASK, environ=environ(server))["flow_run"] == "run-0"
        # The entry came before the flow run: Prefect knows which one it is, by its tag.
        shown = site.ok("rollback", "show", document["rollback"], environ=environ(server))
        assert (shown["flow_run"], shown["url"]) == ("run-0", document["url"])
        assert document["url"] in site("rollback", "show", document["rollback"], environ=environ(server)).out
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
        digest = asked["plan"][:12]
        told = site.ok(
            "rollback", "approve", asked["rollback"], "--digest", digest, environ=environ(server, **someone("bea"))
        )
        assert (told["state"], told["flow_run"]) == ("approved", "run-0")
        assert server.answers == [{"decision": "approve", "approver": "bea@node-a", "plan_digest": digest}]


def test_a_refusal_too(site, someone):
    with serving(Server()) as server:
        asked = site.ok(*ASK, environ=environ(server))
        site.ok(
            "rollback", "refuse", asked["rollback"], "--reason", "not now", environ=environ(server, **someone("bea"))
        )
        assert [one["decision"] for one in server.answers] == ["refuse"]


def test_a_run_that_has_not_started_reads_the_ledger_itself(site, someone):
    with serving(Server()) as server:
        server.state = "SCHEDULED"
        asked = site.ok(*ASK, environ=environ(server))
        bea = environ(server, **someone("bea"))
        done = site("rollback", "approve", asked["rollback"], "--digest", asked["plan"][:12], environ=bea)
        assert (done.code, server.answers) == (0, [])
        assert "did not go on" not in done.err


def test_with_prefect_down_the_decision_stands(site, someone, free_port):
    down = {"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api"}
    done = site(*ASK, "--json", environ=down)
    assert done.code == 0
    assert (done.json["flow_run"], done.json["url"]) == (None, None)
    assert site.ok("rollback", "show", done.json["rollback"], environ=down)["flow_run"] is None
    assert "The request stands" in done.err
    name, digest = done.json["rollback"], done.json["plan"][:12]
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
        site.ok("flows", "export")
        found = checks(site, server)
        asked = ["prefect", "prefect password", "prefect csrf", "prefect cors", "prefect flows", "prefect queues"]
        asked += [f"prefect deployment {one['name']}" for one in server.deployments]
        assert {name: one["ok"] for name, one in found.items()} == dict.fromkeys(asked, True)


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
        site.ok("flows", "export")
        found = checks(site, server)
        assert [name for name, one in found.items() if not one["ok"]] == red
        assert all(found[name]["advice"] for name in red)


def test_doctor_finds_what_is_not_deployed_not_scheduled_and_not_polled(site):
    with serving(Server()) as server:
        by_name = {one["name"]: one for one in server.deployments}
        server.deployments.remove(by_name["rollback"])
        by_name["sweep"]["schedules"][0]["active"] = False
        by_name["verify"]["paused"] = True
        by_name["commit"]["entrypoint"] = "old.commit"
        next(one for one in server.queues if one["name"] == "urgent")["status"] = "NOT_READY"
        red = {name: one["detail"] for name, one in checks(site, server).items() if not one["ok"]}
        assert "there is no prefect.yaml" in red.pop("prefect flows")
        assert red == {
            "prefect deployment commit": "it runs old.commit, not flows.commit.commit",
            "prefect deployment sweep": "no schedule of it is active",
            "prefect deployment restore": "no worker polls its queue urgent",
            "prefect deployment resume": "no worker polls its queue urgent",
            "prefect deployment rollback": "it is not deployed",
            "prefect deployment verify": "it is paused",
        }
        server.queues[0]["priority"] = 9
        assert "go before urgent" in checks(site, server)["prefect queues"]["detail"]


def test_doctor_says_where_nothing_is_deployed_at_all(site):
    with serving(Server()) as server:
        server.deployments.clear()
        server.queues.clear()
        red = [name for name, one in checks(site, server).items() if not one["ok"]]
        assert len([name for name in red if name.startswith("prefect deployment ")]) == 7


def test_doctor_names_flows_of_another_version_and_edited_ones(site):
    site.ok("flows", "export")
    (site.home / "flows" / "sweep.py").write_text("# mine\n")
    with serving(Server()) as server:
        found = checks(site, server)["prefect flows"]
        assert (found["ok"], "edited: flows/sweep.py" in found["detail"]) == (True, True)


def test_flows_are_exported_beside_the_configuration_or_where_one_says(site, tmp_path):
    done = site.ok("flows", "export")
    assert done["path"] == str(site.home / "prefect.yaml")
    assert {"prefect.yaml", "flows/rollback.py"} <= set(done["written"])
    there = site.ok("flows", "export", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "flows" / "_edge.py").is_file()
    assert there["written"] == done["written"]
    dry = site.ok("flows", "export", tmp_path / "dry", "--dry-run")
    assert dry["would"]
    assert not (tmp_path / "dry").exists()


def test_deploying_needs_no_configuration(empty, free_port):
    """A machine that only deploys has the server's address and nothing else."""
    assert "PREFECT_API_URL" in empty.fails("flows", "deploy")["message"]
    there = {"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api"}
    (said,) = empty.ok("flows", "deploy", "--dry-run", environ=there)["would"]
    assert str(empty.home / "prefect.yaml") in said
    assert empty.fails("--config", "nowhere.yaml", "flows", "deploy", environ=there)["exit_code"] == 2
    (empty.home / "lakemark.yaml").write_text("sight: x\n")
    assert "sight" in empty.fails("flows", "deploy", environ=there)["message"]
    assert empty.ok("flows", "export", "out")["path"] == str(empty.home / "out" / "prefect.yaml")
