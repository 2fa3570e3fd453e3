"""What the roles of a save say: whether training can go on from it, what it lost, and whether all of it is of one save."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lakemark.errors import quoted
from lakemark.model.checkpoints.manifest import NEEDED_TO_RESUME, Role

STATE: Final = (Role.WEIGHTS, Role.OPTIMIZER, Role.SCHEDULER, Role.RNG, Role.DATALOADER, Role.TRAINER)
"""Roles of the state of training; a save that lost one of these lost something. Not config, not other."""

EARLIER: Final = 20
"""With how many earlier saves one is compared."""

_MORE_THAN_WEIGHTS: Final = frozenset({Role.OPTIMIZER, Role.SCHEDULER, Role.RNG})
# Parts of one save are often written a few seconds apart, and by clocks of several nodes.
_APART: Final = timedelta(minutes=1)
_FAR_APART: Final = timedelta(minutes=10)
# Slower than any disk that is trained on.
_SLOWEST_BYTES_PER_SECOND: Final = 5_000_000
# A number with a point behind a word: versions (`1.2.3`) and shards (`00001`) are none.
_METRIC: Final = re.compile(r"(?<=[A-Za-z][=_-])\d+\.\d+(?!\.?\d)", re.ASCII)
_HEAVY: Final = re.compile(
    r".*\.(?:pt|pth|bin|ckpt|npz|npy|pkl|h5|keras|msgpack|safetensors|distcp)", re.ASCII | re.IGNORECASE
)


def resumes(
    present: Collection[str], possible: Collection[str], *, needs_no: Collection[str] = ()
) -> tuple[bool | None, tuple[str, ...]]:
    """Whether training can go on from these roles, and what is missing for sure. needs_no: what the run does without.

    Nothing at all known of the roles: (None, ()).
    """
    # Nothing is known: neither whole nor with gaps. A person may commit it, nobody is told that it resumes.
    if not present and not possible:
        return None, ()
    needed = [role for role in NEEDED_TO_RESUME if role not in needs_no]
    gaps = tuple(f"no {role}" for role in needed if role not in present and role not in possible)
    if gaps:
        return False, gaps
    return (True if all(role in present for role in needed) else None), ()


def weights_only(present: Collection[str], possible: Collection[str]) -> bool:
    """Whether it holds weights and does not even pretend to be a state to train on from."""
    return Role.WEIGHTS in present and not whole_state(present) and _MORE_THAN_WEIGHTS.isdisjoint(possible)


def whole_state(present: Collection[str]) -> bool:
    """Whether a save purports to be a state to train on from: it holds optimizer, scheduler or random-number state."""
    return not _MORE_THAN_WEIGHTS.isdisjoint(present)


def lost(present: Collection[str], possible: Collection[str], earlier: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Which roles every earlier save had, and this one has not.

    earlier: the roles of earlier saves of the same framework; those that were weights alone say nothing of the state and
    are passed over. A save that is weights alone itself has lost nothing: it is another kind of save.
    """
    if not whole_state(present):
        return ()
    # Exports beside the saves of a run have weights alone, and take nothing away from it.
    states = [set(roles) for roles in earlier if whole_state(roles)]
    shared = set.intersection(*states) if states else set()
    return tuple(role.value for role in STATE if role in shared and role not in present and role not in possible)


def no_more(role: str) -> str:
    """What is said of a role that was lost."""
    return f"no {role} any more, which every earlier step has"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dated:
    """A file of a save. names: hard links to it."""

    path: str
    role: str
    size_bytes: int
    written_at: datetime
    names: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """Files that seem to be of another save than the rest."""

    paths: tuple[str, ...]
    why: str


def foreign(files: Iterable[Dated], *, before: datetime | None) -> Foreign | None:
    """Files in a save's directory that another save left there; None where all seem to be of one save.

    before: when the run's previous save was finished, where that is known. Only heavy files are judged: those with a role
    of the state, or without any role and with the ending of a file of tensors. Configuration and tokenizer files may be
    copies of any age. In this order, the last two rules not for files with several hard links, which somebody meant:

    - two files whose names differ in a metric alone (`ckpt-loss=0.31.pt`, `ckpt-loss=0.29.pt`): the older ones.
    - files older than the previous save, at least a minute older than every other one, where others are newer than it.
    - the fewer files, at least ten minutes older than all others and by more than a disk of 5 MB/s would need to write
      these: the save was begun, broken off and made again.
    """
    heavy = sorted((file for file in files if _is_heavy(file)), key=lambda file: (file.written_at, file.path))
    twins = _twins(heavy)
    if twins:
        return Foreign(paths=twins, why=f"{_shown(twins)}: there is a newer one whose name differs in a metric alone")
    # A frozen base model is linked into each save on purpose and is as old as it is.
    alone = [file for file in heavy if file.names == 1]
    old = _older_than(alone, before)
    if old:
        return Foreign(paths=old, why=f"{_shown(old)}: older than the save before, unlike the rest")
    broken = _broken_off(alone)
    if broken:
        return Foreign(paths=broken, why=f"{_shown(broken)}: much older than the rest, as of a save that broke off")
    return None


def _is_heavy(file: Dated) -> bool:
    if file.role in STATE:
        return True
    # A recogniser may not know the role of what a script added; its ending tells that it is tensors.
    return file.role in ("", Role.OTHER) and is_of_tensors(file.path)


def is_of_tensors(path: str) -> bool:
    """Whether its ending is one of files that hold a model's state."""
    return _HEAVY.fullmatch(path) is not None


def _twins(heavy: Sequence[Dated]) -> tuple[str, ...]:
    """All but the newest of each group; the files come in order of time."""
    groups: dict[str, list[str]] = defaultdict(list)
    for file in heavy:
        name = file.path.rsplit("/", 1)[-1]
        masked = _METRIC.sub("#", name)
        if masked != name and is_of_tensors(name):
            groups[f"{file.path.rpartition('/')[0]}/{masked}"].append(file.path)
    return tuple(path for paths in groups.values() for path in paths[:-1])


def _older_than(heavy: Sequence[Dated], before: datetime | None) -> tuple[str, ...]:
    old = [file for file in heavy if before is not None and file.written_at < before]
    # In order of time, so the older ones come first.
    rest = heavy[len(old) :]
    if not old or not rest or rest[0].written_at - old[-1].written_at < _APART:
        return ()
    return tuple(file.path for file in old)


def _broken_off(heavy: Sequence[Dated]) -> tuple[str, ...]:
    rest_bytes = sum(file.size_bytes for file in heavy)
    for count in range(1, (len(heavy) + 1) // 2):
        # Counted down, not summed up anew for each: a step may have tens of thousands of files.
        rest_bytes -= heavy[count - 1].size_bytes
        slow = timedelta(seconds=rest_bytes / _SLOWEST_BYTES_PER_SECOND)
        if heavy[count].written_at - heavy[count - 1].written_at >= _FAR_APART + slow:
            return tuple(file.path for file in heavy[:count])
    return ()


def _shown(paths: Sequence[str]) -> str:
    return ", ".join(map(quoted, paths[:3])) + (", …" if len(paths) > 3 else "")  # noqa: PLR2004 - enough to see
