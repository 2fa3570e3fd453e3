"""Making a ledger's repository: its folders, its rights, and settings that keep git programs from taking anything away."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

import pygit2

from lakemark.adapters.disk.files import (
    fsync_directory,
    is_shared,
    make_directories,
    os_errors,
    remove_tree,
    rename_new,
    share,
)
from lakemark.adapters.git import pack, refs
from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.git.trees import git_errors
from lakemark.model.ledger.entry import SITE

CONFIGURATION: Final = {
    # `git gc` beside appends destroys a repository.
    "gc.auto": "0",
    "gc.pruneExpire": "never",
    "maintenance.auto": "false",
    # For git programs that write here, as a remote of others.
    "core.fsync": "all",
    "receive.denyNonFastForwards": "true",
    "receive.denyDeletes": "true",
    "receive.autogc": "false",
}


def init(path: Path, identity: str | None = None) -> str:
    """Makes an empty ledger at `path`, durably, and answers its id; where one is already, nothing changes.

    identity: that of a ledger that was lost, whose tiers name it as their owner.
    Raises Misconfigured or NotFound where something else is there, Denied.
    """
    if (path / "objects").is_dir():
        return GitLedger(path).id
    with os_errors(path):
        make_directories(path.parent)
        # Made beside and renamed: a kill leaves a draft, never half a ledger that the next start would take for one.
        draft = path.parent / f".{path.name}.{uuid.uuid4().hex}"
        try:
            _make(draft, identity := identity or str(uuid.uuid4()))
            rename_new(draft, path)
            fsync_directory(path.parent)
        except FileExistsError:
            identity = GitLedger(path).id
        finally:
            remove_tree(draft)
    return identity


def _make(path: Path, identity: str) -> None:
    with git_errors(path):
        repository = pygit2.init_repository(str(path), bare=True, initial_head=SITE)
        # So that git programs, too, leave what other accounts of the group can write.
        shared = {"core.sharedRepository": "group"} if is_shared(path.parent) else {}
        for name, value in (*CONFIGURATION.items(), *shared.items(), ("lakemark.id", identity)):
            repository.config[name] = value
        repository.free()
    pack.make_folders(path)
    for folder in (refs.RUNS, refs.TAGS):
        (path / folder).mkdir(parents=True, exist_ok=True)
    for folder, _, names in os.walk(path):
        share(folder, folder=path.parent)
        for name in names:
            share(os.path.join(folder, name), folder=path.parent)
            # Each file and folder, whatever libgit2 flushed itself: the rename to come must not name what power loss empties.
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        fsync_directory(folder)
