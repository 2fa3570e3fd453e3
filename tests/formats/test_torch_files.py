"""Keys of `torch.save` files, and training scripts' own files by step."""

import io
import os
import pickle
import tracemalloc
import zipfile

import pytest

from lakemark.formats import recogniser
from lakemark.formats.readers import headers, torch_file
from lakemark.formats.readers.folder import Folder
from lakemark.formats.roles import EVERYTHING
from tests.formats.builders import Storage, Tensor, pickled, save, torch_old, torch_zip, torch_zip_of

RECOGNISER = recogniser()


def keys(path):
    return torch_file.keys(Folder.of(path.parent), path.name)


def told(path):
    found = torch_file.told(Folder.of(path.parent), [path.name])
    return sorted(found.present), sorted(found.possible)


@pytest.mark.parametrize("protocol", range(6))
def test_keys(tmp_path, protocol):
    file = save(tmp_path / "a.pt", torch_zip(("model", "optimizer", "epoch"), protocol=protocol))
    assert keys(file) == ("model", "optimizer", "epoch")


def test_keys_with_tensors_and_nested_dicts(tmp_path):
    values = {
        "state_dict": {f"layer.{n}.weight": Tensor(Storage(str(n), 4)) for n in range(3000)},
        "optimizer_states": [{"state": {0: {"exp_avg": Tensor(Storage("9", 4))}}, "param_groups": [{"lr": 0.1}]}],
        "lr_schedulers": [],
        "loops": {"fit_loop": {"state_dict": {}}},
        "scheduler": None,
    }
    file = save(tmp_path / "a.ckpt", torch_zip(values=values))
    assert keys(file) == ("state_dict", "optimizer_states", "lr_schedulers", "loops")
    assert told(file) == (["optimizer", "scheduler", "trainer", "weights"], [])


def test_composers_state_is_looked_into(tmp_path):
    values = {"state": {"model": {"w": 1}, "optimizers": {}, "schedulers": {}, "timestamp": {}}, "rng": [{"cuda": 1}]}
    assert told(save(tmp_path / "a.pt", torch_zip(values=values))) == (
        ["optimizer", "rng", "scheduler", "trainer", "weights"],
        [],
    )


def test_many_keys_come_in_batches(tmp_path):
    values = {f"l{n}.weight": Tensor(Storage(str(n), 4)) for n in range(2500)}
    file = save(tmp_path / "a.bin", torch_zip(values=values))
    assert len(keys(file)) == 2500
    assert told(file) == (["weights"], [])


def test_what_is_not_understood_may_be_there(tmp_path):
    assert told(save(tmp_path / "a.pt", torch_zip(("model", "wibble")))) == (
        ["weights"],
        ["optimizer", "rng", "scheduler"],
    )
    everything = sorted(role.value for role in EVERYTHING)
    assert told(save(tmp_path / "b.pt", torch_zip(("wibble",)))) == ([], everything)
    assert told(save(tmp_path / "c.pt", b"PK\x03\x04 cut")) == ([], everything)
    assert told(tmp_path / "absent.pt") == ([], everything)


@pytest.mark.parametrize("value", [[{"model": 1}], ({"model": 1}, {"optimizer": 2}), "model", 3, {}, {1: "model"}])
def test_objects_that_are_no_dict_of_names(tmp_path, value):
    assert keys(save(tmp_path / "a.pt", torch_zip(values=value))) is None


def test_old_files(tmp_path):
    data = b"".join(
        pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    ) + pickled({"model": {"w": Tensor(Storage("0", 3))}, "optimizer": {}}, 2)  # fmt: skip
    file = save(tmp_path / "a.pth", data + pickle.dumps(["0"], 2) + bytes(12))
    assert keys(file) == ("model", "optimizer")
    assert keys(save(tmp_path / "b.pkl", pickle.dumps({"params": 1, "opt_state": 2}))) == ("params", "opt_state")


def test_a_pickle_too_long_to_read_tells_what_came_first(tmp_path):
    data = pickled({"model": {f"l{n}": f"{n:4000}" for n in range(5000)}, "optimizer": {}}, 4)
    file = save(tmp_path / "a.pt", torch_zip_of(data))
    assert keys(file) == ("model",)
    assert told(file) == (["weights"], ["optimizer", "rng", "scheduler"])


def test_zips_of_other_kinds(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickled({"model": 1}))
    assert keys(save(tmp_path / "a.pt", buffer.getvalue())) is None
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("a/data.pkl", "w", force_zip64=True) as member:
        member.write(pickled({"model": 1}))
    assert keys(save(tmp_path / "b.pt", buffer.getvalue())) == ("model",)


def test_any_cut_is_no_exception(tmp_path):
    whole = torch_zip(("model", "optimizer"))
    for length in range(0, len(whole), 7):
        assert told(save(tmp_path / "a.pt", whole[:length])) == ([], ["optimizer", "rng", "scheduler", "weights"])


class Bad:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_is_called(tmp_path):
    made = tmp_path / "made"
    for name, data in (("model-1.pt", torch_zip_of(pickle.dumps({"model": Bad(made)}))),
                       ("model-2.pth", pickle.dumps({"model": Bad(made)}))):  # fmt: skip
        save(tmp_path / "run" / name, data)
    found = list(RECOGNISER.find(tmp_path / "run"))
    assert [(one.framework, one.step) for one in found] == [("torch", 1), ("torch", 2)]
    assert not made.exists()


def test_a_scripts_own_file(tmp_path):
    save(tmp_path / "ckpt_500.pt", torch_zip(("model", "optimizer", "scheduler", "rng_state", "step")))
    save(tmp_path / "ckpt_1000.pt", torch_zip(("model", "optimizer", "step"))[:-30])
    first, second = RECOGNISER.find(tmp_path)
    assert (first.framework, first.step, first.verdict, first.resumable) == ("torch", 500, "complete", True)
    assert (second.step, second.verdict, second.why) == (
        1000,
        "incomplete",
        "truncated zip (no end of central directory)",
    )
    assert RECOGNISER.judge(tmp_path / "ckpt_500.pt") == first


def test_files_of_one_step_are_one_checkpoint(tmp_path):
    save(tmp_path / "model-100.pt", torch_zip(values={"a.weight": 1}))
    save(tmp_path / "optimizer-100.pt", torch_zip(("state", "param_groups")))
    (found,) = RECOGNISER.find(tmp_path)
    assert [path.name for path in found.members] == ["model-100.pt", "optimizer-100.pt"]
    assert dict(found.roles) == {"model-100.pt": "weights", "optimizer-100.pt": "optimizer"}
    assert (found.resumable, found.gaps) == (False, ("no scheduler", "no rng"))


@pytest.mark.parametrize("protocol", [2, 4])
def test_every_cut_of_an_old_file_is_seen(tmp_path, protocol):
    value = {"model": {key: Tensor(Storage(key, 300)) for key in ("0", "1", "2")}}
    data = torch_old(value, {"0": 300, "1": 300, "2": 300}, protocol)
    for name in ("a.pth", "checkpoint.pth.tar", "pytorch_model.bin"):
        save(tmp_path / name, data)
        assert headers.broken(Folder.of(tmp_path), name) is None
    for length in (40, 90, 200, len(data) - 3000, len(data) - 1300, len(data) - 100, len(data) - 1):
        save(tmp_path / "a.pth", data[:length])
        assert "truncated" in (headers.broken(Folder.of(tmp_path), "a.pth") or ""), length
    save(tmp_path / "a.pth", data + b"x")
    assert "truncated" in (headers.broken(Folder.of(tmp_path), "a.pth") or "")


def test_an_old_file_that_lies_about_lengths_costs_nothing(tmp_path):
    head = b"".join(pickle.dumps(one, 2) for one in (0x1950A86A20F9469CFC6C, 1001, {}))
    file = save(tmp_path / "a.pth", head + b"\x80\x04\x8e" + (2**40).to_bytes(8, "little"))
    os.truncate(file, 1 << 34)
    tracemalloc.start()
    try:
        headers.broken(Folder.of(tmp_path), "a.pth")
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()


def test_many_storages_of_nothing(tmp_path):
    data = torch_old({"w": 1}, {f"{key:06d}": 0 for key in range(3000)})
    save(tmp_path / "a.pth", data)
    assert headers.broken(Folder.of(tmp_path), "a.pth") is None


def test_files_of_ranks_and_what_is_said_of_them_belong_to_their_step(tmp_path):
    for step in (100, 200):
        save(tmp_path / f"model_{step:06d}.pt", torch_zip(("model",)))
        save(tmp_path / f"meta_{step:06d}.json", "{}")
        save(tmp_path / f"eval_{step:06d}.json", "{}")
        for rank in range(3):
            save(tmp_path / f"optim_{step:06d}_rank{rank}.pt", torch_zip(("state", "param_groups")))
    first, second = RECOGNISER.find(tmp_path)
    assert [path.name for path in first.members] == [
        "model_000100.pt", "meta_000100.json", *(f"optim_000100_rank{rank}.pt" for rank in range(3)),
    ]  # fmt: skip
    assert (first.verdict, second.verdict, second.roles["optim_000200_rank2.pt"]) == (
        "complete",
        "complete",
        "optimizer",
    )
    (tmp_path / "optim_000100_rank1.pt").unlink()
    (tmp_path / "optim_000200_rank2.pt").unlink()
    (tmp_path / "optim_000200_rank1.pt").unlink()
    first, second = RECOGNISER.find(tmp_path)
    assert first.why == "optim of rank: 1 missing of 3"
    assert second.why == "1 of 2 files of ranks, as the step before has"
