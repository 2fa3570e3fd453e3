"""Where a record's files belong in the directory that a trainer saves into: under the names it gave them itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lakemark.model.checkpoints.manifest import File, FileType, Manifest, check_path
from lakemark.model.entries.committed import CommittedBody
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.starts import Start
from lakemark.ports import Site
from lakemark.services.ledger import committed

ASIDE = ".lakemark-aside"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """path: the checkpoint as a trainer names it; where it consists of members it need not exist, and they lie beside it.

    pieces: what lies there by path, each with its own part of the manifest: the one directory or file, or the members.
    """

    path: Path
    manifest: Manifest
    pieces: Mapping[Path, Manifest]

    @property
    def members(self) -> tuple[Path, ...]:
        """Empty where the checkpoint is one directory or file."""
        return () if list(self.pieces) == [self.path] else tuple(self.pieces)

    @property
    def beside(self) -> bool:
        """Whether the manifest's own top names are what lies in the folder, instead of one directory with all of them."""
        return self.members != () or _is_file(self.manifest, self.path.name)


def aside_of(to: Path, *, run: str, start: Start, attempt: str) -> Path:
    """Where a start moves things aside; under its attempt where the job's id is not fit to be the name of a folder."""
    name = start.folder(run, attempt)
    return to / ASIDE / (name if name is not None and _PLAIN.fullmatch(name) else attempt)


def layout_of(site: Site, state: RunState, found: RecordState, *, to: Path) -> Layout:
    """For the directory `to`. Where nobody knows how it lay in the run's directory, directly in `to`, under its last name."""
    manifest = site.ledger.manifest(state.run, found.record.id)
    path = to / _relative(state, committed(site, found), to=to, step=found.record.step)
    members = manifest.extra.get("members")
    if members is True:
        return Layout(path=path, manifest=manifest, pieces=_members(manifest, path.parent))
    if isinstance(members, list):
        return Layout(path=path, manifest=manifest, pieces=_apart(manifest, path.parent, names=map(str, members)))
    return Layout(path=path, manifest=manifest, pieces={path: manifest})


def _relative(state: RunState, body: CommittedBody, *, to: Path, step: int) -> Path:
    lay = Path(body.source or "")
    if lay.name in ("", ".."):
        return Path(f"step-{step}")
    for base in (to, *_bases(state, body)):
        if base in lay.parents and not {"..", ASIDE}.intersection(lay.relative_to(base).parts):
            return lay.relative_to(base)
    return Path(lay.name)


def _bases(state: RunState, body: CommittedBody) -> Iterator[Path]:
    """Directories of the run, the one it was found in first, then the nearest."""
    if body.directory is not None:
        yield Path(body.directory)
    # The nearest goes first: directories of a run may lie in each other.
    named = {*state.watch.values(), *(one.directory for one in state.attempts.values() if one.directory)}
    yield from sorted(map(Path, named), key=lambda path: (-len(path.parts), str(path)))


def _members(manifest: Manifest, folder: Path) -> dict[Path, Manifest]:
    by_name: dict[str, list[File]] = {}
    for file in manifest.files:
        by_name.setdefault(file.path.partition("/")[0], []).append(file)
    return {folder / name: _part(manifest, name, files) for name, files in by_name.items()}


def _apart(manifest: Manifest, folder: Path, *, names: Iterable[str]) -> dict[Path, Manifest]:
    """Members that lie in several folders, each a file or directory of its own: what else is in those is not ours."""
    pieces: dict[Path, Manifest] = {}
    for name in names:
        check_path(name)
        files = [file for file in manifest.files if file.path == name or file.path.startswith(f"{name}/")]
        inside = [replace(file, path=file.path.removeprefix(f"{name}/")) for file in files]
        here = [replace(files[0], path=name.rpartition("/")[2])] if [one.path for one in files] == [name] else inside
        pieces[folder / name] = replace(manifest, files=tuple(here))
    return pieces


def _part(manifest: Manifest, name: str, files: list[File]) -> Manifest:
    """Of one member: a file under its own name, or what is in a directory."""
    if [file.path for file in files] == [name]:
        return replace(manifest, files=() if files[0].type is FileType.DIRECTORY else tuple(files))
    return manifest.below(name)


def _is_file(manifest: Manifest, name: str) -> bool:
    return [file.path for file in manifest.files] == [name]
