"""A prologue that every process of a job runs at once, in one directory: one does the work, the others find it done."""

import os
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context

from lakemark.adapters.node.aside import alone
from lakemark.ports import Policies
from lakemark.services.back.resume import resume
from tests.faults.site_on_disk import make_site
from tests.services.on_disk import RUN, hf, now


def prologue(home, barrier, answers):
    site = replace(make_site(home / "site", None, now), simulated_clock=False, policies=Policies(quiet_seconds=0.0))
    barrier.wait()
    try:
        done = resume(site, RUN, to=home / "fresh", job="7")
    except Exception as error:  # noqa: BLE001 - told to the test
        answers.put(repr(error))
    else:
        answers.put(done.path.name)


def test_all_processes_of_a_job_resume_at_once(yard):
    yard.open()
    for step in (10, 20):
        hf(yard.out, step)
        (yard.out / f"checkpoint-{step}" / "big.bin").write_bytes(os.urandom(8 << 20))
    yard.sweep()
    context = get_context("fork")
    for _ in range(3):
        barrier, answers = context.Barrier(5), context.Queue()
        processes = [context.Process(target=prologue, args=(yard.home, barrier, answers)) for _ in range(5)]
        for process in processes:
            process.start()
        assert [answers.get(timeout=240) for _ in processes] == ["checkpoint-20"] * 5
        for process in processes:
            process.join()
        assert sorted(os.listdir(yard.home / "fresh")) == ["checkpoint-20"]
        shutil.rmtree(yard.home / "fresh")


def test_one_at_a_time_and_nothing_is_left(tmp_path):
    inside, most = [], []

    @contextmanager
    def counted():
        with alone(tmp_path / "deep" / "out"):
            inside.append(1)
            most.append(len(inside))
            yield
            inside.pop()

    def often():
        for _ in range(50):
            with counted():
                pass

    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 200
    assert os.listdir(tmp_path / "deep" / "out") == []


def test_what_others_keep_aside_stays(tmp_path):
    (tmp_path / ".lakemark-aside" / "j").mkdir(parents=True)
    with alone(tmp_path):
        pass
    assert os.listdir(tmp_path / ".lakemark-aside") == ["j"]
