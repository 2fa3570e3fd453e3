"""Whose a damaged object is: the entry and record that need it. Read by first parents, the newest entries first."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pygit2

from lakemark.adapters.git import refs as git_refs, trees as git_tree

_RECORD: Final = re.compile(r"^Record: ([0-9a-f]{64})$", re.MULTILINE | re.ASCII)
_STEP: Final = re.compile(r"^Step: ([0-9]{1,18})$", re.MULTILINE | re.ASCII)
_MOST: Final = 5_000
"""Entries of a branch that are looked at, a fraction of a millisecond each: what lies loose is of the newest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """file: its name in the entry's commit; empty: the commit or its tree. record, step: of the entry, where it has one."""

    branch: str
    file: str
    record: str | None
    step: str | None

    @property
    def shown(self) -> str:
        what = self.file or "an entry"
        if self.record is None:
            return f"{what} of {self.branch}"
        return f"{what} of {self.branch}@{self.step} ({self.record[:12]})"


def owners(path: Path, oids: Collection[str]) -> dict[str, Owner]:
    """Object id -> whose it is; those of entries further back are left out. Nothing here is written, or put back."""
    found: dict[str, Owner] = {}
    repository = git_tree.opened(path)
    try:
        for branch, tip in git_refs.tips(path).items():
            # An entry's commit leads to some eight objects: its tree, up to four files of its own, and the pointer.
            for owner, oid in islice(_objects(repository, branch, tip), _MOST * 8):
                if oid in oids:
                    # The newest entry that has it: unchanged files are the same object in one commit after another.
                    found.setdefault(oid, owner)
            if len(found) == len(set(oids)):
                break
    finally:
        repository.free()
    return found


def _objects(repository: pygit2.Repository, branch: str, tip: str) -> Iterator[tuple[Owner, str]]:
    at: str | None = tip
    while at is not None:
        commit = _read(repository, at)
        if not isinstance(commit, pygit2.Commit):
            yield Owner(branch=branch, file="", record=None, step=None), at
            return
        record, step = _RECORD.search(commit.message), _STEP.search(commit.message)
        said = (record[1] if record else None, step[1] if step else None)
        yield Owner(branch=branch, file="", record=said[0], step=said[1]), str(commit.tree_id)
        tree = _read(repository, str(commit.tree_id))
        for item in tree if isinstance(tree, pygit2.Tree) else ():
            yield Owner(branch=branch, file=item.name or "", record=said[0], step=said[1]), str(item.id)
        at = str(commit.parent_ids[0]) if commit.parent_ids else None


def _read(repository: pygit2.Repository, oid: str) -> object:
    try:
        return repository[oid]
    except (KeyError, ValueError, pygit2.GitError):
        return None
