"""A model exported in Hugging Face's layout, in a folder named by its step: weights only."""

from __future__ import annotations

from typing import Final

from lakemark.formats.hf import files as hf_files
from lakemark.formats.readers.folder import Folder
from lakemark.formats.roles import BESIDE_WEIGHTS, of_file
from lakemark.formats.rules import numbered
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders
from lakemark.formats.rules.own_files import is_beside_a_model
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "safetensors"
_ADAPTER: Final = "adapter_model."
_ADAPTER_CONFIG: Final = "adapter_config.json"
_FIRST: Final = frozenset(
    {"model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors", _ADAPTER_CONFIG}
)


def _is_model(name: str) -> bool:
    return hf_files.role_of(name) is Role.WEIGHTS and of_file(name) not in BESIDE_WEIGHTS


class HfExport(OfFolders):
    """`save_pretrained` of transformers, diffusers and peft: `model.safetensors`, or shards `model-0000i-of-0000N.safetensors`.

    The index of shards is written after them, `adapter_config.json` after the adapter. A folder that is not named by a step
    is a model somebody keeps, no checkpoint.
    """

    def claims(self, folder: Folder) -> bool:
        if numbered.of_folder(folder.name) is None:
            return False
        files, folders = folder.files, folder.folders
        started = not _FIRST.isdisjoint(files) or any(
            "-of-" in name and name.endswith(".safetensors") for name in files
        )
        # An optimizer beside the model is a trainer's folder, and its family was asked before.
        if not started or any(hf_files.role_of(name) not in (Role.WEIGHTS, Role.CONFIG, None) for name in files):
            return False
        # A loop of somebody's own that writes its model as Hugging Face does.
        if any(
            is_beside_a_model(name) and hf_files.role_of(name) is not Role.CONFIG
            for name in files
            if not _is_model(name)
        ):
            return False
        # Last, as it looks at all names: a run's folder may be named by a number and keep its last model beside the steps.
        return not any(map(numbered.holds_checkpoints, folders)) and not numbered.is_run(folder.name, folders, files)

    def step(self, folder: Folder) -> int | None:
        return numbered.of_folder(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        contents.roles.update({name: role for name in contents.files if (role := hf_files.role_of(name))})
        contents.check()
        contents.check_shards()
        if not any(role is Role.WEIGHTS and not name.endswith(".json") for name, role in contents.roles.items()):
            contents.problems.append("no weights")
        adapters = {name.rpartition("/")[0] for name in contents.files if name.rpartition("/")[2].startswith(_ADAPTER)}
        # Of each adapter: peft keeps further ones in folders.
        configs = {f"{inside}/{_ADAPTER_CONFIG}".lstrip("/") for inside in adapters}
        contents.problems.extend(f"no {config} (written last)" for config in sorted(configs.difference(contents.files)))
        return contents.found(FRAMEWORK, self.step(folder))
