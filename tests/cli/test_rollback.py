"""Rollbacks without Prefect: plan, request, approve, refuse, apply."""

import pytest

from tests.cli.keys import PLAN, RECORD, has

ASK = ("--model-only", "--while-running", "--reason", "the loss rises")


@pytest.fixture
def asked(trained):
    """A site with approval, and a request to go back to step 100."""
    trained.settings("required: false", "required: true\n  alone_after: 15m\n  expires_after: 24h")
    return trained, trained.ok("rollback", "request", "r1", "--to", 100, *ASK)


def test_a_plan_is_kept_beside_the_ledger(trained):
    before = trained.tips()
    plan = trained.ok("rollback", "plan", "r1", "--to", "200", *ASK)
    has(plan, PLAN)
    assert plan["target"]["step"] == 200
    assert plan["gives_up"]["steps"] == 100
    assert (trained.home / "plans" / f"{plan['plan']}.json").is_file()
    assert trained.tips() == before
    text = trained("rollback", "plan", "r1", "--to", "200", *ASK).out
    assert "gives up" in text
    assert plan["target"]["record"][:12] in text


def test_without_data_only_the_model_can_go_back(trained):
    plan = trained.ok("rollback", "plan", "r1", "--to", "100", "--reason", "because", "--while-running")
    assert plan["flags"]["model_only"] is True
    assert any("versions no data" in note for note in plan["notes"])
    asked = ("rollback", "plan", "r1", "--to", "100", "--reason", "because", "--while-running", "--data-only")
    assert trained.fails(*asked)["exit_code"] == 7


def test_a_run_that_still_writes_is_refused(trained):
    error = trained.fails("rollback", "plan", "r1", "--to", "100", "--reason", "because", "--model-only")
    assert error["exit_code"] == 7
    assert "--while-running" in error["advice"]


@pytest.mark.parametrize("to", ["100", "id", "r1@100", "best:loss", "0s"])
def test_every_way_to_say_how_far(trained, to):
    target = f"id:{trained.ok('show', 'r1@100')['record'][:16]}" if to == "id" else to
    assert trained.ok("rollback", "plan", "r1", "--to", target, *ASK)["target"]["step"] in (100, 300)


def test_request_says_what_to_paste(asked):
    trained, document = asked
    has(document, ["rollback", *PLAN, "flow_run", "url", "approve"])
    shown = trained.ok("rollback", "show", document["rollback"])
    assert {name: shown[name] for name in PLAN if name != "target"} == {
        name: document[name] for name in PLAN if name != "target"
    }
    record = trained.ok("show", "r1@100")
    for target in (document["target"], shown["target"]):
        # When retention would let it go is told as of the moment of asking.
        assert {name: target[name] for name in RECORD if name not in ("expires_at", "kept_by")} == {
            name: record[name] for name in RECORD if name not in ("expires_at", "kept_by")
        }
    assert document["flow_run"] is None
    assert document["approve"] == f"lakemark rollback approve {document['rollback']} --digest {document['plan'][:12]}"
    again = trained.ok("rollback", "request", "r1", "--to", 100, *ASK)
    assert again["rollback"] == document["rollback"]
    (row,) = trained.ok("rollback", "ls")["rollbacks"]
    assert (row["rollback"], row["state"], row["reason"]) == (document["rollback"], "requested", "the loss rises")
    assert "waits for approval" in trained("status").out


def test_what_is_asked_for_is_kept_by_that_at_once(asked):
    trained, document = asked
    shown = trained.ok("rollback", "show", document["rollback"])
    assert document["target"]["kept_by"] == shown["target"]["kept_by"]
    before = trained.ok("show", "r1@200")["kept_by"]
    again = trained.ok("rollback", "request", "r1", "--to", 200, *ASK)["target"]["kept_by"]
    assert set(again) > set(before)


def test_what_it_leaves_alone_and_goes_without_is_a_sentence(asked):
    trained, document = asked
    text = trained("rollback", "show", document["rollback"]).out
    assert "only if" not in text
    assert "data stay as they are" in text
    assert "although the run seems to be written still" in text


def test_what_is_next_after_it_was_applied_can_be_pasted(asked, someone):
    trained, document = asked
    digest = document["plan"][:12]
    trained.ok("rollback", "approve", document["rollback"], "--digest", digest, environ=someone("bea"))
    text = trained("rollback", "apply", document["rollback"], environ=someone("bea")).out
    (line,) = [line for line in text.splitlines() if "lakemark resume" in line]
    words = line.split("lakemark ", 1)[1].split()
    assert words[:4] == ["resume", "r1", "--to", str(trained.home / "out")]
    assert trained.ok(*words)["step"] == 100


def test_who_asked_can_not_approve_at_once(asked):
    trained, document = asked
    digest = document["plan"][:12]
    assert trained.fails("rollback", "approve", document["rollback"], "--digest", digest)["exit_code"] == 7
    assert (
        trained.fails("rollback", "approve", document["rollback"], "--digest", digest, "--as", "bea")["exit_code"] == 7
    )
    assert trained.fails("rollback", "apply", document["rollback"])["exit_code"] == 7


def test_approve_and_apply(asked, someone):
    trained, document = asked
    name, digest = document["rollback"], document["plan"]
    wrong = trained.fails("rollback", "approve", name, "--digest", "0123456789ab", environ=someone("bea"))
    assert wrong["exit_code"] == 7
    approved = trained.ok(
        "rollback", "approve", name, "--digest", digest[:8].upper(), "--as", "Bea", environ=someone("bea")
    )
    assert (approved["rollback"], approved["state"]) == (name, "approved")
    applied = trained.ok("rollback", "apply", name)
    has(applied, ["rollback", "run", "timeline", "checkpoint_dir", "data", "run_file"])
    assert applied["timeline"] == 2
    back = trained.home / "restores" / name
    assert applied["checkpoint_dir"] == str(back)
    assert (back / "weights.bin").read_bytes() == (trained.home / "out/step-100/weights.bin").read_bytes()
    shown = trained.ok("rollback", "show", name)
    has(shown, [*PLAN, "state", "approvals"])
    assert shown["state"] == "applied"
    assert [(one["by"], one["actor"]) for one in shown["approvals"]] == [("Bea", "bea@node-a")]
    tips = trained.tips()
    assert trained.ok("rollback", "apply", name) == applied
    assert trained.tips() == tips
    assert trained.ok("show", "r1@latest")["step"] == 100
    assert [one["step"] for one in trained.ok("ls", "r1", "--all-timelines")["records"]] == [300, 200, 100]
    assert trained.ok("rollback", "show", digest[:12])["rollback"] == name


def test_as_of_keeps_what_was_known_then_apart(asked, someone):
    trained, document = asked
    at = trained.ok("show", "r1@300")["recorded_at"]
    trained.ok("rollback", "approve", document["rollback"], "--digest", document["plan"][:12], environ=someone("bea"))
    trained.ok("rollback", "apply", document["rollback"])
    answer = trained.ok("as-of", "r1", at)
    assert answer["latest"]["step"] == 100
    assert answer["latest_known_then"]["step"] == 300


def test_what_was_saved_and_not_yet_recorded_was_not_known_then(trained):
    record = trained.ok("commit", trained.save(400), "--run", "r1", "--step", 400)
    assert record["saved_at"] < record["recorded_at"]
    answer = trained.ok("as-of", "r1", record["saved_at"])
    assert answer["latest"]["step"] == 400
    assert answer["latest_known_then"]["step"] == 300


def test_refuse_ends_it(asked, someone):
    trained, document = asked
    name = document["rollback"]
    refused = trained.ok("rollback", "refuse", name, "--reason", "the data is fine", environ=someone("bea"))
    assert refused["state"] == "refused"
    digest = document["plan"][:12]
    assert trained.fails("rollback", "approve", name, "--digest", digest, environ=someone("bea"))["exit_code"] == 7
    assert trained.fails("rollback", "apply", name)["exit_code"] == 7


def test_a_plan_is_applied_where_nobody_has_to_approve(trained):
    plan = trained.ok("rollback", "plan", "r1", "--to", "200", *ASK)["plan"]
    applied = trained.ok("rollback", "apply", plan[:12], "--dir", "back")
    assert applied["timeline"] == 2
    assert (trained.home / "back/weights.bin").is_file()


def test_where_nobody_has_to_approve_the_next_step_is_to_apply_it(trained):
    name = trained.ok("rollback", "request", "r1", "--to", 100, *ASK)["rollback"]
    line = f"lakemark rollback apply {name}"
    assert f"to apply: {line}" in trained("rollback", "show", name).out
    assert "approve" not in trained("rollback", "show", name).out
    (waits,) = [one for one in trained.ok("status")["problems"] if name in one["what"]]
    assert (waits["colour"], waits["next"]) == ("amber", line)
    assert "requested and not applied" in waits["what"]
    assert trained(*line.split()[1:]).code == 0


def test_a_plan_that_nobody_requested_needs_approval_elsewhere(trained):
    plan = trained.ok("rollback", "plan", "r1", "--to", "200", *ASK)["plan"]
    trained.settings("required: false", "required: true")
    error = trained.fails("rollback", "apply", plan[:12])
    assert error["exit_code"] == 7
    assert error["advice"].startswith("lakemark rollback request r1 --to id:")


def test_a_plan_applied_again_gives_the_same_answer(trained):
    plan = trained.ok("rollback", "plan", "r1", "--to", "200", *ASK)["plan"]
    applied = trained.ok("rollback", "apply", plan[:12], "--dir", "back")
    tips = trained.tips()
    for identity in (plan[:12], applied["rollback"], plan):
        assert trained.ok("rollback", "apply", identity) == applied
    assert trained.tips() == tips
    assert not (trained.home / "restores").exists()


@pytest.mark.parametrize("reason", ["", " ", "x", "no", "  x  ", "x" * 1001])
def test_a_reason_has_3_to_1000_characters_wherever_one_is_given(shared, reason):
    for words in (
        ("rollback", "plan", "r1", "--to", "200"),
        ("rollback", "request", "r1", "--to", "200"),
        ("rollback", "refuse", "rb-0123456789"),
        ("run", "close", "r1"),
        ("bind", "r1@100", "--data", f"data/{'a' * 64}"),
    ):
        assert shared.fails(*words, "--reason", reason)["exit_code"] == 2
    assert shared.ok("rollback", "plan", "r1", "--to", "200", "--reason", "bad", *ASK[:2])["reason"] == "bad"


def test_show_says_who_and_why(asked, someone):
    trained, document = asked
    name, digest = document["rollback"], document["plan"][:12]
    trained.ok("rollback", "approve", name, "--digest", digest, "--as", "Bea", environ=someone("bea"))
    text = trained("rollback", "show", name).out
    assert "by Bea (bea@node-a)" in text
    assert "by ana@node-a: the loss rises" in text
    assert "{" not in text, "a dict is nobody's prose"
    trained.ok("rollback", "refuse", name, "--reason", "the data is fine", environ=someone("cleo"))
    text = trained("rollback", "show", name).out
    assert f"{name} is refused" in text
    assert "by cleo@node-a: the data is fine" in text
    shown = trained.ok("rollback", "show", name)
    assert (shown["ended_by"], shown["ended_why"]) == ("cleo@node-a", "the data is fine")


def test_a_request_that_a_timeline_overtook_waits_for_nobody(asked, someone):
    trained, first = asked
    other = trained.ok("rollback", "request", "r1", "--to", 200, *ASK)
    bea = someone("bea")
    trained.ok("rollback", "approve", other["rollback"], "--digest", other["plan"][:12], environ=bea)
    trained.ok("rollback", "apply", other["rollback"])
    shown = trained.ok("rollback", "show", first["rollback"])
    assert (shown["state"], shown["ended_why"]) == ("overtaken", "the run went on in timeline 2")
    assert "to approve" not in trained("rollback", "show", first["rollback"]).out
    assert "waits for approval" not in trained("status").out
    refused = trained.fails("rollback", "approve", first["rollback"], "--digest", first["plan"][:12], environ=bea)
    assert refused["exit_code"] == 5
    assert trained.fails("rollback", "apply", first["rollback"])["exit_code"] == 5


def test_the_plan_says_what_has_to_be_known_at_night(asked):
    trained, document = asked
    text = trained("rollback", "show", document["rollback"]).out
    for told in (
        "step 300",
        "loss 100",
        "loss 300",
        " ago)",
        "may approve alone from",
        "restores/rb-",
        "stop the trainer",
    ):
        assert told in text
    assert f"lakemark resume r1 --to {trained.home / 'out'}" in text
    assert f"lakemark rollback refuse {document['rollback']} --reason" in text


def test_unknown_ones_are_3(trained):
    assert trained.fails("rollback", "show", "rb-0123456789")["exit_code"] == 3
    assert trained.fails("rollback", "apply", "0123456789abcdef")["exit_code"] == 3
    assert trained.fails("rollback", "approve", "rb-0123456789", "--digest", "01234567")["exit_code"] == 3
