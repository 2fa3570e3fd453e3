"""Whole checkpoints of the libraries that lie around PyTorch, laid out as each of them does, to be damaged by tests."""

import json

from lakemark import formats
from tests.formats.builders import as_json, dcp, safetensors, save, torch_zip

RECOGNISER = formats.recogniser()


def found(root):
    """Path relative to the root -> finding."""
    return {str(one.path.relative_to(root)): one for one in RECOGNISER.find(root)}


def only(root):
    (one,) = RECOGNISER.find(root)
    return one


def verdict(root, name):
    one = found(root)[name]
    return one.framework, one.step, one.verdict.value


def hf_trainer(folder, *, step=None, ranks=1, weights=True, world=None, model_only=False):
    """`checkpoint-<N>` as the Trainer saves it. world: what training_args.bin says; None: nothing."""
    as_json(folder / "config.json", {"model_type": "llama"})
    if weights:
        save(folder / "model.safetensors", safetensors())
    save(folder / "training_args.bin", torch_zip(values={"args": {"num_processes": world} if world else {"lr": 1.5}}))
    if not model_only:
        save(folder / "optimizer.pt", torch_zip(("state", "param_groups")))
        save(folder / "scheduler.pt", torch_zip(("last_epoch",)))
        for rank in range(ranks):
            save(folder / (f"rng_state_{rank}.pth" if ranks > 1 else "rng_state.pth"), torch_zip(("cpu",)))
    as_json(
        folder / "trainer_state.json", {"global_step": int(folder.name.rpartition("-")[2]) if step is None else step}
    )
    return folder


def deepspeed(folder, *, dp=2, mp=1, stage=2, prefix="", told=True, optimizer=True):
    """The files of one tag. told: whether the model's file says how many ranks there are."""
    for rank in range(mp):
        said = {"dp_world_size": dp, "mp_world_size": mp, "ds_config": {"zero_optimization": {"stage": stage}}}
        content = torch_zip(values={"module": {"w": [1.5]}, **(said if told else {})})
        for data in range(dp) if stage == 3 else (None,):
            part = "" if data is None else f"zero_pp_rank_{data}_"
            save(folder / f"{part}mp_rank_{rank:02d}_model_states.pt", content)
        for data in range(dp) if stage and optimizer else ():
            save(
                folder / f"{prefix}zero_pp_rank_{data}_mp_rank_{rank:02d}_optim_states.pt",
                torch_zip(("optimizer_state_dict",)),
            )
    return folder


def accelerate(folder, *, ranks=1, models=1, custom=1):
    for at in range(models):
        tail = f"_{at}" if at else ""
        save(folder / f"model{tail}.safetensors", safetensors())
        save(folder / f"optimizer{tail}.bin", torch_zip(("state", "param_groups")))
        save(folder / f"scheduler{tail}.bin", torch_zip(("last_epoch",)))
    save(folder / "dl_state_dict.bin", torch_zip(("_num_yielded",)))
    for rank in range(ranks):
        save(folder / f"random_states_{rank}.pkl", torch_zip(("step",)))
    for at in range(custom):
        save(folder / f"custom_checkpoint_{at}.pkl", torch_zip(("mine",)))
    return folder


def megatron(folder, *, ranks=2, common=True, config=True, fqns=("model.w", "optimizer.state.exp_avg.w")):
    """Of the format torch_dist; without the common part and the config of torch_dcp."""
    dcp(folder, ranks=ranks, fqns=fqns)
    if common:
        save(folder / "common.pt", torch_zip(("args", "opt_param_scheduler", "iteration")))
    if config:
        as_json(folder / "metadata.json", {"sharded_backend": "torch_dist", "sharded_backend_version": 1})
    return folder


def megatron_legacy(folder, *, names=("mp_rank_00", "mp_rank_01"), split=None, optimizer=True):
    """split: the sizes that the arguments in the files say; None: nothing."""
    sizes = {f"{kind}_model_parallel_size": size for kind, size in (split or {}).items()}
    for name in names:
        save(folder / name / "model_optim_rng.pt", torch_zip(values={"model": {"w": [1.5]}, "args": sizes}))
        if optimizer:
            save(folder / name / "distrib_optim.pt", torch_zip(("0",)))
    return folder


def index_of(folder, shards, name="model.safetensors.index.json"):
    return save(
        folder / name, json.dumps({"metadata": {}, "weight_map": {f"w{at}": shard for at, shard in enumerate(shards)}})
    )
