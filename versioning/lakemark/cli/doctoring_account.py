"""`doctor --as-user`: what an account of this machine may do on the site, asked of the kernel as that account.

What a trainer must: read its run file, and announce saves. What a reader must: read ledger and tiers. What a colleague must,
who commits, approves, rolls back and resumes: write what lakemark keeps. Nothing is written.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakemark.cli.options import is_directory
from lakemark.errors import Denied
from lakemark.model.tiers.access import JOIN, Rights, is_shared, remedies
from lakemark.services.health.doctor import Examination

if TYPE_CHECKING:
    from lakemark.adapters.node.rights import Login
    from lakemark.cli.session import Session

TRAINER: Final = "trainer"
COLLEAGUE: Final = "colleague"
READER: Final = "reader"
WHO: Final = (TRAINER, COLLEAGUE, READER)
# A ledger may have very many folders; the first that is closed is told anyway, with what mends all.
_MOST: Final = 20_000
# As many paths fit into a line that somebody pastes; more become a `find` over all of them.
_NAMED: Final = 12
_LOCKS: Final = ("locks", "packing", ".lock")
_KEPT: Final = ("runs", "spool", "plans", "uploads")


@dataclass(frozen=True, kw_only=True)
class _Site:
    """A site as an account sees it. team: the group that shares it; None where one account keeps it."""

    here: Session
    login: Login
    team: str | None

    @property
    def home(self) -> Path:
        return self.here.parts.loaded.home

    @property
    def ledger(self) -> Path:
        return self.here.settings.ledger.path

    def is_ours(self, path: str) -> bool:
        """Whether a place is the site's own, not one that it lies in."""
        places = [self.home, self.ledger, self.here.settings.restore_root]
        places += [tier.path for tier in self.here.settings.tiers.values() if hasattr(tier, "path")]
        return any(Path(path).is_relative_to(os.path.realpath(place)) for place in places)


def examinations(here: Session, name: str, who: Iterable[str]) -> Iterator[Examination]:
    """Those that `who` needs. From the first on, this process is the account's. Raises Usage, Denied."""
    from lakemark.accounts import account_named, group_sharing

    site = _Site(here=here, login=account_named(name), team=group_sharing(here.parts.loaded.home))
    # For good: root's rights can't be had back, and every later question is the account's own.
    site.login.become()
    yield Examination(name=f"{name}: lakemark itself", run=partial(_program, site))
    yield _must(site, "configuration", "r", lambda: [here.parts.loaded.file])
    wanted = set(who)
    if TRAINER in wanted:
        yield _must(site, "run files", "r", lambda: _run_files(site))
        yield _must(site, "announcing saves", "wx", lambda: _spools(site))
    if wanted & {READER, COLLEAGUE}:
        yield _must(
            site, "reading the ledger", "rx", lambda: [site.ledger, site.ledger / "objects", site.ledger / "refs"]
        )
        yield Examination(name=f"{name}: Git's trust in the ledger", run=partial(_trust, site))
        yield from _tiers(site, writes=COLLEAGUE in wanted)
    if COLLEAGUE in wanted and not here.parts.reads_only:
        yield _must(site, "writing the ledger", "rwx", lambda: _folders(site.ledger), top=site.ledger)
        yield _must(site, "locks, journal and index", "rw", lambda: _files(site))
        yield _must(site, "run files, spool and plans", "rwx", lambda: _own(site), top=site.home)
    if wanted & {READER, COLLEAGUE}:
        yield _must(site, "restores", "rwx", lambda: [here.settings.restore_root])


def _must(
    site: _Site,
    what: str,
    need: str,
    places: Callable[[], Iterable[Path]],
    *,
    top: Path | None = None,
    first: str = "",
) -> Examination:
    """top: the folder that all of `places` lie in. first: what has to be done before the rights are given."""
    run = partial(_may, site, need, places, top=top, first=first)
    return Examination(name=f"{site.login.name}: {what}", run=run)


def _may(site: _Site, need: str, places: Callable[[], Iterable[Path]], *, top: Path | None, first: str) -> str:
    asked, closed = 0, {}
    for place in islice(places(), _MOST):
        asked += 1
        found = site.login.closed(place, need)
        if found is not None:
            closed[found[0].path] = found
    if not closed:
        return f"{_in_words(need)} {asked} place(s)" if asked else "nothing is there yet"
    rights, lacking = next(iter(closed.values()))
    more = f", nor {len(closed) - 1} more place(s) like it" if len(closed) > 1 else ""
    raise Denied(
        f"{site.login.name} may not {_in_words(lacking, rights)} {rights.path} ({rights}){more}",
        advice=first + _advice(site, closed.values(), top=top),
    )


def _advice(site: _Site, closed: Iterable[tuple[Rights, str]], *, top: Path | None) -> str:
    """One line for a shell of root, or of whoever owns the places."""
    lines: dict[str, list[str]] = {}
    join = JOIN.format(team=site.team, name=site.login.name)
    for rights, lacking in closed:
        inside = site.is_ours(rights.path)
        for verb in remedies(rights, lacking, site.login.account, team=site.team, inside=inside):
            lines.setdefault(verb, []).append(rights.path)
    if join in lines:
        # Once a member, all that the group may do is right; lines for single places would only hide that.
        return join
    # Rights given to one account do not reach what the owner makes later; the shared group's do.
    if site.team is None and any(verb.startswith("setfacl") and "w" in verb.rpartition(":")[2] for verb in lines):
        return "One account keeps this site: make its folder a group's first, as docs/accounts.md says."
    return " && ".join(_line(verb, paths, top) for verb, paths in lines.items())


def _line(verb: str, paths: list[str], top: Path | None) -> str:
    if top is None or len(paths) <= _NAMED:
        return f"{verb} {shlex.join(paths)}"
    # Folders of a shared site keep the group for what is made in them: the set-group-id bit belongs to the same line.
    kept = f"{verb}s" if verb.startswith("chmod g+") else verb
    return f"find {shlex.quote(str(top))} -type d -exec {kept} {{}} +"


def _in_words(need: str, place: Rights | None = None) -> str:
    enter = place is None or stat.S_ISDIR(place.mode)
    words = {"r": "read", "w": "write", "x": "enter" if enter else "run"}
    return " and ".join(words[letter] for letter in need)


def _program(site: _Site) -> str:
    place = Path(__file__).parents[1]
    # An installation below root's or somebody's home can be closed as a whole, although each file is readable.
    for path, need in ((Path(sys.executable), "rx"), (place / "errors.py", "r")):
        found = site.login.closed(path, need)
        if found is not None:
            raise Denied(
                f"{site.login.name} can't run it from {place}: {found[0].path} is closed to it ({found[0]})",
                advice=f"{_advice(site, [found], top=None)}, or install lakemark where {site.login.name} may read it.",
            )
    return f"can be run from {place}"


def _trust(site: _Site) -> str:
    # Git refuses repositories of other owners (safe.directory), whatever their rights.
    if site.login.distrusts(site.ledger):
        raise Denied(
            f"Git refuses {site.ledger} to {site.login.name}: it is another account's",
            advice=f"as {site.login.name}: git config --global --add safe.directory {shlex.quote(str(site.ledger))}",
        )
    return "its own, or named in its safe.directory"


def _run_files(site: _Site) -> Iterator[Path]:
    folder = site.home / "runs"
    yield folder
    if os.access(folder, os.R_OK | os.X_OK):
        yield from sorted(folder.glob("*.json"))


def _spools(site: _Site) -> Iterator[Path]:
    """Of every run that has a run file; where that can't be read, it is said already."""
    yield site.home / "spool"
    # The first is the folder itself.
    for path in islice(_run_files(site), 1, None):
        try:
            yield Path(json.loads(path.read_bytes())["spool"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


def _tiers(site: _Site, *, writes: bool) -> Iterator[Examination]:
    """A directory tier is written to by passes alone: by a colleague only where its root is the group's, too."""
    for name, tier in site.here.settings.tiers.items():
        path = getattr(tier, "path", None)
        if path is None or (tier.tier_class == "hot" and site.here.parts.reads_only):
            continue
        keeps = writes and (tier.tier_class == "hot" or _is_the_group_s(path))
        what, need = (f"keeping {name}", "rwx") if keeps else (f"reading {name}", "rx")
        first = f"Set `access: group` in the tier {name}, then: " if getattr(tier, "access", None) == "owner" else ""
        yield _must(site, what, need, partial(_folders if keeps else _only, path), top=path, first=first)


def _is_the_group_s(path: Path) -> bool:
    try:
        return is_shared(path.stat().st_mode)
    except OSError:
        return False


def _only(path: Path) -> Iterator[Path]:
    yield path


def _folders(top: Path) -> Iterator[Path]:
    """Itself, and every folder below that can be seen."""
    yield top
    for folder, folders, _ in os.walk(top):
        yield from (Path(folder, name) for name in folders)


def _files(site: _Site) -> Iterator[Path]:
    """What every process opens for writing, whoever made it."""
    for suffix in (".journal.sqlite", ".index.sqlite"):
        database = site.ledger.with_suffix(suffix)
        yield database  # also where it is not there yet: it is made in that folder
        # Beside a database in WAL mode: whoever opens it writes these, readers too.
        yield from (path for path in (Path(f"{database}-wal"), Path(f"{database}-shm")) if os.path.lexists(path))
    tops = [site.ledger / "lakemark", *(tier.path for tier in site.here.settings.tiers.values() if tier.kind == "tree")]
    for top in tops:
        for folder, _, names in os.walk(top):
            # A lock is opened for writing by each who takes it, and stays with the rights of who took it first.
            locks = Path(folder).name in _LOCKS
            yield from (Path(folder, name) for name in names if locks or name in _LOCKS)


def _own(site: _Site) -> Iterator[Path]:
    yield site.home
    for name in _KEPT:
        if is_directory(site.home / name):
            yield from _folders(site.home / name)
