"""Folders in which something is written until it is renamed: by their exact names, each with who names it so, and where.

Nothing in one is a save, whatever family it looks like and however whole: it is still being written, or its writer died.
Only forms that nobody gives to anything else are in the table: `temp-0.7/` is a temperature, `tmp/` is anybody's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules import numbered
from lakemark.formats.rules.family import Loose, temporary
from lakemark.ports import Found

FRAMEWORK: Final = "staging"


@dataclass(frozen=True, slots=True)
class Form:
    """name: what the whole name of the folder is; shown: the same for people. source: where the name is made."""

    shown: str
    name: re.Pattern[str]
    framework: str
    source: str


def _form(shown: str, framework: str, source: str, *, name: str) -> Form:
    return Form(shown, re.compile(name, re.ASCII | re.DOTALL), framework, source)


FORMS: Final = (
    _form(
        "tmp-checkpoint-…",
        "transformers",
        "`trainer.py` 4.36 to 4.38, `tmp-{checkpoint_folder}`, and trainers made of it",
        name=r"tmp-checkpoint-.+",
    ),
    _form(
        "….orbax-checkpoint-tmp",
        "orbax",
        "`_src/path/atomicity_defaults.py`, `TMP_DIR_SUFFIX`; older ones add a time",
        name=r".+\.orbax-checkpoint-tmp(?:-\d+)?",
    ),
    _form("checkpoint_N.tmp-SECONDS", "t5x", "`t5x/checkpoints.py`", name=r"checkpoint_\d+\.tmp-\d+"),
    _form(
        "checkpoint_tmp, checkpoint_tmp_gda",
        "flax",
        "`training/checkpoints.py`, `{prefix}tmp`",
        name=r"checkpoint_tmp(?:_gda)?",
    ),
    _form(
        "tmp_step-N",
        "torch-checkpointing",
        "`checkpoint_writer.py`, `tmp_{name}`",
        name=r"tmp_(?:global_)?step[-_]?\d+",
    ),
    _form("stepN-tmp", "olmo-core", "`olmo_core/train/checkpoint.py`", name=r"step\d+-tmp"),
    _form(
        "…_temp_HEX",
        "tensorflow",
        "`python/training/saver.py`, `_temp_{uuid4().hex}/part`",
        name=r".+_temp_[0-9a-f]{32}",
    ),
    _form(
        "ckpt-N_temp, model.ckpt-N_temp",
        "tensorflow",
        "`python/checkpoint/functional_saver.py`, `{prefix}_temp/part`",
        name=r"(?:model\.)?ckpt-\d+_temp",
    ),
    _form(".~tmp~", "rsync", "rsync(1), `--delay-updates`", name=r"\.~tmp~"),
    _form(".rsync-partial", "rsync", "rsync(1), `--partial-dir`", name=r"\.rsync-partial"),
)


_MAYBE: Final = re.compile(r"te?mp|partial", re.ASCII)


def form_of(name: str) -> Form | None:
    """The form that a folder's name is of."""
    # Each name that is passed in a search is asked for.
    return next((one for one in FORMS if one.name.fullmatch(name)), None) if _MAYBE.search(name) else None


def staged_in(path: PurePath) -> str | None:
    """Which folder of its path, itself last, is one of these; None where none is."""
    return next((name for name in path.parts if form_of(name)), None)


def why(name: str) -> str:
    """What is said of a folder of that name, and of what lies in it."""
    form = form_of(name)
    return f"{name} is a folder in which {form.framework if form else 'somebody'} writes until it is renamed"


class Staging:
    """Those folders that no family of a framework has claimed. What is in them is not looked for."""

    def claims(self, folder: Folder) -> bool:
        return form_of(folder.name) is not None

    def step(self, folder: Folder) -> int | None:
        return numbered.of_folder(folder.name.removeprefix("tmp-").removeprefix("tmp_"))

    def judge(self, folder: Folder) -> Found:
        return temporary(folder.path, FRAMEWORK, self.step(folder), why(folder.name))

    def loose(self, folder: Folder) -> Iterator[Loose]:  # noqa: ARG002 - as the family's method
        yield from ()
