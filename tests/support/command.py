"""The command line run in the test's own process: starting another costs more than what most commands do."""

import contextlib
import io
import subprocess
import threading

from lakemark.cli import run


def here(*words, environ, seconds=300):
    """What the process would have answered. As its end does, it waits for threads that the command left behind."""
    before = set(threading.enumerate())
    out, err = io.StringIO(), io.StringIO()
    command = [*map(str, words)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command, environ=environ)
        for left in threading.enumerate():
            if left not in before and not left.daemon:
                left.join(seconds)
                assert not left.is_alive(), f"{' '.join(command)} would not end: {left.name}"
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
