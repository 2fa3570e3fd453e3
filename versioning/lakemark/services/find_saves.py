"""Find saves: what trainers announced, and what lies in their directories unannounced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lakemark.errors import Incomplete, LakemarkError
from lakemark.model.ledger import RunState
from lakemark.ports import Directory, Found, Site, Spooled, Verdict
from lakemark.services.appending import announced
from lakemark.services.commit import Commit, Committed, commit


@dataclass(slots=True, kw_only=True)
class Saves:
    """incomplete: found and not committed, with why. failed: (path, error) of complete ones that could not be committed."""

    committed: list[Committed] = field(default_factory=list)
    incomplete: list[tuple[Path, str]] = field(default_factory=list)
    failed: list[tuple[Path, LakemarkError]] = field(default_factory=list)


def commit_found(site: Site) -> Saves:
    """Commits every announced save of every open run, then every complete checkpoint found in watched directories.

    What the node committed, restored or moved aside before is known by its files and left alone. One save that fails does
    not keep the others out.
    """
    saves = Saves()
    for run in site.ledger.runs():
        state = site.ledger.run(run)
        if state.closed:
            continue
        _announced(site, run, saves)
        for directory in directories(site, state):
            _directory(site, run, directory, saves)
    return saves


def commit_directory(site: Site, run: str, directory: Path) -> Saves:
    """The same for the announced saves of one run and one directory of it."""
    saves = Saves()
    _announced(site, run, saves)
    bound = site.journal.directory(directory)
    if (bound is not None and bound.run == run) or directory in directories(site, site.ledger.run(run)):
        _directory(site, run, directory, saves)
    return saves


def _announced(site: Site, run: str, saves: Saves) -> None:
    for spooled in _newest(site, run):
        if site.workspace.exists(spooled.path.parent) and not site.workspace.exists(spooled.path):
            saves.incomplete.append((spooled.path, "gone before it was committed"))
            site.workspace.unspool(spooled)
            continue
        _try(site, Commit(path=spooled.path, run=run, step=spooled.step, spooled=spooled, found=True), saves)


def waiting(site: Site) -> list[tuple[str, Path]]:
    """(run, path) of announced saves not yet committed: what `status` shows."""
    return [(run, spooled.path) for run in site.ledger.runs() for spooled in announced(site, run)]


def _directory(site: Site, run: str, directory: Path, saves: Saves) -> None:
    for found in site.recogniser.find(directory):
        if found.verdict is Verdict.INCOMPLETE:
            saves.incomplete.append((found.path, found.why))
        if found.verdict is not Verdict.COMPLETE or _known(site, found):
            continue
        if found.step is None:
            saves.incomplete.append((found.path, "step unknown"))
            continue
        _try(site, Commit(path=found.path, run=run, step=found.step, found=True, directory=directory), saves)
    _bind(site, run, directory)


def _newest(site: Site, run: str) -> list[Spooled]:
    """The last announcement of each path: what an earlier one spoke of was overwritten."""
    newest: dict[Path, Spooled] = {}
    for spooled in list(announced(site, run)):
        other = newest.get(spooled.path)
        if other is not None and other.saved_at > spooled.saved_at:
            site.workspace.unspool(spooled)
            continue
        if other is not None:
            site.workspace.unspool(other)
        newest[spooled.path] = spooled
    return list(newest.values())


def _bind(site: Site, run: str, directory: Path) -> None:
    """Whoever saves here now goes on to do so: a directory nobody bound belongs to the newest attempt from now on."""
    state = site.ledger.run(run)
    if state.attempt is None or not site.workspace.exists(directory):
        return
    bound = site.journal.directory(directory)
    if bound is None or bound.run != run:
        attempt = state.attempt
        made = Directory(run=run, timeline=attempt.timeline, attempt=attempt.id, sequence=state.sequence)
        site.journal.bind_directory(directory, made)


def _known(site: Site, found: Found) -> bool:
    """Whether every regular file of it is one this node committed, restored or moved aside."""
    files = site.workspace.identities(found.path)
    return bool(files) and all(site.journal.known(file) is not None for file in files)


def _try(site: Site, asked: Commit, saves: Saves) -> None:
    try:
        saves.committed.append(commit(site, asked))
    except LakemarkError as error:
        if isinstance(error, Incomplete):
            saves.incomplete.append((asked.path, str(error)))
        else:
            saves.failed.append((asked.path, error))


def directories(site: Site, state: RunState) -> Iterator[Path]:
    """Where the run's trainers save on this node: as `run open --watch` registered it, then as `watch:` says."""
    seen: set[Path] = set()
    named = state.watch.get(site.node)
    wanted = [Path(named)] if named else []
    wanted.extend(path for one in site.watch if (path := one.directory(state.run)) is not None)
    for path in wanted:
        if path not in seen:
            seen.add(path)
            yield path
