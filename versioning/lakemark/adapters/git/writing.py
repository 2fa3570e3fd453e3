"""Making an entry's commit: the entry as it will be read back, the pointer its tree carries, the record's tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lakemark.adapters.disk.proven_manifest import proven
from lakemark.adapters.git import pointer as git_pointer, refs as git_refs, trees as git_tree
from lakemark.adapters.git.file_lock import Locked
from lakemark.adapters.git.history import BranchHistory, S, TreePointer
from lakemark.adapters.git.objects import Made
from lakemark.adapters.git.pointer import Remote
from lakemark.adapters.git.refs import Turn
from lakemark.adapters.git.trees import Item, git_errors
from lakemark.errors import Corrupt, LakemarkError, Refused
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Record, require_own
from lakemark.model.entries.fold import acts_on, apply_site, foreseen
from lakemark.model.entries.table import settled
from lakemark.model.ledger.entry import Attachments, Draft, Entry, Stamp, parsed
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.canonical import parse

if TYPE_CHECKING:
    from pygit2 import Repository

_NOTHING = TreePointer(None, {})


class Tag(NamedTuple):
    """A record's tag to be made: its full name, the commit, and the objects that are not in the repository yet."""

    name: str
    commit: str
    made: Made


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An entry, exactly as it will be read back, and the files of its tree."""

    entry: Entry
    contents: Attachments
    files: Mapping[str, bytes]
    joins: tuple[str, ...] = ()


def prepared(draft: Draft, *, branch: str, sequence: int, stamp: Stamp) -> Prepared:
    """Raises Refused for an entry that JSON can't hold or that could not be read back."""
    carried = draft.contents or Attachments()
    try:
        if carried.record is not None and carried.manifest is not None:
            require_own(carried.record, carried.manifest)
        files = git_tree.own_files(settled(draft, branch=branch, sequence=sequence, stamp=stamp), carried)
        # Parsed from the very bytes that are stored: what a reader would choke on is refused now, not found by everybody later.
        entry, contents = parsed(files["entry.json"], files.get("record.json"))
    except (ValueError, TypeError, Corrupt) as error:
        raise _unreadable(draft.kind, error) from error
    return Prepared(entry=entry, contents=replace(carried, record=contents.record), files=files, joins=draft.joins)


class Writer:
    """Makes the commits and tags of the ledger at `path`, in memory. alarm: told what went wrong without stopping the append."""

    def __init__(
        self,
        path: Path,
        repository: Callable[[], Repository],
        remotes: Mapping[str, Remote],
        *,
        alarm: Callable[[str], None],
    ) -> None:
        self._path = path
        self._repository = repository
        self._remotes = remotes
        self._alarm = alarm

    def commit(self, history: BranchHistory[S], new: Prepared, pointer: TreePointer, made: Made) -> str:
        """The entry's commit, in `made`."""
        record, state = new.contents.record, history.state
        if record is None and isinstance(state, RunState):
            known = state.records.get(new.entry.record or "")
            record = known.record if known is not None else None
        text = git_tree.message(new.entry, record)
        with git_errors(self._path):
            tree = git_tree.write_tree(made, {**git_tree.write_items(made, new.files), **pointer.items})
            return git_tree.write_commit(
                self._repository(), made, new.entry, message=text, tree=tree, parent=history.tip, joins=new.joins
            )

    def pointer(self, history: BranchHistory[S], new: Prepared, made: Made) -> TreePointer:
        """What the new tree points DVC at: the same as the tip's, or worked out anew where the entry may move it.

        Raises Refused for an entry whose body could not be read back.
        """
        state, entry = history.state, new.entry
        if not isinstance(state, RunState):
            # On a state of its own: the question is only whether the fold takes the entry's body, not what it does.
            trial = SiteState()
            apply_site(trial, entry, new.contents)
            if acts_on(entry.kind) and trial.unknown:
                raise _unreadable(entry.kind, "its body is malformed")
            return _NOTHING
        try:
            after = foreseen(state, entry, new.contents)
        except ValueError as error:
            raise _unreadable(entry.kind, error) from error
        supersedes = new.contents.record is not None and new.contents.record.supersedes is not None
        # Most entries can't move it; working it out reads a manifest, which may be large.
        moves = entry.kind in git_pointer.MOVED_BY or after.timeline != state.timeline
        if not moves and not supersedes:
            return self._present(history)
        try:
            return self._best(history, after, new, made)
        except Corrupt as error:
            # Old damage must not keep a new entry out: what the tip points at stays.
            self._alarm(f"{history.branch}: the pointer could not be moved: {error}")
            return self._present(history)

    def tag(self, history: BranchHistory[S]) -> Tag | None:
        """The tag that the record of a newest `replicated` entry still lacks, perhaps since a crash; None: it lacks none."""
        entry, state, tip = history.newest, history.state, history.tip
        if tip is None or entry is None or entry.kind != "replicated" or not isinstance(state, RunState):
            return None
        found = state.records.get(entry.record or "")
        # A tag is there to be pulled by: a replica in a tier that DVC does not read gives it nothing to point at.
        if found is None or entry.body.get("tier") not in self._remotes:
            return None
        name = git_refs.TAGS + found.record.id[:12]
        made = Made(self._path)
        try:
            if git_refs.read(self._path, name) is not None:
                return None
            commit = self._commit_pointing_at(history, found.record.id, tip, made)
        except LakemarkError as error:  # of the newest entry, which stands; and it must not keep the next one out
            self._alarm(f"{history.branch}: {name} could not be made: {error}")
            return None
        return None if commit is None else Tag(name, commit, made)

    def place(self, tag: Tag, turn: Turn) -> None:
        """Makes the tag, durably; an alarm where a git program or the disk keeps it from that: the entry stands without it."""
        try:
            with git_errors(self._path):
                # Durable before the tag is: after power loss a reference must not name what is not there.
                tag.made.store(tag.commit)
                turn.move(tag.name, None, tag.commit)
                tag.made.look_again()
        except (git_refs.ReferenceMoved, Locked, LakemarkError) as error:
            self._alarm(f"{tag.name} could not be made: {error!r}")

    def _commit_pointing_at(self, history: BranchHistory[S], record: str, tip: str, made: Made) -> str | None:
        """The tip itself where it points at `record`; else a commit on top of it that does, beside the branch."""
        # A commit has one checkpoint.dvc: where the branch points at a better record, this one needs a commit beside it.
        if history.pointer is not None and history.pointer.record == record:
            return tip
        state, entry = history.state, history.newest
        if entry is None or not isinstance(state, RunState):
            return None
        tiers = git_pointer.holders(state.records[record], self._remotes)
        pointed = git_pointer.Pointed(record=record, tiers=tiers)
        items = self._items(history, pointed, state, new=None, made=made)
        if not items or items == self._items_of(tip):
            return tip if items else None
        with git_errors(self._path):
            kept = git_tree.read_items(self._repository(), tip, tuple(_OWN))
            tree = git_tree.write_tree(made, {**kept, **items})
            text = f"pointer to step {state.records[record].record.step} ({record[:12]})\n"
            return git_tree.write_commit(self._repository(), made, entry, message=text, tree=tree, parent=tip)

    def _present(self, history: BranchHistory[S]) -> TreePointer:
        if history.pointer is not None:
            return history.pointer
        return _NOTHING if history.tip is None else TreePointer(None, self._items_of(history.tip))

    def _best(self, history: BranchHistory[S], after: RunState, new: Prepared, made: Made) -> TreePointer:
        # The best that can be pulled: of one whose object names are not known here, a clone could fetch nothing.
        for pointed in git_pointer.candidates(after, self._remotes):
            items = self._items(history, pointed, after, new=new, made=made)
            if items:
                return TreePointer(pointed.record, items)
        return _NOTHING

    def _items(
        self,
        history: BranchHistory[S],
        pointed: git_pointer.Pointed,
        state: RunState,
        *,
        new: Prepared | None,
        made: Made,
    ) -> dict[str, Item]:
        """The pointer's items, in `made`; empty where no replica says which objects the record has."""
        objects = self._objects(history, pointed, new)
        if not objects:
            return {}
        committed = state.records[pointed.record].sequence
        # Its commit is the one being made: the manifest is in hand, the repository does not have it yet.
        if new is not None and committed == new.entry.sequence:
            manifest = new.contents.manifest
        else:
            manifest = self._manifest(history.commit(committed), state.records[pointed.record].record)
        if manifest is None:
            return {}
        files = git_pointer.files(manifest, objects, tiers=pointed.tiers, remotes=self._remotes)
        return git_tree.write_items(made, files)

    def _objects(
        self, history: BranchHistory[S], pointed: git_pointer.Pointed, new: Prepared | None
    ) -> Mapping[str, str]:
        if new is not None and new.entry.record == pointed.record and new.contents.objects:
            return new.contents.objects
        for tier in pointed.tiers:
            commit = history.commit_of_replica(pointed.record, tier)
            data = None if commit is None else self._blob(commit, "objects.json")
            if data is not None:
                return objects_from(data)
        return {}

    def _manifest(self, commit: str | None, record: Record) -> Manifest | None:
        data = None if commit is None else self._blob(commit, "manifest.json")
        if data is None:
            return None
        return proven(record, manifest_from(data))

    def _blob(self, commit: str, name: str) -> bytes | None:
        with git_errors(self._path):
            return git_tree.read_blob(self._repository(), commit, name)

    def _items_of(self, commit: str) -> dict[str, Item]:
        with git_errors(self._path):
            return git_tree.read_items(self._repository(), commit, git_pointer.NAMES)


_READ_ANEW = "Run `git fsck` in the ledger; another node's ledger and the tiers have it too."
_OWN = ("entry.json", "record.json", "manifest.json", "objects.json")


def manifest_from(data: bytes) -> Manifest:
    """manifest.json read. Raises Corrupt."""
    try:
        return Manifest.from_json(parse(data))
    except ValueError as error:
        raise Corrupt(f"a manifest.json of the ledger can't be read: {error}", advice=_READ_ANEW) from error


def objects_from(data: bytes) -> dict[str, str]:
    """objects.json read. Raises Corrupt."""
    try:
        value = parse(data)
    except ValueError:
        value = None
    if not isinstance(value, Mapping):
        raise Corrupt("an objects.json of the ledger can't be read", advice=_READ_ANEW)
    return {name: str(found) for name, found in value.items()}


def _unreadable(kind: str, why: object) -> Refused:
    return Refused(f"the {kind} entry could not be read back: {why}", advice="Nothing was appended; report this.")
