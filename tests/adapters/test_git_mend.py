"""Mending the folder of a ledger is finished by the same again, wherever the process was killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("mend_kills.py")
WRITER = SWEEP.parents[1] / "faults"


@pytest.mark.parametrize("sort", ["all at once", "no repository", "gone"])
def test_killed_at_each_step_it_is_finished_by_the_next(tmp_path, sort):
    path = os.pathsep.join((str(SWEEP.parent), str(WRITER), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, SWEEP, sort, tmp_path],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3
