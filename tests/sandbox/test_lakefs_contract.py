"""What a real lakeFS server answered to a list of requests, and what the stand-in answers to the same.

`data/steps.jsonl` holds the requests, `data/exchanges.jsonl` the recorded answers, with whatever differs
from run to run named: <c1> a commit, <m1> a tree, <t> an instant.
"""

import json
import re
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.serving import Server

DATA = Path(__file__).with_name("data")
STEPS = [json.loads(line) for line in (DATA / "steps.jsonl").read_text().splitlines()]
RECORDED = [json.loads(line) for line in (DATA / "exchanges.jsonl").read_text().splitlines()]
NAMESPACE = "local://contract"
BACK_DATED = 1700000000
SHOWN_CHARACTERS = 80
KEPT_HEADERS = ("Content-Range", "Content-Length", "Accept-Ranges", "Content-Type")
RUN_ID = re.compile(r"run id '\w+'")
TRACEBACK = re.compile(r"\n?stack traceback:.*$|\n+$", re.DOTALL)

pytestmark = pytest.mark.xdist_group("lakefs-contract")


class Replay:
    """Sends the steps and gives what came back the form of the recording."""

    def __init__(self, server: Server) -> None:
        self.http = server.http
        self.kept: dict[str, str] = {}
        self.names: dict[str, str] = {}

    def filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        if not isinstance(value, str):
            return value
        text = value.replace("$NS", NAMESPACE)
        return re.sub(r"\$(\w+)(?::(\d+))?", lambda m: self.kept[m[1]][: int(m[2]) if m[2] else None], text)

    def named(self, text: str, kind: str) -> str:
        number = 1 + sum(name.startswith(f"<{kind}") for name in self.names.values())
        return self.names.setdefault(text, f"<{kind}{number}>")

    def plain(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.plain(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.plain(each, key) for each in value]
        if key in {"creation_date", "mtime"} and value != BACK_DATED:
            return "<t>"
        if key == "physical_address":
            return "<physical>"
        if key == "meta_range_id" and value:
            return self.named(value, "m")
        if not isinstance(value, str):
            return value
        text = re.sub(r"\b[0-9a-f]{64}\b", lambda m: self.named(m[0], "c"), value)
        return text.replace(NAMESPACE, "$NS")

    def send(self, step: dict[str, Any]) -> dict[str, Any]:
        asked: dict[str, Any] = {"params": self.filled(step.get("query")), "headers": step.get("headers", {})}
        if "upload" in step:
            asked["files"] = {"content": ("f", step["upload"].encode(), "application/octet-stream")}
        elif "body" in step:
            asked["json"] = self.filled(step["body"])
        if not step.get("auth", True):
            asked["auth"] = None
        path = urllib.parse.quote(self.filled(step["path"]), safe="/%~^@:")
        answer = self.http.request(step["method"], path, **asked)
        sent = {name: value for name, value in step.get("headers", {}).items() if name != "Authorization"}
        headers = {"headers": sent} if "headers" in step else {}
        return {"name": step["name"], "status": answer.status_code, **headers, **self.shown(step, answer)}

    def shown(self, step: dict[str, Any], answer: Any) -> dict[str, Any]:
        is_json = "json" in answer.headers.get("content-type", "") and answer.content
        value = answer.json() if is_json else None
        if value is None:
            text = answer.content[:SHOWN_CHARACTERS].decode(errors="replace")
            size = len(answer.content)
            shown = self.plain(text) + (f"… {size} bytes" if size > SHOWN_CHARACTERS else "")
        else:
            for name, member in step.get("keep", {}).items():
                self.kept[name] = value.get(member, "")
            shown = self.plain(value)
        headers = {}
        if step["path"].endswith("/objects") and step["method"] in {"GET", "HEAD"} and answer.is_success:
            headers = {name: answer.headers[name] for name in KEPT_HEADERS if answer.headers.get(name)}
        if answer.headers.get("etag"):
            headers["ETag"] = "<etag>" if "settings" in step["path"] else answer.headers["etag"]
        return ({"headers": headers} if headers else {}) | {"answer": shown}


@pytest.fixture(scope="module")
def answers(server: Server) -> list[dict[str, Any]]:
    replay = Replay(server)
    return [replay.send(step) for step in STEPS]


def without_chance(exchange: dict[str, Any]) -> dict[str, Any]:
    """What can be compared: a hook's run has a random id, and each Lua its own traceback."""
    answer = exchange["answer"]
    if isinstance(answer, dict) and "message" in answer:
        message = RUN_ID.sub("run id '<r>'", answer["message"])
        answer = answer | {"message": TRACEBACK.sub("", message)}
    if isinstance(answer, dict) and "version" in answer and "version_context" in answer:
        answer = answer | {"version": "<version>"}
    return {"status": exchange["status"], "headers": exchange.get("headers"), "answer": answer}


def test_every_request_has_a_recorded_answer():
    assert [step["name"] for step in STEPS] == [exchange["name"] for exchange in RECORDED]
    assert len(STEPS) == 138


@pytest.mark.parametrize("number", range(len(STEPS)), ids=lambda number: f"{number} {STEPS[number]['name']}")
def test_answers_as_lakefs_did(answers: list[dict[str, Any]], number: int):
    assert without_chance(answers[number]) == without_chance(RECORDED[number])
