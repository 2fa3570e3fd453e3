"""What people read: no word twice, one way of telling time, one line for one dead server, colours on a terminal."""

import ast
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, timedelta
from pathlib import Path

import pytest

import lakemark
from lakemark.cli.registry import COMMANDS
from lakemark.errors import LakemarkError
from lakemark.model.runs.activity import still_writing
from lakemark.sandbox import credentials, processes, state
from lakemark.services.health.doctor import Examination, Noted, examine


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_help_says_more_than_the_argument_s_own_name(shared, command):
    text = shared(*command.split(), "--help").out
    assert not re.search(r"\b([A-Z]{3,})  +\1\b", text), text
    assert not re.search(r"  The run\. ", text)


def test_one_dead_store_is_one_failed_check(trained, free_port):
    endpoint = f"http://127.0.0.1:{free_port()}"
    trained.tier(f"warm: {{class: warm, kind: s3, url: s3://bucket/prefix, endpoint: {endpoint}, domain: array}}")
    wrong = [one for one in trained("doctor", "--json").json["checks"] if one["name"].startswith("tier warm")]
    (one,) = wrong
    assert not one["ok"]
    assert re.search(r"does not answer.*; \d+ more check\(s\) of it were not tried", one["detail"])


def test_a_part_is_tried_where_its_head_holds_and_notes_break_nothing():
    def broken():
        raise LakemarkError("gone", advice="bring it back")

    found = examine([
        Examination(name="a", run=broken),
        Examination(name="a, 1", run=lambda: "fine", part_of="a"),
        Examination(name="a, 2", run=broken, part_of="a"),
        Examination(name="b", run=lambda: "fine"),
        Examination(name="b, 1", run=broken, part_of="b"),
        Examination(name="c", run=lambda: Noted("odd"), advice="know it"),
    ])  # fmt: skip
    assert [(one.name, one.ok, one.noted) for one in found] == [
        ("a", False, False),
        ("b", True, False),
        ("b, 1", False, False),
        ("c", True, True),
    ]
    assert found[0].detail == "gone; 2 more check(s) of it were not tried"
    assert found[0].advice == "bring it back"
    assert found[3].advice == "know it"


def test_what_is_configured_to_no_effect_is_noted_by_name(trained):
    trained.settings("webhook: null", "webhook: https://example.org/x")
    (one,) = [one for one in trained("doctor", "--json").json["checks"] if one["name"] == "unused configuration"]
    assert (one["ok"], one["noted"]) == (True, True)
    assert "notify.webhook" in one["detail"]
    assert "note  unused configuration" in trained("doctor").out
    assert one["advice"].startswith("Take out notify.webhook:")
    (amber,) = [one for one in trained.ok("status")["problems"] if "notify.webhook" in one["what"]]
    assert amber["colour"] == "amber"
    trained.settings("webhook: https://example.org/x", "webhook: null")
    (rest,) = [one for one in trained("doctor", "--json").json["checks"] if one["name"] == "unused configuration"]
    # What `init` wrote is in use: thinning and admission go by it.
    assert "retention" in rest["detail"]
    assert "ake out" not in rest["advice"]


def test_a_rhythm_of_seconds_is_told_in_seconds(trained):
    state = trained.parts().ledger.run("r1")
    saved = max(found.instant for found in state.records.values())
    told = still_writing(state, saved + timedelta(seconds=1))
    assert "minutes" not in told
    assert re.search(r"it saves every ([1-9]\d*s|second or more often)$", told)
    assert saved.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") in told


TIMES = (
    "status",
    "ls",
    "show r1@100",
    "log r1",
    "run show r1",
    "run ls",
    "as-of r1 0s",
    "rollback ls",
    "tiers",
    "pins",
)


def test_times_have_one_form(trained, someone):
    trained.settings("required: false", "required: true\n  alone_after: 15m\n  expires_after: 24h")
    asked = ("--model-only", "--while-running", "--reason", "the loss rises")
    request = trained.ok("rollback", "request", "r1", "--to", 100, *asked)
    shown = ("rollback", "show", request["rollback"])
    trained.ok("rollback", "approve", shown[-1], "--digest", request["plan"][:12], environ=someone("bea"))
    told = [trained(*words).out for words in (shown, *(line.split() for line in TIMES))]
    assert "approved" in told[0]
    assert [line for text in told for line in text.splitlines() if re.search(r"\d-\d\dT\d|:\d\d\.\d+Z", line)] == []


def sentences(path):
    """(line, call) of each f-string with a blank in its own words that shows what a bare call answers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr) and any(
            isinstance(part, ast.Constant) and " " in part.value for part in node.values
        ):
            for part in node.values:
                if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Call):
                    yield node.lineno, ast.unparse(part.value.func)


def test_no_sentence_tells_an_instant_as_documents_do():
    package = Path(lakemark.__file__).parent
    found = [f"{path}:{line}" for path in package.rglob("*.py") for line, call in sentences(path) if call == "to_text"]
    assert found == []


def test_when_a_record_expires_is_told_as_other_times(trained):
    trained.settings("    keep_last: 5\n", "    keep_last: 1\n    keep_for: 7d\n")
    for rule in ("hourly: 24", "daily: 30", "weekly: 12", "monthly: 12", "every_steps: 10000", "best: {"):
        trained.settings(f"    {rule}", f"    # {rule}")
    shown = trained("show", "r1@100").out
    assert re.search(r"^expires +\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$", shown, re.MULTILINE), shown


def test_spans_of_the_configuration_are_told_as_it_writes_them(shared):
    told = shared("tiers", "--explain").out
    assert "settled for 10m" in told


@pytest.mark.parametrize(
    ("words", "said"), [("run ls", "no run"), ("ls", "no record"), ("rollback ls", "no rollback"), ("pins", "no pin")]
)
def test_where_there_is_nothing_that_is_said(cli, words, said):
    assert cli(*words.split()).out == f"{said}\n"


def test_what_waits_for_its_time_is_one_line_of_a_sweep(trained):
    trained.settings("keep_last: 3                # the newest", "keep_last: 1                # the newest")
    pending = trained.ok("sweep")["pending"]
    assert len(pending) == 2
    (line,) = [one for one in trained("sweep").out.splitlines() if "settle" in one]
    assert line.startswith("later r1@")
    assert "and 1 more" in line


def test_a_site_without_data_knows_what_a_record_was_trained_with(shared):
    assert re.search(r"^trained with +this site versions none$", shared("as-of", "r1", "0s").out, re.MULTILINE)


def test_flows_that_were_exported_elsewhere_are_deployed_from_there(cli):
    assert cli("flows", "export").out.splitlines()[-1] == "next: lakemark flows deploy"
    file = cli.home / "else where" / "prefect.yaml"
    assert cli("flows", "export", file.parent).out.splitlines()[-1] == f"next: lakemark flows deploy --file '{file}'"


def test_a_tier_s_next_step_is_one_that_can_be_done(trained):
    trained.tier("usb: {class: cold, kind: directory, path: usb}")
    (new,) = [one for one in trained.ok("status")["problems"] if "the tier usb" in one["what"]]
    assert new["next"] == "lakemark tier init usb"
    assert trained(*new["next"].split()[1:]).code == 0
    (trained.home / "usb/lakemark-tier.json").unlink()
    (gone,) = [one for one in trained("status", "--json").json["problems"] if "the tier usb" in one["what"]]
    # The ledger knows it: it is never claimed anew.
    assert "absent" in gone["what"]
    assert "tier init" not in gone["next"]


def test_servers_that_nobody_started_yet_are_started_by_up(empty):
    empty.ok("init", ".", "--profile", "laptop")
    done = empty("status", "--json")
    assert {one["next"] for one in done.json["problems"]} == {"lakemark up"}
    away = [one for one in done.json["problems"] if "does not answer" in one["what"]]
    assert [one["next"] for one in away] == ["lakemark up"] * 3
    for one in away:
        assert one["what"].count("127.0.0.1") == 1
        assert "Errno" not in one["what"]
    assert max(len(line) for line in empty("status").out.splitlines()) <= 100
    (lakefs,) = [one for one in empty("doctor", "--json").json["checks"] if one["name"] == "lakefs"]
    assert "does not answer: Connection refused" in lakefs["detail"]


def test_status_says_where_prefects_page_and_password_are_and_how_to_end_the_servers(empty):
    empty.ok("init", ".", "--profile", "laptop")
    box = empty.home / "sandbox"
    url = credentials.read(box / "credentials.env")["PREFECT_API_URL"].removesuffix("/api")
    state.save(box, {"prefect-server": state.Started("prefect-server", url, processes.identify(os.getpid()))})
    lines = empty("status").out.splitlines()
    assert f"Prefect's page: {url}" in lines
    assert any(line.endswith("PREFECT_API_AUTH_STRING in sandbox/credentials.env") for line in lines)
    assert lines[-1].endswith("--config lakemark.yaml down")


def test_up_says_it_as_well(empty):
    """With the data server alone, which starts at once; where Prefect is said by the same lines as in `status`."""
    empty.ok("init", ".", "--profile", "laptop")
    empty.settings("s3: seaweedfs", "s3: null")
    empty.settings("prefect: server", "prefect: null")
    keys = {"LAKEMARK_S3_ACCESS_KEY_ID": "a", "LAKEMARK_S3_SECRET_ACCESS_KEY": "b"}
    try:
        lines = empty("up", environ=keys).out.splitlines()
        assert lines[-1].endswith("--config lakemark.yaml down")
        assert empty("status").out.splitlines()[-1] == lines[-1]
    finally:
        empty("down")


def screen(home, environ, *words):
    """What a terminal gets of the command, colours and all."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "lakemark.cli", *words], stdout=theirs, stderr=theirs, cwd=home, env=environ
    ):
        os.close(theirs)
        text = b""
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:
                break
            if not read:
                break
            text += read
    os.close(ours)
    return text.decode()


def test_red_is_red_on_a_terminal_and_plain_elsewhere(trained):
    trained.settings("min_free: 10%", "min_free: 100%")
    environ = {**os.environ, **trained.environ, "TERM": "xterm"}
    environ.pop("NO_COLOR", None)
    assert "\x1b[31mRED  \x1b[0m  nothing new lands in hot" in screen(trained.home, environ, "status")
    assert "\x1b[" not in screen(trained.home, environ | {"NO_COLOR": "1"}, "status")
    assert "RED    nothing new lands in hot" in trained("status").out
