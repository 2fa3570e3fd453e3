"""Waiting for a service on a busy machine: as long as its process lives and moves, saying what for."""

import os
import sys

import pytest

from lakemark.errors import StoreUnavailable
from lakemark.sandbox import processes
from lakemark.sandbox.crew import Crew, SandboxService

READY_WITHIN_SECONDS = 3.0
"""Far less than the time between two lines of news: who is still waited for then was not given up by this."""
MOVES = "import time\nwhile True: print('working', flush=True); time.sleep(0.05)"
COMPUTES = "while True: pass"
SLEEPS = "import time\ntime.sleep(600)"


def crew_of(folder, program, told):
    """A crew with one service of this program, which serves as soon as somebody was told what it waits for."""

    def missing():
        return None if any("waits for the moon" in line for line in told) else "the moon"

    start = processes.ProcessStart(
        [sys.executable, "-c", program], dict(os.environ), folder / "at", folder / "logs" / "one.log"
    )
    service = SandboxService("one", "http://127.0.0.1:1", (), start, missing, 10.0)
    crew = Crew(folder, told.append, READY_WITHIN_SECONDS, 30.0, {})
    crew.ensure(service)
    return crew, service


@pytest.mark.parametrize("program", [MOVES, COMPUTES])
def test_one_that_moves_is_waited_for_and_it_is_said_what_for(tmp_path, program):
    told = []
    crew, service = crew_of(tmp_path, program, told)
    try:
        crew.wait([service])
        assert "one waits for the moon" in told
        assert told[-1].startswith("one is ready after")
    finally:
        crew.abandon()


def test_one_that_stands_still_is_given_up(tmp_path):
    told = []
    crew, service = crew_of(tmp_path, SLEEPS, told)
    try:
        with pytest.raises(StoreUnavailable, match="one still waits for the moon after"):
            crew.wait([service])
    finally:
        crew.abandon()
