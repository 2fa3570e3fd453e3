"""torch.distributed.checkpoint: saving at once, in a thread and in a process, alone and on several ranks."""

import copy
import inspect
import os
import pickle
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from lakemark.trainer.dcp import LakemarkWriter
from tests.frameworks.spool import announced, opened


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def state():
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optim": optimizer.state_dict(), "lr_scheduler": {"last": 3}, "step": 7}


def save(writer, **options):
    with alone():
        dcp.save(state(), storage_writer=writer, **options)


@contextmanager
def alone():
    """torch warns that it saves without a process group, which is what these tests want."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield


@pytest.mark.parametrize("writer", [str, Path, dcp.FileSystemWriter])
def test_a_save_is_announced(tmp_path, writer):
    run = opened(tmp_path / "home")
    save(LakemarkWriter(run, writer(tmp_path / "step-7"), step=7, metrics={"loss": torch.tensor(1.5)}))
    (one,) = announced(run)
    assert 0 < one.saved_seconds < 60
    assert (one.step, one.path, one.metrics) == (7, tmp_path / "step-7", {"loss": 1.5})
    assert one.present == ("optimizer", "scheduler", "weights")
    assert (one.world, one.rank_files) == (None, ())
    assert (one.path / ".metadata").exists()
    loaded = {"step": 0}
    with alone():
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(one.path))
    assert loaded == {"step": 7}


def test_the_folder_may_be_named_at_the_save(tmp_path):
    run = opened(tmp_path / "home")
    writer = LakemarkWriter(run, tmp_path / "x", step=7)
    save(writer, checkpoint_id=tmp_path / "step-7")
    assert [one.path for one in announced(run)] == [tmp_path / "step-7"]
    assert writer.path == tmp_path / "step-7"
    assert writer.fs is writer.writer.fs
    with pytest.raises(AttributeError):
        _ = writer.no_such_thing


@pytest.mark.parametrize("kind", AsyncCheckpointerType)
def test_in_the_background(tmp_path, group, kind):
    run = opened(tmp_path / "home")
    for step in (1, 2):
        writer = LakemarkWriter(run, tmp_path / f"step-{step}", step=step, metrics={"loss": step})
        dcp.async_save(state(), storage_writer=writer, async_checkpointer_type=kind).result(timeout=240)
    found = announced(run)
    assert [(one.step, one.path, one.metrics["loss"]) for one in found] == [
        (step, tmp_path / f"step-{step}", step) for step in (1, 2)
    ]
    assert found[0].present == ("optimizer", "scheduler", "weights")
    (pid,) = {one.file.name.split("-")[1] for one in found}
    assert (pid == str(os.getpid())) == (kind is AsyncCheckpointerType.THREAD)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda writer: pickle.loads(pickle.dumps(writer))])
@pytest.mark.parametrize("stages", [True, False])
def test_copies(tmp_path, copied, stages):
    run = opened(tmp_path / "home")
    inner = dcp.FileSystemWriter(tmp_path / "a") if stages else Plain(tmp_path / "a")
    writer = copied(LakemarkWriter(run, inner, step=7))
    assert isinstance(writer, AsyncStager) == stages
    assert (
        inspect.getattr_static(writer, "stage", None) is not None
    ) == stages  # as isinstance looks from Python 3.12 on
    if stages:
        assert writer.stage.__self__ is writer.writer
    save(writer)
    assert [one.step for one in announced(run)] == [7]


class Plain(dcp.StorageWriter):
    """Another's writer: no stager, and `set_up_storage_writer` as it was in older versions."""

    def __init__(self, path):
        self.inner, self.checkpoint_id = dcp.FileSystemWriter(path), path

    def set_up_storage_writer(self, is_coordinator):
        self.inner.set_up_storage_writer(is_coordinator)

    def reset(self, checkpoint_id=None):
        self.inner.reset(checkpoint_id)

    def prepare_local_plan(self, plan):
        return self.inner.prepare_local_plan(plan)

    def prepare_global_plan(self, plans):
        return self.inner.prepare_global_plan(plans)

    def write_data(self, plan, planner):
        return self.inner.write_data(plan, planner)

    def finish(self, metadata, results):
        self.inner.finish(metadata, results)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


class Full(dcp.FileSystemWriter):
    def finish(self, *_):
        raise OSError("No space left on device")


def test_what_was_not_written_is_not_announced(tmp_path):
    run = opened(tmp_path / "home")
    with pytest.raises(CheckpointException, match="No space"):
        save(LakemarkWriter(run, Full(tmp_path / "a"), step=7))
    assert announced(run) == []


def test_the_loop_never_notices(tmp_path, capsys):
    run = opened(tmp_path / "home")
    (tmp_path / "file").write_text("")
    run._spool = str(tmp_path / "file/spool")
    for step in (1, 2):
        save(LakemarkWriter(run, tmp_path / f"step-{step}", step=step))
    assert (tmp_path / "step-2/.metadata").exists()
    assert capsys.readouterr().err.count("lakemark: ") == 1


def test_an_object_store_is_not_announced(tmp_path, capsys):
    class Remote(dcp.FileSystemWriter):
        checkpoint_id = "s3://bucket/step-7"

    run = opened(tmp_path / "home")
    save(LakemarkWriter(run, Remote(tmp_path / "a"), step=7))
    assert announced(run) == []
    assert "object store" in capsys.readouterr().err


RANKS = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor
from lakemark.trainer.dcp import LakemarkWriter
from tests.frameworks.spool import opened

def main():
    home, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    dist.init_process_group("gloo")
    mesh = DeviceMesh("cpu", [0, 1])
    state = {"model": {"w": distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])}}
    run = opened(home / f"node-{rank}")
    dcp.save(state, storage_writer=LakemarkWriter(run, home / "step-1", step=1))
    dcp.save(state, storage_writer=LakemarkWriter(run, home / "step-2", step=2), use_collectives=False)
    writer = LakemarkWriter(run, home / "step-3", step=3)
    dcp.async_save(state, storage_writer=writer, async_checkpointer_type=AsyncCheckpointerType.PROCESS).result()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


def test_several_ranks(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    root = str(Path(__file__).parents[2])
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, str(tmp_path / "ranks.py"), str(tmp_path), root],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert announced(opened(tmp_path / "node-1")) == []
    found = announced(opened(tmp_path / "node-0"))
    assert [(one.step, one.world) for one in found] == [(1, None), (2, 2), (3, None)]
    assert found[1].rank_files == ("__{rank}.metadata",)
    assert list(found[1].awaited(set(os.listdir(found[1].path)))) == []
    assert list(found[1].awaited(set())) == ["__0.metadata", "__1.metadata"]
