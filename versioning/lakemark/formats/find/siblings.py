"""Folders of one parent whose names differ in a role alone, as `_actor` and `_critic`: what they hold of a step is one save.

Trainers of several models (reinforcement learning, adversarial and distilled ones) save each into a folder of its own. Half of
such a step is nothing to go on from. They are taken for that where they have two steps in common, or one and roles that are never
trained alone. Then each of them has to have every step: one that has it alone is being saved, or was removed from the others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lakemark.formats.pointers.links_and_lines import step_of
from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules.family import ordered
from lakemark.ports import Found, Verdict

_TOGETHER: Final = (
    frozenset({"actor", "critic", "policy", "value", "reward", "ref", "reference"}),
    frozenset({"generator", "discriminator", "gen", "disc", "netg", "netd"}),
)
"""Roles of one process."""
_ROLE: Final = re.compile(
    r"(?P<before>(?:.*[-_.])?)(?P<role>actor|critic|policy|value|reward|ref|reference|generator|discriminator|gen|disc|netg|netd"
    r"|teacher|student|encoder|decoder|target|online|draft|ema)(?P<after>(?:[-_.].*)?)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_ENOUGH: Final = 2


@dataclass(frozen=True, slots=True)
class Siblings:
    """One step of theirs. path: how it is spoken of; nothing lies there. members: where its parts lie, or should."""

    path: Path
    members: tuple[Path, ...]


def siblings(parent: Folder) -> Iterator[Siblings]:
    """Of the folders directly in `parent`, by names alone."""
    groups: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for name in parent.folders:
        match = _ROLE.fullmatch(name)
        if match:
            groups[match["before"], match["after"]][name] = match["role"].lower()
    taken: set[str] = set()
    for folders in groups.values():
        if len(folders) < _ENOUGH:
            continue
        steps = {name: {one for one in parent.sub(name).folders if step_of(one) is not None} for name in folders}
        steps = {name: mine for name, mine in steps.items() if mine}
        for one in _sets(parent.path, steps, roles={folders[name] for name in steps}):
            # Another group may have a step of the same name: it would have to be spoken of by the same path.
            if one.path.name not in taken:
                taken.add(one.path.name)
                yield one


def _sets(parent: Path, steps: Mapping[str, set[str]], *, roles: set[str]) -> Iterator[Siblings]:
    common = set.intersection(*steps.values()) if len(steps) >= _ENOUGH else set()
    alone = not any(roles <= together for together in _TOGETHER)
    if len(common) < (_ENOUGH if alone else 1):
        return
    for name in sorted(set.union(*steps.values())):
        yield Siblings(parent / name, tuple(parent / folder / name for folder in sorted(steps)))


def whole_of(path: Path) -> Siblings | None:
    """The step that a folder is a part of; None where it is none."""
    if step_of(path.name) is None or not _ROLE.fullmatch(path.parent.name):
        return None
    return next((one for one in siblings(Folder.of(path.parent.parent)) if path in one.members), None)


def named(path: Path) -> Siblings | None:
    """The step that is spoken of by a path at which nothing lies."""
    if step_of(path.name) is None:
        return None
    return next((one for one in siblings(Folder.of(path.parent)) if one.path == path), None)


def united(one: Siblings, parts: Mapping[Path, Found]) -> Found:
    """One finding of all. parts: what was found at its members."""
    base = one.path.parent
    lacking = [member for member in one.members if member not in parts]
    found = {_name(member, base): parts[member] for member in one.members if member in parts}
    wrong = {name: part.why for name, part in found.items() if part.verdict is not Verdict.COMPLETE}
    problems = [
        *(f"no {_name(member, base)}" for member in lacking),
        *(f"{name}: {why}" for name, why in wrong.items()),
    ]
    rows = list(found.values())
    gaps = tuple(dict.fromkeys(gap for part in rows for gap in part.gaps))
    # What one part lacks the whole lacks.
    present = set.intersection(*(set(part.present) for part in rows)) if rows else set()
    some = {role for part in rows for role in (*part.present, *part.possible)} - present
    lost = {gap.removeprefix("no ") for gap in gaps}
    names = ", ".join(found)
    return replace(
        rows[0],
        path=one.path,
        members=tuple(member for member in one.members if member in parts),
        verdict=Verdict.INCOMPLETE if problems else Verdict.COMPLETE,
        why="; ".join(problems) or f"whole: {names}" + (f"; {', '.join(gaps)}" if gaps else ""),
        roles={f"{name}/{path}": role for name, part in found.items() for path, role in part.roles.items()},
        present=ordered(present),
        possible=ordered(some - lost),
        resumable=_resumable(rows),
        gaps=gaps,
        ranks={f"{name} {what}": count for name, part in found.items() for what, count in part.ranks.items()},
        ranks_told=all(part.ranks_told for part in rows),
        unfinished=tuple(f"{name}/{path}" for name, part in found.items() for path in part.unfinished),
        counted=any(part.counted for part in rows),
        unlisted=any(part.unlisted for part in rows),
        notes=tuple(dict.fromkeys(f"{name}: {note}" for name, part in found.items() for note in part.notes)),
        metrics={key: value for part in rows for key, value in part.metrics.items()},
        pointed={},
    )


def _resumable(rows: Sequence[Found]) -> bool | None:
    said = {part.resumable for part in rows}
    if False in said:
        return False
    return None if None in said else True


def _name(member: Path, base: Path) -> str:
    return member.relative_to(base).as_posix()
