"""Which pointers a framework has, and what they must say: decided from what lies beside a checkpoint."""

from pathlib import Path

import pytest

from lakemark.formats.pointers.decide import decide
from lakemark.formats.pointers.rule import Kind, Neighbour
from lakemark.formats.readers import tf_state
from lakemark.ports import Placed, PointerKind

ROOT = Path("/out")
ASIDE = ROOT / ".lakemark-aside" / "7"
FILE, LINK, FOLDER = (Neighbour(kind=kind) for kind in (Kind.FILE, Kind.LINK, Kind.FOLDER))
GONE_LINK = Neighbour(kind=Kind.LINK, aside=True)


def placed(framework, path, *members):
    return Placed(
        path=ROOT / path,
        framework=framework,
        root=ROOT,
        aside=ASIDE,
        members=tuple((ROOT / path).with_name(name) for name in members),
    )


def said(framework, path, beside=None, *members, folder=None):
    """Path below the root -> (kind, content with the root left out)."""
    one = placed(framework, path, *members)
    found = decide(one, {ROOT / folder if folder is not None else one.path.parent: beside or {}})
    assert all(pointer.why for pointer in found)
    return {
        str(pointer.path.relative_to(ROOT)): (pointer.kind.value, pointer.content.removeprefix("/out/"))
        for pointer in found
    }


@pytest.mark.parametrize(
    ("framework", "path"),
    [
        ("hf-trainer", "checkpoint-5"),
        ("dcp", "step-5"),
        ("orbax", "5"),
        ("generic", "step-5"),
        ("nvrx", "x"),
        ("", "x"),
    ],
)
def test_a_framework_without_a_pointer_has_none(framework, path):
    assert said(framework, path, {"latest": FILE, "last.ckpt": FILE, "checkpoint": FILE}) == {}


def test_deepspeed_s_tag_has_no_newline_and_is_made_where_there_was_none():
    assert said("deepspeed", "a/global_step5") == {"a/latest": ("text", "global_step5")}
    assert said("deepspeed", "step=5", {"latest": FILE}) == {"latest": ("text", "step=5")}


def test_deepspeed_s_universal_checkpoint_is_named_only_where_it_is_there():
    here = {"latest_universal": FILE, "global_step5_universal": FOLDER}
    assert said("deepspeed", "global_step5", here)["latest_universal"] == ("text", "global_step5_universal")
    assert said("deepspeed", "global_step5", {"latest_universal": FILE})["latest_universal"] == ("gone", "")
    moved = {"latest_universal": FILE, "global_step5_universal": Neighbour(kind=Kind.FOLDER, aside=True)}
    assert said("deepspeed", "global_step5", moved)["latest_universal"] == ("gone", "")


@pytest.mark.parametrize("framework", ["megatron-dist", "megatron-legacy"])
@pytest.mark.parametrize(
    ("name", "text"), [("iter_0000500", "500"), ("iter_12345678", "12345678"), ("release", "release")]
)
def test_megatron_s_tracker_says_digits_or_release(framework, name, text):
    assert said(framework, name) == {"latest_checkpointed_iteration.txt": ("text", text)}


def test_megatron_s_tracker_is_left_alone_for_any_other_name():
    assert said("megatron-dist", "mine") == {}


@pytest.mark.parametrize("depth", ["", "a/", "a/b/"])
def test_lightning_s_last_is_what_it_was_wherever_it_was(depth):
    path = f"{depth}epoch=0-step=8.ckpt"
    assert said("lightning", path, {"last.ckpt": LINK}) == {f"{depth}last.ckpt": ("symlink", "epoch=0-step=8.ckpt")}
    assert said("lightning", path, {"last.ckpt": FILE}) == {f"{depth}last.ckpt": ("copy", path)}
    assert said("lightning", path, {"last.ckpt": GONE_LINK}) == {
        f"{depth}last.ckpt": ("symlink", "epoch=0-step=8.ckpt")
    }
    assert said("lightning", path, {"epoch=1-step=16.ckpt": FILE}) == {}


def test_lightning_s_last_is_made_where_nothing_was():
    """Whether its trainer asks for `ckpt_path="last"` nobody knows; without one it would start anew."""
    expected = {"a/last.ckpt": ("symlink", "epoch=0-step=8.ckpt")}
    assert said("lightning", "a/epoch=0-step=8.ckpt", {}) == expected
    assert (
        said("lightning", "a/epoch=0-step=8.ckpt", {".lakemark-aside": FOLDER, "epoch=0-step=8.ckpt": FILE}) == expected
    )
    assert said("lightning", "m-step=5-last.ckpt", {}) == {}


def test_lightning_s_last_may_lie_above_a_metric_s_folder():
    beside = {"last.ckpt": LINK}
    expected = {"ck/last.ckpt": ("symlink", "epoch=0-val/loss=1.41.ckpt")}
    assert said("lightning", "ck/epoch=0-val/loss=1.41.ckpt", beside, folder="ck") == expected


def test_of_several_lasts_lightning_finds_one():
    here = {"last.ckpt": FILE, "last-v1.ckpt": FILE, "last-v2.ckpt": Neighbour(kind=Kind.FILE, aside=True)}
    assert said("lightning", "a.ckpt", here) == {"last.ckpt": ("copy", "a.ckpt"), "last-v1.ckpt": ("gone", "")}
    assert said("lightning", "last.ckpt", here) == {}


def test_nemo_has_exactly_one_last_and_no_mark_that_it_is_unfinished():
    here = {"m-step=9-last": LINK, "m-step=5-unfinished": FILE, "m-step=9-unfinished": FILE}
    assert said("nemo2", "ck/m-step=5", here) == {
        "ck/m-step=5-last": ("symlink", "m-step=5"),
        "ck/m-step=9-last": ("gone", ""),
        "ck/m-step=5-unfinished": ("gone", ""),
    }
    assert said("nemo2", "m-step=5") == {"m-step=5-last": ("symlink", "m-step=5")}
    assert said("nemo2", "m-step=5-last", {"m-step=9-last": FOLDER}) == {"m-step=9-last": ("gone", "")}
    assert said("nemo2", "m-step=5", {"m-step=5-last": FOLDER}) == {"m-step=5-last": ("copy", "m-step=5")}


def test_nemo_1_s_last_is_a_file():
    here = {"m-step=9-last.ckpt": FILE}
    assert said("lightning", "m-step=5.ckpt", here) == {
        "m-step=5-last.ckpt": ("copy", "m-step=5.ckpt"),
        "m-step=9-last.ckpt": ("gone", ""),
    }


def test_composer_s_link_of_a_user_s_name():
    assert said("composer", "ba8.pt", {"latest.pt": LINK}) == {"latest.pt": ("symlink", "ba8.pt")}


def test_metaseq_s_last_has_the_same_parts():
    names = [f"checkpoint_4000-model_part-{part}-shard0.pt" for part in range(2)]
    assert said("fairseq", names[0], {}, *names) == {
        f"checkpoint_last-model_part-{part}-shard0.pt": ("copy", names[part]) for part in range(2)
    }


def test_composer_s_links_are_by_rank():
    assert said("composer", "ep0-ba1-rank0.pt") == {"latest-rank0.pt": ("symlink", "ep0-ba1-rank0.pt")}
    both = said("composer", "ep0-ba1", {}, "ep0-ba1-rank0.pt", "ep0-ba1-rank1.pt")
    assert both == {f"latest-rank{rank}.pt": ("symlink", f"ep0-ba1-rank{rank}.pt") for rank in (0, 1)}
    here = {"latest-rank0.pt": LINK, "latest-rank3.pt": GONE_LINK}
    assert said("composer-fsdp", "ck/ep0-ba1", here) == {
        f"ck/latest-rank{rank}.pt": ("symlink", "ep0-ba1") for rank in (0, 3)
    }
    remote = {"latest-rank0.pt.symlink": Neighbour(kind=Kind.FILE, text="run/ck/ep0-ba2-rank0.pt\n")}
    told = said("composer", "ep0-ba1-rank0.pt", remote)
    assert told["latest-rank0.pt.symlink"] == ("text", "run/ck/ep0-ba1-rank0.pt")


def test_fairseq_s_last_is_a_copy_for_each_shard():
    assert said("fairseq", "checkpoint_1_5.pt") == {"checkpoint_last.pt": ("copy", "checkpoint_1_5.pt")}
    shards = [f"checkpoint_1_5-shard{rank}.pt" for rank in (0, 1)]
    assert said("fairseq", "checkpoint_1_5.pt", {}, *shards) == {
        f"checkpoint_last-shard{rank}.pt": ("copy", f"checkpoint_1_5-shard{rank}.pt") for rank in (0, 1)
    }
    assert said("fairseq", "checkpoint_last.pt") == {}


STATE = """model_checkpoint_path: "ckpt-100"
all_model_checkpoint_paths: "ckpt-50"
all_model_checkpoint_paths: "ckpt-75"
all_model_checkpoint_paths: "ckpt-100"
all_model_checkpoint_timestamps: 1.5
all_model_checkpoint_timestamps: 2.5
all_model_checkpoint_timestamps: 3.5
last_preserved_timestamp: 0.5
"""


def test_tensorflow_s_state_lists_only_what_is_there_and_not_later():
    text = tf_state.repaired(STATE, ROOT / "ckpt-75", {"ckpt-50", "ckpt-75"})
    assert text.splitlines() == [
        'model_checkpoint_path: "ckpt-75"',
        'all_model_checkpoint_paths: "ckpt-50"',
        'all_model_checkpoint_paths: "ckpt-75"',
        "all_model_checkpoint_timestamps: 1.5",
        "all_model_checkpoint_timestamps: 2.5",
        "last_preserved_timestamp: 0.5",
    ]
    rotated = tf_state.repaired(STATE, ROOT / "ckpt-75", {"ckpt-75"})
    assert "ckpt-50" not in rotated
    assert rotated.count("timestamps:") == 1
    assert tf_state.repaired(text, ROOT / "ckpt-75", {"ckpt-50", "ckpt-75"}) == text


def test_tensorflow_s_state_is_made_anew_where_there_is_none_or_another_one():
    made = 'model_checkpoint_path: "ckpt-5"\nall_model_checkpoint_paths: "ckpt-5"\n'
    for old in ("", "\x00\x01", "model_checkpoint_path:"):
        assert tf_state.repaired(old, ROOT / "ckpt-5", {"ckpt-5"}) == made
    foreign = tf_state.repaired(STATE, ROOT / "ckpt-5", {"ckpt-5", "ckpt-50"})
    assert "timestamps:" not in foreign
    assert foreign.startswith('model_checkpoint_path: "ckpt-5"\nall_model_checkpoint_paths: "ckpt-50"\n')


def test_tensorflow_s_paths_stay_absolute_only_where_they_are_right():
    here = STATE.replace('"ckpt', '"/out/ckpt')
    assert 'path: "/out/ckpt-50"' in tf_state.repaired(here, ROOT / "ckpt-50", {"ckpt-50"})
    elsewhere = STATE.replace('"ckpt', '"/other/ckpt')
    assert 'path: "ckpt-50"' in tf_state.repaired(elsewhere, ROOT / "ckpt-50", {"ckpt-50"})


def test_tensorflow_s_quoting_goes_both_ways():
    name = 'a "b"\\ é-5'
    text = tf_state.repaired("", ROOT / name, {name})
    assert text.isascii()
    assert tf_state.repaired(text, ROOT / "z-6", {name, "z-6"}).splitlines()[1] == text.splitlines()[1]


def test_a_pointer_says_why():
    (one,) = decide(placed("deepspeed", "global_step5"), {})
    assert one.kind is PointerKind.TEXT
    assert "DeepSpeed" in one.why
