"""PyTorch DCP: a folder of `__<rank>_<n>.distcp` and `.metadata`; torchtitan's `step-<N>` and its last export."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules import numbered, sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders, ordered
from lakemark.formats.rules.own_files import is_beside_a_model
from lakemark.formats.rules.unfinished import left_over
from lakemark.formats.torch import sharded
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found, Verdict

FRAMEWORK: Final = "dcp"
EXPORT: Final = "titan-hf-export"
INDEX: Final = "model.safetensors.index.json"
SHARDED: Final = "sharded"
# `__0.metadata` is the first rank's where no collectives are used.
_METADATA: Final = frozenset({".metadata", ".metadata.tmp", "__0.metadata", "__0.metadata.tmp"})
_OF_A_STEP: Final = frozenset({Role.WEIGHTS, Role.OPTIMIZER, Role.OTHER})
_REPLICA: Final = "ft-replicat-"
_KEPT_WITH: Final = "the loader's state of one replica of torchft: kept with the step of its name"
_TITAN: Final = re.compile(r"step-(\d{1,15})", re.ASCII)
_WHOLE: Final = re.compile(r"model-\d{5,7}-of-\d{5,7}\.safetensors", re.ASCII)
_SHARD: Final = re.compile(r"shard-\d{5,7}-model-\d{5,7}-of-\d{5,7}\.safetensors", re.ASCII)


class Dcp(OfFolders):
    """`torch/distributed/checkpoint/filesystem.py` of torch 2.0 to 2.15; torchtitan 0.1 to 0.3 saves so.

    Data files are written under their final names; `.metadata` is renamed into place last, or `__<rank>.metadata` by each
    rank where no collectives are used. A save to the same place leaves the old `.metadata` until its end. With torchft each
    replica keeps a dataloader alone, in `ft-replicat-<id>/step-<N>` beside the steps: with the step it is one checkpoint.
    """

    def beside(self, folder: Folder) -> tuple[Path, ...]:
        parent = folder.parent
        # A replica's own step goes with one of the run and takes none along.
        if self.step(folder) is None or parent.name.startswith(_REPLICA):
            return ()
        replicas = [name for name in parent.folders if name.startswith(_REPLICA)]
        steps = [parent.sub(name).sub(folder.name) for name in replicas if parent.sub(name).has_folder(folder.name)]
        # One that is still being written must not be sealed with the step: it is judged by itself.
        return tuple(step.path for step in steps if ".metadata" in step.files)

    def claims(self, folder: Folder) -> bool:
        if "distcp" in folder.suffixes:
            return not left_over(folder.name)
        # Begun without any data file yet: then the name must be a step's, as anybody may have such a `.metadata`.
        return (
            not folder.suffixes.isdisjoint({"metadata", "tmp"})
            and not _METADATA.isdisjoint(folder.files)
            and numbered.of_folder(folder.name) is not None
        )

    def step(self, folder: Folder) -> int | None:
        return numbered.of_folder(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        sharded.add(contents)
        sharded.look_beside(contents)
        # Said already, and better: what is left there is the one thing that would have made it whole.
        if ".metadata.tmp only" in contents.problems:
            contents.problems.remove("temporary file .metadata.tmp left")
        if folder.parent.name.startswith(_REPLICA) and ".metadata" not in folder.files:
            # Not whole: it goes with no step, and who clears up must be told of it.
            contents.problems.append("the loader's state of one replica of torchft, without .metadata")
        elif folder.parent.name.startswith(_REPLICA):
            return replace(contents.found(FRAMEWORK, self.step(folder)), verdict=Verdict.MARKER, why=_KEPT_WITH)
        # A dataloader or random states by themselves are part of something that lies elsewhere.
        elif contents.present and _OF_A_STEP.isdisjoint({*contents.present, *contents.possible}):
            contents.problems.append(f"{', '.join(ordered(contents.present))} alone")
        contents.check()
        return contents.found(FRAMEWORK, self.step(folder))


class TitanExport(OfFolders):
    """torchtitan's last step with `last_save_in_hf`, by `HuggingFaceStorageWriter` of torch 2.8 to 2.15: weights only.

    Ranks write `sharded/shard-<i>-model-<j>-of-<n>.safetensors`, these are joined to `model-<j>-of-<n>.safetensors`, then
    the index is written. What `save_pretrained` of transformers writes has a `config.json` and no `sharded/`.
    """

    def claims(self, folder: Folder) -> bool:
        if _TITAN.fullmatch(folder.name) is None or folder.has_file("config.json"):
            return False
        # A loop of somebody's own that writes its model in shards.
        if any(map(is_beside_a_model, folder.files)):
            return False
        # The shards come first, so a save that was cut down early has nothing else.
        shards = folder.has_folder(SHARDED) and any(_SHARD.fullmatch(name) for name in folder.sub(SHARDED).files)
        return shards or (folder.has_file(INDEX) and any(_WHOLE.fullmatch(name) for name in folder.files))

    def step(self, folder: Folder) -> int | None:
        return numbered.of_folder(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        for name in contents.files:
            last = name.rpartition("/")[2]
            if _WHOLE.fullmatch(last) or _SHARD.fullmatch(last) or last == INDEX:
                contents.roles[name] = Role.WEIGHTS
        contents.check()
        strays = contents.strays()
        contents.problems.extend(
            sets.short_of(name for name in folder.files if _WHOLE.fullmatch(name) and name not in strays)
        )
        if INDEX in folder.files:
            contents.check_index(INDEX)
        else:
            contents.problems.append(f"no {INDEX}")
        if not any(_WHOLE.fullmatch(name) for name in folder.files):
            contents.problems.append("no weights")
        return contents.found(EXPORT, self.step(folder))
