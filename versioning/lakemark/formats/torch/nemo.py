"""NeMo: folders with `weights/` and `context/`, `.nemo` archives, and files that say that a sibling is not done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.rules import numbered
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import Loose, found, marker
from lakemark.formats.torch import megatron
from lakemark.formats.torch.lightning import UNFINISHED
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "nemo2"
ARCHIVE: Final = "nemo-archive"
MARKER: Final = "nemo-marker"
_NAME: Final = re.compile(r".+-step=\d{1,15}(?:-.*)?|.+-last", re.ASCII | re.DOTALL)
_LOOSE: Final = (UNFINISHED, ".nemo")
# What NeMo writes into `context/`.
_TOLD: Final = frozenset({"io.json", "model.yaml"})
_BEGUN: Final = frozenset({".metadata", ".metadata.tmp", megatron.COMMON, megatron.CONFIG})
_HUGGING_FACE: Final = ("hf_weights", "hf_adapter")
_IN_HUGGING_FACE: Final = tuple(f"{name}/" for name in _HUGGING_FACE)
_WEIGHTS: Final = re.compile(r".*\.(?:safetensors|bin)(?:\.index\.json)?", re.ASCII | re.DOTALL)
_TRAINER: Final = "trainer.pt"
_BLOCK_BYTES: Final = 512
_GZIP: Final = b"\x1f\x8b"


class Nemo:
    """`nemo/lightning/pytorch/callbacks/model_checkpoint.py` and `nemo/lightning/io` of NeMo 2, `save_restore_connector` of 1.

    `{name}--{val_loss}-step={step}-consumed_samples={n}[-last]/` holds `weights/` (Megatron-core's torch_dist) and, written
    after it, `context/`. Models of Hugging Face have `hf_weights/` or `hf_adapter/` instead, then `trainer.pt`. An empty file
    `<name>-unfinished` beside it is made before and removed after the save. A `.nemo` is a tar of `model_config.yaml` and
    the weights; NeMo 1's `.ckpt` are Lightning's.
    """

    def claims(self, folder: Folder) -> bool:
        # `weights/` and `hf_weights/` are names that others use: the context, or NeMo's way to name a save, has to be there, too.
        if any(map(folder.has_folder, _HUGGING_FACE)):
            return folder.has_folder("context") or _NAME.fullmatch(folder.name) is not None
        if not folder.has_folder("weights"):
            return False
        if folder.has_folder("context") and (_is_told(folder) or _is_begun(folder) or _NAME.fullmatch(folder.name)):
            return True
        return _NAME.fullmatch(folder.name) is not None and folder.sub("weights").has_file(".metadata")

    def step(self, folder: Folder) -> int | None:
        return numbered.of_tag(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        for name in contents.files:
            if name.startswith("context/"):
                contents.roles[name] = Role.CONFIG
        if not _has_context(folder):
            # `always_save_context` may be off: one is missed where other saves have it, or where there are none to ask.
            others = list(_done_beside(folder))
            if folder.has_folder("context") or not others or any(map(_has_context, others)):
                contents.problems.append("no context (written after the weights)")
            contents.notes.append("no context, nor with those beside it: always_save_context may be off")
        if any(map(folder.has_folder, _HUGGING_FACE)):
            _add_hugging_face(contents)
        else:
            megatron.add(contents, "weights")
        contents.check()
        if folder.parent.is_file(folder.name + UNFINISHED):
            contents.problems.append(f"{folder.name}{UNFINISHED} lies beside it")
        return contents.found(FRAMEWORK, self.step(folder))

    def loose(self, folder: Folder) -> Iterator[Loose]:
        for name in [name for name in folder.files if name.endswith(_LOOSE)]:
            if name.endswith(UNFINISHED) and _marks(folder, name):
                yield Loose(path=folder.path / name, names=(name,), judge=partial(_marker, folder, name))
            elif name.endswith(_LOOSE[1]) and not _is_text(folder, name):
                judge = partial(_archive, folder, name)
                step = numbered.of_tag(name.removesuffix(".nemo"))
                yield Loose(path=folder.path / name, names=(name,), judge=judge, step=step)


def _add_hugging_face(contents: Contents) -> None:
    for name in contents.files:
        if name.startswith(_IN_HUGGING_FACE):
            contents.roles[name] = Role.WEIGHTS if _WEIGHTS.fullmatch(name) else Role.CONFIG
    contents.check_shards()
    if not contents.has(Role.WEIGHTS):
        contents.problems.append("no weights")
    if _TRAINER in contents.files:
        contents.roles[_TRAINER] = Role.TRAINER
        contents.look_into([_TRAINER])
    else:
        contents.problems.append(f"no {_TRAINER} (written after the weights)")


def _is_told(folder: Folder) -> bool:
    return not _TOLD.isdisjoint(folder.sub("context").files)


def _is_begun(folder: Folder) -> bool:
    weights = folder.sub("weights")
    return "distcp" in weights.suffixes or not _BEGUN.isdisjoint(weights.files)


def _has_context(folder: Folder) -> bool:
    return folder.has_folder("context") and bool(folder.sub("context").files)


def _done_beside(folder: Folder) -> Iterator[Folder]:
    """Other saves of the run that nothing marks, but the last, which may have a context where none of the others has."""
    parent = folder.parent
    names = (name for name in parent.folders if name != folder.name and _NAME.fullmatch(name))
    # A save that is still marked may lack its context for the same reason as this one.
    usual = (name for name in names if not name.endswith("-last") and not parent.has_file(name + UNFINISHED))
    return (one for name in usual if (one := Folder(f"{parent.at}/{name}")).has_folder("weights"))


def _marks(folder: Folder, name: str) -> bool:
    sibling = name.removesuffix(UNFINISHED)
    # Before the first file of a save its sibling is not there yet: then the name alone tells.
    return bool(sibling) and (
        _NAME.fullmatch(sibling) is not None or sibling in folder.kinds or f"{sibling}.ckpt" in folder.kinds
    )


def _is_text(folder: Folder, name: str) -> bool:
    """A tar has zeros after each name in it; anything may be called so."""
    try:
        with folder.open(name) as stream:
            start = stream.read(_BLOCK_BYTES)
    except (Unreadable, OSError):
        return False
    # An empty one is a cut archive, no text.
    return bool(start) and b"\0" not in start and not start.startswith(_GZIP)


def _marker(folder: Folder, name: str) -> Found:
    return marker(folder.path / name, MARKER, "its sibling is NOT complete")


def _archive(folder: Folder, name: str) -> Found:
    why = headers.broken(folder, name)
    step = numbered.of_tag(name.removesuffix(".nemo"))
    problems = [why] if why else []
    return found(folder.path / name, ARCHIVE, step, problems, present=[Role.WEIGHTS, Role.CONFIG])
