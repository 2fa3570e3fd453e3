"""What each save is written over: a save of the step that its header says, where it is the only one of that step."""

import pytest

from lakemark import formats
from lakemark.ports import Verdict
from tests.formats.builders import save, torch_zip

RECOGNISER = formats.recogniser()


def loop(step, key="step", **more):
    return torch_zip(values={"model": {"w": [1.5]}, "optimizer": {"state": 1}, key: step, **more})


def lightning(step):
    values = {
        "epoch": 1,
        "global_step": step,
        "pytorch-lightning_version": "2.6",
        "state_dict": {"w": 1},
        "optimizer_states": [1],
    }
    return torch_zip(values=values)


def rows(root):
    return {one.path.name: (one.verdict.value, one.step) for one in RECOGNISER.find(root)}


@pytest.mark.parametrize(
    "name", ["latest.pt", "last.pth", "ckpt.pt", "checkpoint.pth.tar", "best_model.pt", "model_last.pt"]
)
@pytest.mark.parametrize("key", ["step", "global_step", "iter_num", "iteration", "epoch"])
def test_the_only_file_of_a_loop(tmp_path, name, key):
    save(tmp_path / name, loop(100, key))
    assert rows(tmp_path) == {name: ("complete", 100)}
    one = RECOGNISER.judge(tmp_path / name)
    assert (one.step, one.rolling) == (100, True)
    assert {"weights", "optimizer"} <= set(one.present)


def test_as_a_detector_leaves_them(tmp_path):
    save(tmp_path / "weights/last.pt", loop(9, "epoch"))
    save(tmp_path / "weights/best.pt", loop(5, "epoch"))
    assert rows(tmp_path) == {"last.pt": ("complete", 9), "best.pt": ("complete", 5)}
    save(tmp_path / "weights/best.pt", loop(9, "epoch"))
    assert rows(tmp_path) == {"last.pt": ("complete", 9), "best.pt": ("complete", None)}


def test_lightning_s_last_alone(tmp_path):
    save(tmp_path / "last.ckpt", lightning(100))
    assert rows(tmp_path) == {"last.ckpt": ("complete", 100)}
    save(tmp_path / "epoch=1-step=100.ckpt", lightning(100))
    assert rows(tmp_path) == {"last.ckpt": ("complete", None), "epoch=1-step=100.ckpt": ("complete", 100)}
    save(tmp_path / "last.ckpt", lightning(150))
    assert rows(tmp_path)["last.ckpt"] == ("complete", 150)


def test_fairseq_s_last_alone(tmp_path):
    save(tmp_path / "checkpoint_last.pt", loop(4000, "num_updates", last_optimizer_state={"state": 1}))
    assert rows(tmp_path) == {"checkpoint_last.pt": ("complete", 4000)}


@pytest.mark.parametrize("name", ["latest.pt", "ckpt.pt", "checkpoint.pt"])
def test_without_optimizer_or_step_it_is_no_save_by_itself(tmp_path, name):
    counted_by_the_optimizer = torch_zip(values={"model": {"w": 1}, "optimizer": {"state": {"step": 7}}})
    weights = torch_zip(values={"model": {"w": 1}, "step": 5})
    for content in (torch_zip(("w",)), weights, b"\x80\x02text"):
        save(tmp_path / name, content)
        assert rows(tmp_path) == {}
    # A whole state of a step that nobody knows is told of: else nobody would learn that it is kept nowhere.
    for content in (loop("ten"), counted_by_the_optimizer):
        save(tmp_path / name, content)
        assert rows(tmp_path) == {name: ("complete", None)}
    # Beside named steps it is the newest of these, or a copy.
    save(tmp_path / "model_50.pt", loop(50))
    assert {name: row for name, row in rows(tmp_path).items() if row[0] == "complete"} == {
        "model_50.pt": ("complete", 50)
    }


def test_far_from_where_the_search_begins_such_names_are_anybody_s(tmp_path):
    save(tmp_path / "a/b/c/latest.pt", loop(100))
    assert rows(tmp_path) == {}


def test_cut_it_is_no_save(tmp_path):
    save(tmp_path / "step-50/model.pt", loop(50))
    save(tmp_path / "latest.pt", loop(100)[:-30])
    one = RECOGNISER.judge(tmp_path / "latest.pt")
    assert (one.verdict, one.present) == (Verdict.POINTER, ())
    assert "zip" in one.why
