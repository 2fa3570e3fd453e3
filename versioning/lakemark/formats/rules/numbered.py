"""Names that end in a number: which of them speak of a step, and which files look like a model's state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from lakemark.formats.rules.unfinished import before_renaming

_FOLDER: Final = re.compile(
    # `epoch_1-step_100`, `checkpoint_step_100`; then one word for a step, or the bare number.
    r"(?:(?:ep(?:och)?[-_=]?[0-9]{1,9}[-_.,]|(?:checkpoint|ckpt)[-_](?=[a-z]))?"
    r"(?:steps?|checkpoint|ckpt|global[_-]step|iter|iteration|update)[-_=]?)?([0-9]{1,15})",
    re.ASCII | re.IGNORECASE,
)
_FILE: Final = re.compile(
    r"(?:(?P<stem>.*)[-_=]|(?P<word>step|checkpoint|ckpt|iter|(?:model|ema|opt)(?=[0-9]{5}))?)(?P<step>[0-9]{1,15})"
    r"\.(?:ckpt|pt|pth|npz|safetensors|bin|pth\.tar)",
    re.ASCII | re.IGNORECASE,
)
# `model-00001-of-00004`, `rng_state_3`: the number is a rank's or a shard's.
_SHARD: Final = re.compile(
    r".*(?:^|[-_.])(?:of|rank|rng_state|random_states|shard|part|worker)", re.ASCII | re.IGNORECASE
)
_NO_STEP: Final = re.compile(
    r"(?:.*[-_=.\d])?(?:v[0-9]+|v|version|seed|fold|layers?|size|dim|top|epochs?|ep|e|acc|loss|score|f1|auc|bleu|data|samples?"
    r"|batch|image|img|frame|item|chunk|graph|train|test|val|valid|inputs?|labels?|tokens?|[xy])",
    re.ASCII | re.IGNORECASE,
)
_STATE: Final = re.compile(
    r"(?<![a-z])(?:model|weight|optim|state|param|checkpoint|ckpt|adapter|ema|net|unet|actor|critic|policy|generator"
    r"|discriminator|encoder|decoder|best)",
    re.ASCII,
)
_OPTIMIZER: Final = re.compile(r"(?<![a-z])(?:optim|opt_|opt\.)|^\.metadata$", re.ASCII)
_OF_SAVES: Final = frozenset(
    {"checkpoint", "checkpoints", "ckpt", "ckpts", "snapshot", "snapshots", "saves", "lightning_logs", "wandb"}
)
_STEP_WORD: Final = re.compile(r"(?:^|[-_.,])(?:global[_-]?)?steps?[-_=]?([0-9]{1,15})(?=[-_.,]|$)", re.ASCII)
_STRONG: Final = (".safetensors", ".ckpt", ".distcp", ".keras", ".pdparams", ".pdopt")
_WEAK: Final = (".pt", ".pth", ".npz", ".npy", ".bin", ".h5", ".hdf5", ".msgpack", ".pkl", ".pth.tar")
# What is made to be looked at by people: a folder `step_100/` of samples is no checkpoint.
_PICTURES: Final = (
    "png|jpe?g|gif|bmp|tiff?|svg|webp|pdf|mp4|avi|mov|mkv|webm|wav|mp3|flac|ogg|[ct]sv|log|html?|jsonl|ipynb|out|err"
)
_OF_PEOPLE: Final = re.compile(_PICTURES, re.ASCII | re.IGNORECASE)
_NO_STATE: Final = re.compile(rf"{_PICTURES}|txt|md|rst|xml|json|ya?ml|toml|ini|cfg|py|sh", re.ASCII | re.IGNORECASE)
_FILES: Final = (".ckpt", ".pt", ".pth", ".npz", ".safetensors", ".bin", ".pth.tar")
# `.npz` and `.bin` are formats of data first.
_NEED_A_WORD: Final = (".npz", ".bin")
_HASHED: Final = re.compile(r".*-(?=\d*[a-f])[0-9a-f]{8}\.pth?", re.ASCII)
"""Model zoos put the beginning of a digest there, which now and then is digits alone."""
_DIGEST: Final = re.compile(r".*-\d{8}\.pth?", re.ASCII)
_YEARS: Final = range(1900, 2101)
_OF_A_RUN: Final = re.compile(
    r"(?:ep\d{1,9}-)?ba(?P<batch>\d{1,15})(?:-rank\d{1,7})?(?:\.pt)?"  # Composer
    r"|checkpoint_\d{1,9}_(?P<updates>\d{1,15})(?:-\w+)*\.pt|checkpoint_(?:last|best)(?:-\w+)*\.pt"  # fairseq
    r"|(?:.*[-_.,])?(?:global_?)?step=(?P<step>\d{1,15})(?:[-_.,].*)?"  # Lightning, NeMo
    r"|(?:.*[-_.,])?epoch=\d{1,9}(?:[-_.,].*)?\.ckpt|last(?:-v\d+)?\.ckpt",
    re.ASCII | re.DOTALL,
)


def of_folder(name: str) -> int | None:
    """The step a folder's name says; a bare number is one too."""
    match = _FOLDER.fullmatch(name) if name[-1:].isdigit() else None
    return int(match[1]) if match else None


def of_file(name: str) -> int | None:
    """The step a file's name says. Not the number of a shard, an epoch, a version, a score or a sample."""
    match = _FILE.fullmatch(name)
    if not match or before_renaming(name):
        return None
    stem = match["stem"] or ""
    return None if _SHARD.fullmatch(stem) or _NO_STEP.fullmatch(stem) else int(match["step"])


def of_files(names: Iterable[str], folder: str, *, first: bool, trained: Callable[[str], bool]) -> dict[str, int]:
    """Name -> step of those that are checkpoints. first: they lie where the search began.

    Files without a word that speaks of a model are samples of data where their numbers follow one another, unless the last of
    them is `trained`: says in its header that it is a trainer's state. A job that is told to end saves one step after a step.
    """
    likely = [name for name in names if name.endswith(_FILES)]
    steps = {name: step for name in likely if (step := of_file(name)) is not None}
    # Where one name ends in a digest, the others' eight digits are digests as well.
    if any(map(_HASHED.fullmatch, likely)):
        steps = {name: step for name, step in steps.items() if not _DIGEST.fullmatch(name)}
    if not steps:
        return {}
    # In a folder called `checkpoints` a name needs no word of its own.
    saves = folder.lower() in _OF_SAVES
    spoken = {name for name in steps if saves or _STATE.search(name.lower())}
    silent = {name: step for name, step in steps.items() if name not in spoken}
    numbers = set(silent.values())
    # Nobody saves at each step and says of no file what it is. One is read: there may be a million.
    follow = any(number + 1 in numbers for number in numbers)
    samples = follow and not (first and trained(max(silent, key=silent.__getitem__)))
    if samples or not first:
        return {name: step for name, step in steps.items() if name in spoken}
    return {name: step for name, step in steps.items() if name in spoken or not name.endswith(_NEED_A_WORD)}


def is_state(name: str) -> bool:
    """Whether a file's name looks like a part of a model's state."""
    if name.endswith(_STRONG):
        return True
    return name.endswith(_WEAK) and _STATE.search(name.lower()) is not None


def is_text(name: str) -> bool:
    """Whether it is a picture, a text or a table by its ending."""
    # Without a suffix it may be anything, a state too.
    return "." in name and _NO_STATE.fullmatch(name.rpartition(".")[2]) is not None


def are_pictures(names: Iterable[str]) -> bool:
    """Whether all are pictures, sounds, tables or logs, and none has a word that speaks of a model."""
    return all(
        "." in name and _OF_PEOPLE.fullmatch(name.rpartition(".")[2]) and _STATE.search(name.lower()) is None
        for name in names
    )


def is_optimizer(name: str) -> bool:
    """Whether it looks like what only a trainer saves."""
    return _OPTIMIZER.search(name.lower()) is not None


def is_year(step: int | None) -> bool:
    """Whether a bare number is more likely a year."""
    return step in _YEARS


def holds_checkpoints(name: str) -> bool:
    """Whether a folder of this name is a step, or where steps are kept: what it lies in is then a run, not a step."""
    return name.lower() in _OF_SAVES or of_folder(name) is not None


def is_run(name: str, folders: Iterable[str], files: Iterable[str]) -> bool:
    """Whether the names in a folder that a number names speak of other steps than its own: a job's folder is no step.

    Bare numbers in it may be ranks, and so may those of files where they follow one another.
    """
    own, folders, files = of_folder(name), list(folders), list(files)
    if any(not one.isdigit() and of_folder(one) not in (None, own) for one in folders):
        return True
    matches = [match for one in (*folders, *files) if (match := _OF_A_RUN.fullmatch(one))]
    if any(int(match[match.lastgroup]) != own for match in matches if match.lastgroup):
        return True
    if own is None or not name.isdigit():
        return False
    if any(match.lastgroup is None for match in matches) or any(one.lower() in _OF_SAVES for one in folders):
        return True
    # Files 0 to n-1 in a folder are of ranks; numbers with gaps, or one beyond the folder's own, are steps of a run.
    steps = {step for one in files if is_state(one) and (step := of_file(one)) is not None}
    return bool(steps) and (max(steps) - min(steps) >= len(steps) or (len(steps) == 1 and max(steps) > own))


def of_tag(name: str) -> int | None:
    """The step in a name that a user gave to what is a checkpoint by its files: `step=10`, `epoch=1-step=10-loss=0.3`, `10`.

    None also where it says two different ones.
    """
    # The strict rule first: a name that is a step and nothing else needs no word before it.
    whole = of_folder(name)
    if whole is not None:
        return whole
    steps = {int(text) for text in _STEP_WORD.findall(name)}
    return steps.pop() if len(steps) == 1 else None
