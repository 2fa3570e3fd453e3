"""Open runs by themselves: where `watch:` names the data, a directory that appears is a run that began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from lakemark.errors import LakemarkError, StoreUnavailable, quoted
from lakemark.model.values.names import original, printable, run_for
from lakemark.ports import Patience, Site
from lakemark.ports.site import Watched
from lakemark.ports.watching import Lookout
from lakemark.services.runs.open_run import Opened, Opening, alike_but_for_case, open_run
from lakemark.services.tiers.demote import Pending


@dataclass(slots=True, kw_only=True)
class OpenedRuns:
    """pending: directories whose run could not be opened yet, and why."""

    opened: list[Opened] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)


def open_watched(site: Site, lookout: Lookout) -> OpenedRuns:
    """Opens every run that nobody opened, whose directory is there and whose entry of `watch:` names its data.

    As `run open` does: the branch is resolved once and its commit pinned before the run file is written. Where the data's
    server is out of reach nothing is opened, and it is not asked again in this call.
    """
    result = OpenedRuns()
    away: StoreUnavailable | None = None
    patience = Patience()
    for watched, directory in _unopened(site, lookout):
        what = f"opening a run for {directory}"
        try:
            run = _run_of(watched, directory)
            if _is_open(site, run):
                continue
            if away is not None:
                raise away
            opening = Opening(run=run, data=(str(watched.data),))
            with site.data.patient(patience) if site.data is not None else nullcontext():
                result.opened.append(open_run(site, opening))
        except ValueError as error:
            result.pending.append(Pending(what=what, why=str(error)))
        except LakemarkError as error:
            away = error if isinstance(error, StoreUnavailable) else away
            result.pending.append(Pending.of(what, error))
    result.pending.extend(nobody_s(site, lookout, opening=True))
    return result


def runs_to_open(site: Site, lookout: Lookout) -> Iterator[tuple[str, Path, str]]:
    """(run, directory, data) of those that would be opened. Changes nothing."""
    for watched, directory in _unopened(site, lookout):
        try:
            run = _run_of(watched, directory)
        except ValueError:
            continue
        if not _is_open(site, run):
            yield run, directory, str(watched.data)


def _unopened(site: Site, lookout: Lookout) -> Iterator[tuple[Watched, Path]]:
    for watched in site.watch:
        if watched.data is not None:
            yield from ((watched, directory) for directory in _folders(site, lookout, watched))


def _folders(site: Site, lookout: Lookout, watched: Watched) -> Iterator[Path]:
    """A directory that is another run's already, or that an entry of its own names, is no pattern's."""
    outlines = (site.ledger.outline(run) for run in site.ledger.runs())
    others = {Path(path) for one in outlines if (path := one.watch.get(site.node)) is not None}
    # Who wrote a directory down on its own means that run, whatever a pattern would call it.
    named = {one.path for one in site.watch if "{name}" not in one.run}
    if watched.path not in named:
        others |= named
    yield from (directory for directory in lookout.folders(watched.path) if directory not in others)


def nobody_s(site: Site, lookout: Lookout, *, opening: bool = False) -> Iterator[Pending]:
    """Of each entry the first directory in which nothing is found because nobody opened its run, and how many there are.

    opening: whoever asks opens those himself whose entry names the data.
    """
    for watched in site.watch:
        if opening and watched.data is not None:
            continue
        waiting = list(_waiting(site, lookout, watched))
        if not waiting:
            continue
        run, directory = waiting[0]
        by_itself = "" if watched.data is None else "; `lakemark watch` would open it by itself"
        others = f" (and so for {len(waiting) - 1} more)" if len(waiting) > 1 else ""
        why = f"nobody opened {run}: lakemark run open {run}{others}{by_itself}"
        alike = alike_but_for_case(site, run)
        if alike is not None:
            # An open would be refused: its saves would be taken for the other's by whoever reads the two names.
            shown = quoted(original(run))
            why = f"{shown} differs from the run {quoted(alike)} only in case: rename the directory{others}"
        yield Pending(what=f"saves in {printable(directory)}", why=why)


def _waiting(site: Site, lookout: Lookout, watched: Watched) -> Iterator[tuple[str, Path]]:
    for directory in _folders(site, lookout, watched):
        try:
            run = _run_of(watched, directory)
        except ValueError:
            continue
        if not _is_open(site, run):
            yield run, directory


def _is_open(site: Site, run: str) -> bool:
    """Or was: also where whoever opened it died before it told trainers, which opening it again makes good."""
    outline = site.ledger.outline(run)
    return outline.closed or outline.begun


def _run_of(watched: Watched, directory: Path) -> str:
    """The run whose trainers save in `directory`. Raises ValueError for a name that can't be mapped to a run's."""
    name = ""
    for part, pattern in zip(directory.parts, watched.path.parts, strict=True):
        if "*" in pattern:
            before, _, after = pattern.partition("*")
            name = part[len(before) : len(part) - len(after)]
    run = run_for(watched.run.replace("{name}", name))
    if watched.directory(run) != directory:
        message = f"{directory.name!r} gives no run of its own by {watched.run!r}"
        raise ValueError(message)
    return run
