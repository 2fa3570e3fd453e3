"""Directories and files of no framework in particular."""

import json
import os
import zipfile

import pytest

from lakemark import formats
from lakemark.errors import NotFound
from lakemark.ports import Verdict
from tests.formats.builders import torch_zip

RECOGNISER = formats.recogniser()


def safetensors(size=12, told=None):
    header = json.dumps(
        {"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size if told is None else told]}}
    ).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def save(path, content=b"x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"1" * 1000)
    return path.read_bytes()


def verdicts(root):
    return {found.path.name: (found.verdict.value, found.step) for found in RECOGNISER.find(root)}


DIRECTORIES = {
    "step-100": 100, "step_100": 100, "step100": 100, "checkpoint-100": 100, "global_step100": 100, "iter_0000100": 100,
    "100": 100, "0": 0, "ckpt-7": 7, "Step-100": 100, "step=100": 100, "iteration-3": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", DIRECTORIES)
def test_directories(tmp_path, name):
    save(tmp_path / name / "deep/model.bin")
    assert verdicts(tmp_path) == {name: ("complete", DIRECTORIES[name])}


@pytest.mark.parametrize("name", ["100", "0012", "2024"])
@pytest.mark.parametrize(
    "inside", ["w", "00001.npz", "photo.jpg", "data.npz", "9fceb02d0ae598e95dc970b74767f19372d61af8"]
)
def test_a_bare_number_without_a_model_s_state_is_no_step(tmp_path, name, inside):
    save(tmp_path / name / inside)
    assert verdicts(tmp_path) == {}


def test_a_bare_number_with_checkpoints_in_it_is_a_run(tmp_path):
    for inside in ("step-5/model.pt", "step-10/model.pt", "final/model.pt"):
        save(tmp_path / "8812345" / inside, b"pickle")
    assert verdicts(tmp_path) == {"step-5": ("complete", 5), "step-10": ("complete", 10)}


def test_a_year_is_a_step_only_with_what_trainers_save(tmp_path):
    save(tmp_path / "2024/model.pt", b"pickle")
    assert verdicts(tmp_path) == {}
    save(tmp_path / "2024/optimizer.pt", b"pickle")
    assert verdicts(tmp_path) == {"2024": ("complete", 2024)}


def test_deeper_names_need_a_model_s_state(tmp_path):
    save(tmp_path / "a/step-100/notes.txt")
    save(tmp_path / "a/b/step-200/model.npz", zipped(tmp_path / "zip"))
    save(tmp_path / "a/model-300.pt", b"pickle")
    save(tmp_path / "a/sketch-400.pt", b"pickle")
    assert verdicts(tmp_path) == {"step-200": ("complete", 200), "model-300.pt": ("complete", 300)}


@pytest.mark.parametrize(
    "name",
    ["pinned-step-100", "step-100x", "step-", "step--100", "step-1.5", "logs", "run-3-step-100", "100k", "step-\uff11",
     "step-1234567890123456", "latest", ".100", "2026-11-29", "v1"],
)  # fmt: skip
def test_names_that_are_no_step(tmp_path, name):
    save(tmp_path / name / "w.bin")
    assert verdicts(tmp_path) == {}
    found = RECOGNISER.judge(tmp_path / name)
    assert (found.verdict, found.step) == (Verdict.COMPLETE, None)
    assert "its name says no step" in found.why


TEMPORARY = {
    "step-100.tmp": 100, "tmp-step-100": 100, "step-10.bak": 10, "step-10.bak2": 10, "step-100.partial": 100,
    "100.orbax-checkpoint-tmp-1700000000": 100, "step_5.tmp-abc": 5, ".step-9.tmp": 9, "checkpoint-3.old": 3, "step-4~": 4,
    "tmp_step-8": 8, "step-100.incomplete": 100, "step-6_temp": 6,
}  # fmt: skip


@pytest.mark.parametrize("name", TEMPORARY)
def test_unfinished_and_left_over(tmp_path, name):
    save(tmp_path / name / "model.bin")
    assert verdicts(tmp_path) == {name: ("temporary", TEMPORARY[name])}


@pytest.mark.parametrize("name", ["tmp-20261129", "tmpdir", "x.tmp", ".lakemark-aside", "notes.bak", ".step-100"])
def test_what_is_none_of_ours_is_passed_over(tmp_path, name):
    save(tmp_path / name / "w.bin")
    assert [one for one in verdicts(tmp_path).values() if one[1] is not None] == []


FILES = {
    "model-100.npz": 100, "epoch=3-step=200.ckpt": 200, "100.pt": 100, "step100.pt": 100, "best-300.pth": 300, "w_7.ckpt": 7,
    "model-5.safetensors": 5, "my-temp-9.pt": 9, "G_2000.pth": 2000, "model000100.pt": 100,
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, name):
    content = safetensors() if name.endswith("safetensors") else zipped(tmp_path / "zip")
    (tmp_path / "zip").unlink(missing_ok=True)
    save(tmp_path / name, content)
    assert verdicts(tmp_path) == {name: ("complete", FILES[name])}


@pytest.mark.parametrize(
    "name",
    [
        "model-00001-of-00004.safetensors",
        "rng_state_0.pth",
        "log-100.txt",
        "model.pt",
        "rank-3.pt",
        "optimizer_part-2.pt",
        "00001.npz",
        "data-00000-of-00010.arrow",
        "sd-v1-5.ckpt",
        "model_epoch_3.pt",
        "fold-2.pt",
        "model-acc=97.pt",
    ],
)
def test_files_that_are_no_checkpoint(tmp_path, name):
    save(tmp_path / name, safetensors() if name.endswith("safetensors") else b"pickle")
    assert verdicts(tmp_path) == {}


def test_samples_that_are_numbered_one_after_the_other_are_no_checkpoints(tmp_path):
    for number in (7, 8, 20):
        save(tmp_path / f"{number}.pt", b"pickle")
        save(tmp_path / f"thing_{number}.pt", b"pickle")
    assert verdicts(tmp_path) == {}
    (tmp_path / "8.pt").unlink()
    (tmp_path / "thing_8.pt").unlink()
    assert [step for _, step in verdicts(tmp_path).values()] == [7, 20]


@pytest.mark.parametrize("steps", [(1, 2, 3), (1000, 2000, 2001)])
def test_a_trainer_s_states_are_no_samples_though_their_numbers_follow_one_another(tmp_path, steps):
    """As a job that is told to end saves once more, a step after its last save."""
    for step in steps:
        save(tmp_path / f"gpt_{step}.pt", torch_zip(("model", "optimizer")))
    assert [one.step for one in RECOGNISER.find(tmp_path)] == [*steps]
    for step in steps:
        save(tmp_path / f"gpt_{step}.pt", torch_zip(("image", "label")))
    assert verdicts(tmp_path) == {}


def test_files_of_one_step_are_one_checkpoint(tmp_path):
    for name in ("model-100.pt", "optimizer-100.pt", "model-200.pt", "optimizer-200.pt"):
        save(tmp_path / name, b"pickle")
    save(tmp_path / "optimizer-200.pt", b"")
    first, second = RECOGNISER.find(tmp_path)
    assert [path.name for path in first.paths] == ["model-100.pt", "optimizer-100.pt"]
    assert (first.verdict, second.verdict) == (Verdict.COMPLETE, Verdict.INCOMPLETE)
    assert "optimizer-200.pt" in second.why


@pytest.mark.parametrize("name", ["latest", "latest.txt", "best.pt", "last.pth", "last_checkpoint"])
def test_pointers_by_name(tmp_path, name):
    save(tmp_path / name, b"step-100")
    assert verdicts(tmp_path) == {}  # with no step beside it, it is anybody's file
    save(tmp_path / "step-100/w")
    found = {found.path.name: found for found in RECOGNISER.find(tmp_path)}
    assert found[name].verdict is Verdict.POINTER
    assert found[name].target == (None if "." in name and not name.endswith(".txt") else "step-100")


def test_an_empty_pointer_says_so(tmp_path):
    save(tmp_path / "latest", b"")
    save(tmp_path / "step-100/w")
    (found,) = (found for found in RECOGNISER.find(tmp_path) if found.path.name == "latest")
    assert (found.verdict, found.target, found.why) == (Verdict.POINTER, "", "it is empty")


def test_links_are_pointers(tmp_path):
    save(tmp_path / "step-100/w.bin")
    for name, target in (
        ("latest", "step-100"),
        ("step-200", "step-100"),
        ("last.ckpt", "last.ckpt"),
        ("gone", "nowhere"),
    ):
        (tmp_path / name).symlink_to(target)
    assert verdicts(tmp_path) == {
        "step-100": ("complete", 100), "latest": ("pointer", 100), "step-200": ("pointer", 100),
        "last.ckpt": ("pointer", None),
    }  # fmt: skip


def test_markers(tmp_path):
    for name in ("_SUCCESS", "step-100.done"):
        save(tmp_path / name, b"")
    assert verdicts(tmp_path) == {}
    save(tmp_path / "step-200/w")
    assert verdicts(tmp_path) == {
        "step-100.done": ("marker", 100), "step-200": ("complete", 200), "_SUCCESS": ("marker", None),
    }  # fmt: skip


def incomplete(tmp_path, says):
    found = RECOGNISER.judge(tmp_path / "step-1")
    assert (found.verdict, found.step) == (Verdict.INCOMPLETE, 1)
    assert says in found.why


def test_empty_directory(tmp_path):
    (tmp_path / "step-1/deeper").mkdir(parents=True)
    incomplete(tmp_path, "no file yet")


def test_an_unfinished_file_inside(tmp_path):
    save(tmp_path / "step-1/a/w.bin.tmp")
    incomplete(tmp_path, "'a/w.bin.tmp' is unfinished")


def test_files_that_are_cut_short(tmp_path):
    whole = zipped(tmp_path / "x.npz")
    cases = {
        "a.npz": (whole, whole[:-30]), "b.pt": (whole, whole[:500]), "c.safetensors": (safetensors(), safetensors()[:-1]),
        "d.safetensors": (safetensors(), b"\x10"), "e.safetensors": (safetensors(), safetensors(12, 13)),
        "f.ckpt": (b"\x80\x02}", b""),
        "g.safetensors": (safetensors(), b"\xff" * 64), "h.npz": (whole, b"not a zip"),
    }  # fmt: skip
    for name, (good, bad) in cases.items():
        path = tmp_path / "step-1" / name
        save(path, good)
        assert RECOGNISER.judge(tmp_path / "step-1").verdict is Verdict.COMPLETE, name
        save(path, bad)
        incomplete(tmp_path, name)
        path.unlink()


def test_every_cut_of_a_file_is_seen(tmp_path):
    save(tmp_path / "step-1/w.safetensors")
    for content in (safetensors(), zipped(tmp_path / "x.npz")):
        path = tmp_path / f"step-1/w.{'npz' if content.startswith(b'PK') else 'safetensors'}"
        (tmp_path / "step-1/w.safetensors").unlink(missing_ok=True)
        for length in range(0, len(content), 7):
            save(path, content[:length])
            assert RECOGNISER.judge(tmp_path / "step-1").verdict is Verdict.INCOMPLETE, length


def test_pipes_and_devices(tmp_path):
    os.mkfifo(tmp_path / "100.pt")
    assert RECOGNISER.judge(tmp_path / "100.pt").verdict is Verdict.INCOMPLETE
    assert verdicts(tmp_path) == {}
    (tmp_path / "step-1").mkdir()
    os.mkfifo(tmp_path / "step-1/w.pt")
    incomplete(tmp_path, "neither a file nor a directory")


def test_a_link_inside_to_nowhere_is_not_read(tmp_path):
    save(tmp_path / "step-1/w.bin")
    (tmp_path / "step-1/last.pt").symlink_to("/dev/zero")
    assert RECOGNISER.judge(tmp_path / "step-1").verdict is Verdict.COMPLETE


def test_nothing_there(tmp_path):
    assert list(RECOGNISER.find(tmp_path / "none")) == []
    with pytest.raises(NotFound):
        RECOGNISER.judge(tmp_path / "none")


def test_order_is_by_step_then_path(tmp_path):
    for name in ("step-20", "step-3", "checkpoint-20"):
        save(tmp_path / name / "w")
    (tmp_path / "last").symlink_to("step-20")
    assert [found.path.name for found in RECOGNISER.find(tmp_path)] == ["step-3", "checkpoint-20", "last", "step-20"]


def test_what_it_says_of_resuming(tmp_path):
    save(tmp_path / "step-1/w")
    (found,) = RECOGNISER.find(tmp_path)
    assert (found.framework, found.resumable, found.gaps, dict(found.roles)) == ("generic", None, (), {})


def test_hostile_names(tmp_path):
    for name in (b"step-1\xff", b"step-1\n", b"\x1b[2J-100.pt", b"step-\xd9\xa1"):
        save(tmp_path / os.fsdecode(name) / "w")
    for found in RECOGNISER.find(tmp_path):
        assert found.step is None or found.why.isprintable()
    assert verdicts(tmp_path) == {}


@pytest.mark.parametrize("name", [".tmpqECRZw", "model.pt.tmp", "__0_0.distcp.__lock", "sub/.tmp_a1B2c"])
def test_a_folder_with_a_file_that_is_being_written_is_not_whole(tmp_path, name):
    for file in ("weights.bin", name):
        (tmp_path / "step-4" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "step-4" / file).write_bytes(b"x")
    assert RECOGNISER.judge(tmp_path / "step-4").verdict is Verdict.INCOMPLETE


def test_roles_by_names_and_keys(tmp_path):
    folder = tmp_path / "step_100"
    for name, keys in (("optimizer", ("state", "param_groups")), ("scheduler", ("last_epoch",)), ("rng", ("x",))):
        save(folder / f"{name}.pt", torch_zip(keys))
    save(folder / "model.safetensors", safetensors())
    (found,) = RECOGNISER.find(tmp_path)
    assert (found.framework, found.verdict, found.resumable) == ("generic", Verdict.COMPLETE, True)
    assert dict(found.roles) == {
        "optimizer.pt": "optimizer", "scheduler.pt": "scheduler", "rng.pt": "rng", "model.safetensors": "weights",
    }  # fmt: skip
    (folder / "rng.pt").unlink()
    (found,) = RECOGNISER.find(tmp_path)
    assert (found.possible, found.resumable, found.gaps) == (("rng",), None, ())


def test_a_file_that_holds_all_has_no_one_role(tmp_path):
    save(tmp_path / "step_100/lit_model.pth", torch_zip(("model", "optimizer", "iter_num")))
    (found,) = RECOGNISER.find(tmp_path)
    assert (found.present, found.roles) == (("weights", "optimizer", "trainer"), {})


def test_a_rank_that_is_missing_between_others(tmp_path):
    for rank in range(3):
        save(tmp_path / f"step_100/rank_{rank}.pt", torch_zip())
        save(tmp_path / f"step_100/actor/model_world_size_3_rank_{rank}.pt", torch_zip())
    assert verdicts(tmp_path) == {"step_100": ("complete", 100)}
    (tmp_path / "step_100/rank_1.pt").unlink()
    (found,) = RECOGNISER.find(tmp_path)
    assert (found.verdict, found.why) == (Verdict.INCOMPLETE, "rank: 1 missing of 3")
