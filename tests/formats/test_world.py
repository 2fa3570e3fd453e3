"""What a checkpoint needs of the number of processes that go on from it."""

import pytest

from lakemark.formats.find.world import of_world


def zero(data, model=1, prefix=""):
    return [f"{prefix}zero_pp_rank_{d}_mp_rank_{m:02d}_optim_states.pt" for d in range(data) for m in range(model)]


def rng(count, name="rng_state_{}.pth"):
    return [name.format(rank) for rank in range(count)]


SAID = [
    ("deepspeed", zero(2), 4, ["saved by 2 data ranks: DeepSpeed"]),
    ("deepspeed", zero(2), 2, []),
    ("deepspeed", zero(2, 2, "bf16_"), 2, ["saved by 2 data ranks of 2 model ranks each: DeepSpeed"]),
    ("deepspeed", zero(2, 2), 4, []),
    ("deepspeed", [*zero(2), "zero/w/fp32.pt"], 4, []),
    ("deepspeed", ["mp_rank_00_model_states.pt"], 4, []),
    ("hf-trainer", rng(2), 8, ["rng for 2 of 8: "]),
    ("hf-trainer", rng(8), 2, ["rng for 8 ranks: 2 of them"]),
    ("hf-trainer", ["model.safetensors", "rng_state.pth"], 8, ["rng for 1 of 8: "]),
    ("hf-trainer", ["rng_state.pth"], 1, []),
    ("hf-trainer", [*rng(2), *(f"global_step5/{name}" for name in zero(2))], 8, ["saved by 2 data ranks", "rng for 2 of 8"]),
    ("accelerate", rng(2, "random_states_{}.pkl"), 4, ["rng for 2 of 4: "]),
    ("bytecheckpoint", rng(2, "extra_state/extra_state_rank_{}.pt"), 4, ["rng and dataloader for 2 of 4"]),
    ("olmo-core", rng(2, "train/rank{}.pt"), 4, ["rng and dataloader for 2 of 4"]),
    ("megatron-legacy", ["mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"], 3, ["saved by 2 model-parallel"]),
    ("megatron-legacy", ["mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"], 4, []),
    ("megatron-dist", ["__0_0.distcp", "__1_0.distcp", "common.pt"], 7, []),
    ("dcp", ["__0_0.distcp", ".metadata"], 7, []),
    ("nvrx-local", ["0/iter_0000005_0_local.pt", "1/iter_0000005_1_local.pt"], 4, ["saved by 2 ranks: each"]),
    ("torch_checkpointing", ["model_0.pt", "model_1.pt", "optimizer_0.pt", "optimizer_1.pt"], 4, ["saved by 2 ranks: each"]),
    ("composer", ["ep0-ba1-rank0.pt", "ep0-ba1-rank1.pt"], 1, ["saved by 2 ranks: each"]),
    ("generic", ["actor/model_world_size_2_rank_0.pt", "actor/model_world_size_2_rank_1.pt"], 4, ["saved by 2 ranks: it"]),
    ("generic", ["model.pt", "optim.pt"], 4, []),
    ("lightning", ["epoch=0-step=8.ckpt"], 4, []),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "paths", "world", "said"), SAID)
def test_what_it_needs(framework, paths, world, said):
    found = list(of_world(paths, framework, world))
    assert len(found) == len(said), found
    assert all(one.startswith(begins) for one, begins in zip(found, said, strict=True)), found
