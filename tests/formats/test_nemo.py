"""NeMo's folders, archives and marks."""

import io
import shutil
import tarfile

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import safetensors, save, torch_zip
from tests.formats.library_builders import found, index_of, megatron, only, verdict

NAME = "model_name=0--val_loss=2.35-step=500-consumed_samples=4000.0"


def nemo(folder):
    megatron(folder / "weights")
    save(folder / "context/io.json", "{}")
    save(folder / "context/model.yaml", "a: 1")
    return folder


def test_whole(tmp_path):
    nemo(tmp_path / "checkpoints" / NAME)
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("nemo2", 500, Verdict.COMPLETE), one.why
    assert {"weights", "optimizer", "scheduler", "config"} <= set(one.present)
    assert one.roles["context/io.json"] == "config"


def test_weights_without_what_comes_after_them(tmp_path):
    folder = nemo(tmp_path / NAME)
    for name in ("io.json", "model.yaml"):
        (folder / "context" / name).unlink()
    assert "no context" in only(tmp_path).why
    (folder / "context").rmdir()
    assert verdict(tmp_path, NAME) == ("nemo2", 500, "incomplete")
    (folder / "weights/.metadata").unlink()
    (folder / "weights/metadata.json").unlink()
    assert [one.verdict.value for one in found(tmp_path).values()] == ["incomplete"]


def test_saves_without_a_context_where_none_has_one(tmp_path):
    """always_save_context=False: the last one alone has it, and only the marker tells one that is not done."""
    names = [NAME, NAME.replace("step=500", "step=1000"), NAME.replace("step=500", "step=1500")]
    for name in names:
        shutil.rmtree(nemo(tmp_path / name) / "context")
    nemo(tmp_path / f"{names[-1]}-last")
    save(tmp_path / f"{names[-1]}-unfinished")
    assert [one.verdict.value for name, one in found(tmp_path).items() if name in names] == [
        "complete",
        "complete",
        "incomplete",
    ]
    nemo(tmp_path / names[1])
    assert "no context" in found(tmp_path)[NAME].why


def test_what_makes_it_nemo_s(tmp_path):
    folder = nemo(tmp_path / "exported")
    (folder / "weights/.metadata").unlink()
    assert verdict(tmp_path, "exported") == ("nemo2", None, "incomplete")
    megatron(tmp_path / "mine/weights")
    assert "mine" not in found(tmp_path)
    assert verdict(tmp_path, "mine/weights") == ("megatron-dist", None, "complete")


def test_folders_of_these_names_that_are_somebody_s(tmp_path):
    """A run that keeps its weights and its context: what lies in these is still looked for."""
    save(tmp_path / "project/context/prompt.txt")
    nemo(tmp_path / "project/weights" / NAME)
    assert list(found(tmp_path)) == [f"project/weights/{NAME}"]


def test_weights_without_a_config_where_the_others_have_one(tmp_path):
    folder = nemo(tmp_path / NAME)
    for name in ("metadata.json", "common.pt"):
        (folder / "weights" / name).unlink()
    assert only(tmp_path).verdict is Verdict.COMPLETE
    nemo(tmp_path / NAME.replace("step=500", "step=1000"))
    assert found(tmp_path)[NAME].why == "no weights/metadata.json, and its siblings have one"


@pytest.mark.parametrize(
    ("inside", "weights"),
    [("hf_weights", "model.safetensors"), ("hf_adapter", "adapter_model.safetensors")],
)
def test_models_of_hugging_face(tmp_path, inside, weights):
    """Its weights, then `trainer.pt`, then the context."""
    name = "default--reduced_train_loss=0.0112-epoch=2-step=3"
    folder = tmp_path / name
    save(folder / inside / weights, safetensors())
    save(folder / inside / "config.json", "{}")
    assert verdict(tmp_path, name) == ("nemo2", 3, "incomplete")
    save(folder / "trainer.pt", torch_zip(("optimizer_states", "lr_schedulers", "global_step")))
    assert "no context" in only(tmp_path).why
    save(folder / "context/io.json", "{}")
    one = only(tmp_path)
    assert (one.verdict, one.gaps) == (Verdict.COMPLETE, ("no rng",)), one.why
    assert (one.roles[f"{inside}/{weights}"], one.roles["trainer.pt"]) == ("weights", "trainer")
    save(folder / inside / weights, safetensors()[:-1])
    assert f"{inside}/{weights}: " in only(tmp_path).why
    (folder / inside / weights).unlink()
    assert only(tmp_path).why == "no weights"


def test_a_shard_of_hugging_face_s_that_is_gone(tmp_path):
    folder = nemo(tmp_path / NAME)
    shutil.rmtree(folder / "weights")
    for at in (1, 2):
        save(folder / f"hf_weights/model-0000{at}-of-00002.safetensors", safetensors())
    index_of(folder / "hf_weights", ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
    save(folder / "trainer.pt", torch_zip(("optimizer_states",)))
    assert only(tmp_path).verdict is Verdict.COMPLETE, only(tmp_path).why
    (folder / "hf_weights/model-00002-of-00002.safetensors").unlink()
    assert "1 of 2 missing" in only(tmp_path).why


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "metadata.json", "common.pt"])
def test_cut_weights(tmp_path, name):
    file = nemo(tmp_path / NAME) / "weights" / name
    file.write_bytes(file.read_bytes()[:-30])
    assert verdict(tmp_path, NAME) == ("nemo2", 500, "incomplete")


def test_a_mark_beside_it_says_that_it_is_not_done(tmp_path):
    nemo(tmp_path / NAME)
    save(tmp_path / f"{NAME}-unfinished", b"")
    assert verdict(tmp_path, NAME) == ("nemo2", 500, "incomplete")
    assert f"{NAME}-unfinished lies beside it" in found(tmp_path)[NAME].why
    assert verdict(tmp_path, f"{NAME}-unfinished") == ("nemo-marker", None, "marker")


def test_nemo_1_marks_folders_of_megatron_core(tmp_path):
    megatron(tmp_path / NAME)
    assert verdict(tmp_path, NAME) == ("megatron-dist", 500, "complete")
    save(tmp_path / f"{NAME}-unfinished", b"")
    assert found(tmp_path)[NAME].why == f"{NAME}-unfinished lies beside it"


def test_the_last_is_a_link_or_a_folder(tmp_path):
    nemo(tmp_path / NAME)
    (tmp_path / f"{NAME}-last").symlink_to(NAME)
    assert verdict(tmp_path, f"{NAME}-last") == ("alias", 500, "pointer")
    (tmp_path / f"{NAME}-last").unlink()
    nemo(tmp_path / f"{NAME}-last")
    assert verdict(tmp_path, f"{NAME}-last") == ("nemo2", 500, "complete")


def test_a_mark_of_something_else(tmp_path):
    save(tmp_path / "novel-unfinished", b"")
    assert found(tmp_path) == {}


def archive(mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, size in (("./model_config.yaml", 30), ("./model_weights.ckpt", 5000)):
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(bytes(size)))
    return buffer.getvalue()


def test_archives(tmp_path):
    whole = archive()
    save(tmp_path / "megatron_gpt.nemo", whole)
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, one.resumable) == ("nemo-archive", None, Verdict.COMPLETE, False)
    for length in (0, 100, 512, 2000, len(whole) - 10240):
        save(tmp_path / "megatron_gpt.nemo", whole[:length])
        assert only(tmp_path).verdict is Verdict.INCOMPLETE, length


def test_a_text_that_is_called_an_archive(tmp_path):
    save(tmp_path / "Dockerfile.ci.nemo", "FROM scratch\n" * 100)
    save(tmp_path / "short.nemo", "x")
    assert found(tmp_path) == {}


def test_a_compressed_archive_can_t_be_told(tmp_path):
    save(tmp_path / "megatron_gpt.nemo", archive("w:gz"))
    assert only(tmp_path).verdict is Verdict.COMPLETE
