"""What `doctor` looks at on this machine: the ledger, fsync, rights, landing, clock, `dot`."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from lakemark.cli.output import size
from lakemark.errors import Denied, Incomplete, Misconfigured
from lakemark.services.health.doctor import Examination, Noted
from lakemark.settings import half_used, unused

if TYPE_CHECKING:
    from lakemark.cli.session import Session

# An append does several; from half a second each they are felt by whoever waits for a commit.
_SLOW_FSYNC_SECONDS = 0.5


def examinations(here: Session) -> Iterator[Examination]:
    """In the order a person would look."""
    yield Examination(name="configuration", run=lambda: str(here.parts.loaded.file))
    idle = list(unused(here.parts.loaded))
    known = f"Take out {', '.join(idle)}: nobody should count on it." if idle else "Leave it; keep room for what stays."
    yield Examination(name="unused configuration", run=partial(_unused, here), advice=known)
    yield Examination(name="ledger", run=partial(_ledger, here), advice="Make it with `lakemark init`.")
    yield Examination(
        name="fsync", run=partial(_fsync, here), advice="Put the ledger on a disk whose fsync means what it says."
    )
    yield Examination(name="rights", run=partial(_rights, here), advice="Give lakemark's user these rights.")
    if not here.parts.reads_only:
        yield Examination(
            name="space",
            run=partial(_space, here),
            advice="Make room, lower `min_free` of hot, or raise its `capacity`.",
        )
        yield Examination(name="checkpoint formats", run=_formats)
        yield Examination(
            name="inode numbers",
            run=partial(_inodes, here),
            advice="Nothing is lost by it; `-o use_ino`, where the file system knows it, spares the copies and readings.",
        )
    for watched in here.settings.watch:
        yield Examination(
            name=f"landing {watched.path}",
            run=partial(_landing, here, watched.path),
            advice="Put hot on the file system trainers save to, and run as their user: landing is then a link.",
        )


def _formats() -> str:
    """One that can't be loaded keeps all saves out: its own could not be told from others'."""
    from lakemark.formats.find.families import third_party

    return ", ".join(["those built in", *(f"{one.name} of a package" for one in third_party())])


def dot() -> Examination:
    """Graphviz draws the pages' lineage; without it they show it as a text."""
    return Examination(name="dot", run=lambda: shutil.which("dot") or "not installed: lineage is shown as text")


def same_disk(here: Session) -> Iterator[tuple[str, str]]:
    """Pairs of shared tiers that lie on one file system and say that they fail apart."""
    devices = []
    for name, tier in here.settings.tiers.items():
        path = getattr(tier, "path", None)
        if tier.tier_class != "hot" and path is not None:
            with suppress(OSError):  # not mounted, or its disk fails: others say so
                devices.append((name, tier.domain or name, path.stat().st_dev))
    for (name, domain, device), (other, domain_2, device_2) in combinations(devices, 2):
        if device == device_2 and domain != domain_2:
            yield name, other


def _unused(here: Session) -> str:
    names = [*unused(here.parts.loaded), *half_used(here.parts.loaded)]
    return Noted(f"this version does not act on {', '.join(names)}") if names else "none"


def _ledger(here: Session) -> str:
    ledger = here.parts.ledger
    runs = ledger.runs()
    # Reading each run is the check: what can't be read becomes an alarm or raises.
    for run in runs:
        ledger.run(run)
    if ledger.alarms:
        raise Incomplete("; ".join(ledger.alarms), advice="Run `lakemark verify --invariants`.")
    if not here.parts.reads_only:
        here.require_sound()
    return f"{here.settings.ledger.path}, id {ledger.id[:8]}, {len(runs)} run(s)"


def _fsync(here: Session) -> str:
    folder = here.settings.ledger.path.parent
    begun = time.monotonic()
    # Beside the ledger: journal, index and new refs are written on that file system.
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".lakemark-doctor-") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
        # As an append does: a file's name is durable only when its folder is synced, too.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    spent = time.monotonic() - begun
    kind = _file_system(folder)
    # There fsync answers at once, and says nothing of a disk.
    if kind in ("tmpfs", "ramfs", "overlay"):
        return f"{kind}: nothing on it survives a power loss; {spent * 1000:.1f} ms"
    note = ", slow: each append waits for it" if spent > _SLOW_FSYNC_SECONDS else ""
    return f"{kind}: a file and its folder in {spent * 1000:.1f} ms{note}"


def _file_system(folder: Path) -> str:
    """The type of the file system `folder` is on, as the kernel names it."""
    best, kind = "", "unknown"
    try:
        rows = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return kind
    for row in rows:
        _, where, found, *_ = row.split(" ")
        # /proc/self/mounts writes blanks as \040; see proc_mounts in fstab(5).
        where = where.encode().decode("unicode_escape")
        inside = where == "/" or str(folder) == where or str(folder).startswith(f"{where}/")
        # The longest mount point is the innermost; of two at one place the later line lies on top.
        if inside and len(where) >= len(best):
            best, kind = where, found
    return kind


def _rights(here: Session) -> str:
    settings = here.settings
    places = [here.parts.loaded.home, settings.ledger.path]
    tiers = [tier.path for tier in settings.tiers.values() if hasattr(tier, "path") and tier.path.is_dir()]
    if here.parts.reads_only:
        hidden = [str(path) for path in tiers if not os.access(path, os.R_OK | os.X_OK)]
        if hidden:
            raise Denied(
                f"this user may not read {', '.join(hidden)}", advice="Give lakemark's user the right to read."
            )
    else:
        places += tiers
    denied = [str(path) for path in places if not os.access(path, os.R_OK | os.W_OK | os.X_OK)]
    root = settings.restore_root
    # It is made when something is restored; until then what counts is the first folder above that is there.
    above = next(path for path in (root, *root.parents) if path.exists())
    denied += [] if os.access(above, os.W_OK | os.X_OK) else [f"{root} (restore_root)"]
    if denied:
        raise Denied(f"this user may not write {', '.join(denied)}", advice="Give lakemark's user these rights.")
    secrets = settings.sandbox.dir / "credentials.env"
    # The sandbox's own keys, all in one file.
    if secrets.exists() and stat.S_IMODE(secrets.stat().st_mode) & 0o077:
        raise Denied(f"others may read {secrets}", advice=f"chmod 600 {secrets}")
    return f"{len(places)} place(s) can be written"


def _space(here: Session) -> str:
    usage = here.site.hot.usage()
    if here.site.hot.full():
        used = f"{size(usage.used_bytes)} of {size(usage.capacity_bytes)} used"
        raise Incomplete(f"hot is full: {size(usage.free_bytes)} free, {used}", advice="Make room.")
    share = usage.file_system_free_share
    return f"{size(usage.free_bytes)} free on hot's file system" + ("" if share is None else f" ({share:.0%})")


def _inodes(here: Session) -> str:
    """Whether a file is found under the number that it had, where trainers save and in hot."""
    from lakemark.services.directories import directories
    from lakemark.site import inodes_stay

    places = {tier.path for tier in here.settings.tiers.values() if tier.kind == "tree"}
    for run in here.history.runs():
        state = here.history.structure(run)
        places |= set() if state.closed else set(directories(here.site, state))
    # One that is not there is told of by others.
    restless = [str(place) for place in sorted(places) if place.is_dir() and not inodes_stay(place)]
    if restless:
        what = f"{' and '.join(restless)}: the mount numbers its files anew at each look"
        return Noted(f"{what}; saves are copied, and known by their times and contents")
    return f"stay the same in {len(places)} place(s)"


def _landing(here: Session, watched: Path) -> str:
    """Whether saves can be taken over without copying."""
    from lakemark.site import inodes_stay

    # A pattern: what can be looked at is the folder above its first star.
    if "*" in watched.name or "*" in str(watched):
        watched = next((path for path in watched.parents if "*" not in str(path)), watched)
    if not watched.is_dir():
        raise Misconfigured(f"{watched} is not there", advice="Mend `watch:`, or make the directory.")
    if not os.access(watched, os.R_OK | os.X_OK):
        raise Denied(f"this user may not read {watched}", advice="Give lakemark's user the right to read it.")
    # Such as some FUSE mounts: a link made from there, or a number remembered, may be another file's.
    if not inodes_stay(watched):
        return "on a mount whose inode numbers change at each look: saves are copied, and known by times and contents"
    hot = here.site.hot
    path = next(tier.path for name, tier in here.settings.tiers.items() if name == hot.name and hasattr(tier, "path"))
    if path.is_dir() and path.stat().st_dev != watched.stat().st_dev:
        return "on another file system than hot: saves are copied"
    # protected_hardlinks: only a file's owner, and root, may link to what they can't write.
    foreign = watched.stat().st_uid != os.geteuid() and os.geteuid() != 0
    return "of another owner: the kernel may forbid links, saves are then copied" if foreign else "by link or reflink"
