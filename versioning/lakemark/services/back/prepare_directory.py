"""Make a trainer's directory say what was decided: the checkpoint in it, its pointers at it, nothing later in the way.

In this order, so that a process that ends anywhere leaves pointers at whole checkpoints alone: what lies wrong in the
checkpoint's own place goes aside; the checkpoint comes; the pointers are set; what is later goes aside. What is
restored is journalled as ours before it appears, so that no finder commits it. Called again, it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from lakemark.errors import Conflict, LakemarkError, NotFound
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import latest
from lakemark.ports import Baked, Found, Placed, Pointer, PointerKind, Site
from lakemark.services.back.later_steps import later_than, links_to, said_of_moved
from lakemark.services.back.older import without_older
from lakemark.services.back.restore import restore_manifest
from lakemark.services.ledger import committed
from lakemark.services.saves.known_files import remember_as
from lakemark.services.saves.layout import ASIDE, Layout, layout_of
from lakemark.services.tiers.sources import require_in_reach

# A trainer takes a checkpoint for whole where its index lies there: it must find all the files that this names.
_LAST_TO_COME = (".index", ".json", ".metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """moved: where things went. pointers: those that were changed. baked: places in files that are wrong now.

    brought_bytes: of the pieces that were not there; that took brought_seconds.
    """

    path: Path
    moved: tuple[Path, ...]
    changed: bool
    brought_bytes: int = 0
    brought_seconds: float = 0.0
    pointers: tuple[Pointer, ...] = ()
    baked: tuple[Baked, ...] = ()
    notes: tuple[str, ...] = ()


def arrange(site: Site, state: RunState, found: RecordState, *, to: Path, aside: Path) -> Arranged:
    """Brings the checkpoint of `found` into `to`. Raises NoReplica, Refused, Conflict, StoreUnavailable."""
    work = _Work(site=site, state=state, found=found, layout=layout_of(site, state, found, to=to), to=to, aside=aside)
    # By every byte: a directory of the right name may be what a killed trainer half wrote.
    right = work.right()
    work.clear([piece for piece in work.layout.pieces if piece not in right])
    missing = {piece: part for piece, part in work.layout.pieces.items() if piece not in right}
    begun = site.seconds()
    work.bring(missing)
    seconds = site.seconds() - begun
    judged = work.judged()
    placed = work.placed(judged)
    pointers = work.point([pointer for one in placed for pointer in site.recogniser.pointers(one)])
    finds = work.others()
    # Last: until the checkpoint is there and pointed at, the later ones are what a trainer could still go on from.
    later = later_than(site, state, found, finds, native=judged)
    work.move([*later, *links_to(site, finds, [path for one in later for path in one.paths])])
    site.progress.step("resume.moved")
    said = (one for part in placed for one in site.recogniser.baked(part))
    baked = tuple(one for one in said if str(site.there(state.run, one.now)) != one.path)
    return Arranged(
        path=work.layout.path,
        moved=tuple(work.moved),
        changed=bool(work.moved or pointers or missing),
        brought_bytes=sum(part.size_bytes for part in missing.values()),
        brought_seconds=seconds,
        pointers=tuple(pointers),
        baked=baked,
        notes=(
            *(_said(one, found.record.step) for one in pointers),
            *(one for part in placed for one in site.recogniser.unset(part)),
            *(f"{one.file} says {one.path}, which is {one.now} now" for one in baked),
            *said_of_moved(site, finds, [path for one in later for path in one.paths]),
        ),
    )


def _said(pointer: Pointer, step: int) -> str:
    """What was done to a pointer."""
    done = "was moved aside" if pointer.kind is PointerKind.GONE else f"names step {step} now"
    return f"{pointer.path} {done}: {pointer.why}"


def require_can_arrange(site: Site, state: RunState, found: RecordState, *, to: Path, aside: Path) -> None:
    """Raises what `arrange` would where nothing has the checkpoint and it does not lie there either. Changes nothing."""
    try:
        require_in_reach(site, found)
    except LakemarkError:
        work = _Work(
            site=site, state=state, found=found, layout=layout_of(site, state, found, to=to), to=to, aside=aside
        )
        # Read only where nobody else has it: it is read again once the decision is made.
        if work.right() != set(work.layout.pieces):
            raise


def foreseen(site: Site, state: RunState, found: RecordState, *, to: Path, aside: Path) -> tuple[str, ...]:
    """What `arrange` would do, a sentence each; changes nothing."""
    work = _Work(site=site, state=state, found=found, layout=layout_of(site, state, found, to=to), to=to, aside=aside)
    finds = work.others()
    there = all(site.files.exists(piece) for piece in work.layout.pieces)
    judged = work.judged() if there else None
    later = later_than(site, state, found, finds, native=judged)
    said = [f"put it at {work.layout.path}, if it is not there"]
    set_at = set()
    for pointer in (pointer for one in work.placed(judged) for pointer in site.recogniser.pointers(one)):
        verb = "move aside" if pointer.kind is PointerKind.GONE else f"make a {pointer.kind} of {pointer.content!r} at"
        said.append(f"{verb} {pointer.path}, if it is not so: {pointer.why}")
        set_at.add(pointer.path)
    return (*said, *(f"move {path} aside" for one in later for path in one.paths if path not in set_at))


@dataclass(slots=True, kw_only=True)
class _Work:
    site: Site
    state: RunState
    found: RecordState
    layout: Layout
    to: Path
    aside: Path
    moved: list[Path] = field(default_factory=list)

    def right(self) -> set[Path]:
        """Pieces that lie there with every byte."""
        site = self.site
        lying = {path: part for path, part in self.layout.pieces.items() if site.files.exists(path)}
        return {path for path, part in lying.items() if site.restorer.matches(path, part, progress=site.progress)}

    def others(self) -> list[Found]:
        """What else lies there."""
        here = set(self.layout.pieces)
        finds = (one for one in self.site.recogniser.find(self.to) if here.isdisjoint(one.paths))
        return without_older(self.site, self.state, finds, to=self.to)

    def clear(self, paths: Iterable[Path]) -> None:
        """Moves aside what lies in the place of pieces."""
        self._aside([path for path in paths if self.site.files.exists(path)])

    def bring(self, missing: Mapping[Path, Manifest]) -> None:
        """Restores out of sight, journals, then renames piece by piece; whatever says that the rest is whole comes last.

        Raises Conflict where something appeared in its place meanwhile, and what `restore_manifest` does.
        """
        restorer = self.site.restorer
        folder = self.layout.path.parent
        if missing:
            # Out of sight, on the same file system: what appears under its own name is whole at once, by rename.
            staged = self._staged(missing)
            inside = {path: path.relative_to(folder) for path in missing}
            # Before the rename: a finder that sees it first would commit it as a save of a process that went back.
            self._remember({staged / inside[path]: part for path, part in missing.items()})
            self.site.progress.step("resume.staged")
            for path in sorted(missing, key=lambda path: (path.name.endswith(_LAST_TO_COME), path.name)):
                (came,) = restorer.move_aside([staged / inside[path]], path.parent)
                # `move_aside` never overwrites: where something appeared meanwhile, ours gets a name beside it.
                if came != path:
                    raise Conflict(
                        f"{path} appeared while the checkpoint was brought there; it is at {came}",
                        advice="Stop whatever writes there, then resume again.",
                    )
            for name in sorted(inside.values(), key=lambda name: -len(name.parts)):
                restorer.tidy((staged / name).parent)
        self._remember(self.layout.pieces)
        self.site.progress.step("resume.restored")

    def judged(self) -> Found | None:
        """The checkpoint as the recogniser sees it there; None where it knows no checkpoint of that name."""
        try:
            return self.site.recogniser.judge(self.layout.path)
        except NotFound:
            return None

    def placed(self, judged: Found | None) -> list[Placed]:
        """The checkpoint; of one in several folders each part, as each has pointers of its own beside it."""
        members = self.layout.members
        if members and all(path.parent != self.layout.path.parent for path in members):
            return [self._placed(judged, path, ()) for path in members]
        return [self._placed(judged, self.layout.path, members)]

    def _placed(self, judged: Found | None, path: Path, members: tuple[Path, ...]) -> Placed:
        framework = self.layout.manifest.framework
        if framework == "generic" and judged is not None:
            framework = judged.framework
        return Placed(
            path=path,
            framework=framework,
            root=self.to,
            aside=self.aside,
            members=members,
            step=self.found.record.step,
            kept=self._kept(),
        )

    def _kept(self) -> dict[str, str]:
        """Links and lines that the run keeps: as this save was committed, else, for the first one has none yet, the newest."""
        newest = latest(self.state)
        rows = (self.found, newest) if newest is not None else (self.found,)
        return next((dict(kept) for one in rows if (kept := committed(self.site, one).pointers)), {})

    def point(self, wanted: Iterable[Pointer]) -> list[Pointer]:
        """Makes the pointers so; answers those that were not."""
        changed = []
        for pointer in wanted:
            if self.site.pointers.points(pointer):
                continue
            changed.append(pointer)
            if pointer.kind is PointerKind.GONE:
                self._aside([pointer.path])
            else:
                self._swap(pointer)
            self.site.progress.step("resume.pointed")
        return changed

    def move(self, finds: Iterable[Found]) -> None:
        """Moves what is later aside, under the paths it had.

        Nothing of it is remembered as ours: what is a record is known already, and what is none must stay a save that can
        be committed, should somebody bring it back. Finders pass the folder over.
        """
        paths = {path for one in finds for path in one.paths}
        # What lies in something that moves goes along with it.
        top = sorted(path for path in paths if not paths.intersection(path.parents))
        self.site.progress.step("resume.chosen")
        self._aside(path for path in top if self.site.files.exists(path))

    def _staged(self, missing: Mapping[Path, Manifest]) -> Path:
        """A folder beside the checkpoint's place, on its file system, where the missing pieces lie whole."""
        site = self.site
        aside = self.layout.path.parent / ASIDE
        # What an earlier start left is taken where it is whole, else left alone: a process may still write there.
        for number in count(1):
            folder = aside / f"restored-{self.found.record.id[:12]}{'' if number == 1 else f'-{number}'}"
            inside = {folder / path.relative_to(self.layout.path.parent): part for path, part in missing.items()}
            lying = {path: part for path, part in inside.items() if site.files.exists(path)}
            whole = len(lying) == len(missing)
            if whole and all(site.restorer.matches(path, part, progress=site.progress) for path, part in lying.items()):
                return folder
            if not site.files.exists(folder):
                break
        target = folder if self.layout.beside else folder / self.layout.path.name
        restore_manifest(site, self.found, self._wanted(missing), to=target)
        return folder

    def _wanted(self, missing: Mapping[Path, Manifest]) -> Manifest:
        if len(missing) == len(self.layout.pieces):
            return self.layout.manifest
        names = [path.relative_to(self.layout.path.parent).as_posix() for path in missing]
        files = (
            file
            for file in self.layout.manifest.files
            if any(file.path == name or file.path.startswith(f"{name}/") for name in names)
        )
        return replace(self.layout.manifest, files=tuple(files))

    def _swap(self, pointer: Pointer) -> None:
        site = self.site
        folder = pointer.path.parent / ASIDE / f"pointers-{self.found.record.id[:12]}"
        draft = folder / pointer.path.name
        site.pointers.draft(pointer, draft)
        # Known before it appears, as the checkpoint is: a pointer that is a copy looks like a save.
        files = [replace(file, digest=site.files.digest(Path(file.place))) for file in site.files.identities(draft)]
        site.journal.remember(files, record=self.found.record.id, why="pointer")
        site.progress.step("resume.drafted")
        # Swapped, not written: a trainer that reads it at this moment reads no half of it.
        site.pointers.swap(draft, pointer.path, keep=self._beneath(pointer.path))
        site.restorer.tidy(folder)

    def _remember(self, pieces: Mapping[Path, Manifest]) -> None:
        """What was restored is the record's; a finder must not take it for a save of its own."""
        for path, manifest in pieces.items():
            if self.site.files.exists(path):
                remember_as(self.site, path, manifest, record=self.found.record.id, why="restored")

    def _aside(self, paths: Iterable[Path]) -> None:
        """Each under the path it had, so that somebody can move it back."""
        for path in paths:
            self.moved.extend(self.site.restorer.move_aside([path], self._beneath(path)))

    def _beneath(self, path: Path) -> Path:
        return self.aside / path.parent.relative_to(self.to)
