"""ls, show, log, run ls, run show, as-of, pins, tiers, config: their JSON, and that they change nothing."""

import json
import os
import re
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from lakemark.model.values.instants import to_text
from lakemark.services.saves.commit import Commit, commit
from lakemark.site import site_of
from tests.cli.keys import ENTRY, RECORD, REPLICA, TIER, has


def test_ls_lists_records_newest_first(shared):
    document = shared.ok("ls", "r1")
    assert [one["step"] for one in document["records"]] == [300, 200, 100]
    assert document["next"] is None
    for record in document["records"]:
        has(record, RECORD)
        assert {one["tier"] for one in record["replicas"]} == {"hot", "cold"}
        for replica in record["replicas"]:
            has(replica, REPLICA)
        assert record["safe_at"] is not None
        assert record["kept_by"]
    assert shared.ok("ls")["records"] == document["records"]


def test_ls_pages(shared):
    first = shared.ok("ls", "r1", "--limit", 2)
    rest = shared.ok("ls", "r1", "--limit", 2, "--after", first["next"])
    assert [one["step"] for one in first["records"] + rest["records"]] == [300, 200, 100]
    assert rest["next"] is None


def test_ls_filters(shared):
    middle = shared.ok("show", "r1@200")["saved_at"]
    assert {one["step"] for one in shared.ok("ls", "--since", middle)["records"]} == {200, 300}
    assert {one["step"] for one in shared.ok("ls", "--until", middle)["records"]} == {100, 200}
    assert shared.ok("ls", "--since", "0s", "--until", "1d")["records"] == []
    assert len(shared.ok("ls", "--tier", "cold")["records"]) == 3
    assert shared.ok("ls", "--expiring", "1m")["records"] == []


def test_what_expires_within_longer_than_the_calendar_lasts(trained):
    file = trained.home / "lakemark.yaml"
    text = re.sub(r"(?ms)^retention:.*?(?=^\S)", "", file.read_text(encoding="utf-8"))
    file.write_text(text + "\nretention: {default: {keep_for: 7d}, min_keep: 1}\n", encoding="utf-8")
    assert {one["step"] for one in trained.ok("ls", "--expiring", "99999999d")["records"]} == {100, 200}


def test_for_people_it_is_a_table_and_json_is_one_document(shared):
    done = shared("ls", "r1")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split()[:4] == ["record", "run", "timeline", "step"]
    assert len(lines) == 4
    assert len(shared("ls", "r1", "--json").out.splitlines()) == 1


def test_when_is_echoed_in_utc(shared):
    done = shared("ls", "--since", "3d")
    assert done.err.startswith("3d is ")
    assert done.err.rstrip().endswith("Z")
    assert shared("ls", "--since", "3d", "--quiet").err == ""


@pytest.mark.parametrize("selector", ["r1@300", "r1@latest", "r1@0s", "R1@300", "r1~1@300", "r1@best:loss"])
def test_show_takes_every_selector(shared, selector):
    document = shared.ok("show", selector)
    has(document, [*RECORD, "manifest", "git_commit"])
    assert document["step"] == 300
    assert [file["path"] for file in document["manifest"]["files"]] == ["optimizer.bin", "weights.bin"]
    assert len(document["git_commit"]) == 40
    assert shared.ok("show", f"id:{document['record'][:10]}")["step"] == 300


def test_log_has_every_entry_in_order(shared):
    entries = shared.ok("log", "r1")["entries"]
    assert [one["sequence"] for one in entries] == list(range(1, len(entries) + 1))
    for entry in entries:
        has(entry, [*ENTRY, "git_commit"])
    assert {"opened", "attempt", "committed", "replicated"} == {one["kind"] for one in entries}
    assert {one["actor"] for one in entries} == {"ana@node-a"}
    assert [one["sequence"] for one in shared.ok("log", "r1", "--limit", 2)["entries"]] == [
        len(entries) - 1,
        len(entries),
    ]
    assert {one["kind"] for one in shared.ok("log", "site")["entries"]} == {"founded", "tier_registered"}


def test_run_ls_and_show(shared):
    (row,) = shared.ok("run", "ls")["runs"]
    assert (row["run"], row["timeline"], row["closed"], row["records"], row["step"]) == ("r1", 1, False, 3, 300)
    run = shared.ok("run", "show", "r1")
    has(run, ["run", "timelines", "pins", "last", "recovery_point"])
    assert run["last"]["step"] == 300
    assert run["recovery_point"]["seconds_ago"] >= 0
    assert run["timelines"][0]["records"] == 3
    assert "recovery point" in shared("run", "show", "r1").out


def test_as_of_answers_four_questions(shared):
    middle = shared.ok("show", "r1@200")["recorded_at"]
    document = shared.ok("as-of", "r1", middle)
    has(document, ["at", "latest", "latest_known_then", "trained_with", "branch_heads", "aliases"])
    assert document["at"] == middle
    assert document["latest"]["step"] == 200
    assert document["latest_known_then"]["step"] == 200
    assert document["trained_with"] == document["branch_heads"] == document["aliases"] == []
    error = shared.fails("as-of", "r1", "3d")
    assert (error["kind"], error["exit_code"]) == ("NoRecordAsOf", 3)


def test_tiers_and_pins(shared):
    rows = shared.ok("tiers")["tiers"]
    for row in rows:
        has(row, TIER)
    assert [(row["name"], row["state"], row["records"]) for row in rows] == [
        ("hot", "present", 3),
        ("cold", "present", 3),
    ]
    assert "failure domain" in shared("tiers", "--explain").out
    assert shared.ok("pins") == {"pins": []}


def test_config_show_names_sources(shared):
    values = {one["key"]: one for one in shared.ok("config", "show")["values"]}
    assert values["site"]["value"] == "solo"
    assert values["site"]["source"].endswith(":7")
    assert values["node"]["source"] in ("environment LAKEMARK_NODE", values["node"]["source"])
    schema = shared.ok("config", "schema")
    assert schema["title"] == "lakemark.yaml"
    assert json.loads(shared("config", "schema").out) == schema


def test_inspect_changes_nothing(shared):
    found = shared.ok("inspect", "out")["found"]
    for one in found:
        has(one, ["path", "framework", "step", "verdict", "roles", "why"])
    assert {one["step"] for one in found if one["verdict"] == "complete"} == {100, 200, 300}
    (one,) = shared.ok("inspect", "unseen/step-400")["found"]
    assert (one["verdict"], one["step"]) == ("complete", 400)


def test_reading_leaves_the_ledger_as_it_is(shared):
    for words in ("ls", "show r1@300", "log r1", "run ls", "run show r1", "as-of r1 0s", "tiers", "pins", "status"):
        shared.ok(*words.split())


def test_run_open_maps_names_reversibly(cli):
    document = cli.ok("run", "open", "Llama 7B")
    assert document["run"] == "x-4c6c616d61203742"
    assert cli.ok("run", "show", "Llama 7B")["written_as"] == "Llama 7B"
    assert "runs/x-4c6c616d61203742" in cli("run", "show", "x-4c6c616d61203742").out
    assert "no record" in cli("ls", "Llama 7B").out
    has(document, ["run", "timeline", "data", "run_file"])
    assert cli.ok("run", "show", "Llama 7B")["run"] == document["run"]


def test_an_answer_about_a_time_says_whose_clock_was_wrong(cli):
    """Step 200 was recorded in a boot whose clock was a year back."""
    cli.ok("run", "open", "r1")
    site = site_of(cli.parts())
    start = site.now()
    for step, at in ((100, start), (200, start - timedelta(days=365)), (300, start + timedelta(hours=2))):
        path = cli.save(step)
        for file in (one for one in path.rglob("*") if one.is_file()):
            os.utime(file, (at.timestamp(), at.timestamp()))
        commit(replace(site, now=partial(lambda at: at, at)), Commit(path=path, run="r1", step=step))
    shown = cli.ok("show", "r1@200")
    assert (shown["clock"], shown["instant_by"]) == ("suspect", "held")
    assert cli.ok("show", "r1@100")["instant_by"] == "files"
    answer = cli.ok("as-of", "r1", to_text(start + timedelta(hours=1)))
    assert (answer["latest"]["step"], answer["latest_known_then"]["step"]) == (100, 100)
    assert "as its clock was wrong" in cli("ls", "r1").out
    assert to_text(start - timedelta(days=365))[:10] not in cli("ls", "r1").out
    (note,) = answer["notes"]
    assert "the clock was wrong when step 200 was recorded" in note
    assert note in cli("as-of", "r1", to_text(start + timedelta(hours=1))).out
    plan = cli.ok("rollback", "plan", "r1", "--to", "200", "--model-only", "--while-running", "--reason", "back")
    assert any("the clock was wrong when step 200 was recorded" in one for one in plan["notes"])
