"""No file of a whole checkpoint can be lost or cut without being seen, but those named here, each with its reason."""

import re
import tarfile

import pytest

from lakemark.formats import recogniser
from tests.formats.test_cases import CASES

RECOGNISER = recogniser()
WHOLE = (
    "orbax/default/100",
    "orbax/commit_file_mode/200",
    "orbax/zarr_no_ocdbt/200",
    "flax/orbax_backend/checkpoint_900",
    "flax/legacy_msgpack/checkpoint_900",
    "t5x/run/checkpoint_2000",
    "keras_tf/keras/model-01-0.72.keras",
    "keras_tf/weights/weights.01-0.72.weights.h5",
    "keras_tf/backup/latest.weights.h5",
    "keras_tf/tfckpt/ckpt-50",
)
LOST_UNSEEN = {
    "orbax": [
        r"commit_success\.txt",  # on a disk written since 0.12; seen where items of the step are marked
        r"(.*/)?ocdbt\.process_\d+/d/[0-9a-f]{32}",  # nodes of a process that the merged tree needs no more
        r"(.*/)?_sharding",  # written since 0.5, not needed to read
        r"(.*/)?array_metadatas/process_0",  # written since 0.7; of one process there is none to compare with
    ],
    "t5x": [r".*/\d+\.\d+"],  # chunks of zeros are not written
}
CUT_UNSEEN = {
    "orbax": [
        r"(.*/)?commit_success\.txt",  # its being there is what counts
        r"(.*/)?ocdbt\.process_\d+/d/[0-9a-f]{32}",  # as above
    ],
    "t5x": [
        r"train_ds-.*",  # TensorFlow's, of any length
        r"PINNED",
    ],
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    into = tmp_path_factory.mktemp("whole")
    with tarfile.open(CASES / "checkpoints.tar.gz") as archive:
        wanted = [
            one for one in archive if one.name.removeprefix("./").startswith(("orbax/", "flax/", "t5x/", "keras_tf/"))
        ]
        archive.extractall(into, members=wanted, filter="tar")
    return into


def files_of(path):
    found = RECOGNISER.judge(path)
    assert found.verdict.value == "complete", found.why
    files = sorted(
        file for one in found.paths for file in (one.rglob("*") if one.is_dir() else [one]) if file.is_file()
    )
    base = path if path.is_dir() else path.parent
    return found, {file: str(file.relative_to(base)) for file in files}


def seen(path, found):
    """Whether what is left is judged as less than it was."""
    try:
        now = RECOGNISER.judge(path)
    except LookupError:
        return True
    except Exception as error:  # noqa: BLE001 - nothing is left of it
        return type(error).__name__ == "NotFound"
    return now.verdict.value != "complete" or set(found.present) - set(now.present) != set()


def unseen(name, allowed):
    return any(re.fullmatch(pattern, name) for pattern in allowed)


@pytest.mark.parametrize("case", WHOLE)
def test_a_lost_file_is_seen(unpacked, case):
    path = unpacked / case
    found, files = files_of(path)
    missed = set()
    for file, name in files.items():
        content = file.read_bytes()
        file.unlink()
        if not seen(path, found):
            missed.add(name)
        file.write_bytes(content)
    allowed = LOST_UNSEEN.get(found.framework, [])
    assert {name for name in missed if not unseen(name, allowed)} == set()


@pytest.mark.parametrize("case", WHOLE)
def test_a_cut_file_is_seen(unpacked, case):
    path = unpacked / case
    found, files = files_of(path)
    missed = set()
    for file, name in files.items():
        content = file.read_bytes()
        for length in sorted({0, 1, len(content) // 2, len(content) - 1}):
            file.write_bytes(content[:length])
            if not seen(path, found):
                missed.add((name, length))
        file.write_bytes(content)
    allowed = CUT_UNSEEN.get(found.framework, [])
    assert {(name, length) for name, length in missed if not unseen(name, allowed)} == set()
    assert {name for name, length in missed if length == 0 and not name.startswith(("train_ds", "PINNED"))} == set()
