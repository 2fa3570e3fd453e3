"""The main job, as a newcomer runs it: real services, nine simulated days, one rollback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakemark.sandbox import processes, state


@pytest.mark.timeout(1500)
def test_the_demo_brings_both_back(tmp_path):
    home = tmp_path / "demo"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKEMARK_")}
    program = Path(sys.executable).with_name("lakemark")
    done = subprocess.run(
        [program, "demo", "--dir", home], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads((home / "report.json").read_text())
    assert {"services", "records", "rollback", "checks"} <= report.keys()
    assert [check["name"] for check in report["checks"] if not check["ok"]] == []
    assert len(report["checks"]) == 9
    assert report["rollback"]["state"] == "applied"
    assert {record["timeline"] for record in report["records"]} == {1, 2}
    assert "look around" in done.stderr
    left = [one for one in state.load(home / "sandbox").values() if processes.alive(one.identity)]
    assert left == [], "the demo ends what it started"
