"""Mending the folder of a ledger, so that it can be opened: its settings, HEAD and references, and objects that are damaged.

Nothing is thrown away: what can't be read goes to `lakemark/damaged` in the repository, and a folder that is no repository at
all stays beside the new one. Git is loaded only to write: `status` asks what is to be mended.
"""

from __future__ import annotations

import configparser
import os
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import fsync_directory, os_errors, write_atomic
from lakemark.adapters.git import refs as git_refs
from lakemark.adapters.git.damage import damaged_loose, place_aside, set_damaged_aside
from lakemark.adapters.git.nodes import NODES
from lakemark.adapters.git.refs import RUNS, SITE
from lakemark.errors import Corrupt, NotFound
from lakemark.model.ledger.entry import parsed
from lakemark.model.values.outside import ledger_id

# By pattern, not by a parser: the file that this is read from is damaged, somewhere.
_ID: Final = re.compile(r"^\s*id\s*=\s*([0-9a-zA-Z-]{8,64})\s*$", re.MULTILINE)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)
_PACKED: Final = re.compile(rb"(?:#.*|\^[0-9a-f]{40}|[0-9a-f]{40} refs/[\x21-\x7e]+)\n")


_DONE: Final = {"make": "made", "write": "wrote", "leave": "left"}


def mend(path: Path, identity: Callable[[], str | None], *, dry_run: bool = False) -> list[str]:
    """Makes the folder at `path` a ledger that can be opened; answers what it did, or would do, a sentence each.

    identity: the ledger's id as its tiers have it, asked only where the folder does not say it. What is right stays as it is.
    Raises NotFound where nobody knows the id: then nothing is known of this ledger at all.
    """
    with os_errors(path):
        if not (path / "objects").is_dir():
            known = _required(identity())
            if not dry_run:
                _begin(path, known)
            return _told([f"make an empty ledger with the id {known} at {path}"], dry_run=dry_run)
        said = [*_settings(path, identity, dry_run=dry_run), *_head(path, dry_run=dry_run)]
        said += _references(path, dry_run=dry_run)
        damaged = damaged_loose(path) if dry_run else set_damaged_aside(path)
        said += [f"set the damaged object {name[:12]} aside, to be taken from a copy" for name in damaged]
        if not dry_run:
            from lakemark.adapters.git import objects as git_objects

            count = git_objects.put_back(path)
            said += [f"write {count} object(s) anew from the copies kept beside the ledger"] if count else []
        return _told(said, dry_run=dry_run)


def _told(said: list[str], *, dry_run: bool) -> list[str]:
    """Each sentence begins with what is to be done; of what was done it says so."""
    if dry_run:
        return said
    words = (one.partition(" ") for one in said)
    return [f"{_DONE.get(verb, verb)} {rest}" for verb, _, rest in words]


def _begin(path: Path, identity: str) -> None:
    """An empty ledger at `path`; what lies there is renamed, never removed."""
    if path.exists():
        # Only an empty folder goes; whatever is in it is kept under another name.
        with suppress(OSError):
            path.rmdir()
        if path.exists():
            os.rename(path, path.with_name(f"{path.name}.damaged-{uuid.uuid4().hex[:8]}"))
            fsync_directory(path.parent)
    from lakemark.adapters.git.make import init

    init(path, identity)


def _settings(path: Path, identity: Callable[[], str | None], *, dry_run: bool) -> list[str]:
    """Also of a clone, which has no id of ours, and a remote that would overwrite branches at each fetch."""
    place = path / "config"
    try:
        text = place.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = ""
    found = _ID.search(text.partition("[lakemark]")[2])
    # A new ledger in a lost one's place has no entries, and its tiers know another one as their owner.
    taken = None if _has_branches(path) else identity()
    if found is not None and taken in (None, found[1]) and _readable(text) and "mirror = true" not in text:
        return []
    known = taken or (found[1] if found else _required(_of_site(path) or identity()))
    if not dry_run:
        from lakemark.adapters.git.make import CONFIGURATION

        # A kill before the new one is written leaves no `config`: then the id is asked for as if it was lost.
        _keep(path, "config")
        sections: dict[str, list[str]] = {"core": ["repositoryformatversion = 0", "filemode = true", "bare = true"]}
        for name, value in (*CONFIGURATION.items(), ("lakemark.id", known)):
            section, _, key = name.partition(".")
            sections.setdefault(section, []).append(f"{key} = {value}")
        lines = (f"[{section}]\n" + "".join(f"\t{line}\n" for line in rows) for section, rows in sections.items())
        write_atomic(place, "".join(lines).encode())
    return [f"write the ledger's own settings, with its id {known}"]


def _of_site(path: Path) -> str | None:
    """What the site's branch says that the ledger is; None where it says nothing, or can't be read."""
    import pygit2

    from lakemark.adapters.git import trees as git_tree

    try:
        repository = pygit2.Repository(str(path))
        tip = git_refs.read(path, SITE)
        for commit in git_tree.commits_after(repository, tip, None) or ():
            _, entry, _ = git_tree.read_row(repository, commit)
            if b'"founded"' in entry and (found := parsed(entry, None)[0]).kind == "founded":
                return ledger_id(found.body.get("id"))
    except (pygit2.GitError, KeyError, ValueError, Corrupt):
        return None
    return None


def _has_branches(path: Path) -> bool:
    """Whether anything names an entry: a repository just made has none."""
    heads = path / "refs" / "heads"
    loose = any(names for folder, _, names in os.walk(heads) for _ in [folder])
    packed = path / "packed-refs"
    return loose or (packed.is_file() and b" refs/heads/" in packed.read_bytes())


def _readable(text: str) -> bool:
    """Whether Git could read this configuration, and takes the repository for a bare one."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        # Git indents its keys; to this parser an indented line would go on with the one before.
        parser.read_string("\n".join(line.strip() for line in text.splitlines()))
    except configparser.Error:
        return False
    return parser.get("core", "bare", fallback="") == "true"


def _head(path: Path, *, dry_run: bool) -> list[str]:
    """Mends HEAD; answers what it did, or would do."""
    place = path / "HEAD"
    try:
        text = place.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, IsADirectoryError):
        text = ""
    # Without a HEAD of one of these two forms Git does not take the folder for a repository.
    if re.fullmatch(r"ref: refs/heads/[\x21-\x7e]+", text) or _COMMIT.fullmatch(text):
        return []
    if not dry_run:
        _keep(path, "HEAD")
        write_atomic(place, f"ref: {SITE}\n".encode())
    return ["write HEAD anew"]


def _references(path: Path, *, dry_run: bool) -> list[str]:
    """References that name no commit are lost: the copies have them."""
    said: list[str] = []
    folder = path / RUNS
    names = [RUNS + entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
    beats = path / NODES
    names += [NODES + entry.name for entry in os.scandir(beats)] if beats.is_dir() else []
    for name in (*names, SITE):
        place = path / name
        if name.endswith(".lock") or not place.is_file():
            continue
        if _COMMIT.fullmatch(place.read_text(encoding="ascii", errors="replace").strip()):
            continue
        if not dry_run:
            _keep(path, name)
        said.append(f"set the reference {name} aside, which names no commit")
    packed = path / "packed-refs"
    if packed.is_file():
        lines = packed.read_bytes().splitlines(keepends=True)
        # One line that is wrong makes Git refuse the whole file, and with it every reference that lies in it.
        right = [line for line in lines if _PACKED.fullmatch(line)]
        if len(right) < len(lines):
            if not dry_run:
                write_atomic(place_aside(path, "packed-refs"), b"".join(lines))
                write_atomic(packed, b"".join(right))
            said.append(f"leave {len(lines) - len(right)} line(s) of packed-refs out that name nothing")
    return said


def _keep(path: Path, name: str) -> None:
    """Moves a file of the repository among what is damaged, durably."""
    place = path / name
    if place.exists():
        os.rename(place, place_aside(path, name))
        fsync_directory(place.parent)


def _required(identity: str | None) -> str:
    """The id, if anybody knows it. Raises NotFound."""
    if identity is None:
        raise NotFound(
            "no tier in reach knows the id of the ledger that is lost",
            advice="Mount or start a tier of this site; one that never had a ledger is made by `lakemark init`.",
        )
    return identity
