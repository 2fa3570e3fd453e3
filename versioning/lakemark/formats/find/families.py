"""The families in the order they are asked: more particular layouts before those they contain."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from lakemark.errors import Misconfigured, quoted
from lakemark.formats.hf.accelerate import Accelerate
from lakemark.formats.hf.export import HfExport
from lakemark.formats.hf.trainer import HfTrainer
from lakemark.formats.jax.flax import Flax
from lakemark.formats.jax.orbax import Orbax
from lakemark.formats.jax.t5x import T5X
from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules.family import Family, Loose, found as judged
from lakemark.formats.tf.keras import Keras
from lakemark.formats.tf.tensorflow import TensorFlow
from lakemark.formats.torch.bytecheckpoint import ByteCheckpoint
from lakemark.formats.torch.composer import Composer
from lakemark.formats.torch.dcp import Dcp, TitanExport
from lakemark.formats.torch.dcp_parts import DcpParts
from lakemark.formats.torch.deepspeed import DeepSpeed
from lakemark.formats.torch.fairseq import Fairseq
from lakemark.formats.torch.lightning import Lightning
from lakemark.formats.torch.megatron import Megatron
from lakemark.formats.torch.nemo import Nemo
from lakemark.formats.torch.nvrx import NvrxLocal
from lakemark.formats.torch.olmo import OlmoCore
from lakemark.formats.torch.ray import RayTrain
from lakemark.formats.torch.single import TorchFiles
from lakemark.formats.torch.torch_checkpointing import TorchCheckpointing
from lakemark.ports import Found

GROUP: Final = "lakemark.formats"

BUILT_IN: Final[tuple[Family, ...]] = (
    # Folders of other frameworks' files, named by Ray: whoever is asked first has them.
    RayTrain(),
    T5X(),
    # Before Flax's files: Flax and T5X save through it under their own names.
    Orbax(),
    # NeMo's `weights/` are Megatron's, Megatron's files are DCP's; Lightning's names are common to NeMo 1 and so come later.
    Nemo(),
    Megatron(),
    NvrxLocal(),
    OlmoCore(),
    # `global_step_<N>` with DCP in folders: before DeepSpeed's `global_step<N>` and plain DCP.
    ByteCheckpoint(),
    TorchCheckpointing(),
    Composer(),
    DeepSpeed(),
    # Before the Trainer: files of the Trainer rule it out, and not the other way round.
    Accelerate(),
    HfTrainer(),
    Lightning(),
    Fairseq(),
    # `step-<N>` with `sharded/` is an export of Hugging Face's layout, too.
    TitanExport(),
    HfExport(),
    TensorFlow(),
    Keras(),
    Flax(),
    # What nearly all above have inside, so after them.
    Dcp(),
    DcpParts(),
    TorchFiles(),
)


def third_party() -> Iterator[Guarded]:
    """Those of the entry-point group `lakemark.formats`. Raises Misconfigured for one that can't be loaded."""
    for entry in _declared(tuple(sys.path)):
        yield Guarded(entry.name, _loaded(entry))


@lru_cache(maxsize=1)
def _declared(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """By name. Looked up once for each `sys.path`: it reads what every installed package says of itself."""
    return tuple(sorted(entry_points(group=GROUP), key=lambda entry: entry.name))


def _loaded(entry: EntryPoint) -> Family:
    try:
        made: Family = entry.load()()
        lacking = [name for name in ("claims", "step", "judge", "loose") if not callable(getattr(made, name, None))]
        if lacking:
            raise TypeError(f"it has no {lacking[0]}()")
    # Importing a stranger's module may do anything, sys.exit() included.
    except (Exception, SystemExit) as error:
        raise Misconfigured(
            f"the checkpoint format {quoted(entry.name)} ({entry.value}) can't be loaded: {error!r}",
            advice="Mend or uninstall the package that provides it.",
        ) from error
    return made


@dataclass(frozen=True, slots=True)
class Guarded:
    """A family that is not ours: what it raises is said of the one folder, and keeps nobody else's checkpoint out."""

    name: str
    family: Family

    def claims(self, folder: Folder) -> bool:
        try:
            return bool(self.family.claims(folder))
        except Exception:  # noqa: BLE001 - another's code; the built-in families are asked next
            return False

    def step(self, folder: Folder) -> int | None:
        try:
            return _number(self.family.step(folder))
        except Exception:  # noqa: BLE001 - as above
            return None

    def judge(self, folder: Folder) -> Found:
        return self._judged(folder.path, (), partial(self.family.judge, folder))

    def loose(self, folder: Folder) -> Iterator[Loose]:
        try:
            for one in self.family.loose(folder):
                _require_inside(folder.path, (one.path, *one.members))
                judge = partial(self._judged, one.path, one.members, one.judge)
                yield replace(one, step=_number(one.step), judge=judge)
        except Exception:  # noqa: BLE001 - as above
            return

    def _judged(self, path: Path, members: tuple[Path, ...], judge: Callable[[], Found]) -> Found:
        try:
            made = judge()
            # A finding of another path would be committed, moved or removed in the place of this one.
            if made.path != path:
                raise ValueError(f"asked of {path}, it speaks of {made.path}")
            _require_inside(path.parent, made.members)
            return replace(made, step=_number(made.step))
        except Exception as error:  # noqa: BLE001 - as above
            return judged(path, self.name, None, [f"the format {self.name} failed: {error!r}"], members=members)


def _number(step: object) -> int | None:
    # Not True, which is an int, nor numpy's integers, which JSON does not know.
    return step if type(step) is int and step >= 0 else None


def _require_inside(folder: Path, paths: Iterable[Path]) -> None:
    for path in paths:
        if path.parent != folder:
            raise ValueError(f"{path} is not in {folder}")
