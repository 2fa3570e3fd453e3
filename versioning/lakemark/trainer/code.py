"""Which code trains: read from Git's own files, without running it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII)
_URL: Final = re.compile(r"^\s*url\s*=\s*(\S+)\s*$", re.MULTILINE)


def code_version() -> dict[str, str | None] | None:
    """{repository, commit, dirty} of the program's folder, else of the current one; None where neither is a work tree.

    repository: the origin's address without its user and password, else the work tree's path. dirty is None: telling
    it means reading the whole tree.
    """
    try:
        for start in _starts():
            for root in _upwards(start):
                marker = os.path.join(root, ".git")
                if os.path.exists(marker):
                    return _version(root, marker)
    except (OSError, ValueError):
        return None
    return None


def _starts() -> Iterator[str]:
    # The program's own folder first: it may be started from anywhere.
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main:
        yield os.path.dirname(os.path.abspath(main))
    yield os.getcwd()


def _upwards(path: str) -> Iterator[str]:
    while True:
        yield path
        above = os.path.dirname(path)
        if above == path:
            return
        path = above


def _version(root: str, marker: str) -> dict[str, str | None] | None:
    folder, common = _folders(root, marker)
    head = _text(os.path.join(folder, "HEAD")).strip()
    commit = _resolved(head.removeprefix("ref: "), common, folder) if head.startswith("ref: ") else head
    if commit is None or not _COMMIT.fullmatch(commit):
        return None
    return {"repository": _origin(common) or root, "commit": commit, "dirty": None}


def _folders(root: str, marker: str) -> tuple[str, str]:
    """Git's folder of this work tree, and the one it shares with others."""
    if os.path.isdir(marker):
        return marker, marker
    # A file in place of the folder: a linked work tree, or a submodule.
    folder = os.path.join(root, _text(marker).strip().removeprefix("gitdir: "))
    try:
        shared = os.path.join(folder, _text(os.path.join(folder, "commondir")).strip())
    except FileNotFoundError:
        shared = folder
    return folder, shared


def _resolved(ref: str, common: str, folder: str) -> str | None:
    # A linked work tree has references of its own, beside those that all of them share.
    for base in (folder, common):
        try:
            return _text(os.path.join(base, ref)).strip()
        except FileNotFoundError:
            continue
    try:
        rows = _text(os.path.join(common, "packed-refs")).splitlines()
    except FileNotFoundError:
        return None
    return next((row.partition(" ")[0] for row in rows if row.endswith(f" {ref}")), None)


def _origin(common: str) -> str | None:
    try:
        config = _text(os.path.join(common, "config"))
    except FileNotFoundError:
        return None
    _, mark, section = config.partition('[remote "origin"]')
    found = _URL.search(section.partition("\n[")[0]) if mark else None
    return None if found is None else without_secrets(found[1])


def without_secrets(address: str) -> str:
    """A URL without user, password, query and fragment."""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        # Bounded: whatever lies there is read before the training begins.
        return file.read(1_000_000)
