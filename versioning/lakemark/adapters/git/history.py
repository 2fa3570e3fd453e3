"""Branches of the ledger in memory: their entries folded, kept, and caught up with from their tips."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from lakemark.adapters.git.trees import Item, Row
from lakemark.errors import Corrupt
from lakemark.model.ledger.entry import Attachments, Entry, parsed
from lakemark.model.ledger.requests import Requests
from lakemark.model.ledger.run import RunState
from lakemark.ports.ledger import KnownRun

_COMMIT_BYTES = 20


class Foldable(Protocol):
    """What RunState and SiteState share."""

    sequence: int
    requests: Requests

    def snapshot(self) -> Self: ...


S = TypeVar("S", bound=Foldable)


class TreePointer(NamedTuple):
    """What the tree of a commit points DVC at; both empty where nothing can be pulled yet."""

    record: str | None
    items: Mapping[str, Item]


class BranchHistory(Generic[S]):
    """A branch's state as of `tip`, and what appending needs beside it.

    newest: the tip's entry. pointer: the items of its tree that point DVC at a record, and that record's id; None: not
    yet worked out in this process.
    """

    def __init__(self, branch: str, empty: S, apply: Callable[[S, Entry, Attachments], None]) -> None:
        self.branch = branch
        self.state = empty
        self.tip: str | None = None
        self.newest: Entry | None = None
        self.pointer: TreePointer | None = None
        self._apply = apply
        # Twenty bytes an entry: a run may have a hundred thousand.
        self._commits = bytearray()
        self._replicated: dict[tuple[str, str], int] = {}
        self._shared = False

    def resume(self, known: KnownRun, state: S) -> None:
        """Begins at what a cache knows of the branch. `state` is `known.state`."""
        self.state = state
        self._commits = bytearray.fromhex("".join(known.revisions))
        self._replicated = dict(known.replicated)
        self.tip = known.revisions[-1] if known.revisions else None

    def share(self) -> S:
        """The state for a reader: later entries go to a copy."""
        self._shared = True
        return self.state

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Folds the next entries in. Raises Corrupt where they are not the next ones."""
        for commit, entry, record in rows:
            self.add(commit, *parsed(entry, record))

    def add(self, commit: str, entry: Entry, contents: Attachments) -> None:
        """Folds the next entry in. Raises Corrupt where it is not the next one."""
        if entry.branch != self.branch or entry.sequence != self.state.sequence + 1:
            raise Corrupt(
                f"after entry {self.state.sequence} of {self.branch} comes entry {entry.sequence} of {entry.branch}",
                advice="Somebody wrote to the ledger by hand: run `git log` there, and restore it from a tier.",
            )
        # A reader holds this very state: what comes next must not show in it.
        if self._shared:
            self.state, self._shared = self.state.snapshot(), False
        self._apply(self.state, entry, contents)
        self._commits += bytes.fromhex(commit)
        tier = entry.body.get("tier")
        if entry.kind == "replicated" and entry.record is not None and isinstance(tier, str):
            self._replicated[entry.record, tier] = entry.sequence
        self.tip, self.newest = commit, entry

    def commit(self, sequence: int) -> str | None:
        """The entry's commit; None where there is no such entry."""
        if not 1 <= sequence <= self.state.sequence:
            return None
        return self._commits[(sequence - 1) * _COMMIT_BYTES : sequence * _COMMIT_BYTES].hex()

    def commit_of_replica(self, record: str, tier: str) -> str | None:
        """The commit of the newest `replicated` entry of `record` in `tier`."""
        return self.commit(self._replicated.get((record, tier), 0))


class Recent:
    """The runs asked for last, with at most `most` records in all; the newest stays however many it has."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, BranchHistory[RunState]] = OrderedDict()
        self._counted: dict[str, int] = {}
        self._total = 0

    def get(self, run: str) -> BranchHistory[RunState] | None:
        return self._kept.get(run)

    def keep(self, run: str, history: BranchHistory[RunState]) -> None:
        """Now it is the newest; the oldest may go for it."""
        self._kept[run] = history
        self._kept.move_to_end(run)
        count = len(history.state.records)
        self._total += count - self._counted.get(run, 0)
        self._counted[run] = count
        while self._total > self._most and len(self._kept) > 1:
            oldest, _ = self._kept.popitem(last=False)
            self._total -= self._counted.pop(oldest)
