"""`init`: a configuration, a ledger, credentials for the sandbox, and the tiers that are in reach."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lakemark.cli.output import short, table
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Denied, LakemarkError, Misconfigured, Usage, quoted, without_secrets

if TYPE_CHECKING:
    from lakemark.site import Parts

FILE: Final = "lakemark.yaml"
LEDGER: Final = "ledger.git"
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")
_REACHED_WITHIN_SECONDS: Final = 1.0


def init(
    directory: Path = Path(),
    /,
    *,
    profile: str = "laptop",
    ledger: str | None = None,
    site: str | None = None,
    dry_run: bool = False,
) -> Answer:
    """Write lakemark.yaml, make the ledger, and claim the tiers in reach.

    laptop: everything in the directory, with the sandbox's servers on free loopback ports. solo: hot and a disk, nothing
    else. cluster: a file to edit. reader: a machine that only restores, from the tiers of the site whose ledger is named;
    whatever would write is refused there. A configuration that is there already is kept, and what is missing beside it is made.

    Parameters
    ----------
    directory: Path
        Where; it is made if need be.
    profile: str
        laptop, solo, reader or cluster; node would join a shared ledger, which this version does not keep.
    ledger: str
        URL or path of the site's ledger: profile reader.
    site: str
        The site's name; by default the profile's.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    here = session()
    _require_profile(profile, ledger)
    file = directory.absolute() / FILE
    if dry_run:
        with _foreseen(file.parent):
            return _would_make(file, profile, ledger)
    with _usable(file.parent):
        if profile == "reader":
            return _read(here, file, str(ledger), site=site or profile)
        _write(here, file, profile, site=site or profile)
    return _finish(here, file)


def _require_profile(profile: str, ledger: str | None) -> None:
    """Raises Usage for a profile that there is not, and where `--ledger` does not go with it."""
    from lakemark.settings import PROFILES

    if profile not in PROFILES:
        raise Usage(f"--profile {profile!r} is not a profile", advice=f"Take one of {', '.join(PROFILES)}.")
    if profile == "node" or (ledger is not None and profile != "reader"):
        raise Usage(
            f"--profile {profile}{' --ledger' if ledger else ''}: this version keeps the ledger of one node; "
            "only a reader can join a site whose ledger is shared",
            advice="Take the profile laptop, solo, cluster or reader; --ledger goes with reader.",
        )
    if profile == "reader" and ledger is None:
        raise Usage(
            "--profile reader names no ledger", advice="Add --ledger with the URL or path of the site's ledger."
        )


def _would_make(file: Path, profile: str, ledger: str | None) -> Answer:
    mine = file.with_name(LEDGER)
    if profile == "reader":
        return would(
            f"mirror {without_secrets(str(ledger))} at {mine}", f"write {file}, if it is not there", config=str(file)
        )
    begun = f"keep {file} as it is" if file.exists() else f"write {file} for the profile {profile}"
    return would(begun, f"make the ledger {mine}", "claim the tiers in reach", config=str(file))


@contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """With `directory` made; what was made of it goes again where that comes to nothing. Raises Denied, Misconfigured."""
    with _in_words(directory):
        # Deepest first, in which order they can be removed again.
        missing = [one for one in (directory, *directory.parents) if not one.exists()]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            yield
        finally:
            with suppress(OSError):  # not empty: something came of it
                for one in missing:
                    one.rmdir()


@contextmanager
def _foreseen(directory: Path) -> Iterator[None]:
    """Raises what making it would, as far as can be seen."""
    with _in_words(directory):
        nearest = next(one for one in (directory, *directory.parents) if one.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        yield


@contextmanager
def _in_words(directory: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise Denied(
            f"{error.filename or directory} may not be written", advice="Choose a directory of your own."
        ) from None
    except OSError as error:
        raise Misconfigured(
            f"{quoted(str(directory))} can't be used: {error.strerror}", advice="Choose another directory."
        ) from None


def _read(here: Session, file: Path, ledger: str, *, site: str) -> Answer:
    """A machine that only reads: the mirror first, which says how the site's tiers are reached."""
    from lakemark.site import mirrored

    mine = file.with_name(LEDGER)
    # A mirror that was there before is not ours to remove.
    fresh = not mine.exists()
    # A relative path is the shell's, and is kept as an absolute one.
    remote, tiers = mirrored(mine, ledger, base=Path.cwd())
    try:
        _write(here, file, "reader", site=site, remote=remote, tiers=tiers)
    # Ctrl-C, too: a mirror without a configuration would be in the way of the next try.
    except BaseException:
        if fresh:
            shutil.rmtree(mine)
        raise
    if not tiers:
        here.note("the ledger names no tier this machine could reach: add them to `tiers` as the other nodes have them")
    # With a command's name: a reader may use the site only for those that read.
    made = Session(options=replace(here.options, config=file), environ=here.environ, command="init")
    with closing(made):
        rows = [_reached(here, made, name) for name in made.settings.tiers]
    path = str(made.settings.ledger.path)
    shown = [(row["name"], row["class"], row["kind"], short(row["id"])) for row in rows]
    lines = [f"config  {file}", f"ledger  {path}, a mirror of {remote}", ""]
    lines += table(("tier", "class", "kind", "id"), shown)
    return Answer(document={"config": str(file), "ledger": path, "tiers": rows}, lines=lines)


def _reached(here: Session, made: Session, name: str) -> dict[str, Any]:
    """id: of a tier that this machine reaches and that is the ledger's; nothing is claimed."""
    from lakemark.services.ledger import require_identity

    tier = made.settings.tiers[name]
    row: dict[str, Any] = {"name": name, "class": tier.tier_class, "kind": tier.kind, "id": None}
    if tier.tier_class == "hot":
        return row
    try:
        store = made.site.store(name)
        require_identity(made.site, store)
        found = store.identity()
        row["id"] = found.id if found is not None else None
    except LakemarkError as error:
        here.note(f"the tier {name} is not reached yet: {error}")
    return row


def _write(
    here: Session,
    file: Path,
    profile: str,
    *,
    site: str,
    remote: str | None = None,
    tiers: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    from lakemark.accounts import group_sharing, share_file
    from lakemark.settings import loads, render

    if file.exists():
        here.note(f"kept {file} as it is")
        return
    ports = _ports() if profile == "laptop" else {}
    # The file is to hold by itself: no other variable of this shell may stand in for what it lacks.
    environ = {name: value for name, value in here.environ.items() if name == "LAKEMARK_NODE"}
    # Written down: a host that is renamed later must not become another node of the ledger.
    node = here.environ.get("LAKEMARK_NODE") or _node_name(socket.gethostname())
    shared = group_sharing(file.parent) is not None
    text = render(profile, site=site, node=node, ports=ports, ledger_url=remote, tiers=tiers, shared=shared)
    # Read back before it is written: a name that the schema refuses must leave no file behind.
    loaded = loads(text, file=file, environ=environ, hostname=node)
    if profile == "laptop":
        from lakemark.sandbox import credentials

        # Before the file: once that is there, the next `init` keeps it and makes no keys.
        credentials.generate(loaded.settings.sandbox.dir / "credentials.env", prefect_port=ports["prefect"])
    draft = file.with_name(f".{FILE}.{os.getpid()}")
    # Whole or not at all: the next command takes what it finds under the name.
    with draft.open("x", encoding="utf-8") as stream:
        # Where the folder is a group's, the file is readable to it before it has its name.
        share_file(draft)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.rename(file)


def _finish(here: Session, file: Path) -> Answer:
    from lakemark.accounts import group_sharing
    from lakemark.services.site_facts import found_site
    from lakemark.site import init_ledger

    made = Session(options=replace(here.options, config=file), environ=here.environ)
    with closing(made):
        init_ledger(made.parts)
        found_site(made.site)
        rows = _claimed(here, made)
    path = str(made.settings.ledger.path)
    document = {"config": str(file), "ledger": path, "tiers": rows}
    shown = [(row["name"], row["class"], row["kind"], short(row["id"])) for row in rows]
    lines = [f"config  {file}", f"ledger  {path}", "", *table(("tier", "class", "kind", "id"), shown)]
    group = group_sharing(file.parent)
    if group is not None:
        lines += ["", f"shared with the group {group}; what an account may do here: lakemark doctor --as-user NAME"]
    if any((made.settings.sandbox.s3, made.settings.sandbox.lakefs, made.settings.sandbox.prefect)):
        lines += ["", "next: lakemark up"]
    elif all(row["id"] for row in rows):
        lines += ["", "next: lakemark run open RUN --watch DIR, where its trainer saves; then lakemark watch"]
    else:
        lines += ["", "next: lakemark doctor says what the tiers that are not claimed lack"]
    return Answer(document=document, lines=lines)


def _claimed(here: Session, made: Session) -> list[dict[str, Any]]:
    from lakemark.services.tiers.register import register_tier

    rows: list[dict[str, Any]] = []
    for name, tier in made.settings.tiers.items():
        row: dict[str, Any] = {"name": name, "class": tier.tier_class, "kind": tier.kind, "id": None}
        why = out_of_reach(made.parts, name)
        if why is None:
            try:
                row["id"] = register_tier(made.site, made.site.store(name)).id
            except LakemarkError as error:
                why = str(error)
        if why is not None:
            # No error: what is in reach is of use at once, and `tier init` does the rest.
            here.note(f"the tier {name} is not claimed yet: {why}")
        rows.append(row)
    return rows


def out_of_reach(parts: Parts, name: str) -> str | None:
    """Why a tier can't be claimed at `init`; None where it can be tried."""
    from lakemark.settings import DirectoryTier, S3Tier, is_loopback

    tier = parts.settings.tiers[name]
    # A place of its own outside the home, such as a mount: made here, it would lie below the mount point.
    if isinstance(tier, DirectoryTier) and not tier.path.is_relative_to(parts.loaded.home) and not tier.path.is_dir():
        return f"{tier.path} is not there; then `lakemark tier init {name}`"
    if not isinstance(tier, S3Tier):
        return None
    # Keys are rarely there yet when the configuration is new.
    if not is_loopback(tier.endpoint):
        return f"it is elsewhere; check its keys in lakemark.yaml, then `lakemark tier init {name}`"
    return None if _answers(tier.endpoint or "") else f"{tier.endpoint} does not answer yet"


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_REACHED_WITHIN_SECONDS):
            return True
    except OSError:
        return False


def _ports() -> Mapping[str, int]:
    from lakemark.sandbox import loopback

    return dict(zip(("s3", "lakefs", "prefect"), loopback.free_ports(3), strict=True))


def _node_name(host: str) -> str:
    # A DNS label: 63 characters, ending with no dash.
    return _NOT_A_NAME.sub("-", host.lower()).strip("-")[:63].rstrip("-") or "node-a"
