"""What people read: no word twice, one way of telling time, one line for one dead server, colours on a terminal."""

import os
import pty
import re
import subprocess
import sys
from datetime import UTC, timedelta

import pytest

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
    (amber,) = [one for one in trained.ok("status")["problems"] if "notify.webhook" in one["what"]]
    assert amber["colour"] == "amber"


def test_a_rhythm_of_seconds_is_told_in_seconds(trained):
    state = trained.parts().ledger.run("r1")
    saved = max(found.instant for found in state.records.values())
    told = still_writing(state, saved + timedelta(seconds=1))
    assert "minutes" not in told
    assert re.search(r"it saves every \d+s$", told)
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


def test_servers_that_nobody_started_yet_are_started_by_up(empty):
    empty.ok("init", ".", "--profile", "laptop")
    done = empty("status", "--json")
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
