"""Objects of the ledger's repository: what an entry's commit holds, written and read.

libgit2's errors come out as ours. What is written becomes durable with `Made.store`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pygit2
from pygit2.enums import FileMode, RepositoryOpenFlag

from lakemark.adapters.disk.files import as_ours, os_errors
from lakemark.adapters.git.objects import Made, put_back
from lakemark.errors import Corrupt, Denied, LakemarkError, NoRoom, NotFound, quoted
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import DataKind, Record
from lakemark.model.ledger.entry import Attachments, Entry
from lakemark.model.values.canonical import canonical

# Objects and their directories are fsynced; a repository of another user is not opened.
pygit2.settings.enable_fsync_gitdir(True)  # noqa: FBT003 - pygit2's own signature
pygit2.settings.owner_validation = True
# libgit2 would keep what it read, up to 256 MiB as it counts, which is several times that in memory.
pygit2.settings.cache_max_size(2**20)

T = TypeVar("T")

# Any of these would end a line of a commit's head early, or the name in it.
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f<>]+", re.ASCII)
_LONGEST_SUBJECT: Final = 200
_LONGEST: Final = 500
_OWNER: Final = "Run as its owner; or, if you trust it, tell Git so: git config --global --add safe.directory {}"
_RIGHTS: Final = "Give lakemark's user the right to it, or run as its owner."
# libgit2 has one error class for all of these: only the words tell them apart.
_MESSAGES: Final = (
    (re.compile("not owned by current user|dubious ownership"), Denied, _OWNER),
    (re.compile("Permission denied|Read-only file system|Operation not permitted"), Denied, _RIGHTS),
    (re.compile("No space left|Disk quota"), NoRoom, "Make room on the ledger's file system."),
)

Row = tuple[str, bytes, bytes | None]
"""(commit, entry.json, record.json or None): what folding needs of an entry."""


class Item(NamedTuple):
    """An entry of a tree."""

    oid: str
    mode: FileMode


@contextmanager
def git_errors(place: Path) -> Iterator[None]:
    """What pygit2 and the system raise inside comes out as errors of our tree.

    Not KeyError and ValueError, which pygit2 raises too: they may be our own mistakes. Whoever asks it for an object does
    that through `found`.
    """
    try:
        yield
    except OSError as error:
        # libgit2's come with words alone: what they mean no number says.
        raise (
            _as_ours(place, str(error)) if error.errno is None else as_ours(error, error.filename or place)
        ) from error
    except pygit2.GitError as error:
        raise _as_ours(place, str(error)) from error


def unread(repository: pygit2.Repository, text: str) -> LakemarkError:
    """What to raise where the repository holds something else than it should."""
    return _as_ours(Path(repository.path), text)


def _as_ours(place: Path, text: str) -> LakemarkError:
    for pattern, kind, advice in _MESSAGES:
        if pattern.search(text):
            said = advice.replace("{}", shlex.quote(str(place)))
            return kind(f"the ledger {place}: {quoted(text, limit=_LONGEST)}", advice=said)
    return Corrupt(
        f"the ledger {place} can't be read: {quoted(text, limit=_LONGEST)}",
        advice="Run `git fsck` there; restore it from a tier's ledger.bundle or another node.",
    )


def opened(path: Path) -> pygit2.Repository:
    """The bare repository at exactly `path`. Raises NotFound, Denied, Corrupt."""
    with os_errors(path):
        there = (path / "objects").is_dir()
    if not there:
        raise NotFound(f"there is no ledger at {path}", advice="Make one with `lakemark init`, or mend `ledger: path`.")
    with git_errors(path):
        return pygit2.Repository(str(path), RepositoryOpenFlag.BARE | RepositoryOpenFlag.NO_SEARCH)


def own_files(entry: Entry, contents: Attachments) -> dict[str, bytes]:
    """The files that belong to `entry` itself. Raises ValueError for what JSON can't hold."""
    files = {"entry.json": canonical(entry.as_json()) + b"\n"}
    if contents.record is not None:
        files["record.json"] = canonical(contents.record.as_json()) + b"\n"
    if contents.manifest is not None:
        files["manifest.json"] = manifest_bytes(contents.manifest)
    if contents.objects is not None:
        files["objects.json"] = canonical(contents.objects) + b"\n"
    return files


def manifest_bytes(manifest: Manifest) -> bytes:
    """manifest.json, as every tree has it."""
    return canonical(manifest.as_json()) + b"\n"


def write_items(made: Made, files: Mapping[str, bytes]) -> dict[str, Item]:
    """Blobs for `files`, and trees for the folders in their paths (one level); answers the top level's items."""
    items: dict[str, Item] = {}
    folders: dict[str, dict[str, bytes]] = {}
    for path, data in files.items():
        folder, _, name = path.rpartition("/")
        if folder:
            folders.setdefault(folder, {})[name] = data
        else:
            items[name] = Item(made.add("blob", data), FileMode.BLOB)
    for folder, inner in folders.items():
        items[folder] = Item(write_tree(made, write_items(made, inner)), FileMode.TREE)
    return items


def write_tree(made: Made, items: Mapping[str, Item]) -> str:
    """A tree of `items`."""
    # Git sorts a folder as if its name ended in a slash.
    ordered = sorted(items.items(), key=lambda one: one[0] + ("/" if one[1].mode == FileMode.TREE else ""))
    rows = (b"%o %s\0" % (item.mode, name.encode()) + bytes.fromhex(item.oid) for name, item in ordered)
    return made.add("tree", b"".join(rows))


def write_commit(
    repository: pygit2.Repository,
    made: Made,
    entry: Entry,
    *,
    message: str,
    tree: str,
    parent: str | None,
    joins: tuple[str, ...] = (),
) -> str:
    """A commit of `tree` that no reference names yet. Its time is past its parents', whatever the clock says.

    joins: further parents; a walk by first parents, which is what a branch's entries are, does not see them.
    """
    seconds = int(entry.recorded_at.timestamp())
    who = f"{_clean(entry.actor)} <{_clean(entry.node)}>"
    parents = "".join(f"parent {one}\n" for one in (parent, *joins) if one is not None)
    head = f"tree {tree}\n{parents}" + f"author {who} {seconds} +0000\n"
    if parent is not None:
        # Git sorts by these times: with equal ones a push to a long branch takes ten times as long.
        seconds = max(seconds, _commit(repository, parent).commit_time + 1)
    for joined in joins:
        seconds = max(seconds, _commit(repository, joined).commit_time + 1)
    return made.add("commit", f"{head}committer {who} {seconds} +0000\n\n{message}".encode())


def message(entry: Entry, record: Record | None) -> str:
    """A subject, and trailers by which `git log --grep '^Step: 300$'` finds entries."""
    subject = entry.kind if record is None else f"{entry.kind} step {record.step} ({record.id[:12]})"
    if entry.reason:
        subject += ": " + entry.reason
    trailers = [f"Kind: {entry.kind}"]
    if record is not None:
        trailers += [f"Record: {record.id}", f"Step: {record.step}"]
    if entry.timeline:
        trailers.append(f"Timeline: {entry.timeline}")
    if record is not None and entry.record_digest is not None:
        data = [ref for ref in record.data if ref.kind == DataKind.LAKEFS]
        trailers += [f"Data: {ref.repository}@{ref.commit}" for ref in data]
    return _UNSAFE.sub(" ", subject)[:_LONGEST_SUBJECT].strip() + "\n\n" + "\n".join(trailers) + "\n"


def read_blob(repository: pygit2.Repository, commit: str, name: str) -> bytes | None:
    """A file's bytes; None where the commit's tree has no such file. Raises Corrupt where an object is missing."""
    tree = _tree(repository, commit)
    if name not in tree:
        return None
    data: bytes = found(repository, str(tree[name].id)).read_raw()
    return data


def broken_files(repository: pygit2.Repository, commit: str) -> Iterator[tuple[str, str]]:
    """(path, why) of what can't be read of a commit's tree; the path is empty where it is the commit, or the tree."""
    try:
        waiting = [("", _tree(repository, commit))]
    except Corrupt as error:
        yield "", str(error)
        return
    while waiting:
        folder, tree = waiting.pop()
        for item in tree:
            try:
                one = found(repository, str(item.id))
                if isinstance(one, pygit2.Tree):
                    waiting.append((f"{folder}{item.name}/", one))
            except Corrupt as error:
                yield f"{folder}{item.name}", str(error)


def read_row(repository: pygit2.Repository, commit: str) -> Row:
    """What folding needs of the commit's entry. Raises Corrupt where it is no entry's."""
    entry = read_blob(repository, commit, "entry.json")
    if entry is None:
        raise unread(repository, f"the commit {commit} holds no entry.json")
    return commit, entry, read_blob(repository, commit, "record.json")


def read_items(repository: pygit2.Repository, commit: str, names: tuple[str, ...]) -> dict[str, Item]:
    """Those of `names` that the commit's tree has."""
    tree = _tree(repository, commit)
    return {name: Item(str(tree[name].id), FileMode(tree[name].filemode)) for name in names if name in tree}


def commits_after(repository: pygit2.Repository, tip: str | None, base: str | None) -> list[str] | None:
    """Commits from after `base` (None: from the first) up to `tip`, oldest first; None where `base` is no ancestor."""
    commits: list[str] = []
    at = tip
    while at != base:
        if at is None:
            return None
        commits.append(at)
        parents = _commit(repository, at).parent_ids
        at = str(parents[0]) if parents else None
    commits.reverse()
    return commits


def found(repository: pygit2.Repository, oid: str) -> Any:  # noqa: ANN401 - pygit2 has no type for all four kinds
    """The object, put back first from the copy beside the repository where a git program pruned it. Raises Corrupt."""
    try:
        return repository[oid]
    except (KeyError, ValueError, pygit2.GitError):
        # A `git gc --prune=now` beside an append takes objects that are referred to by now; the copy beside has them.
        put_back(Path(repository.path))
    try:
        return repository[oid]
    except (KeyError, ValueError, pygit2.GitError) as error:
        raise unread(repository, f"the object {oid}: {error}") from error


def _commit(repository: pygit2.Repository, commit: str) -> pygit2.Commit:
    return _kind(repository, commit, pygit2.Commit)


def _tree(repository: pygit2.Repository, commit: str) -> pygit2.Tree:
    return _kind(repository, str(_commit(repository, commit).tree_id), pygit2.Tree)


def _kind(repository: pygit2.Repository, oid: str, kind: type[T]) -> T:
    """The object, of that kind. Raises Corrupt where it is missing, or is another."""
    one = found(repository, oid)
    if not isinstance(one, kind):
        raise unread(repository, f"the object {oid} is a {type(one).__name__}, no {kind.__name__}")
    return one


def _clean(text: str) -> str:
    return _UNSAFE.sub(" ", text).strip(" .,:;\"'") or "unknown"
