"""Runs on data versions: opening, binding, going back with the data, and what is said when the data is gone."""

import json

import pytest

from tests.cli.keys import DATA, has


@pytest.fixture
def scratch(lakefs):
    return lakefs.scratch()


@pytest.fixture
def site(cli, lakefs, scratch):
    """A site with a data repository."""
    wanted = f"{{endpoint: {lakefs.endpoint}, repository: {scratch.repository}, branch: main}}"
    cli.settings("data: none", f"data: {wanted}")
    cli.settings("required: false", "required: true")
    cli.environ |= {"LAKEFS_ACCESS_KEY_ID": lakefs.access_key_id, "LAKEFS_SECRET_ACCESS_KEY": lakefs.secret_access_key}
    return cli


def commit(site, step):
    return site.ok("commit", site.save(step), "--run", "r1", "--step", step)


def test_run_open_resolves_and_pins(site, scratch):
    head = scratch.branches()["main"]
    document = site.ok("run", "open", "r1", "--watch", "out")
    has(document, ["run", "timeline", "data", "run_file"])
    (data,) = document["data"]
    assert data["uri"] == f"lakefs://{scratch.repository}/{head}/"
    assert (data["branch"], data["commit"], data["strength"]) == ("main", head, "guarded")
    assert data["pin"] in scratch.branches()
    told = json.loads((site.home / "runs/r1.json").read_text())
    assert told["data"][0]["commit"] == head
    (pin,) = site.ok("pins")["pins"]
    has(pin, ["repository", "commit", "strength", "needed_by", "since"])
    assert (pin["commit"], pin["strength"], pin["needed_by"]) == (head, "guarded", ["run r1"])


def test_dry_runs_pin_nothing(site, scratch):
    before, tips = scratch.branches(), site.tips()
    would = site.ok("run", "open", "r1", "--dry-run")
    assert any("pin" in one for one in would["would"])
    assert (scratch.branches(), site.tips()) == (before, tips)


def test_records_carry_their_data_whatever_the_branch_does(site, scratch):
    first = scratch.branches()["main"]
    site.ok("run", "open", "r1")
    record = commit(site, 100)
    second = scratch.put("main", {"train/3": b"more"})
    site.ok("run", "open", "r1", "--repin")
    newer = commit(site, 200)
    has(record["data"][0], DATA)
    assert record["data"][0]["commit"] == first
    assert {ref["commit"] for ref in newer["data"]} == {first, second}
    assert {ref["evidence"] for ref in newer["data"]} == {"ambiguous"}
    assert "not known what data" in site("status").out
    bound = site.ok("bind", "r1@200", "--data", f"{scratch.repository}/{second}", "--reason", "the log says so")
    assert [(ref["commit"], ref["evidence"]) for ref in bound["data"]] == [(second, "declared")]
    answer = site.ok("as-of", "r1", newer["recorded_at"])
    assert [ref["commit"] for ref in answer["trained_with"]] == [second]
    (head,) = answer["branch_heads"]
    has(head, ["repository", "branch", "commit", "precision"])


def test_a_rollback_brings_both_back(site, scratch, someone):
    first = scratch.branches()["main"]
    site.ok("run", "open", "r1")
    commit(site, 100)
    scratch.put("main", {"train/0": b"changed", "train/3": b"more"})
    site.ok("run", "open", "r1", "--repin")
    words = ("rollback", "request", "r1", "--to", "100", "--reason", "worse since the new data", "--while-running")
    asked = site.ok(*words)
    (data,) = asked["data"]
    assert (data["repository"], data["commit"]) == (scratch.repository, first)
    assert asked["data_changes"] == {"added": 0, "removed": 1, "changed": 1}
    digest = asked["plan"][:12]
    site.ok("rollback", "approve", asked["rollback"], "--digest", digest, environ=someone("bea"))
    applied = site.ok("rollback", "apply", asked["rollback"])
    (opened,) = applied["data"]
    assert opened == {"repository": scratch.repository, "branch": data["opens_branch"], "commit": first}
    assert scratch.branches()[data["opens_branch"]] == first
    assert site.ok("run", "show", "r1")["data"][0]["commit"] == first
    assert site.ok("verify", "--invariants")["violations"] == []


def test_data_whose_bytes_are_gone_refuses_a_rollback(site, scratch):
    first = scratch.branches()["main"]
    site.ok("run", "open", "r1")
    commit(site, 100)
    assert scratch.collect(first, "train/1")
    error = site.fails("rollback", "plan", "r1", "--to", "100", "--reason", "because", "--while-running")
    assert error["exit_code"] == 7
    assert "train/1" in error["message"]
    assert "--model-only" in error["advice"]
    done = site("verify", "--json")
    assert done.code == 4
    assert [one["paths"] for one in done.json["data_lost"]] == [["train/1"]]
    plan = site.ok("rollback", "plan", "r1", "--to", "100", "--reason", "because", "--while-running", "--model-only")
    assert plan["flags"]["model_only"] is True


def test_doctor_looks_at_data_and_pins(site, scratch):
    site.ok("run", "open", "r1")
    checks = {one["name"]: one for one in site.ok("doctor")["checks"]}
    assert checks["pins"]["detail"] == "1 guarded"
    assert checks["pin, made and removed"]["detail"] == "made guarded, and removed"
    assert len([name for name in scratch.branches() if name.startswith("pin-")]) == 1
    assert "lakefs, readable" in checks
    assert checks["clock"]["detail"].startswith("lakefs ")


def test_with_lakefs_down_saving_goes_on(site, free_port, lakefs):
    site.ok("run", "open", "r1")
    site.settings(lakefs.endpoint, f"http://127.0.0.1:{free_port()}")
    assert commit(site, 100)["data"]
    assert site.fails("run", "open", "r2")["exit_code"] == 6
    assert site("status").code == 4
    pins = site("pins", "--json")
    assert (pins.code, pins.json["pins"][0]["strength"]) == (0, None)
    answer = site.ok("as-of", "r1", "0s")
    assert answer["branch_heads"][0]["commit"] is None
    assert answer["trained_with"]


def test_a_run_bound_by_hand_is_pinned_anew_to_its_branch(site, scratch):
    first = site.ok("run", "open", "r1")["data"][0]
    site.ok("bind", "r1", "--data", f"{scratch.repository}/{first['commit']}", "--reason", "it is known now")
    site.ok("run", "open", "r1")
    scratch.put("main", {"train/4": b"later"})
    anew = site.ok("run", "open", "r1", "--repin")["data"][0]
    assert anew["branch"] == first["branch"]
    assert anew["commit"] != first["commit"]


def test_unknown_data_is_3_and_halves_are_2(site, scratch):
    site.ok("run", "open", "r1")
    commit(site, 100)
    assert site.fails("run", "open", "r2", "--data", f"{scratch.repository}/nobranch")["exit_code"] == 3
    assert site.fails("run", "open", "r2", "--data", "norepo/main")["exit_code"] == 3
    refused = site.fails("run", "open", "r1", "--data", f"{scratch.repository}/other")
    assert refused["exit_code"] == 7
    assert f"run open r1 --repin --data {scratch.repository}/other" in refused["advice"]
    # One part alone could be either: nobody's branch is looked for under a repository's name.
    for half in (scratch.repository, "main", f"{scratch.repository}/", "/main"):
        assert site.fails("run", "open", "r2", "--data", half)["exit_code"] == 2
    gone = f"{scratch.repository}/{'0' * 64}"
    assert site.fails("bind", "r1@100", "--data", gone, "--reason", "because")["exit_code"] == 3
    assert site.fails("bind", "r1@100", "--data", gone[:-4], "--reason", "because")["exit_code"] == 2


def test_a_tag_has_no_head_and_many_are_bound_at_once(site, scratch):
    first = scratch.branches()["main"]
    scratch.make_tag("v1.0", first)
    site.ok("run", "open", "r1", "--data", f"{scratch.repository}/v1.0")
    for step in (100, 200, 300):
        commit(site, step)
    assert site.ok("as-of", "r1", "0s")["branch_heads"] == []
    second = scratch.put("main", {"train/9": b"more"})
    asked = (
        "bind",
        "r1",
        "--data",
        f"{scratch.repository}/{second}",
        "--reason",
        "the log",
        "--from",
        "200",
        "--to",
        "300",
    )
    assert len(site.ok(*asked, "--dry-run")["would"]) == 3
    document = site.ok(*asked)
    assert [(one["step"], one["data"][0]["commit"]) for one in document["records"]] == [(200, second), (300, second)]
    assert (
        site.fails("bind", "r1@100", "--data", f"{scratch.repository}/{second}", "--reason", "because", "--from", "1")[
            "exit_code"
        ]
        == 2
    )


def test_shared_branches_are_moved_by_their_own_command(site, scratch, someone):
    first = scratch.branches()["main"]
    site.ok("run", "open", "r1")
    commit(site, 100)
    newer = scratch.put("main", {"train/0": b"changed"})
    words = ("rollback", "request", "r1", "--to", "100", "--reason", "worse", "--while-running", "--move-branch")
    asked = site.ok(*words)
    digest = asked["plan"][:12]
    site.ok("rollback", "approve", asked["rollback"], "--digest", digest, environ=someone("bea"))
    moving = ("rollback", "move-branch", asked["rollback"], "--digest", digest)
    assert site.fails(*moving)["exit_code"] == 7
    site.ok("rollback", "apply", asked["rollback"])
    assert scratch.branches()["main"] == newer
    assert len(site.ok(*moving, "--dry-run")["would"]) == 1
    moved = site.ok(*moving)
    has(moved, ["rollback", "run", "timeline", "checkpoint_dir", "data", "run_file", "moved"])
    assert moved["moved"][0]["from"] == newer
    assert scratch.branches()["main"] == moved["moved"][0]["made"] not in (first, newer)
    assert site.ok("rollback", "show", asked["rollback"])["moved"] == moved["moved"]
    assert site.ok(*moving)["moved"] == moved["moved"]
    assert site.ok("verify", "--invariants")["violations"] == []


def test_what_is_wrong_with_a_pin_makes_status_red(site, scratch):
    site.ok("run", "open", "r1")
    site.ok("sweep")
    assert site("status").code == 0
    scratch.client.repositories_api.delete_repository(scratch.repository)
    site("sweep")
    done = site("status", "--json")
    assert done.code == 4
    assert any(scratch.repository in one["what"] for one in done.json["problems"] if one["colour"] == "red")
