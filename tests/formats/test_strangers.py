"""Folders full of things that are no checkpoints: nothing is found, and nothing in them makes the search fail."""

import json
import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.formats.builders import safetensors, save, torch_zip
from tests.formats.library_builders import RECOGNISER, hf_trainer

REPOSITORY = Path(__file__).parents[2]


def nothing(root):
    return [(str(one.path), one.framework, one.verdict.value) for one in RECOGNISER.find(root)]


def home(root):
    for year in range(2019, 2025):
        for month in ("01", "12"):
            save(root / f"Pictures/{year}/{month}/IMG_{year}{month}01.jpg", b"\xff\xd8")
        save(root / f"Documents/taxes/{year}/return.pdf")
        save(root / f"Documents/{year}/notes.json", "{}")
    save(root / "Documents/report.final.docx")
    save(root / "Documents/thesis-unfinished", "text")
    save(root / "Downloads/100/index.html")
    save(root / "Downloads/setup-100.bin", b"\x7fELF")
    save(root / "Downloads/model.tar.gz")
    save(root / ".bash_history")
    save(root / ".config/app/state.json", "not json")
    save(root / ".ssh/id_ed25519")
    save(root / "latest", "news")
    save(root / "checkpoint", "a wall")
    save(root / "go/pkg/mod/cache/download/v/v1.22.4.zip")
    (root / "go/latest").symlink_to("pkg-1.22")
    (root / "loop").symlink_to(".")
    save(root / "logs/2024-01-01/app-100.log")
    save(root / "logs/slurm/8812345/slurm-8812345.out")
    save(root / "lightning_logs/version_3/hparams.yaml", "lr: 1")
    save(root / "lightning_logs/version_3/events.out.tfevents.1700000000.host.1.0")
    save(root / "wandb/run-20240101_000000-abc/files/config.yaml")
    save(root / "wandb/latest-run/logs/debug.log")
    save(root / "iter_notes.txt")
    save(root / "release/notes.md")
    save(root / "weights/2024-01.csv")
    save(root / "_SUCCESS", b"")


def datasets(root):
    for number in range(20):
        save(root / f"npz/{number:05d}.npz", b"PK\x03\x04")
        save(root / f"graphs/processed/data_{number}.pt", b"pickle")
        save(root / f"tensors/{number}.pt", b"pickle")
        save(root / f"mnist/{number % 10}/{number}.png")
        save(root / f"mnist_npz/{number % 10}/{number:04d}.npz")
        save(root / f"video/{number:06d}/frames.npy")
        save(root / f"webdataset/{number:06d}.tar")
        save(root / f"parquet/part-{number:05d}-of-00020.parquet")
        save(root / f"arrow/train/data-{number:05d}-of-00020.arrow")
        save(root / f"zarr/temperature/{number}.0")
        save(root / f"tfrecord/train.tfrecord-{number:05d}-of-00020")
        save(root / f"speech/{1900 + number}/{number}/utterance.flac")
    save(root / "parquet/_SUCCESS", b"")
    save(root / "arrow/train/state.json", json.dumps({"_data_files": []}))
    save(root / "arrow/train/dataset_info.json", "{}")
    save(root / "zarr/.zgroup", '{"zarr_format": 2}')
    save(root / "zarr/temperature/.zarray", '{"zarr_format": 2, "shape": [20], "chunks": [1]}')
    save(root / "table/metadata.json", "{}")


def hub(root):
    model = root / "hub/models--meta--llama"
    digest = "0f" * 32
    save(model / f"blobs/{digest}", safetensors())
    save(model / "refs/main", "a" * 40)
    save(model / f"snapshots/{'a' * 40}/config.json", "{}")
    (model / f"snapshots/{'a' * 40}/model.safetensors").symlink_to(f"../../blobs/{digest}")
    for name in (
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "tokenizer.model",
        "config.json",
    ):
        save(root / f"llama-7b/{name}", safetensors())
    save(root / "llama-7b/pytorch_model.bin", torch_zip())
    save(root / "lora/adapter_model.safetensors", safetensors())
    save(root / "torch/hub/checkpoints/resnet50-0676ba61.pth", torch_zip())
    save(root / "torch/hub/checkpoints/vgg16.pth", torch_zip())
    save(root / "torch/hub/checkpoints/resnet18-12345678.pth", torch_zip())
    save(root / "torch/hub/checkpoints/resnet34-b627a593.pth", torch_zip())


@pytest.mark.parametrize("fill", [home, datasets, hub])
def test_nothing_is_found(tmp_path, fill):
    fill(tmp_path)
    assert nothing(tmp_path) == []


@pytest.mark.parametrize("fill", [home, datasets, hub])
def test_nor_deeper(tmp_path, fill):
    fill(tmp_path / "mnt/disk")
    assert nothing(tmp_path) == []


@pytest.mark.parametrize("fill", [home, datasets, hub])
def test_a_run_among_them_is_found(tmp_path, fill):
    fill(tmp_path)
    hf_trainer(tmp_path / "work/run-3/checkpoint-500")
    assert [name for name, *_ in nothing(tmp_path)] == [str(tmp_path / "work/run-3/checkpoint-500")]


def test_a_git_repository():
    assert nothing(REPOSITORY / ".git") == []
    for name in ("versioning", "tests", "docs", "flows", "configs"):
        assert nothing(REPOSITORY / name) == []


def test_a_bare_git_repository(tmp_path):
    subprocess.run(
        ["git", "clone", "-q", "--bare", "--depth", "1", REPOSITORY.as_uri(), tmp_path / "bare.git"], check=True
    )
    subprocess.run(
        ["git", "-C", tmp_path / "bare.git", "-c", "unpack.unpackLimit=0", "count-objects"],
        check=True,
        capture_output=True,
    )
    for first in range(256):
        save(tmp_path / f"bare.git/objects/{first:02x}/{first:038x}")
    assert nothing(tmp_path) == []
    assert nothing(tmp_path / "bare.git") == []
    assert nothing(tmp_path / "bare.git/objects") == []


@pytest.mark.parametrize("root", [*Path("/usr/lib").glob("python3*"), Path(sysconfig.get_paths()["stdlib"])], ids=str)
def test_python_itself(root):
    assert nothing(root) == []


def test_installed_packages():
    assert nothing(Path(sysconfig.get_paths()["purelib"])) == []


def test_things_that_are_neither_file_nor_folder(tmp_path, monkeypatch):
    folder = hf_trainer(tmp_path / "checkpoint-5")
    os.mkfifo(tmp_path / "model-100.pt")
    os.mkfifo(folder / "eval.pt")
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("step-7.ckpt")
        (found,) = RECOGNISER.find(tmp_path)
    assert (found.verdict.value, found.why) == ("incomplete", "eval.pt: neither a file nor a directory")


PROGRAM = """
import os, sys
from pathlib import Path
from lakemark.formats import recogniser

known = recogniser()
list(known.find(Path(sys.argv[1])))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for one in known.find(Path(sys.argv[1])):
    print(one.verdict.value, one.path.name, one.why)
"""


def test_what_may_not_be_read(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o755)
    hf_trainer(tmp_path / "a/checkpoint-5")
    hf_trainer(tmp_path / "a/checkpoint-6")
    hf_trainer(tmp_path / "checkpoint-7")
    save(hf_trainer(tmp_path / "a/checkpoint-8") / "extra/x.json", "{}")
    save(tmp_path / "private/step-9/model.pt", torch_zip())
    (tmp_path / "private").chmod(0)
    (tmp_path / "a/checkpoint-6/optimizer.pt").chmod(0)
    (tmp_path / "checkpoint-7").chmod(0o311)  # its names can't be listed
    (tmp_path / "a/checkpoint-8/extra").chmod(0)
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=True)
    finally:
        for folder in (tmp_path / "private", tmp_path / "checkpoint-7", tmp_path / "a/checkpoint-8/extra"):
            folder.chmod(0o755)
    said = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert said["checkpoint-5"].startswith("complete")
    assert "optimizer.pt: it can't be read: Permission denied" in said["checkpoint-6"]
    assert said["checkpoint-7"] == "incomplete checkpoint-7 it can't be read: Permission denied"
    assert said["checkpoint-8"] == "incomplete checkpoint-8 it can't be read: Permission denied"
    assert "step-9" not in said


def test_a_folder_that_is_gone(tmp_path):
    assert nothing(tmp_path / "gone") == []
    save(tmp_path / "file")
    assert nothing(tmp_path / "file") == []


def test_deeper_than_anybody_saves(tmp_path):
    hf_trainer(tmp_path / "/".join("abcdefgh") / "checkpoint-5")
    hf_trainer(tmp_path / "/".join("abcdef") / "checkpoint-6")
    assert [one.step for one in RECOGNISER.find(tmp_path)] == [6]
