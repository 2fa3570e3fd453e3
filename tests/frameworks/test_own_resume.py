"""What frameworks load by themselves, by their own latest, is what `resume` named: cut off, rolled back, on a new node."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

os.environ |= {
    "KERAS_BACKEND": "jax", "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip

import torch

from lakemark.ports import Approval
from lakemark.services.back.resume import resume
from tests.services.on_disk import RUN, Yard

# Of the frameworks themselves, in how they call each other.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed:UserWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras"),
]
STEPS = (2, 4, 6)
ROWS = [{"x": torch.full((4,), float(n)), "labels": torch.tensor(float(n))} for n in range(8)]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.layer(x).squeeze(1), labels)}


# Each family: `train` saves the steps of STEPS in a folder, `loads` answers the step that the framework's own way goes on from.


class HuggingFace:
    def trainer(self, out, *callbacks, **args):
        from transformers import Trainer, TrainingArguments

        wanted = {"max_steps": 6, "save_steps": 2, "report_to": "none", "disable_tqdm": True, "use_cpu": True}
        given = TrainingArguments(str(out), per_device_train_batch_size=2, **(wanted | args))
        return Trainer(Net(), given, train_dataset=ROWS, callbacks=list(callbacks))

    def train(self, out, saved):
        from transformers import TrainerCallback

        class Told(TrainerCallback):
            def on_save(self, args, state, control, **_):
                saved()

        self.trainer(out, Told()).train()

    def loads(self, out):
        from transformers import TrainerCallback

        seen = []

        class Begins(TrainerCallback):
            def on_step_begin(self, args, state, control, **_):
                seen.append(state.global_step)

        self.trainer(out, Begins(), max_steps=12, save_strategy="no").train(resume_from_checkpoint=True)
        return seen[0]


class Lightning:
    def fit(self, out, *callbacks, ckpt_path=None, max_steps=6):
        import lightning
        from lightning.pytorch.callbacks import ModelCheckpoint

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = Net()

            def training_step(self, batch):
                return self.net(**batch)["loss"]

            def configure_optimizers(self):
                optimizer = torch.optim.Adam(self.parameters())
                return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]

        kept = ModelCheckpoint(
            dirpath=out,
            filename="{step}",
            every_n_train_steps=2,
            save_top_k=-1,
            save_last=True,
            enable_version_counter=False,
        )
        trainer = lightning.Trainer(
            accelerator="cpu", devices=1, max_steps=max_steps, default_root_dir=out.parent / "lightning", logger=False,
            callbacks=[kept, *callbacks], enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        loader = torch.utils.data.DataLoader(ROWS, batch_size=2)
        trainer.fit(Module(), loader, ckpt_path=ckpt_path, weights_only=False)

    def train(self, out, saved):
        from lightning.pytorch.callbacks import Callback

        class Told(Callback):
            def on_train_batch_end(self, trainer, *_):
                if trainer.global_step in STEPS:
                    saved()

        self.fit(out, Told())

    def loads(self, out):
        from lightning.pytorch.callbacks import Callback

        seen = []

        class Begins(Callback):
            def on_train_start(self, trainer, _):
                seen.append(trainer.global_step)
                trainer.should_stop = True
                trainer.fit_loop.epoch_loop.max_steps = trainer.global_step

        self.fit(out, Begins(), ckpt_path="last", max_steps=100)
        return seen[0]


class Accelerate:
    """Counts its saves, from 0: the loop keeps its own step."""

    step_of = staticmethod(lambda number: 2 * (number + 1))

    def made(self, out):
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
        from accelerate.utils import ProjectConfiguration

        AcceleratorState._reset_state(reset_partial_state=True)

        class Progress:
            step = 0

            def state_dict(self):
                return {"step": self.step}

            def load_state_dict(self, state):
                self.step = state["step"]

        where = ProjectConfiguration(project_dir=str(out), automatic_checkpoint_naming=True)
        accelerator, net, progress = Accelerator(cpu=True, project_config=where), Net(), Progress()
        optimizer = torch.optim.Adam(net.parameters())
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        accelerator.prepare(net, optimizer, schedule)
        accelerator.register_for_checkpointing(progress)
        return accelerator, progress

    def train(self, out, saved):
        accelerator, progress = self.made(out)
        for progress.step in STEPS:
            accelerator.save_state()
            saved()

    def loads(self, out):
        accelerator, progress = self.made(out)
        accelerator.load_state()
        return progress.step


DEEPSPEED = """
import sys
import deepspeed
import torch
import torch.distributed as dist

out, how = sys.argv[1:]
# Its shared memory between ranks has to be compiled first, and is of no use to one.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
dist.init_process_group("gloo", init_method=f"file://{out}.meeting-{how}", rank=0, world_size=1)
config = {
    "train_batch_size": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
    "zero_optimization": {"stage": 1},
}
engine, *_ = deepspeed.initialize(model=torch.nn.Linear(4, 1), config=config)
if how == "load":
    engine.load_checkpoint(out)
    print("step", engine.global_steps)
else:
    for number in range(1, 7):
        engine.backward(engine(torch.ones(2, 4)).square().mean())
        engine.step()
        if number % 2 == 0:
            engine.save_checkpoint(out, client_state={"rng": torch.get_rng_state()})
dist.destroy_process_group()
"""


class DeepSpeed:
    """In processes of its own: it keeps hold of the process group that it saw first, and other tests make theirs."""

    def run(self, out, how):
        command = [sys.executable, "-c", DEEPSPEED, str(out), how]
        done = subprocess.run(
            command, env=os.environ | {"LOCAL_RANK": "0"}, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def train(self, out, saved):
        self.run(out, "train")
        saved()

    def loads(self, out):
        (line,) = [line for line in self.run(out, "load").splitlines() if line.startswith("step ")]
        return int(line.removeprefix("step "))


class Orbax:
    def manager(self, out):
        import orbax.checkpoint as ocp

        return ocp.CheckpointManager(out.absolute())

    def train(self, out, saved):
        import orbax.checkpoint as ocp

        with self.manager(out) as manager:
            for step in STEPS:
                tree = {"params": {"w": np.full(4, step)}, "opt_state": {"count": np.array(step)}}
                manager.save(step, args=ocp.args.StandardSave(tree))
                manager.wait_until_finished()
                saved()

    def loads(self, out):
        with self.manager(out) as manager:
            step = manager.latest_step()
            assert int(manager.restore(step)["opt_state"]["count"]) == step
            return step


class Keras:
    """One file that is written over each time, and says the epoch, of two steps: what is older is lakemark's own copy."""

    step_of = staticmethod(lambda epoch: 2 * epoch)

    def fit(self, out, *callbacks, epochs):
        import keras

        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        kept = keras.callbacks.BackupAndRestore(str(out), delete_checkpoint=False)
        x, y = np.ones((8, 4), np.float32), np.ones(8, np.float32)
        model.fit(x, y, batch_size=4, epochs=epochs, callbacks=[kept, *callbacks], verbose=0)
        return model

    def train(self, out, saved):
        import keras

        class Told(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                saved()

        self.fit(out, Told(), epochs=3)

    def loads(self, out):
        import keras

        seen = []

        class Begins(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                seen.append(int(self.model.optimizer.iterations))

        self.fit(out, Begins(), epochs=5)
        return seen[0]


@dataclass
class Stage:
    yard: Yard
    family: object

    def site(self):
        site = self.yard.site()
        return replace(site, policies=replace(site.policies, approval=Approval(required=False)))

    def saved(self):
        self.yard.sweep()

    def resume(self, to, record=None):
        without = ("optimizer", "scheduler", "rng", "dataloader")
        done = resume(self.site(), RUN, to=to, record=record, job=os.urandom(4).hex(), without=without)
        number = done.found.record.step
        return getattr(self.family, "step_of", int)(number)

    def older(self):
        steps = self.yard.steps()
        assert len(steps) == len(STEPS)
        return self.yard.at(steps[1]).record.id


FAMILIES = {one.__name__: one for one in (HuggingFace, Lightning, Accelerate, DeepSpeed, Orbax, Keras)}


@pytest.fixture(params=FAMILIES)
def stage(request, tmp_path):
    yard = Yard(tmp_path)
    yard.open()
    made = Stage(yard, FAMILIES[request.param]())
    made.family.train(yard.out, made.saved)
    yard.sweep()
    return made


def test_on_an_empty_directory(stage):
    there = stage.yard.home / "new" / "out"
    there.mkdir(parents=True)
    named = stage.resume(there)
    assert named == 6
    assert stage.family.loads(there) == named


def test_older_on_an_empty_directory(stage):
    there = stage.yard.home / "new" / "out"
    there.mkdir(parents=True)
    named = stage.resume(there, stage.older())
    assert named == 4
    assert stage.family.loads(there) == named


def test_rolled_back_in_place(stage):
    named = stage.resume(stage.yard.out, stage.older())
    assert named == 4
    assert stage.family.loads(stage.yard.out) == named


def test_killed_in_the_save(stage):
    """Its newest save has lost its last file, or the end of its only one, before a pass could see it."""
    newest = stage.yard.at(stage.yard.steps()[-1]).record
    manifest = stage.yard.manifest(newest.step)
    stage.yard.home.joinpath("cut").mkdir()
    cut = stage.yard.home / "cut" / "out"
    shutil.copytree(stage.yard.out, cut, symlinks=True)
    largest = max(manifest.regular, key=lambda file: file.size_bytes)
    [file] = [path for path in cut.rglob(os.path.basename(largest.path)) if path.stat().st_size == largest.size_bytes][
        -1:
    ]
    os.truncate(file, largest.size_bytes // 2)
    shutil.rmtree(stage.yard.out)
    cut.rename(stage.yard.out)
    named = stage.resume(stage.yard.out)
    assert named == 6, "its record is whole, whatever lies there"
    assert stage.family.loads(stage.yard.out) == named
