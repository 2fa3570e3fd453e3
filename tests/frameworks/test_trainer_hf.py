"""The Trainer of transformers, unchanged, with our callback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from lakemark.trainer.hf import LakemarkCallback, resume_from
from tests.frameworks.spool import announced, opened, resumable

ROWS = [{"input_ids": [1, 2, 3, n % 30], "labels": [1, 2, 3, n % 30]} for n in range(16)]


def trainer(out, *callbacks, **args):
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(n_layer=1, n_head=1, n_embd=16, n_positions=8, vocab_size=32, bos_token_id=0, eos_token_id=0)
    )
    wanted = {"max_steps": 6, "save_steps": 2, "logging_steps": 1, "report_to": "none", "disable_tqdm": True}
    given = TrainingArguments(str(out), use_cpu=True, per_device_train_batch_size=2, **(wanted | args))
    return Trainer(model, given, train_dataset=ROWS, eval_dataset=ROWS[:4], callbacks=list(callbacks))


def test_each_save_is_announced_with_what_was_logged_and_what_is_in_it(tmp_path):
    run = opened(tmp_path / "home")
    out = tmp_path / "out"
    trainer(out, LakemarkCallback(run), max_steps=8, eval_strategy="steps", eval_steps=4).train()
    found = announced(run)
    assert [(one.step, one.path) for one in found] == [(step, out / f"checkpoint-{step}") for step in (2, 4, 6, 8)]
    assert all(one.metrics["loss"] > 0 and one.metrics["learning_rate"] > 0 for one in found)
    assert ["eval_loss" in one.metrics for one in found] == [False, True, False, True]
    assert not {"step", "epoch"} & found[0].metrics.keys()
    assert found[0].roles == {
        "config.json": "config",
        "model.safetensors": "weights",
        "optimizer.pt": "optimizer",
        "rng_state.pth": "rng",
        "scheduler.pt": "scheduler",
    }
    assert [one.world for one in found] == [None] * 4
    assert [one.timeline for one in found] == [None] * 4
    assert all(0 < one.saved_seconds < 60 for one in found)


def test_it_goes_on_where_the_run_file_says(tmp_path, capsys):
    out = tmp_path / "out"
    first = opened(tmp_path / "home")
    assert resume_from(first) is None
    trainer(out, LakemarkCallback(first), max_steps=4).train(resume_from_checkpoint=resume_from(first))
    again = opened(tmp_path / "again", resume=resumable(out / "checkpoint-2", step=2))
    seen = []

    class Steps(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            seen.append(state.global_step)

    trainer(out, LakemarkCallback(again), Steps()).train(resume_from_checkpoint=resume_from(again))
    assert seen == [2, 3, 4, 5]
    assert [(one.step, one.timeline) for one in announced(again)] == [(4, 2), (6, 2)]
    assert "lakemark" not in capsys.readouterr().err


def test_only_weights(tmp_path):
    run = opened(tmp_path / "home")
    trainer(tmp_path / "out", LakemarkCallback(run), max_steps=2, save_only_model=True).train()
    (one,) = announced(run)
    assert set(one.roles.values()) == {"config", "weights"}


def test_a_save_without_anything_logged(tmp_path):
    run = opened(tmp_path / "home")
    trainer(tmp_path / "out", LakemarkCallback(run), logging_steps=100).train()
    assert [dict(one.metrics) for one in announced(run)] == [{}, {}, {}]


@pytest.mark.parametrize("spool", ["a file", "gone with all above it"])
def test_the_loop_never_notices(tmp_path, capsys, spool):
    run = opened(tmp_path / "home")
    (tmp_path / "home/runs/r.json").unlink()
    run._spool = str(tmp_path / "file" / "spool") if spool == "a file" else "/proc/none/spool"
    (tmp_path / "file").write_text("")
    assert trainer(tmp_path / "out", LakemarkCallback(run)).train().global_step == 6
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lakemark: ")]
    assert len(said) == 1
    assert "step 2 was not announced" in said[0]


RANK = """
import os, sys
from pathlib import Path
import torch.distributed as dist
sys.path[:0] = sys.argv[2:]
from lakemark.trainer.hf import LakemarkCallback
from tests.frameworks.test_trainer_hf import trainer
from tests.frameworks.spool import opened
home = Path(sys.argv[1])
rank = int(os.environ["RANK"])
run = opened(home / f"node-{rank}")
trainer(home / "out", LakemarkCallback(run), max_steps=4).train()
dist.destroy_process_group()
"""


def test_several_ranks(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    root = str(Path(__file__).parents[2])
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*launch, str(tmp_path / "rank.py"), str(tmp_path), root],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert announced(opened(tmp_path / "node-1")) == []
    found = announced(opened(tmp_path / "node-0"))
    assert [(one.step, one.world, one.rank_files) for one in found] == [
        (step, 2, ("rng_state_{rank}.pth",)) for step in (2, 4)
    ]
    names = set(os.listdir(found[0].path))
    assert list(found[0].awaited(names)) == []
    assert list(found[0].awaited(names - {"rng_state_1.pth"})) == ["rng_state_1.pth"]
