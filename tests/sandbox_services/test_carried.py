"""Flows and prefect.yaml that an installation carries, written beside lakemark.yaml: whole, again, edited, upgraded."""

import json
import os
from pathlib import Path

import pytest
import yaml

from lakemark.errors import Denied, Misconfigured
from lakemark.sandbox import carried
from lakemark.sandbox.declared import declared, in_order, wrong

ROOT = Path(__file__).parents[2]
NAMES = {"prefect.yaml", *(f"flows/{path.name}" for path in (ROOT / "flows").glob("*.py"))}


def test_what_is_exported_is_what_is_carried(tmp_path):
    done = carried.export(tmp_path / "site")
    assert set(done.written) == NAMES
    for name in NAMES:
        assert (tmp_path / "site" / name).read_bytes() == (ROOT / name).read_bytes()
    again = carried.export(tmp_path / "site")
    assert (set(again.same), again.written, again.edited) == (NAMES, (), ())
    assert carried.left_behind(tmp_path / "site") == carried.edited(tmp_path / "site") == ()


def test_what_somebody_edited_stays_and_is_named(tmp_path):
    carried.export(tmp_path)
    (tmp_path / "prefect.yaml").write_text("# mine\n" + (tmp_path / "prefect.yaml").read_text())
    (tmp_path / "flows" / "sweep.py").unlink()
    for _ in range(2):
        done = carried.export(tmp_path)
        assert done.edited == ("prefect.yaml",)
        assert carried.edited(tmp_path) == ("prefect.yaml",)
    assert (tmp_path / "prefect.yaml").read_text().startswith("# mine")
    assert (tmp_path / "flows" / "sweep.py").read_bytes() == (ROOT / "flows" / "sweep.py").read_bytes()


def test_an_earlier_versions_are_replaced_where_nobody_edited_them(tmp_path):
    carried.export(tmp_path)
    note = tmp_path / "flows" / ".exported.json"
    noted = json.loads(note.read_text())
    old = b'"""An earlier version\'s."""\n'
    (tmp_path / "flows" / "sweep.py").write_bytes(old)
    noted["files"]["flows/sweep.py"] = carried._digest(old)
    note.write_text(json.dumps(noted))
    assert carried.left_behind(tmp_path) == ("flows/sweep.py",)
    file, done = carried.ensure(tmp_path)
    assert (file, done.written) == (tmp_path / "prefect.yaml", ("flows/sweep.py",))
    assert carried.left_behind(tmp_path) == ()


@pytest.mark.parametrize("note", ["", "{}", "[]", '{"files": []}', '{"files": {"prefect.yaml": 1}}'])
def test_without_a_readable_note_nothing_is_overwritten(tmp_path, note):
    carried.export(tmp_path)
    (tmp_path / "flows" / "sweep.py").write_text("mine")
    (tmp_path / "flows" / ".exported.json").write_text(note)
    assert carried.export(tmp_path).edited == ("flows/sweep.py",)
    assert (tmp_path / "flows" / "sweep.py").read_text() == "mine"


def test_a_prefect_file_that_no_export_wrote_is_used_as_it_lies(tmp_path):
    (tmp_path / "prefect.yaml").write_text("deployments: []\n")
    assert carried.ensure(tmp_path) == (tmp_path / "prefect.yaml", None)
    assert [path.name for path in tmp_path.iterdir()] == ["prefect.yaml"]


def test_where_nothing_can_be_written_it_says_so(tmp_path):
    (tmp_path / "flows").write_text("a file")
    with pytest.raises(Misconfigured, match="flows"):
        carried.export(tmp_path)
    assert not (tmp_path / "prefect.yaml").exists(), "it names flows that are not there"
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(Denied):
            carried.export(tmp_path / "closed")


def test_every_deployment_of_the_file_is_declared():
    rows = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    found = declared(ROOT / "prefect.yaml")
    assert [one.name for one in found] == [row["name"] for row in rows]
    assert {one.name for one in found if one.scheduled} == {"sweep", "demote", "verify"}
    assert {one.name for one in found if one.queue == "urgent"} == {"restore", "resume", "rollback"}


@pytest.mark.parametrize("text", ["", "[]", "deployments: 7", "deployments: [{}]", "a: [", "deployments:\n- x"])
def test_a_file_that_names_none_is_refused(tmp_path, text):
    (tmp_path / "prefect.yaml").write_text(text)
    with pytest.raises(Misconfigured, match="names no deployments"):
        declared(tmp_path / "prefect.yaml")


READY = {
    "name": "sweep",
    "entrypoint": "flows.sweep.sweep",
    "status": "READY",
    "paused": False,
    "schedules": [{"active": True}],
    "work_queue_name": "default",
}
POLLED = {"name": "default", "status": "READY", "is_paused": False}


@pytest.mark.parametrize(
    ("deployment", "queue", "why"),
    [
        ({}, {}, None),
        (None, {}, "not deployed"),
        ({"entrypoint": "probe.sweep"}, {}, "runs probe.sweep"),
        ({"paused": True}, {}, "is paused"),
        ({"schedules": [{"active": False}]}, {}, "no schedule"),
        ({"schedules": []}, {}, "no schedule"),
        ({"status": "NOT_READY"}, {}, "asked for its runs"),
        ({}, {"status": "NOT_READY"}, "no worker polls its queue default"),
        ({}, {"status": "PAUSED"}, "queue default is paused"),
        ({}, {"is_paused": True}, "queue default is paused"),
        ({"work_queue_name": "elsewhere"}, {}, "queue elsewhere is not there"),
    ],
)
def test_what_is_wrong_with_a_deployment(deployment, queue, why):
    wanted = next(one for one in declared(ROOT / "prefect.yaml") if one.name == "sweep")
    found = [] if deployment is None else [READY | deployment]
    told = list(wrong(wanted, found, [POLLED | queue]))
    assert told == [] if why is None else (len(told) == 1 and why in told[0])


def test_urgent_goes_first():
    assert in_order([{"name": "urgent", "priority": 1}, {"name": "default", "priority": 2}])
    assert not in_order([{"name": "urgent", "priority": 3}, {"name": "default", "priority": 1}])
    assert in_order([{"name": "default", "priority": 1}])
