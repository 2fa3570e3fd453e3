import json
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakemark.adapters.node.read_logs import summary
from lakemark.adapters.node.run_files import LocalSpool
from lakemark.data import DataError, filesystem, paths
from lakemark.data.reads import KEPT, ReadLog, digest_of
from lakemark.data.server import Object
from lakemark.model.checkpoints.record import DataRef, Evidence
from lakemark.ports import RunFile
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.trainer import Run
from tests.data.faulty import COMMIT
from tests.faults.site_on_disk import Clock, make_site

A = f"lakefs://data/{COMMIT}/a"


def item(number):
    return Object(f"train/{number}", number, f"tag{number}", "", 0.0)


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


def log(spool, attempt="t1"):
    return ReadLog(str(spool / "reads" / attempt))


def said(spool, attempt="t1"):
    return summary(spool, attempt, repository="data", commit=COMMIT)


def noted(one, numbers):
    for number in numbers:
        one.note("data", COMMIT, item(number), 10)
    one.flush()


def test_few_objects_are_counted_exactly(spool):
    noted(log(spool), [*range(100), *range(50)])
    assert said(spool) | {"digest": ""} == {"objects": 100, "exact": True, "reads": 150, "digest": ""}
    (path,) = (spool / "reads/t1").glob("*/*.json")
    assert len(json.loads(path.read_text())["objects"]) == 100


def test_many_objects_take_little_room(spool):
    noted(log(spool), range(60_000))
    (path,) = (spool / "reads/t1").glob("*/*.json")
    assert path.stat().st_size < 2**17
    found = said(spool)
    assert not found["exact"]
    assert abs(found["objects"] - 60_000) < 6_000


def test_the_digest_is_of_the_set_whoever_read_it_and_how_often(tmp_path):
    noted(log(tmp_path / "1"), range(5000))
    for numbers in (range(3000), range(2000, 5000), range(100)):
        noted(log(tmp_path / "2"), numbers)
    noted(log(tmp_path / "3"), range(1, 5000))
    first, second, third = (said(tmp_path / name) for name in "123")
    assert first["digest"] == second["digest"]
    assert first["objects"] == second["objects"]
    smallest = min(range(5000), key=lambda number: digest_of(f"train/{number}", f"tag{number}", number))
    noted(log(tmp_path / "4"), [number for number in range(5000) if number != smallest])
    assert said(tmp_path / "4")["digest"] != first["digest"]
    assert third["reads"] == 4999
    assert KEPT == 1024


def test_each_process_has_its_slot_and_the_next_one_goes_on_in_it(spool):
    code = (
        "import sys, os; from tests.data.test_reads import log, item, COMMIT; from pathlib import Path\n"
        "one = log(Path(sys.argv[1])); one.note('data', COMMIT, item(int(sys.argv[2])), 1); print('noted', flush=True)\n"
        "sys.stdin.read()"
    )
    running = []
    for number in (1, 2):
        process = subprocess.Popen(
            [sys.executable, "-c", code, spool, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "noted\n"
        running.append(process)
    files = {path.name for path in (spool / "reads/t1").glob("*/*.json")}
    assert files == {"0.json", "1.json"}
    for process in running:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    noted(log(spool), [3])
    assert {path.name for path in (spool / "reads/t1").glob("*/*.json")} == files
    assert said(spool)["objects"] == 3


def test_a_fork_notes_for_itself(spool):
    one = log(spool)
    noted(one, [1])
    child = os.fork()
    if not child:
        noted(one, [2])
        os._exit(0)
    os.waitpid(child, 0)
    noted(one, [3])
    assert {path.name for path in (spool / "reads/t1").glob("*/*.json")} == {"0.json", "1.json"}
    assert (said(spool)["objects"], said(spool)["reads"]) == (3, 3)


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_workers_of_a_loader_note_to_the_last(spool, how):
    workers = [multiprocessing.get_context(how).Process(target=noted_by, args=(spool, at)) for at in (0, 50)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(240)
        assert worker.exitcode == 0
    assert said(spool) | {"digest": ""} == {"objects": 100, "exact": True, "reads": 100, "digest": ""}


def noted_by(spool, first):
    one = log(spool)
    for number in range(first, first + 50):
        one.note("data", COMMIT, item(number), 10)


def test_a_spool_that_can_not_be_written_stops_nobody(faulty, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    fs = filesystem(cache="", log=str(tmp_path / "file/reads"))
    assert fs.cat_file(A) == faulty.objects["a"]
    assert fs.cat_file(A) == faulty.objects["a"]
    assert capsys.readouterr().err.count("is not noted") == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": "lakemark.reads/1", "reads": 1, "objects": [1]}', b"[" * 10**6, b"{}"]
)
def test_a_log_that_somebody_spoiled(spool, content):
    noted(log(spool), [1, 2])
    (path,) = (spool / "reads/t1").glob("*/*.json")
    (path.parent / "7.json").write_bytes(content)
    os.mkfifo(path.parent / "8.json")
    (path.parent / "9.json").symlink_to("/dev/zero")
    found = said(spool)
    assert (found["objects"], found["exact"]) == (2, False)


def opened(home, **given):
    ref = DataRef(repository="data", branch="main", commit=COMMIT, evidence=Evidence.OPENED)
    return RunFile(run="r", timeline=1, attempt="t1", spool=home / "spool/r", data=(ref,), **given)


def test_a_save_after_reading_says_so(faulty, tmp_path, monkeypatch):
    """From the reader to the record."""
    home = tmp_path / "home"
    spooling = LocalSpool(data_endpoint=faulty.endpoint)
    spooling.write_run_file(home / "runs/r.json", opened(home))
    run = Run.open("r", environ={"LAKEMARK_HOME": str(home)})
    assert run.data[0]["endpoint"] == faulty.endpoint
    monkeypatch.delenv("LAKEFS_ENDPOINT")
    out = tmp_path / "out"
    for step in (1, 2):
        (out / f"step-{step}").mkdir(parents=True)
        (out / f"step-{step}" / "model.bin").write_bytes(secrets.token_bytes(100))
    run.saved(out / "step-1", step=1)
    fs = filesystem(run, cache=str(tmp_path / "cache"))
    assert fs.cat_file(A) == faulty.objects["a"]
    assert len(paths(run, "b", cache=str(tmp_path / "cache"))) == 1
    run.saved(out / "step-2", step=2)
    fs._log.flush()
    first, second = spooling.spooled(home / "spool/r")
    assert [one.data[0].evidence for one in (first, second)] == ["opened", "read"]
    assert "endpoint" not in second.data[0].extra
    assert second.data[0].extra["reads"]["objects"] == 2
    site = make_site(home, None, Clock(datetime.now(UTC)))
    sweep(site)
    open_run(site, Opening(run="r"))
    done = commit(site, Commit(path=second.path, run="r", step=2, spooled=second, found=True))
    kept = site.ledger.run("r").records[done.record.id].record.data[0]
    assert (kept.evidence, kept.commit) == (Evidence.READ, COMMIT)
    assert kept.extra["reads"]["exact"]


def test_what_was_read_is_known_of_a_save_that_nobody_announced(tmp_path):
    spool = tmp_path / "spool"
    references = (DataRef(repository="data", branch="main", commit=COMMIT, evidence=Evidence.DECLARED),)
    spooling = LocalSpool()
    assert spooling.with_reads(spool, "t1", references) == references
    noted(log(spool), [1])
    (read,) = spooling.with_reads(spool, "t1", references)
    assert (read.evidence, read.extra["reads"]["objects"]) == (Evidence.READ, 1)
    doubtful = (replace(references[0], evidence=Evidence.AMBIGUOUS),)
    assert spooling.with_reads(spool, "t1", doubtful) == doubtful


def test_without_a_run_object_the_run_file_says_where_to_note(faulty, tmp_path, monkeypatch):
    LocalSpool().write_run_file(tmp_path / "runs/r.json", opened(tmp_path))
    monkeypatch.setenv("LAKEMARK_RUN_FILE", str(tmp_path / "runs/r.json"))
    fs = filesystem(cache="", skip_instance_cache=True)
    fs.cat_file(A)
    assert summary(tmp_path / "spool/r", "t1", repository="data", commit=COMMIT)["objects"] == 1
    monkeypatch.setenv("LAKEMARK_RUN_FILE", str(tmp_path / "none.json"))
    assert filesystem(cache="", skip_instance_cache=True).cat_file(A) == faulty.objects["a"]


def test_without_a_run_object_the_run_file_says_from_where(faulty, tmp_path, monkeypatch):
    file = tmp_path / "runs/r.json"
    LocalSpool(data_endpoint=faulty.endpoint).write_run_file(file, opened(tmp_path))
    monkeypatch.delenv("LAKEFS_ENDPOINT")
    with pytest.raises(DataError, match="no lakeFS server"):
        filesystem(cache="", skip_instance_cache=True)
    monkeypatch.setenv("LAKEMARK_RUN_FILE", str(file))
    assert filesystem(cache="", skip_instance_cache=True).cat_file(A) == faulty.objects["a"]


def test_paths_need_the_standard_library_alone():
    code = (
        "import sys; before = set(sys.modules); import lakemark.data, lakemark.trainer\n"
        "known = {*sys.stdlib_module_names, 'lakemark', '__mp_main__'}\n"
        "print([n for n in set(sys.modules) - before if n.partition('.')[0] not in known],"
        " [n for n in sys.modules if n.startswith('lakemark.') and n.split('.')[1] not in ('data', 'trainer')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["[]", "[]"]
    assert Path(__file__).exists()


FORKS = """
import os, sys
from lakemark.data.reads import ReadLog
from tests.data.test_reads import item
log = ReadLog(sys.argv[1])
log.note("data", "c" * 64, item(1), 1)
if os.fork() == 0:
    os.write(1, b"child\\n")
    os.read(0, 1)
    os._exit(0)
"""


def test_a_fork_that_reads_nothing_holds_no_slot_of_its_parent(tmp_path):
    command = [sys.executable, "-c", FORKS, tmp_path]
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as parent:
        assert parent.stdout.readline() == b"child\n"
        assert parent.wait() == 0
        # Its child lives on, and waits.
        mine = ReadLog(str(tmp_path))
        mine.note("data", "c" * 64, item(2), 1)
        mine.flush()
        (folder,) = tmp_path.iterdir()
        assert sorted(one.name for one in folder.glob("*.json")) == ["0.json"]
        parent.stdin.write(b"x")
