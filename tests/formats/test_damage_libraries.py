"""No file of a whole checkpoint of the libraries around PyTorch can be lost or cut without being seen.

But those named here, each with its reason. The roles count: what loses a role is seen.
"""

import re
import shutil
import tarfile

import pytest

from lakemark.formats import recogniser
from tests.formats.test_cases import CASES

RECOGNISER = recogniser()
WHOLE = (
    "hf_trainer/plain/checkpoint-10",
    "hf_trainer/two_ranks/checkpoint-5",
    "hf_trainer/only_model/checkpoint-10",
    "hf_trainer/sharded_best_limit/checkpoint-15",
    "hf_trainer/legacy_names/checkpoint-500",
    "accelerate/auto_naming/checkpoints/checkpoint_1",
    "accelerate/named_pickle/step_6",
    "accelerate/fsdp_sharded/checkpoints/checkpoint_0",
    "lightning/keep_all/epoch=1-step=16-val_loss=1.41.ckpt",
    "fairseq/plain/checkpoint_2_1000.pt",
    "deepspeed/zero1/global_step10",
    "deepspeed/zero1_custom_tag/step=10",
    "deepspeed/zero2_bf16_two_ranks/global_step10",
    "megatron/torch_dist/iter_0001000",
    "megatron/torch_dist_two_ranks/iter_0001000",
    "megatron/legacy_torch/iter_0001000",
    "nemo/nemo1_ptl/megatron_gpt--val_loss=2.35-step=500-consumed_samples=4000.0.ckpt",
    "nemo/nemo_archive/megatron_gpt.nemo",
    "nemo/interrupted/unfinished_marker/checkpoints/model_name=0--val_loss=2.35-step=500-consumed_samples=4000.0",
)
LOST_UNSEEN = {
    "hf-trainer": [
        r"generation_config\.json",  # of models that generate
        r"config\.json",  # a plain module has none
        r"training_args\.bin",  # older ones have none
    ],
    "nemo2": [r"context/.*"],  # which files are there depends on the model
    "megatron-dist": [],
}
CUT_UNSEEN = {
    "hf-trainer": [r"(?:training_args|config)\.bin"],
    "nemo2": [r"context/.*\.yaml"],  # a text says nothing of its length
}
A_ZIP_STARTS_WITH = 4
"""Bytes. A file of fewer is not even the start of a zip; it may be a pickle of before 2020, which does not say how long it is."""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    into = tmp_path_factory.mktemp("whole")
    with tarfile.open(CASES / "checkpoints.tar.gz") as archive:
        roots = tuple({f"{case.split('/')[0]}/" for case in WHOLE})
        archive.extractall(
            into, members=[one for one in archive if one.name.removeprefix("./").startswith(roots)], filter="tar"
        )
    return into


@pytest.fixture
def case(unpacked, tmp_path, request):
    """A copy with its siblings, so that nothing is left for the next test."""
    wanted = unpacked / request.param
    shutil.copytree(wanted.parent, tmp_path / "run", symlinks=True)
    path = tmp_path / "run" / wanted.name
    found = RECOGNISER.judge(path)
    assert found.verdict.value == "complete", found.why
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return path, found, files


def seen(path, found):
    """Whether what is left is judged as less than it was."""
    if not path.exists():
        return True
    now = RECOGNISER.judge(path)
    return now.verdict.value != "complete" or set(found.present) - set(now.present) != set()


def name_of(path, file):
    return str(file.relative_to(path)) if path.is_dir() else file.name


@pytest.mark.parametrize("case", WHOLE, indirect=True)
def test_a_lost_file_is_seen(case):
    path, found, files = case
    missed = set()
    for file in files:
        content = file.read_bytes()
        file.unlink()
        if not seen(path, found):
            missed.add(name_of(path, file))
        file.write_bytes(content)
    allowed = LOST_UNSEEN.get(found.framework, [])
    assert {name for name in missed if not any(re.fullmatch(one, name) for one in allowed)} == set()


@pytest.mark.parametrize("case", WHOLE, indirect=True)
def test_a_cut_file_is_seen(case):
    path, found, files = case
    missed = set()
    for file in files:
        content = file.read_bytes()
        last = len(content) - 1 - content.endswith(b"\n")  # JSON is whole without its last newline
        if file.suffix == ".nemo":
            last = len(content.rstrip(b"\0"))  # a tar ends with empty blocks
        for length in sorted({0, 1, A_ZIP_STARTS_WITH, len(content) // 3, len(content) // 2, last}):
            if length > last:
                continue
            file.write_bytes(content[:length])
            if not seen(path, found):
                missed.add((name_of(path, file), length))
        file.write_bytes(content)
    allowed = CUT_UNSEEN.get(found.framework, [])
    unexplained = {(name, length) for name, length in missed if not any(re.fullmatch(one, name) for one in allowed)}
    assert {(name, length) for name, length in unexplained if length >= A_ZIP_STARTS_WITH or length == 0} == set()
