"""NeMo's folders, archives and marks."""

import io
import shutil
import tarfile

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import save
from tests.formats.library_builders import found, megatron, only, verdict

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


def test_a_compressed_archive_can_t_be_told(tmp_path):
    save(tmp_path / "megatron_gpt.nemo", archive("w:gz"))
    assert only(tmp_path).verdict is Verdict.COMPLETE
