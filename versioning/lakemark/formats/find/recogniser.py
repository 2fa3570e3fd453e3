"""Finds checkpoints in a tree and judges them, by asking each framework's family in turn."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from lakemark.errors import Denied, NotFound, quoted
from lakemark.formats.find.layouts import Layouts, pointed
from lakemark.formats.find.links import FRAMEWORK as ALIAS, LASTS, Link, judge_link, links_of
from lakemark.formats.find.seen import LastSeen
from lakemark.formats.find.siblings import Siblings, named, siblings, united, whole_of
from lakemark.formats.readers.folder import Folder, NameKind
from lakemark.formats.rules import rolling, sets, staged
from lakemark.formats.rules.family import Accompanied, Family, Loose, pointer
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found, Skip, Unreadable, Verdict

# A run's checkpoints lie a few folders below what is watched; data and environments are deep.
_DEEPEST: Final = 8
_NEIGHBOURS: Final = 3
# Layouts without a last file that says the end: only the steps beside one tell what it lacks.
_UNMARKED: Final = frozenset({"generic", "safetensors", "dcp", "accelerate", "ray-train"})
_REMOVING: Final = frozenset({"accelerate", "ray-train"})
"""What removes old saves file by file in any order: Accelerate before it makes a new one, Ray after it."""
_PASSED_OVER: Final = frozenset(
    {".lakemark", ".lakemark-aside", ".git", "__pycache__", "node_modules", "site-packages"}
)


# A folder that went during the search is no problem to tell of.
_GONE: Final = frozenset(map(os.strerror, (errno.ENOENT, errno.ENOTDIR)))


class LastFamily(Family, Protocol):
    """Whatever no framework knows."""

    def anything(self, path: Path) -> Found:
        """What a person who names `path` can be told of it; it exists and is no link."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A checkpoint to be judged. folder, family (its identity): set where it is one directory."""

    path: Path
    paths: tuple[Path, ...]
    step: int | None
    judge: Callable[[], Found]
    folder: Folder | None = None
    family: int = 0


_STAGING: Final = staged.Staging()


def _nothing(_: tuple[Path, ...]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class FrameworkRecogniser(Layouts):
    """`ports.Recogniser` over families: the first that claims a folder, or a name in one, has it."""

    families: Sequence[Family]
    last: LastFamily = field(kw_only=True)
    _seen: LastSeen = field(default_factory=LastSeen, init=False, repr=False, compare=False)

    def find(self, root: Path, *, skip: Skip = _nothing, unreadable: Unreadable | None = None) -> Iterator[Found]:
        """Of what it read it keeps the finds alone."""
        self._seen.forget()
        # All are known before the first is judged: a save is compared with the steps on both sides.
        candidates, links, sets = self._candidates(Folder.of(root), unreadable)
        beside = _Beside(candidates)
        candidates = _united(candidates, sets, beside)
        # `skip` first: what is known already is not opened again.
        results = [_settled(beside.compared(one.judge(), one)) for one in candidates if not skip(one.paths)]
        steps = _steps(candidates)
        # By their names: what is known already was not judged.
        results = rolling.only_ones(results, (one.step for one in candidates if one.step is not None))
        parents = {os.path.normpath(one.path.parent) for one in candidates}
        # Where nothing was found most links are of other programs.
        likely = links if candidates else [link for link in links if LASTS.fullmatch(link.name)]
        results.extend(found for link in likely if (found := judge_link(link, steps, parents)))
        yield from sorted(results, key=_order)

    def judge(self, path: Path) -> Found:
        """Denied where it, or a folder in it, may not be read."""
        found = _settled(self._judge(path))
        if found.verdict is not Verdict.COMPLETE:
            return found
        seen = self._seen.of(path.parent)
        whole = whole_of(path) if _is_folder(path) else None
        part_of = whole.path if whole is not None and self._set(whole.path) is not None else None
        return replace(found, pointed=pointed(seen.folder, seen.called_newest()), part_of=part_of)

    def _judge(self, path: Path) -> Found:
        try:
            mode = os.lstat(path).st_mode
        except PermissionError as error:
            raise _denied(path) from error
        except OSError as error:
            # A prefix, as TensorFlow's checkpoints have, names no file and is one all the same.
            found = self._loose_one(path) or self._set(path)
            if found is None:
                raise NotFound(f"{quoted(str(path))}: {error.strerror}", advice="Check the path.") from error
            return found
        if stat.S_ISLNK(mode):
            return self._link(path)
        if stat.S_ISDIR(mode):
            return self._folder(path)
        return self._loose_one(path) or self.last.anything(path)

    def _candidates(
        self, root: Folder, unreadable: Unreadable | None = None
    ) -> tuple[list[_Candidate], list[Link], list[Siblings]]:
        candidates: list[_Candidate] = []
        sets: list[Siblings] = []
        links: list[Link] = []
        pending = [root]
        while pending:
            folder = pending.pop()
            # Before its folders: a set of files may account for folders as well, such as Flax's `_gda`.
            loose = list(self._loose(folder))
            _tell(folder, unreadable)
            candidates.extend(map(_of_loose, loose))
            links.extend(links_of(folder))
            sets.extend(siblings(folder))
            taken = _PASSED_OVER.union(*(one.names for one in loose))
            for name in folder.folders:
                if name in taken:
                    continue
                # Not `folder.sub`, which would be kept: of a tree of a million folders only finds stay in memory.
                inside = Folder(f"{folder.at.rstrip('/')}/{name}", folder.depth + 1)
                family = self._family(inside)
                if family is not None:
                    candidates.append(_of_folder(family, inside))
                # A claimed folder is never entered: what lies in a step belongs to it.
                elif inside.depth < _DEEPEST:
                    pending.append(inside)
                else:
                    _tell(inside, unreadable)
        # By step, and those without one last: answers do not depend on the order of a search.
        candidates.sort(key=lambda one: (one.step is None, one.step or 0, str(one.path)))
        return candidates, links, sets

    def _family(self, folder: Folder) -> Family | None:
        return next((family for family in (*self.families, self.last, _STAGING) if family.claims(folder)), None)

    def _loose(self, folder: Folder) -> Iterator[Loose]:
        taken: set[str] = set()
        for family in (*self.families, self.last):
            for one in family.loose(folder):
                # A name has one owner, the family that was asked first.
                if taken.isdisjoint(one.names):
                    taken.update(one.names)
                    yield one

    def _loose_one(self, path: Path) -> Found | None:
        """Of a file, or of a path that is only the beginning of names, as TensorFlow writes it."""
        seen = self._seen.of(path.parent)
        known = seen.loose is not None
        one = (seen.loose or seen.note(self._loose(seen.folder))).get(path)
        # It may be younger than what was remembered: a name that is not found is looked for once more.
        if one is None and known:
            seen = self._seen.of(path.parent, anew=True)
            one = seen.note(self._loose(seen.folder)).get(path)
        return one.judge() if one else None

    def _set(self, path: Path) -> Found | None:
        """Of what lies in several folders, and nothing at `path`."""
        one = named(path)
        if one is None:
            return None
        families = {member: self._family(Folder.of(member)) for member in one.members if _is_folder(member)}
        parts = {member: self._folder(member) for member, family in families.items() if family is not None}
        return united(one, parts) if parts and len({id(family) for family in families.values()}) == 1 else None

    def _link(self, path: Path) -> Found:
        folder = Folder.of(path.parent)
        link = Link(folder.at, path.name)
        candidates, _, _ = self._candidates(folder)
        steps = _steps(candidates)
        found = judge_link(link, steps, {str(one.path.parent) for one in candidates})
        return found or pointer(path, link.target, framework=ALIAS, why=f"symlink -> {link.target}")

    def _folder(self, path: Path) -> Found:
        folder = Folder.of(path)
        # Lists all of it: a part that may not be read must end in Denied and not in a verdict on the rest.
        for _ in folder.walk():
            pass
        if folder.problem:
            raise _denied(path)
        family = self._family(folder)
        if family is None:
            return self.last.anything(path)
        one = _of_folder(family, folder)
        judged = found = one.judge()
        # Most often the nearest step on each side decides; the wider look is for where it would change the verdict.
        for count in (1, _NEIGHBOURS):
            found = _Beside([one, *self._neighbours(family, one, count)]).compared(judged, one)
            if found.verdict is judged.verdict:
                break
        return found

    def _neighbours(self, family: Family, one: _Candidate, count: int) -> Iterator[_Candidate]:
        """The nearest steps below it and above, so many on each side, of those it is compared with."""
        if one.step is None:
            return
        seen = self._seen.of(one.path.parent)
        rows = seen.steps_of(family, _PASSED_OVER)
        at = bisect_left(rows, (one.step, ""))
        for numbers in (range(at - 1, -1, -1), range(at, len(rows))):
            names = (rows[number][1] for number in numbers)
            likely = (one.path.parent / name for name in names if name != one.path.name)
            # Another family may claim a neighbour: it counts as a step of the run all the same.
            alike = (Folder.of(path, depth=1) for path in likely if _kind(path) == _kind(one.path))
            claimed = ((theirs, folder) for folder in alike if (theirs := self._family(folder)) is not None)
            yield from islice((_of_folder(theirs, folder) for theirs, folder in claimed), count)


def _united(candidates: Sequence[_Candidate], sets: Sequence[Siblings], beside: _Beside) -> list[_Candidate]:
    """Those of one step in folders of several roles as one, where all that lies there is one family's."""
    at = {one.path: one for one in candidates}
    whole: list[_Candidate] = []
    taken: set[Path] = set()
    for one in sets:
        parts = [at[member] for member in one.members if member in at]
        if parts and len({part.family for part in parts}) == 1:
            taken.update(part.path for part in parts)
            paths = tuple(part.path for part in parts)
            whole.append(_Candidate(one.path, paths, parts[0].step, partial(_judge_set, one, parts, beside)))
    rest = [one for one in candidates if one.path not in taken]
    return sorted([*rest, *whole], key=lambda one: (one.step is None, one.step or 0, str(one.path)))


def _judge_set(one: Siblings, parts: Sequence[_Candidate], beside: _Beside) -> Found:
    return united(one, {part.path: beside.compared(part.judge(), part) for part in parts})


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


class _Beside:
    """The steps of one folder, to compare each with its neighbours: by names alone, listed when needed."""

    def __init__(self, candidates: Sequence[_Candidate]) -> None:
        self._alike: dict[tuple[Path, bool], list[_Candidate]] = defaultdict(list)
        for one in candidates:
            # Files are compared by their own families, which see the whole set.
            if one.folder is not None and one.step is not None:
                self._alike[_kind(one.path)].append(one)
        for beside in self._alike.values():
            beside.sort(key=lambda one: one.step or 0)
        self._at = {one.path: number for beside in self._alike.values() for number, one in enumerate(beside)}
        self._counted: dict[Path, dict[str, int]] = {}
        self._kinds: dict[Path, frozenset[str]] = {}

    def compared(self, found: Found, one: _Candidate) -> Found:
        """Incomplete where a set of ranks is short against the step before and no later step is as short.

        The first is compared with the next: of what a model consists, that one can't have more.
        """
        # What is wrong by itself needs no comparison.
        if found.verdict is not Verdict.COMPLETE or one.path not in self._at:
            return found
        beside, at = self._alike[_kind(one.path)], self._at[one.path]
        if len(beside) == 1:
            return found
        mine, other = self._counts(one), self._counts(beside[at - 1 if at else 1])
        # The checkpoint says itself how many ranks there are: fewer than before is a smaller job.
        if found.ranks_told:
            other = {name: count for name, count in other.items() if name not in sets.SPLIT}
        # The first has none before it, but a model does not grow: its parts are compared with the next.
        why = sets.short(mine, other) if at else sets.short_of_model(mine, other)
        if why is None and found.framework in _UNMARKED:
            window = beside[max(at - _NEIGHBOURS, 0) : at + _NEIGHBOURS + 1]
            near = [other for other in window if sets.alike(other.path.name, one.path.name)]
            kinds, removed = [self._kinds_of(other) for other in near], found.framework in _REMOVING
            why = sets.lacking(kinds, near.index(one), removed=removed)
            return found if why is None else replace(found, verdict=Verdict.INCOMPLETE, why=why)
        if why is None:
            return found
        # The next step is just as short: the run goes on so, and it is noted only.
        if at + 1 < len(beside) and self._counts(beside[at + 1]) == mine:
            return replace(found, notes=(*found.notes, why))
        fewer = bool(at) and sets.gone(mine, other) is None
        return replace(found, verdict=Verdict.INCOMPLETE, why=why, notes=(*found.notes, why), fewer=fewer)

    def _counts(self, one: _Candidate) -> dict[str, int]:
        if one.path not in self._counted:
            names = (name for name, _ in Folder.of(one.path).walk())
            self._counted[one.path] = sets.counts(names)
        return self._counted[one.path]

    def _kinds_of(self, one: _Candidate) -> frozenset[str]:
        if one.path not in self._kinds:
            names = (name for name, kind in Folder.of(one.path).walk() if kind is NameKind.FILE)
            self._kinds[one.path] = sets.kinds(names)
        return self._kinds[one.path]


def _tell(folder: Folder, unreadable: Unreadable | None) -> None:
    if unreadable is not None and not folder.kinds and folder.problem is not None and folder.problem not in _GONE:
        unreadable(folder.path, folder.problem)


def _kind(path: Path) -> tuple[Path, bool]:
    """What steps must share to be compared: where they lie, and whether DeepSpeed's converter made them of others."""
    return path.parent, path.name.endswith("_universal")


def _steps(candidates: Iterable[_Candidate]) -> dict[str, int | None]:
    """Each path, and each of the paths it consists of -> step."""
    return {str(path): one.step for one in candidates for path in (*one.paths, one.path)}


def _of_folder(family: Family, folder: Folder) -> _Candidate:
    # The folder as it was listed is not kept in `judge`: it is listed anew when it is judged, maybe much later.
    at, depth, path = folder.at, folder.depth, folder.path
    beside = family.beside(folder) if isinstance(family, Accompanied) else ()

    def judge() -> Found:
        found = _judged(family, Folder(at, depth))
        return _together(found, beside) if beside and found.verdict is Verdict.COMPLETE else found

    # By identity: families need not be hashable, and live as long as the recogniser.
    return _Candidate(path, (path, *beside), family.step(folder), judge, folder, id(family))


def _together(found: Found, beside: Sequence[Path]) -> Found:
    """A checkpoint of several folders; the roles of those beside it are their family's to tell, and `dataloader` so far."""
    base = found.path.parent
    roles = {f"{found.path.name}/{name}": role for name, role in found.roles.items()}
    return replace(
        found,
        members=(found.path, *beside),
        roles=roles,
        present=tuple(dict.fromkeys((*found.present, Role.DATALOADER.value))),
        unfinished=tuple(f"{found.path.name}/{name}" for name in found.unfinished),
        why=f"{found.why}; with {', '.join(str(path.relative_to(base)) for path in beside)}",
    )


def _judged(family: Family, folder: Folder) -> Found:
    """Incomplete also where it is gone, may not be listed or is no folder any more: then it looks empty."""
    found = family.judge(folder)
    if found.verdict is not Verdict.COMPLETE or (folder.kinds and not folder.problem):
        return found
    return replace(found, verdict=Verdict.INCOMPLETE, why=f"it can't be read: {folder.problem or 'nothing is in it'}")


def _settled(found: Found) -> Found:
    """No save where it lies in a folder that is still being written."""
    if found.verdict not in (Verdict.COMPLETE, Verdict.INCOMPLETE):
        return found
    name = staged.staged_in(found.path)
    return found if name is None else replace(found, verdict=Verdict.TEMPORARY, why=staged.why(name))


def _of_loose(one: Loose) -> _Candidate:
    return _Candidate(one.path, one.paths, one.step, one.judge)


def _order(found: Found) -> tuple[bool, int, str]:
    return found.step is None, found.step or 0, str(found.path)


def _denied(path: Path) -> Denied:
    return Denied(
        f"{quoted(str(path))}, or something in it, may not be read by this user",
        advice="Give this user the right to read all of the checkpoint.",
    )
