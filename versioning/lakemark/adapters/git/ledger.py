"""The ledger in a bare Git repository: one branch per run and one for the site, one entry per commit.

An append holds its branch's `flock`, so that writers of this node take turns; the compare-and-swap of the reference is what
decides. Objects, then reference, then tag: each durable before the next, all before the append returns. The process' own
lock is held while the next entry is decided, never while anything is waited for or written.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

import pygit2

from lakemark.adapters.disk.files import os_errors
from lakemark.adapters.disk.proven_manifest import proven
from lakemark.adapters.git import (
    copies as git_copies,
    nodes as git_nodes,
    objects as git_objects,
    pack as git_pack,
    refs as git_refs,
    trees as git_tree,
)
from lakemark.adapters.git.bundle import bundled
from lakemark.adapters.git.file_lock import Locked
from lakemark.adapters.git.history import BranchHistory, Recent, S, TreePointer
from lakemark.adapters.git.objects import Made
from lakemark.adapters.git.pointer import Remote
from lakemark.adapters.git.trees import Row, git_errors
from lakemark.adapters.git.writing import Prepared, Writer, manifest_from, objects_from, prepared
from lakemark.errors import Corrupt, LakemarkError, Misconfigured, NotFound, StoreUnavailable, Usage, quoted
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.entries.fold import apply, apply_site
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import SITE, Attachments, Draft, Entry, Stamp, parsed
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.names import is_run
from lakemark.ports.ledger import Appended, BrokenEntry, EntryCache, StateCache

__all__ = ["GitLedger", "Remote"]

_LOOK_EVERY: Final = 64
_TRIES: Final = 1000
_CHUNK: Final = 256
_KEPT_RECORDS: Final = 20_000
"""About 4 kB of memory each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """The next entry of a branch, ready to be stored. onto: the tip it was decided on."""

    new: Prepared
    pointer: TreePointer
    onto: str | None
    commit: str
    made: Made


class GitLedger:
    """`ports.Ledger` over the bare repository at `path`, which `init` made. Safe to use from several threads.

    remotes: the DVC tiers by name, nearest first: what a clone's `dvc pull` is pointed at. cache: entries seen before, so
    that a new process need not walk the history; with one that keeps states, the runs asked for last stay in memory, as many
    as have `kept_records` between them, else all. `run` and `site` answer snapshots: later entries do not change them.

    alarms: in words, what was found wrong and does not stop work: a history that was replaced, packing that failed.
    """

    def __init__(
        self,
        path: Path,
        *,
        remotes: Mapping[str, Remote] | None = None,
        cache: EntryCache | None = None,
        kept_records: int = _KEPT_RECORDS,
    ) -> None:
        self.path = path
        self.alarms: list[str] = []
        self._repository = git_tree.opened(path)
        self._packs = git_pack.signature(path)
        self._writer = Writer(path, self._git, dict(remotes or {}), alarm=self._alarm)
        self._cache = cache
        self._guard = threading.RLock()
        self._runs = Recent(kept_records if isinstance(cache, StateCache) else sys.maxsize)
        self._outlines: dict[str, tuple[str | None, Outline]] = {}
        self._site: BranchHistory[SiteState] | None = None
        self._residue = 0
        self._has_folders = False
        with git_errors(path):
            configuration = pygit2.Config(str(path / "config"))
            if "lakemark.id" not in configuration:
                raise Misconfigured(
                    f"{path} is a Git repository, but no ledger",
                    advice="`lakemark ledger recover` makes a clone or a copy of one a ledger again; else mend `ledger: path`.",
                )
            self._id = str(configuration["lakemark.id"])

    @property
    def id(self) -> str:
        try:
            return self.site().id or self._id
        except (Corrupt, StoreUnavailable):  # saves go on, into tiers of the ledger that this was made as
            return self._id

    def beat(self, node: str, change: Callable[[Heartbeat | None], Heartbeat]) -> Heartbeat:
        return git_nodes.beat(self.path, node, change)

    def heartbeats(self) -> Mapping[str, Heartbeat]:
        return git_nodes.heartbeats(self.path)

    def close(self) -> None:
        """Lets go of the repository's files, as before unmounting."""
        with self._guard:
            self._repository.free()

    def pack(self) -> int:
        """Packs now what appends would pack in time; answers how many loose objects went. Harmless beside appends."""
        with git_errors(self.path):
            return git_pack.pack(self.path)

    def tips(self) -> Mapping[str, str]:
        """The newest commit of each branch, by run and `site`."""
        return git_refs.tips(self.path)

    def tip(self, branch: str) -> str | None:
        return git_refs.read(self.path, git_refs.reference(_valid(branch)))

    def contains(self, branch: str, revision: str) -> bool:
        tip = self.tip(branch)
        with self._guard, git_errors(self.path):
            return tip is not None and git_copies.holds(self._git(), tip, revision)

    def heads_of(self, copy: BinaryIO) -> Mapping[str, str]:
        return git_copies.heads_of(copy)

    def needs_of(self, copy: BinaryIO) -> tuple[str, ...]:
        return git_copies.needs_of(copy)

    def reads_whole(self, copy: BinaryIO) -> bool:
        return git_copies.reads_whole(copy)

    def take(self, copy: BinaryIO) -> Mapping[str, str]:
        return git_copies.take(self.path, copy)

    def forward(self, branch: str, revision: str) -> bool:
        name = git_refs.reference(_valid(branch))
        with self._turn(branch) as turn, self._guard, git_errors(self.path):
            tip = git_refs.read(self.path, name)
            if self._git().get(revision) is None:
                return False
            if tip is not None and not git_copies.holds(self._git(), revision, tip):
                return False
            try:
                # Whoever moved it in between may have gone further: nothing is overwritten, the next look finds out.
                turn.move(name, tip, revision)
            except (git_refs.ReferenceMoved, Locked):
                return False
        return True

    def beyond(self, branch: str, revision: str) -> Iterator[tuple[Entry, Attachments]]:
        tip = self.tip(branch)
        with self._guard, git_errors(self.path):
            commits = git_copies.beyond(self._git(), tip, revision)
        for commit in commits:
            with self._guard, git_errors(self.path):
                _, entry, record = git_tree.read_row(self._git(), commit)
                manifest = git_tree.read_blob(self._git(), commit, "manifest.json")
                objects = git_tree.read_blob(self._git(), commit, "objects.json")
                found, contents = parsed(entry, record)
                yield (
                    found,
                    replace(
                        contents,
                        manifest=None if manifest is None else manifest_from(manifest),
                        objects=None if objects is None else objects_from(objects),
                    ),
                )

    def put_manifest(self, run: str, record: str, manifest: Manifest) -> bool:
        with self._guard:
            history = self._run_history(run)
            found = history.state.records.get(record)
            commit = None if found is None else history.commit(found.sequence)
            if commit is None:
                return False
            with git_errors(self.path):
                item = git_tree.read_items(self._git(), commit, ("manifest.json",)).get("manifest.json")
        if item is None:
            return False
        with git_errors(self.path):
            written = git_objects.write_again(self.path, "blob", str(item.oid), git_tree.manifest_bytes(manifest))
            if written and not git_objects.reads(self.path, str(item.oid)):
                git_pack.set_packs_aside(self.path)  # the damaged one is in a pack, and found first
        return written

    def is_whole(self) -> bool:
        return git_copies.is_whole(self.path)

    def broken(self, branch: str, *, after: int, limit: int) -> tuple[BrokenEntry, ...]:
        with self._guard:
            history = self._history(_valid(branch))
            last = min(after + limit, history.state.sequence)
            commits = [(number, history.commit(number) or "") for number in range(after + 1, last + 1)]
        return tuple(
            BrokenEntry(
                branch=branch, sequence=number, file=file, why=why, record=self._record_of(branch, number, commit)
            )
            for number, commit in commits
            for file, why in self._broken_files(commit)
        )

    def _broken_files(self, commit: str) -> list[tuple[str, str]]:
        # Entry by entry: whoever appends waits for one of them, not for all.
        with self._guard, git_errors(self.path):
            return list(git_tree.broken_files(self._git(), commit))

    def _record_of(self, branch: str, sequence: int, commit: str) -> str | None:
        with self._guard:
            state = self._history(branch).state
            if isinstance(state, RunState):
                for found in state.records.values():
                    if found.sequence == sequence:
                        return found.record.id
            try:
                return self._entry(commit).record
            except Corrupt:
                return None

    def broken_branches(self) -> Mapping[str, str]:
        with git_errors(self.path):
            # Opened for this reading alone: nothing comes from what an earlier one kept.
            repository = git_tree.opened(self.path)
            try:
                return {branch: tip for branch, tip in self.tips().items() if not git_copies.reads(repository, tip)}
            finally:
                repository.free()

    def set_aside(self, branch: str, revision: str) -> bool:
        with self._turn(branch), self._guard:
            if self.tip(branch) != revision:
                return False
            git_copies.set_reference_aside(self.path, git_refs.reference(branch))
            return True

    def runs(self) -> tuple[str, ...]:
        return tuple(name for name in self.tips() if name != SITE)

    def run(self, run: str) -> RunState:
        with self._guard:
            return self._run_history(run).share()

    def outline(self, run: str) -> Outline:
        """Read anew where the tip is another one, whatever runs are in memory."""
        tip = self.tip(run)  # before the run: what it holds beyond this is asked for again
        known = self._outlines.get(run)
        if known is None or known[0] != tip or tip is None:
            known = self._outlines[run] = tip, Outline.of(self.run(run))
        return known[1]

    def site(self) -> SiteState:
        with self._guard:
            return self._site_history().share()

    def entries(self, branch: str, *, after: int = 0) -> Iterator[tuple[Entry, Attachments]]:
        """As the port says; `contents.manifest` is left out."""
        for commit in self._commits_of(branch, after):
            with self._guard, git_errors(self.path):
                _, entry, record = git_tree.read_row(self._git(), commit)
                objects = git_tree.read_blob(self._git(), commit, "objects.json")
            found, contents = parsed(entry, record)
            yield found, contents if objects is None else replace(contents, objects=objects_from(objects))

    def rows(self, branch: str, *, onto: str | None) -> Iterator[Row] | None:
        """(commit, entry.json, record.json) of the entries after the commit `onto` (None: of all), in order.

        None where `onto` is no ancestor of the branch's tip: its history was replaced.
        """
        with self._guard, git_errors(self.path):
            tip = git_refs.read(self.path, git_refs.reference(_valid(branch)))
            commits = git_tree.commits_after(self._git(), tip, onto)
        return None if commits is None else self._read(commits)

    def manifest(self, run: str, record: str) -> Manifest:
        with self._guard:
            history = self._run_history(run)
            found = history.state.records.get(record)
            commit = None if found is None else history.commit(found.sequence)
        if found is None or commit is None:
            raise NotFound(f"{run} has no record {record[:12]}", advice=f"See `lakemark ls {run} --all-timelines`.")
        return self.manifest_at(commit, of=found.record)

    def manifest_at(self, commit: str, *, of: Record) -> Manifest:
        """The manifest in the tree of the commit that committed `of`. NotFound where there is none, Corrupt if not its own."""
        with self._guard, git_errors(self.path):
            data = git_tree.read_blob(self._git(), commit, "manifest.json")
        if data is None:
            raise NotFound(f"the entry {commit[:12]} carries no manifest", advice="Run `lakemark verify --invariants`.")
        return proven(of, manifest_from(data))

    def objects(self, run: str, record: str, tier: str) -> Mapping[str, str]:
        with self._guard:
            commit = self._run_history(run).commit_of_replica(record, tier)
            return {} if commit is None else self.objects_at(commit)

    def objects_at(self, commit: str) -> Mapping[str, str]:
        """objects.json of a `replicated` entry's commit; empty where it has none."""
        with self._guard, git_errors(self.path):
            data = git_tree.read_blob(self._git(), commit, "objects.json")
            return {} if data is None else objects_from(data)

    def revision(self, branch: str, sequence: int) -> str:
        with self._guard:
            commit = self._history(branch).commit(sequence)
        if commit is None:
            raise NotFound(f"{branch} has no entry {sequence}", advice=f"See `lakemark log {branch}`.")
        return commit

    def bundle(self, *, since: Collection[str] = ()) -> AbstractContextManager[BinaryIO]:
        return bundled(self.path, since=since)

    def append(self, run: str, decide: Callable[[RunState], Draft | None], stamp: Stamp) -> Appended[RunState]:
        return self._append(lambda: self._run_history(run), _valid(run, site=False), decide, stamp)

    def append_site(self, decide: Callable[[SiteState], Draft | None], stamp: Stamp) -> Appended[SiteState]:
        return self._append(self._site_history, SITE, decide, stamp)

    def _append(
        self,
        history_now: Callable[[], BranchHistory[S]],
        branch: str,
        decide: Callable[[S], Draft | None],
        stamp: Stamp,
    ) -> Appended[S]:
        """As the port says, durable. Raises StoreUnavailable, and what `decide` raises."""
        name = git_refs.reference(_valid(branch))
        with self._turn(branch) as turn:
            for _ in range(_TRIES):
                with self._guard:
                    history = history_now()
                    # The tag of the newest entry so far, where a kill kept the writer of that from making it.
                    behind = self._writer.tag(history)
                    step = self._next(history, branch, decide, stamp)
                if behind is not None:
                    self._writer.place(behind, turn)
                if not isinstance(step, _Step):
                    return step
                # Else somebody who takes no turns, another node or a git program, was first: decide again on what he left.
                if self._moved(turn, name, step):
                    break
            else:
                raise Locked(name)
            state = self._taken_in(history, step, turn)
        self._look_at_loose(step.commit)
        return Appended(step.new.entry, state)

    def _next(
        self, history: BranchHistory[S], branch: str, decide: Callable[[S], Draft | None], stamp: Stamp
    ) -> Appended[S] | _Step:
        """The next entry with its objects, in memory; what the append comes to where there is none to store."""
        # The state keeps only what a request hashes to: the entry itself says whether it is the same.
        for before in history.state.requests.of(stamp.request):
            known = history.commit(before)
            if known is not None and (earlier := self._entry(known)).request == stamp.request:
                return Appended(earlier, history.share())  # of a try whose answer got lost
        draft = decide(history.state)
        if draft is None:
            return Appended(None, history.share())
        new = prepared(draft, branch=branch, sequence=history.state.sequence + 1, stamp=stamp)
        made = Made(self.path)
        pointer = self._writer.pointer(history, new, made)
        commit = self._writer.commit(history, new, pointer, made)
        return _Step(new=new, pointer=pointer, onto=history.tip, commit=commit, made=made)

    def _moved(self, turn: git_refs.Turn, name: str, step: _Step) -> bool:
        """Objects, then reference, then the objects again: a git program may have pruned them in between."""
        try:
            with git_errors(self.path):
                # Durable before the reference: a tip that names what power loss took makes the whole branch unreadable.
                step.made.store(step.commit)
                turn.move(name, step.onto, step.commit)
                step.made.look_again()
        except git_refs.ReferenceMoved:
            return False
        return True

    def _taken_in(self, history: BranchHistory[S], step: _Step, turn: git_refs.Turn) -> S:
        with self._guard:
            if history.tip == step.onto:  # else another thread has read the entry from the repository already
                history.add(step.commit, step.new.entry, Attachments(record=step.new.contents.record))
                history.pointer = step.pointer
            tag, state = self._writer.tag(history), history.share()
        if tag is not None:
            self._writer.place(tag, turn)
        return state

    @contextmanager
    def _turn(self, branch: str) -> Iterator[git_refs.Turn]:
        """Taken before the process' own lock, and never under it: whoever has it may be stopped.

        StoreUnavailable where it, or a lock met within, can't be had.
        """
        with os_errors(self.path):
            if not self._has_folders:
                git_pack.make_folders(self.path)
                self._has_folders = True
        try:
            with git_refs.Turn(self.path, branch) as turn:
                yield turn
        except Locked:
            raise StoreUnavailable(
                f"{branch} of the ledger {self.path} is held by another program, or keeps moving",
                advice="See which program works there, or is stopped; the same command may be given again.",
            ) from None

    def _git(self) -> pygit2.Repository:
        """The repository, opened anew where packs came or went: libgit2 keeps removed ones open to the end."""
        now = git_pack.signature(self.path)
        if now != self._packs:
            self._repository.free()
            self._repository, self._packs = git_tree.opened(self.path), now
        return self._repository

    def _entry(self, commit: str) -> Entry:
        with git_errors(self.path):
            _, entry, record = git_tree.read_row(self._git(), commit)
        return parsed(entry, record)[0]

    def _look_at_loose(self, commit: str) -> None:
        """Packs once there is enough. The append is done and durable: a failure here is an alarm, not an error.

        One commit in so many looks, whichever branch it is on: many short runs leave as much as a long one.
        """
        if int(commit[:8], 16) % _LOOK_EVERY:
            return
        try:
            with git_errors(self.path):
                git_pack.make_folders(self.path)
                # What no reference reaches is never packed: counted again each time, it would have every look pack for nothing.
                if git_pack.loose_estimate(self.path) - self._residue > git_pack.LOOSE_LIMIT:
                    git_pack.pack(self.path)
                    self._residue = git_pack.loose_estimate(self.path)
        except (LakemarkError, subprocess.CalledProcessError) as error:
            self._alarm(f"packing the ledger failed: {error}")

    def _alarm(self, text: str) -> None:
        if text not in self.alarms:
            self.alarms.append(text)

    def _history(self, branch: str) -> BranchHistory[RunState] | BranchHistory[SiteState]:
        return self._site_history() if branch == SITE else self._run_history(branch)

    def _run_history(self, run: str) -> BranchHistory[RunState]:
        known = self._runs.get(_valid(run, site=False))

        def empty() -> BranchHistory[RunState]:
            return BranchHistory(run, RunState(run=run), apply)

        def begin() -> BranchHistory[RunState]:
            cached = self._cache.known(run) if isinstance(self._cache, StateCache) else None
            if cached is None:
                return self._cached(run, empty)
            history = empty()
            history.resume(cached, cached.state)
            return history

        history = self._caught_up(known, run, begin=begin, empty=empty)
        self._runs.keep(run, history)
        return history

    def _site_history(self) -> BranchHistory[SiteState]:
        def empty() -> BranchHistory[SiteState]:
            return BranchHistory(SITE, SiteState(), apply_site)

        self._site = self._caught_up(self._site, SITE, begin=lambda: self._cached(SITE, empty), empty=empty)
        return self._site

    def _caught_up(
        self,
        known: BranchHistory[S] | None,
        branch: str,
        *,
        begin: Callable[[], BranchHistory[S]],
        empty: Callable[[], BranchHistory[S]],
    ) -> BranchHistory[S]:
        history = known or begin()
        tip = git_refs.read(self.path, git_refs.reference(_valid(branch)))  # after the cache: others may fill that
        if known is not None and known.tip == tip:
            return known
        with git_errors(self.path):
            commits = git_tree.commits_after(self._git(), tip, history.tip)
            if commits is None:
                joined = tip is not None and history.tip is not None and git_copies.holds(self._git(), tip, history.tip)
                if not joined:  # else another copy of this ledger took that history in, and nothing of it is lost
                    self._alarm(f"{branch}: the history was replaced; the commit {history.tip} is no longer part of it")
                if self._cache is not None:
                    self._cache.forget(branch)
                history = empty()
                commits = git_tree.commits_after(self._git(), tip, None) or []
        for start in range(0, len(commits), _CHUNK):
            # In chunks: a first reading that is cut short has filled the cache as far as it came, and goes on from there.
            rows = list(self._read(commits[start : start + _CHUNK]))
            onto = history.tip
            history.add_rows(rows)
            if known is None and self._cache is not None:
                self._cache.extend(branch, rows, onto=onto)
        # A state that came from a cache came without entries; `tag` needs the newest one.
        if history.newest is None and history.tip is not None:
            history.newest = self._entry(history.tip)
        # What came in may have moved it; it is looked up in the tip's tree when it is needed.
        history.pointer = None
        return history

    def _cached(self, branch: str, empty: Callable[[], BranchHistory[S]]) -> BranchHistory[S]:
        """The branch as far as the cache knows it; from nothing where that can't be folded."""
        history = empty()
        if self._cache is not None and self._cache.tip(branch) is not None:
            try:
                history.add_rows(self._cache.rows(branch))
            except Corrupt:
                self._cache.forget(branch)
                return empty()
        return history

    def _read(self, commits: list[str]) -> Iterator[Row]:
        for commit in commits:
            with self._guard, git_errors(self.path):
                row = git_tree.read_row(self._git(), commit)
            yield row

    def _commits_of(self, branch: str, after: int) -> list[str]:
        """Commits of the entries with sequence > `after`, without folding them."""
        with self._guard, git_errors(self.path):
            tip = git_refs.read(self.path, git_refs.reference(_valid(branch)))
            known = self._site if branch == SITE else self._runs.get(branch)
            if known is not None and known.tip == tip:
                return [known.commit(number) or "" for number in range(after + 1, known.state.sequence + 1)]
            commits = git_tree.commits_after(self._git(), tip, None) or []
        return commits[after:]


def _valid(branch: str, *, site: bool = True) -> str:
    """`branch`, if it can be one: names of references are made of it. Raises Usage."""
    if not is_run(branch) and not (site and branch == SITE):
        raise Usage(
            f"{quoted(branch)} can't be a run's name", advice="Names look like llama-7b, at most 63 characters."
        )
    return branch
