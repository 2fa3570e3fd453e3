"""What a trainer announces late, or of files that are gone: in the record, in `sweep`, in `status`."""

import os
import shutil
import time

import pytest

from lakemark.trainer import Run


@pytest.fixture
def trainer(cli):
    cli.ok("run", "open", "r1", "--watch", "out")
    return Run.open("r1", environ={"LAKEMARK_HOME": str(cli.home)})


def old(path):
    """Written a minute ago, so that nothing is waited for until it is quiet."""
    then = time.time() - 60
    for one in (*path.rglob("*"), path):
        os.utime(one, (then, then))
    return path


def test_a_metric_that_comes_after_the_pass_and_after_the_files(cli, trainer):
    path = old(cli.save(100))
    assert [one["step"] for one in cli.ok("sweep")["committed"]] == [100]
    trainer.saved(path, step=100, metrics={"val_loss": 1.5})
    shutil.rmtree(path)
    cli.save(50)
    cli.ok("sweep")
    shown = cli.ok("show", "r1@100")
    assert (shown["metrics"], shown["instant_by"]) == ({"val_loss": 1.5}, "told")
    assert cli.ok("show", "r1@best:val_loss")["step"] == 100
    assert [entry["kind"] for entry in cli.ok("log", "r1")["entries"]].count("metric_added") == 1


def test_commit_of_what_is_a_record_answers_the_metrics_that_it_adds(cli, trainer):
    path = cli.save(100)
    first = cli.ok("commit", path, "--run", "r1", "--step", 100)
    again = cli.ok("commit", path, "--run", "r1", "--step", 100, "--metric", "val_loss=1.5")
    assert (again["record"], again["metrics"]) == (first["record"], {"val_loss": 1.5})
    assert cli.ok("show", "r1@100")["metrics"] == {"val_loss": 1.5}
    trainer.saved(path, step=100, metrics={"val_loss": 2.0, "acc": 0.5})
    done = cli("commit", path, "--run", "r1", "--step", 100)
    assert "val_loss stays 1.5, and not 2 as it was announced later" in done.err
    assert cli.ok("show", "r1@100")["metrics"] == {"val_loss": 1.5, "acc": 0.5}


def test_a_save_that_is_gone_is_named_once_and_amber_until_the_next(cli, trainer):
    trainer.saved(cli.save(100), step=100)
    cli.ok("sweep")
    path = cli.save(200)
    trainer.saved(path, step=200)
    shutil.rmtree(path)
    said = [{"path": str(path), "why": "step 200 was gone before it was committed"}]
    assert cli.ok("sweep")["incomplete"] == said

    def ambers():
        return [one["what"] for one in cli("status", "--json").json["problems"] if "kept nowhere" in one["what"]]

    assert cli.ok("sweep")["incomplete"] == []
    assert [("r1" in what, "step 200" in what) for what in ambers()] == [(True, True)]
    trainer.saved(cli.save(300), step=300)
    cli.ok("sweep")
    assert ambers() == []
