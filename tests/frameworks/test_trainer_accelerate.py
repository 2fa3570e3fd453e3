"""accelerate's save_state, through ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

from lakemark.trainer.accelerate import save_state
from tests.frameworks.spool import announced, opened


def prepared(folder, **project):
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=str(folder), **project))
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.utils.data.DataLoader(torch.ones(8, 4))
    accelerator.prepare(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1), rows)
    return accelerator


def test_a_named_folder(tmp_path):
    run = opened(tmp_path / "home")
    saved = save_state(prepared(tmp_path), run, tmp_path / "out/step-5", step=5, metrics={"loss": torch.tensor(2.0)})
    assert Path(saved) == tmp_path / "out/step-5"
    (one,) = announced(run)
    assert 0 < one.saved_seconds < 60
    assert (one.step, one.path, one.metrics, one.world) == (5, tmp_path / "out/step-5", {"loss": 2.0}, None)
    assert one.roles == {
        "model.safetensors": "weights",
        "optimizer.bin": "optimizer",
        "scheduler.bin": "scheduler",
        "random_states_0.pkl": "rng",
    } | {name: "dataloader" for name in os.listdir(one.path) if name.startswith(("sampler", "dl_state"))}


def test_a_folder_it_names_itself(tmp_path):
    run = opened(tmp_path / "home")
    accelerator = prepared(tmp_path, automatic_checkpoint_naming=True, total_limit=2)
    for step in (10, 20, 30):
        save_state(accelerator, run, step=step)
    assert [(one.step, one.path.name) for one in announced(run)] == [
        (10, "checkpoint_0"), (20, "checkpoint_1"), (30, "checkpoint_2"),
    ]  # fmt: skip


def test_options_reach_accelerate(tmp_path):
    run = opened(tmp_path / "home")
    save_state(prepared(tmp_path), run, tmp_path / "a", step=1, safe_serialization=False)
    assert announced(run)[0].roles["pytorch_model.bin"] == "weights"


def test_what_was_not_written_is_not_announced(tmp_path):
    run = opened(tmp_path / "home")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        save_state(prepared(tmp_path), run, tmp_path / "file/a", step=1)
    assert announced(run) == []


def test_the_loop_never_notices(tmp_path, capsys):
    run = opened(tmp_path / "home")
    (tmp_path / "file").write_text("")
    run._spool = str(tmp_path / "file/spool")
    accelerator = prepared(tmp_path)
    for step in (1, 2):
        save_state(accelerator, run, tmp_path / f"{step}", step=step)
    assert (tmp_path / "2/random_states_0.pkl").exists()
    assert capsys.readouterr().err.count("lakemark: ") == 1


RANKS = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from lakemark.trainer.accelerate import save_state
from tests.frameworks.spool import opened
from tests.frameworks.test_trainer_accelerate import prepared
home = Path(sys.argv[1])
run = opened(home / f"node-{os.environ['RANK']}")
accelerator = prepared(home)
save_state(accelerator, run, home / "out/step-5", step=5)
accelerator.end_training()
"""


def test_several_ranks(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    root = str(Path(__file__).parents[2])
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, str(tmp_path / "ranks.py"), str(tmp_path), root],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "ACCELERATE_USE_CPU": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert announced(opened(tmp_path / "node-1")) == []
    (one,) = announced(opened(tmp_path / "node-0"))
    assert (one.step, one.world, one.rank_files) == (5, 2, ("random_states_{rank}.pkl",))
    assert list(one.awaited(set(os.listdir(one.path)))) == []
    assert list(one.awaited({"random_states_0.pkl"})) == ["random_states_1.pkl"]
