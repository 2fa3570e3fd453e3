"""What CI runs ends with it, however it ends: all that was started, in whatever session and environment, and nothing else."""

import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STARTED = Path(__file__).parents[1] / ".ci" / "started"
SPREAD = """
sleep "$1" &
setsid env -i sleep "$1" &
(setsid sh -c 'trap "" TERM; sleep "$0"' "$1" &)
setsid sh -c 'kill -STOP $$; exec sleep "$0"' "$1" &
"""


def living(mark):
    """Processes with the mark among their arguments that are no zombies."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdigit() else []
        except OSError:
            continue
        if mark.encode() in words:
            found.append(int(folder.name))
    return found


def until(condition):
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.fixture
def mark():
    """A time to sleep that nobody else does."""
    return f"98765.{secrets.randbelow(10**9)}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_was_started_and_nothing_else(mark, number):
    command = [sys.executable, STARTED, "sh", "-c", f"{SPREAD}wait", "sh", mark]
    with subprocess.Popen(["sleep", f"{mark}1"]) as stranger, subprocess.Popen(command) as job:
        # Two of them are a shell and what it runs.
        until(lambda: len(living(mark)) >= 6)
        job.send_signal(number)
        assert job.wait() == 128 + number
        assert living(mark) == []
        assert stranger.poll() is None
        stranger.kill()


def test_what_is_left_behind_ends_with_the_command_whose_code_is_answered(mark):
    done = subprocess.run([sys.executable, STARTED, "sh", "-c", f"{SPREAD}sleep 0.5; exit 7", "sh", mark], check=False)
    assert done.returncode == 7
    assert living(mark) == []
