"""DCP and what is built on it: torchtitan, torch_checkpointing, ByteCheckpoint, OLMo-core, Composer; and Ray Train."""

import json
import os
import shutil
from contextlib import contextmanager

import pytest
from hypothesis import given, settings, strategies as st

from lakemark.formats import recogniser
from lakemark.formats.readers.folder import Folder
from lakemark.formats.torch.dcp import Dcp
from lakemark.ports import Verdict
from tests.formats.builders import Chunk, as_json, dcp, dcp_metadata, safetensors, save, torch_zip

RECOGNISER = recogniser()
ALL_ROLES = ("weights", "optimizer", "scheduler", "rng", "dataloader")


def judged(path):
    found = RECOGNISER.judge(path)
    listed = [one for one in RECOGNISER.find(path.parent) if one.path == path]
    assert listed == [found]
    return found


def test_whole(tmp_path):
    dcp(tmp_path / "step-7", ranks=3)
    found = judged(tmp_path / "step-7")
    assert (found.framework, found.step, found.verdict, found.present) == ("dcp", 7, Verdict.COMPLETE, ALL_ROLES)
    assert (found.resumable, dict(found.ranks)) == (True, {"distcp": 3})


@pytest.mark.parametrize(
    "name",
    [
        "step-7",
        "step_7",
        "checkpoint-7",
        "iter_0000007",
        "global_step7",
        "7",
        "ckpt-7",
        "epoch_2_step_7",
        "epoch=1-step=7",
    ],
)
def test_steps(tmp_path, name):
    dcp(tmp_path / name)
    assert judged(tmp_path / name).step == 7


@pytest.mark.parametrize("name", ["final", "pinned-step-7", "model", "step-7-old-run"])
def test_names_that_say_no_step(tmp_path, name):
    dcp(tmp_path / name)
    assert (judged(tmp_path / name).framework, judged(tmp_path / name).step) == ("dcp", None)


@pytest.mark.parametrize("name", ["step-7.bak", "step-7.tmp", "tmp-step-7", "step-7_old"])
def test_names_that_say_that_it_is_unfinished(tmp_path, name):
    dcp(tmp_path / name)
    assert all(one.verdict is not Verdict.COMPLETE for one in RECOGNISER.find(tmp_path))


def test_single_roles_are_roles_of_files(tmp_path):
    folder = tmp_path / "step-7"
    save(folder / ".metadata", dcp_metadata([Chunk("model.w", "__0_0.distcp"), Chunk("optim.w", "__0_1.distcp")]))
    save(folder / "__0_0.distcp", bytes(100))
    save(folder / "__0_1.distcp", bytes(100))
    assert dict(judged(folder).roles) == {"__0_0.distcp": "weights", "__0_1.distcp": "optimizer"}


def test_weights_alone(tmp_path):
    dcp(tmp_path / "step-7", fqns=("layers.0.weight", "norm.weight"))
    found = judged(tmp_path / "step-7")
    assert (found.why, found.resumable) == ("whole; weights only: not resumable", False)


def test_a_missing_data_file(tmp_path):
    dcp(tmp_path / "step-7", ranks=9)
    for rank in (1, 2, 3, 4, 5, 6, 7):
        (tmp_path / f"step-7/__{rank}_0.distcp").unlink()
    found = judged(tmp_path / "step-7")
    assert found.verdict is Verdict.INCOMPLETE
    assert found.why.startswith("__1_0.distcp missing, .metadata names it; ")
    assert found.why.endswith("and 2 more of 9")


def test_a_data_file_that_is_a_link_or_a_pipe(tmp_path):
    dcp(tmp_path / "step-7")
    (tmp_path / "step-7/__0_0.distcp").rename(tmp_path / "elsewhere")
    (tmp_path / "step-7/__0_0.distcp").symlink_to(tmp_path / "elsewhere")
    assert "__0_0.distcp is no regular file" in judged(tmp_path / "step-7").why
    (tmp_path / "step-7/__0_0.distcp").unlink()
    os.mkfifo(tmp_path / "step-7/__0_0.distcp")
    assert judged(tmp_path / "step-7").verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("name", ["/etc/passwd", "../step-8/__0_0.distcp", "a/../../b"])
def test_metadata_that_names_files_outside(tmp_path, name):
    save(tmp_path / "step-7/.metadata", dcp_metadata([Chunk("model.w", name)]))
    save(tmp_path / "step-7/__0_0.distcp", bytes(100))
    assert "which lies outside of it" in judged(tmp_path / "step-7").why


def test_a_file_of_another_save_is_noted(tmp_path):
    dcp(tmp_path / "step-7", ranks=2)
    save(tmp_path / "step-7/__2_0.distcp")
    found = judged(tmp_path / "step-7")
    assert (found.verdict, found.notes) == (
        Verdict.COMPLETE,
        ("__2_0.distcp: no .metadata names it, it may be left from another save",),
    )


def overwritten(folder, *, seconds):
    dcp(folder, ranks=2)
    for name, at in ((".metadata", 1000), ("__0_0.distcp", 999), ("__1_0.distcp", 1000 + seconds)):
        os.utime(folder / name, (at, at))
    return judged(folder)


def test_overwritten_in_place_with_all_sizes_right(tmp_path):
    found = overwritten(tmp_path / "step-7", seconds=21)
    assert (found.verdict, found.why) == (
        Verdict.INCOMPLETE,
        "__1_0.distcp newer than .metadata (overwrite in place?)",
    )


def test_a_clock_that_is_a_little_off_is_no_overwriting(tmp_path):
    assert overwritten(tmp_path / "step-7", seconds=1.5).verdict is Verdict.COMPLETE


def test_a_copy_of_a_large_one_takes_its_time(tmp_path):
    """20 MB/s at least: a file that is 1 GiB may be a minute newer than the index that was copied first."""
    folder = tmp_path / "step-7"
    save(folder / ".metadata", dcp_metadata([Chunk("model.w", length=2**30)]))
    os.truncate(save(folder / "__0_0.distcp"), 2**30)
    for seconds, verdict in ((50, Verdict.COMPLETE), (60, Verdict.INCOMPLETE)):
        os.utime(folder / ".metadata", (1000, 1000))
        os.utime(folder / "__0_0.distcp", (1000 + seconds, 1000 + seconds))
        assert judged(folder).verdict is verdict


def test_saving_again_to_the_same_place(tmp_path):
    dcp(tmp_path / "step-7")
    save(tmp_path / "step-7/.metadata.tmp", b"half")
    assert judged(tmp_path / "step-7").why == "temporary file .metadata.tmp left"


def test_before_the_index(tmp_path):
    dcp(tmp_path / "step-7")
    (tmp_path / "step-7/.metadata").rename(tmp_path / "step-7/.metadata.tmp")
    assert judged(tmp_path / "step-7").why == ".metadata.tmp only"
    (tmp_path / "step-7/.metadata.tmp").unlink()
    assert judged(tmp_path / "step-7").why == "no .metadata"


def test_an_index_without_its_data(tmp_path):
    save(tmp_path / "step-7/.metadata", dcp_metadata([Chunk("model.w")]))
    assert judged(tmp_path / "step-7").why == "__0_0.distcp missing, .metadata names it"


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", ".metadata: cut at byte 0"), (b"\xff\xfe", "no pickle"), (dcp_metadata([]), "it names no data")],
)
def test_an_index_that_is_none(tmp_path, content, why):
    dcp(tmp_path / "step-7")
    save(tmp_path / "step-7/.metadata", content)
    assert why in judged(tmp_path / "step-7").why


def test_an_index_that_is_too_large_to_read(tmp_path):
    dcp(tmp_path / "step-7")
    os.truncate(tmp_path / "step-7/.metadata", 2**30)
    found = judged(tmp_path / "step-7")
    assert (found.verdict, found.resumable) == (Verdict.COMPLETE, None)
    assert found.notes == (".metadata: not read: 1073741824 bytes, more than 536870912",)


def without_collectives(folder, ranks=3):
    for rank in range(ranks):
        file = f"__{rank}_0.distcp"
        save(folder / file, bytes(100))
        save(folder / f"__{rank}.metadata", dcp_metadata([Chunk("model.w", file)]))


def test_without_collectives(tmp_path):
    without_collectives(tmp_path / "step-7")
    assert judged(tmp_path / "step-7").verdict is Verdict.COMPLETE
    (tmp_path / "step-7/__1.metadata").unlink()
    assert "no __1.metadata" in judged(tmp_path / "step-7").why


def test_a_folder_of_a_user_is_no_checkpoint(tmp_path):
    save(tmp_path / "photos/.metadata", b"x")
    save(tmp_path / "2024/.metadata.json", b"{}")
    save(tmp_path / "model/optimizer/readme.txt", b"x")
    save(tmp_path / "train/rank0.pt", torch_zip())
    save(tmp_path / "checkpoint_2026/metadata.pkl", b"x")
    save(tmp_path / "checkpoint_000001/notes.txt", b"x")
    found = [one for one in RECOGNISER.find(tmp_path) if one.framework != "generic"]
    assert found == []


def titan_export(folder):
    for number in (1, 2):
        save(folder / f"sharded/shard-00001-model-0000{number}-of-00002.safetensors", safetensors())
        save(folder / f"model-0000{number}-of-00002.safetensors", safetensors())
    shards = {f"w{number}": f"model-0000{number}-of-00002.safetensors" for number in (1, 2)}
    as_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": shards})


def test_torchtitan_with_a_last_export(tmp_path):
    dcp(tmp_path / "step-10")
    titan_export(tmp_path / "step-20")
    first, second = RECOGNISER.find(tmp_path)
    assert (first.framework, second.framework, second.verdict) == ("dcp", "titan-hf-export", Verdict.COMPLETE)
    assert (second.why, set(second.roles.values())) == ("whole; weights only: not resumable", {"weights"})
    shutil.rmtree(tmp_path / "step-20/sharded")
    assert judged(tmp_path / "step-20").verdict is Verdict.COMPLETE


def test_torchtitan_killed_while_it_joins_shards(tmp_path):
    titan_export(tmp_path / "step-20")
    (tmp_path / "step-20/model.safetensors.index.json").unlink()
    assert "no model.safetensors.index.json" in judged(tmp_path / "step-20").why
    for number in (1, 2):
        (tmp_path / f"step-20/model-0000{number}-of-00002.safetensors").unlink()
    found = judged(tmp_path / "step-20")
    assert (found.framework, found.verdict) == ("titan-hf-export", Verdict.INCOMPLETE)


def torch_checkpointing(folder, ranks=2):
    for rank in range(ranks):
        for item in ("model", "optimizer", "lr_scheduler", "train_state"):
            save(folder / f"{item}_{rank}.pt", torch_zip(("state",)))
        save(folder / f"other_{rank}.pt", torch_zip(("rng_state", "dataloader")))
    save(folder / "metadata.pkl", b"\x80\x04}.")


def test_torch_checkpointing(tmp_path):
    torch_checkpointing(tmp_path / "step-7")
    found = judged(tmp_path / "step-7")
    assert (found.framework, found.step, found.resumable) == ("torch_checkpointing", 7, True)
    torch_checkpointing(tmp_path / "tmp_step-8")
    (tmp_path / "tmp_step-8/metadata.pkl").unlink()
    found = judged(tmp_path / "tmp_step-8")
    assert (found.verdict, found.step, found.why) == (Verdict.TEMPORARY, 8, "tmp_ prefix")
    (tmp_path / "step-7/optimizer_1.pt").unlink()
    assert judged(tmp_path / "step-7").why == "optimizer for 1 of 2 ranks"


def bytecheckpoint(folder):
    dcp(folder / "model", ranks=2, fqns=("w",))
    dcp(folder / "optimizer", ranks=2, fqns=("w",))
    for rank in range(2):
        save(folder / f"extra_state/extra_state_rank_{rank}.pt", torch_zip(("rng", "lr_scheduler")))


def test_bytecheckpoint(tmp_path):
    bytecheckpoint(tmp_path / "global_step_7")
    found = judged(tmp_path / "global_step_7")
    assert (found.framework, found.step, found.resumable) == ("bytecheckpoint", 7, True)
    (tmp_path / "global_step_7/optimizer/.metadata").rename(tmp_path / "global_step_7/optimizer/.metadata.tmp")
    assert "optimizer/.metadata.tmp only" in judged(tmp_path / "global_step_7").why
    bytecheckpoint(tmp_path / "global_step_8")
    (tmp_path / "global_step_8/extra_state/extra_state_rank_1.pt").unlink()
    assert judged(tmp_path / "global_step_8").why == "no extra state of rank 1"


def olmo(folder):
    dcp(folder / "model_and_optim", ranks=2, fqns=("model.w", "optim.w"))
    for rank in range(2):
        save(folder / f"train/rank{rank}.pt", torch_zip(("global_step", "data_loader", "rng")))
    as_json(folder / ".metadata.json", {"version": "3.0.0"})
    as_json(folder / "config.json", {})


def test_olmo(tmp_path):
    olmo(tmp_path / "step7")
    found = judged(tmp_path / "step7")
    assert (found.framework, found.step, found.verdict) == ("olmo-core", 7, Verdict.COMPLETE)
    assert found.present == ("weights", "optimizer", "rng", "dataloader", "trainer", "config")
    (tmp_path / "step7/.metadata.json").unlink()
    assert judged(tmp_path / "step7").why == "no .metadata.json"
    (tmp_path / "step7").rename(tmp_path / "step8-tmp")
    found = judged(tmp_path / "step8-tmp")
    assert (found.verdict, found.step) == (Verdict.TEMPORARY, 8)


def test_composer_with_a_file_per_rank(tmp_path):
    for batch, ranks in ((100, 3), (200, 2)):
        for rank in range(ranks):
            save(tmp_path / f"ep0-ba{batch}-rank{rank}.pt", torch_zip(values={"state": {"model": 1}, "rng": []}))
    save(tmp_path / "latest-rank0.pt.symlink", b"ep0-ba200-rank{rank}.pt")
    first, second, pointer = RECOGNISER.find(tmp_path)
    assert (first.path.name, len(first.members), first.step) == ("ep0-ba100", 3, 100)
    assert (second.path.name, second.step, pointer.target) == ("ep0-ba200", 200, "ep0-ba200-rank{rank}.pt")
    assert RECOGNISER.judge(tmp_path / "ep0-ba100") == first
    (tmp_path / "ep0-ba100-rank1.pt").unlink()
    first, *_ = RECOGNISER.find(tmp_path)
    assert (first.verdict, first.why) == (Verdict.INCOMPLETE, "rank: 1 missing of 3")


@pytest.mark.parametrize("name", ["ba{}.pt", "ep1-ba{}.pt"])
def test_composer_with_names_of_a_user(tmp_path, name):
    for batch in (4, 8):
        save(tmp_path / name.format(batch), torch_zip(values={"state": {"model": 1}, "rng": []}))
    (tmp_path / "latest.pt").symlink_to(name.format(8))
    first, second, pointer = RECOGNISER.find(tmp_path)
    assert [(one.framework, one.step, one.members) for one in (first, second)] == [
        ("composer", 4, ()),
        ("composer", 8, ()),
    ]
    assert (pointer.verdict, pointer.step) == (Verdict.POINTER, 8)


def test_composer_in_a_folder(tmp_path):
    dcp(tmp_path / "ep1-ba300", fqns=("state.model.w", "state.optimizers.w", "state.rng"))
    found = judged(tmp_path / "ep1-ba300")
    assert (found.framework, found.step, found.present) == ("composer-fsdp", 300, ("weights", "optimizer", "rng"))


RAY = "checkpoint_2026-11-29_16-20-58.013660"


def ray(folder, *, listed=True):
    save(folder / RAY / "checkpoint.pt", torch_zip(("model", "optimizer", "scheduler", "rng")))
    results = [{"checkpoint_dir_name": RAY, "metrics": {}}] if listed else []
    as_json(folder / "checkpoint_manager_snapshot.json", {"checkpoint_results": results})


def test_ray(tmp_path):
    ray(tmp_path)
    found = judged(tmp_path / RAY)
    assert (found.framework, found.step, found.verdict, found.resumable) == ("ray-train", None, Verdict.COMPLETE, True)
    ray(tmp_path, listed=False)
    assert judged(tmp_path / RAY).why == "checkpoint_manager_snapshot.json does not list it"
    for broken in (b"", b"[", b"[]", b"{}", b'{"checkpoint_results": [1]}', b"[" * 100_000):
        save(tmp_path / "checkpoint_manager_snapshot.json", broken)
        assert judged(tmp_path / RAY).why == "checkpoint_manager_snapshot.json beside it is damaged"
    (tmp_path / "checkpoint_manager_snapshot.json").unlink()
    assert judged(tmp_path / RAY).verdict is Verdict.INCOMPLETE


def test_ray_before_v2(tmp_path):
    for number in range(2):
        save(tmp_path / f"checkpoint_00000{number}/model.pt", torch_zip(("model",)))
    save(tmp_path / "params.json", b"{}")
    save(tmp_path / "result.json", json.dumps({"checkpoint_dir_name": "checkpoint_000000"}) + "\n")
    first, second = RECOGNISER.find(tmp_path)
    assert (first.framework, first.step, first.verdict) == ("ray-train", 0, Verdict.COMPLETE)
    assert second.why == "neither result.json beside it nor a later report names it"


def test_ray_before_v2_while_it_removes_the_oldest(tmp_path):
    """Whatever is left, a later report says that it was done."""
    save(tmp_path / "exp/.validate_storage_marker")
    for number in range(4):
        for name in ("model", "optimizer"):
            save(tmp_path / f"exp/trial/checkpoint_00000{number}/{name}.pt", torch_zip((name,)))
    assert [one.verdict for one in RECOGNISER.find(tmp_path)] == [Verdict.COMPLETE] * 3 + [Verdict.INCOMPLETE]
    (tmp_path / "exp/trial/checkpoint_000000/optimizer.pt").unlink()
    first = next(iter(RECOGNISER.find(tmp_path)))
    assert first.why == "no optimizer.pt, which the step after has"


def test_ray_before_v2_while_it_trains(tmp_path):
    """Results are copied beside the checkpoints every few minutes; until then a later report says that one is done."""
    save(tmp_path / "exp/.validate_storage_marker")
    for number in range(2):
        save(tmp_path / f"exp/trial/checkpoint_00000{number}/model.npz", torch_zip(("model",)))
    first, second = RECOGNISER.find(tmp_path)
    assert (first.framework, first.step, first.verdict) == ("ray-train", 0, Verdict.COMPLETE)
    assert second.why == "neither result.json beside it nor a later report names it"
    row = json.dumps({"checkpoint_dir_name": "checkpoint_000001", "x": 1}) + "\n"
    save(tmp_path / "exp/trial/result.json", " " * 9_000_000 + row)
    assert [one.verdict for one in RECOGNISER.find(tmp_path)] == [Verdict.COMPLETE, Verdict.COMPLETE]


COMPLETE = {
    "dcp": (lambda folder: dcp(folder, ranks=2), "step-7"),
    "without_collectives": (without_collectives, "step-7"),
    "titan_export": (titan_export, "step-7"),
    "torch_checkpointing": (torch_checkpointing, "step-7"),
    "bytecheckpoint": (bytecheckpoint, "global_step_7"),
    "olmo": (olmo, "step7"),
    "composer": (lambda folder: dcp(folder, ranks=2), "ep0-ba7"),
}
MAY_BE_LOST = {
    # nothing else says how many ranks there were, and no earlier step lies beside it
    "without_collectives": {"__2.metadata+__2_0.distcp"},
    # written after the marker
    "olmo": {"config.json", "train/rank1.pt"},
    # torchtitan itself deletes none, and loads without them
    "titan_export": {
        "sharded/shard-00001-model-00001-of-00002.safetensors",
        "sharded/shard-00001-model-00002-of-00002.safetensors",
    },
    "bytecheckpoint": {"extra_state/extra_state_rank_1.pt"},
}
MAY_BE_CUT = {
    # a plain pickle that says nothing of its length; it is DCP's own that are read to their end
    "torch_checkpointing": {"metadata.pkl"},
}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    made = {}
    for name, (build, called) in COMPLETE.items():
        folder = tmp_path_factory.mktemp(name) / called
        build(folder)
        assert RECOGNISER.judge(folder).verdict is Verdict.COMPLETE
        names = [os.path.relpath(os.path.join(at, file), folder) for at, _, files in os.walk(folder) for file in files]
        made[name] = folder, sorted(names)
    return made


def damaged(folder, into, *, but):
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(
        folder, into / folder.name, ignore=lambda at, names: [n for n in names if os.path.join(at, n) == but]
    )
    return into / folder.name


@pytest.mark.parametrize("name", COMPLETE)
def test_every_lost_file_is_seen(built, name, tmp_path):
    folder, files = built[name]
    whole = RECOGNISER.judge(folder)
    unseen = set()
    for file in files:
        copy = damaged(folder, tmp_path / "copy", but=str(folder / file))
        found = RECOGNISER.judge(copy)
        if found.verdict is Verdict.COMPLETE and found.framework == whole.framework and found.present == whole.present:
            unseen.add(file)
    assert unseen <= MAY_BE_LOST.get(name, set())


@pytest.mark.parametrize("name", COMPLETE)
@settings(max_examples=12)
@given(data=st.data())
def test_every_cut_file_is_seen(built, name, data, tmp_path_factory):
    folder, files = built[name]
    file = data.draw(st.sampled_from([one for one in files if one not in MAY_BE_CUT.get(name, ())]))
    copy = damaged(folder, tmp_path_factory.mktemp("cut") / "copy", but="")
    size_bytes = (copy / file).stat().st_size
    os.truncate(copy / file, data.draw(st.integers(0, size_bytes - 1)))
    assert RECOGNISER.judge(copy).verdict is Verdict.INCOMPLETE


def test_bytecheckpoint_that_has_not_all_its_parts(tmp_path):
    for step in (7, 8):
        bytecheckpoint(tmp_path / f"global_step_{step}")
    folder = tmp_path / "global_step_8"
    shutil.rmtree(folder / "extra_state")
    assert judged(folder).why == "no extra_state_rank, which the step before has"
    shutil.rmtree(folder / "optimizer")
    assert (judged(folder).framework, judged(folder).verdict) == ("bytecheckpoint", Verdict.INCOMPLETE)
    (folder / "model/.metadata").unlink()
    assert judged(folder).why == "no model/.metadata"


def test_bytecheckpoint_whose_extra_states_are_written_first(tmp_path):
    folder = tmp_path / "global_step_8"
    for name in ("model", "optimizer"):
        (folder / name).mkdir(parents=True)
    save(folder / "extra_state/extra_state_rank_0.pt", torch_zip(("rng", "lr_scheduler")))
    (found,) = RECOGNISER.find(tmp_path)
    assert (found.framework, found.step, found.verdict) == ("bytecheckpoint", 8, Verdict.INCOMPLETE)
    assert "no model/.metadata" in found.why
    for name in ("model", "optimizer"):
        (folder / name).rmdir()
    assert judged(folder).why == "no model"


@pytest.mark.parametrize(("name", "framework"), [("step8-tmp", "olmo-core"), ("tmp_step-8", "torch_checkpointing")])
def test_folders_that_were_only_made(tmp_path, name, framework):
    (tmp_path / "run" / name).mkdir(parents=True)
    found = judged(tmp_path / "run" / name)
    assert (found.framework, found.step, found.verdict) == (framework, 8, Verdict.TEMPORARY)


def test_a_user_s_folder_with_data_of_dcp_and_no_index(tmp_path):
    dcp(tmp_path / "step-5/policy", ranks=2, fqns=("w",))
    save(tmp_path / "step-5/notes.txt")
    assert judged(tmp_path / "step-5").verdict is Verdict.COMPLETE
    (tmp_path / "step-5/policy/.metadata").unlink()
    assert judged(tmp_path / "step-5").why == "no policy/.metadata"


def test_files_that_say_how_many_ranks_there_are(tmp_path):
    for rank in range(2):
        for what in ("model", "optim"):
            save(tmp_path / f"global_step_5/actor/{what}_world_size_2_rank_{rank}.pt", torch_zip())
    assert judged(tmp_path / "global_step_5").verdict is Verdict.COMPLETE
    (tmp_path / "global_step_5/actor/optim_world_size_2_rank_1.pt").unlink()
    assert judged(tmp_path / "global_step_5").why == "actor/optim_rank_*-of-2.pt: 1 of 2 missing"


def test_what_a_dead_machine_never_wrote(tmp_path):
    torch_checkpointing(tmp_path / "step-7")
    size_bytes = (tmp_path / "step-7/model_1.pt").stat().st_size
    save(tmp_path / "step-7/model_1.pt", bytes(size_bytes))
    assert judged(tmp_path / "step-7").why == "model_1.pt: it begins with zeros"


class _Vanishing(Folder):
    """Whatever was read from it is gone afterwards."""

    @contextmanager
    def open(self, name):
        with super().open(name) as stream:
            yield stream
        (self.path / name).unlink()


def test_a_folder_that_goes_while_it_is_judged(tmp_path):
    dcp(tmp_path / "step-7")
    found = Dcp().judge(_Vanishing.of(tmp_path / "step-7"))
    assert (found.verdict, found.why) == (Verdict.INCOMPLETE, ".metadata: No such file or directory")
