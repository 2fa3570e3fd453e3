import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from lakemark.sandbox import processes

WHEN_TOLD = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
SLEEP = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def mark(tmp_path):
    yield f"{tmp_path}#one"
    processes.end(processes.marked(f"{tmp_path}#one"), within_seconds=0.1)


@pytest.fixture
def run(tmp_path, mark):
    def begin(code):
        command = [sys.executable, "-c", code]
        what = processes.ProcessStart(
            command, dict(os.environ), folder=tmp_path / "work", log=tmp_path / "logs" / "one.log"
        )
        return processes.start(what, mark=mark)

    return begin


@pytest.fixture
def bystander():
    process = subprocess.Popen([sys.executable, "-c", SLEEP])
    yield process
    process.kill()
    process.wait()


def until(true, seconds=180):
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found


def log_of(tmp_path):
    return (tmp_path / "logs" / "one.log").read_text()


def test_it_runs_in_its_own_session_and_folder_with_its_log(run, tmp_path):
    process = run("import os; print(os.getcwd(), os.getsid(0) == os.getpid(), flush=True); " + SLEEP)
    assert until(lambda: log_of(tmp_path)).split() == [str(tmp_path / "work"), "True"]
    assert processes.alive(process)
    assert (tmp_path / "logs" / "one.log").stat().st_mode & 0o077 == 0


def test_the_log_before_is_kept_once(run, tmp_path):
    for word in ("first", "second", "third"):
        run(f"print({word!r}, flush=True)")
        until(lambda: log_of(tmp_path))
    assert log_of(tmp_path) == "third\n"
    assert (tmp_path / "logs" / "one.log.1").read_text() == "second\n"


def test_it_takes_an_interrupt_even_where_its_parent_ignores_them(run, tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run("import signal; print(signal.getsignal(signal.SIGINT).__name__, flush=True); " + SLEEP)
    finally:
        signal.signal(signal.SIGINT, before)
    assert until(lambda: log_of(tmp_path)).strip() == "default_int_handler"


def test_end_ends_and_says_who_had_to_be_killed(run, tmp_path):
    assert processes.end([mild := run(SLEEP)], within_seconds=30) == []
    assert not processes.alive(mild)
    stubborn = run(STUBBORN)
    until(lambda: "up" in log_of(tmp_path))
    assert processes.end([stubborn], within_seconds=0.1) == [stubborn]
    assert not processes.alive(stubborn)


def test_a_stopped_one_ends_without_being_killed(run, tmp_path):
    tidy = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); "
    stopped = run(tidy + SLEEP)
    until(lambda: "up" in log_of(tmp_path))
    os.kill(stopped.pid, signal.SIGSTOP)
    assert processes.end([stopped], within_seconds=20) == []


def test_a_recycled_number_is_left_alone(bystander):
    true = until(lambda: processes.identify(bystander.pid))
    for other in (replace(true, started_ticks=true.started_ticks - 1), replace(true, boot="another boot")):
        assert not processes.alive(other)
        assert processes.end([other], within_seconds=0.1) == []
        assert bystander.poll() is None
    processes.end([true], within_seconds=30)
    assert bystander.poll() is not None


def test_nobody_has_the_number_of_an_ended_process(run, tmp_path):
    gone = run(WHEN_TOLD)
    (tmp_path / "work" / "go").touch()
    assert until(lambda: processes.exit_status(gone)) == "ended with exit code 0"
    assert processes.identify(gone.pid) is None
    assert processes.end([gone], within_seconds=0.1) == []


def test_how_it_ended_is_told(run, tmp_path):
    failed = run(WHEN_TOLD + "raise SystemExit(3)")
    (tmp_path / "work" / "go").touch()
    assert until(lambda: processes.exit_status(failed)) == "ended with exit code 3"
    killed = run(SLEEP)
    assert processes.exit_status(killed) is None
    os.kill(killed.pid, signal.SIGKILL)
    assert until(lambda: processes.exit_status(killed)) == "ended by signal 9"


def test_children_carry_the_mark_also_in_a_session_of_their_own(run, mark, bystander):
    leader = run(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}], start_new_session=True)")
    family = until(lambda: found if len(found := processes.marked(mark)) == 2 else None)
    assert leader in family
    assert bystander.pid not in {one.pid for one in family}
    os.kill(leader.pid, signal.SIGKILL)
    until(lambda: processes.exit_status(leader))
    (child,) = processes.marked(mark)
    processes.end([child], within_seconds=30)
    assert processes.marked(mark) == []
    assert processes.marked(mark[:-1]) == []


def test_a_program_that_is_not_there_says_so_in_the_log(tmp_path, mark):
    what = processes.ProcessStart(["/no/such/program"], {}, folder=tmp_path, log=tmp_path / "logs" / "one.log")
    gone = processes.start(what, mark=mark)
    assert until(lambda: processes.exit_status(gone)) == "ended with exit code 1"
    assert "No such file" in log_of(tmp_path)
