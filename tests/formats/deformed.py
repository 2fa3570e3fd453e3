"""What becomes of a family's saves in everyday mishaps: real checkpoints of two steps, deformed file by file, and judged."""

import os
import re
import shutil
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lakemark import formats
from lakemark.ports import Verdict

ARCHIVE = Path(__file__).parent / "cases" / "checkpoints.tar.gz"
RECOGNISER = formats.recogniser()
CASES = {
    "PyTorch DCP": "dcp/two_ranks",
    "torchtitan": "torchtitan/keep2/checkpoint",
    "Hugging Face Trainer": "hf_trainer/two_ranks",
    "Accelerate": "accelerate/auto_naming",
    "Lightning": "lightning/keep_all",
    "DeepSpeed": "deepspeed/zero2_bf16_two_ranks",
    "Megatron-LM, torch_dist": "megatron/torch_dist_two_ranks",
    "Megatron-LM, legacy": "megatron/legacy_torch",
    "Composer": "composer/unsharded",
    "Composer, FSDP": "composer/fsdp_sharded",
    "fairseq": "fairseq/plain",
    "OLMo-core": "olmo_core/run",
    "ByteCheckpoint": "bytecheckpoint/run",
    "Ray Train": "ray_train/run_keep_all",
    "Orbax": "orbax/default",
    "Flax": "flax/legacy_msgpack",
    "T5X": "t5x/run",
    "TensorFlow": "keras_tf/tfckpt",
}
_LAST = {
    "trainer_state.json", ".metadata", "metadata.json", ".metadata.json", "commit_success.txt", "_CHECKPOINT_METADATA",
    "checkpoint",
}  # fmt: skip
_RANK = re.compile(r"(?:__|rank_?|rng_state_|random_states_|extra_state_rank_)(\d+)(?=[_.])", re.ASCII)


@dataclass(frozen=True)
class Outcome:
    """whole_from: (file, of how many) from which on a cut save is taken for whole; None: never. The rest are verdicts, or —."""

    whole_from: tuple[int, int] | None
    files: int
    rank: str
    staged: str
    rotated: str
    stripped: str


def unpack(case, into):
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            name = member.name.removeprefix("./")
            if name.startswith(f"{case}/"):
                archive.extract(member.replace(name=name.removeprefix(f"{case}/")), into, filter="tar")
    return into


class Pair:
    """Two whole steps in a directory, the newest and the one before."""

    def __init__(self, case, root):
        self.root = unpack(case, root)
        whole = [one for one in RECOGNISER.find(root) if one.verdict is Verdict.COMPLETE and one.step is not None]
        self.earlier, self.newest = [one for one in whole if not one.rolling][-2:]

    def verdict(self, found):
        now = {one.path: one for one in RECOGNISER.find(self.root)}.get(found.path)
        if now is None:
            return "not found"
        if now.verdict is Verdict.COMPLETE and found.resumable is not False and now.resumable is False:
            return "whole, not resumable"
        return "whole" if now.verdict is Verdict.COMPLETE else now.verdict.value


def files_of(found):
    """In the order in which they are written; the archive has times to the second alone, so what is written last is named."""
    every = [path for one in found.paths for path in ([one] if one.is_file() else one.rglob("*")) if path.is_file()]
    return sorted(every, key=lambda path: (path.name in _LAST, path.stat().st_mtime_ns, str(path)))


def without(pair, found, names):
    """The verdict on `found` without these files, which come back."""
    aside = {path: path.read_bytes() for path in names}
    times = {path: path.stat().st_mtime_ns for path in names}
    for path in names:
        path.unlink()
    said = pair.verdict(found)
    for path, content in aside.items():
        path.write_bytes(content)
        os.utime(path, ns=(times[path], times[path]))
    return said


def _cut(pair):
    files = files_of(pair.newest)
    for count in range(1, len(files)):
        if without(pair, pair.newest, files[count:]).startswith("whole"):
            return (count, len(files)), len(files)
    # The last one by half.
    last = files[-1]
    content, at = last.read_bytes(), last.stat().st_mtime_ns
    last.write_bytes(content[: len(content) // 2])
    whole = pair.verdict(pair.newest).startswith("whole")
    last.write_bytes(content)
    os.utime(last, ns=(at, at))
    return ((len(files), len(files)) if whole else None), len(files)


def _rank(pair):
    ranks = {path: int(match[1]) for path in files_of(pair.newest) if (match := _RANK.search(path.name))}
    last = max(ranks.values(), default=0)
    return without(pair, pair.newest, [path for path, rank in ranks.items() if rank == last]) if last else "—"


def _rotated(pair):
    files = files_of(pair.earlier)
    return without(pair, pair.earlier, files[: len(files) // 2]) if len(files) > 1 else "—"


def _stripped(pair):
    base = pair.newest.path.parent if pair.newest.members else pair.newest.path
    optimizer = [base / name for name, role in pair.newest.roles.items() if role == "optimizer"]
    return without(pair, pair.newest, [path for path in optimizer if path.is_file()]) if optimizer else "—"


def _staged(pair):
    staging = pair.root / "tmp-checkpoint-x7"
    staging.mkdir()
    for path in pair.newest.paths:
        shutil.move(path, staging / path.name)
    inside = [one for one in RECOGNISER.find(pair.root) if staging in (one.path, *one.path.parents)]
    return " ".join(sorted({one.verdict.value for one in inside}))


@cache
def outcome(family, root):
    pair = Pair(CASES[family], root)
    whole_from, files = _cut(pair)
    made = {"rank": _rank(pair), "rotated": _rotated(pair), "stripped": _stripped(pair)}
    return Outcome(whole_from=whole_from, files=files, staged=_staged(pair), **made)
