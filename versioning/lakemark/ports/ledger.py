"""The ledger: the append-only history, one branch per run and one for the site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import Attachments, Draft, Entry, Stamp
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenEntry:
    """Something of an entry that can't be read. file: its path in the entry's commit; empty: the commit, or its tree.

    record: whose it is, where that is known. why: in words.
    """

    branch: str
    sequence: int
    file: str
    why: str
    record: str | None = None


S = TypeVar("S")


class Appended(NamedTuple, Generic[S]):
    """What an append came to. entry: None where `decide` had nothing to append; of a request that was made before, its entry.

    state: of the branch with that entry in it; without one, the very state that had nothing to append. Whoever wants to know
    what holds now asks this one: a decision that others made first is in it, too. Do not change it.
    """

    entry: Entry | None
    state: S


class LedgerReader(Protocol):
    """What is in the ledger, as of now."""

    @property
    def id(self) -> str:
        """Made with the ledger, for good: what a tier's identity file names as its owner.

        What the site's branch says (its first `founded` entry); where it says nothing, or can't be read, what was kept beside.
        """

    def tips(self) -> Mapping[str, str]:
        """Branch (a run's name, or `site`) -> revision of its newest entry."""

    def tip(self, branch: str) -> str | None:
        """The same of one branch; None where there is no such branch."""

    def runs(self) -> tuple[str, ...]:
        """Names of all runs, sorted."""

    def run(self, run: str) -> RunState:
        """The run's state, as of now; of a run nobody opened an empty one (`exists` is False). Do not change it."""

    def outline(self, run: str) -> Outline:
        """The run in outline, as of now: what passes over all runs ask.

        It is kept, so that a run that did not change costs no reading, however many there are.
        """

    def site(self) -> SiteState:
        """The site's state, as of now. Do not change it."""

    def entries(self, branch: str, *, after: int = 0) -> Iterator[tuple[Entry, Attachments]]:
        """Entries of `branch` (a run's name, or `site`) after sequence `after`, in order. `contents.manifest` may be left out."""

    def manifest(self, run: str, record: str) -> Manifest:
        """The manifest committed with `record` (64 hex). Raises NotFound."""

    def objects(self, run: str, record: str, tier: str) -> Mapping[str, str]:
        """File digest -> object name, and `dir` -> the directory object, of the newest replica in a DVC tier. Empty: none."""

    def revision(self, branch: str, sequence: int) -> str:
        """Names the entry's commit in the ledger's own terms (a Git commit id). Raises NotFound."""


class LedgerWriter(Protocol):
    """Adds to it, and says how this node is."""

    def append(self, run: str, decide: Callable[[RunState], Draft | None], stamp: Stamp) -> Appended[RunState]:
        """Appends what `decide` answers for the run's present state; None: there is nothing to append.

        `decide` may be called several times: it only looks. Raises what `decide` raises.
        """

    def append_site(self, decide: Callable[[SiteState], Draft | None], stamp: Stamp) -> Appended[SiteState]:
        """The same on the site's branch."""

    def beat(self, node: str, change: Callable[[Heartbeat | None], Heartbeat]) -> Heartbeat:
        """Puts what `change` makes of the node's last heartbeat in its place; it is durable, and no part of the history.

        Each node writes its own only; its processes take turns, and `change` may be called several times. Raises ValueError
        for what is no node's name, Refused where only reading is allowed.
        """

    def heartbeats(self) -> Mapping[str, Heartbeat]:
        """What each node said of itself last, as far as this copy of the ledger has it. What can't be read is left out."""


class LedgerExchange(Protocol):
    """Sends it as a copy, and takes what copies hold."""

    def contains(self, branch: str, revision: str) -> bool:
        """Whether the branch's tip is `revision` or comes after it, also by way of a copy that was joined to it.

        False for a revision that nothing here knows. Raises Corrupt where that can't be told.
        """

    def heads_of(self, copy: BinaryIO) -> Mapping[str, str]:
        """The `tips` of the ledger that `copy` is a bundle of; only the beginning of `copy` is read. Raises Corrupt.

        Of one that goes on from another: those that moved since.
        """

    def needs_of(self, copy: BinaryIO) -> tuple[str, ...]:
        """Revisions that whoever takes `copy` has to have: of another copy, which this one goes on from. Raises Corrupt."""

    def reads_whole(self, copy: BinaryIO) -> bool:
        """Whether its bytes are those it was made with, by its own checksum. Reads it to its end, and changes nothing."""

    def bundle(self, *, since: Collection[str] = ()) -> AbstractContextManager[BinaryIO]:
        """The whole ledger as one stream that can be sought in: what a lost one is rebuilt from. Not of an empty one.

        since: revisions that are here; what they hold is left out, and whoever takes it has to have them. Something must be
        left to tell.
        """

    def take(self, copy: BinaryIO) -> Mapping[str, str]:
        """Makes all that a bundle of this ledger holds durable here, and answers its tips. No branch moves.

        What is damaged here and whole there is whole afterwards. Raises Corrupt for what is no bundle, or goes on from what is
        not here, and changes nothing then.
        """

    def forward(self, branch: str, revision: str) -> bool:
        """Moves a branch on to a revision of a copy that was taken; a branch that is not there begins with it.

        False, and nothing changed, where the revision does not come after the branch's tip.
        """

    def beyond(self, branch: str, revision: str) -> Iterator[tuple[Entry, Attachments]]:
        """Entries up to `revision`, of a copy that was taken, that `branch` does not hold, in order; with manifests."""


class LedgerMending(Protocol):
    """Finds what is broken of it, and makes that whole."""

    def is_whole(self) -> bool:
        """Whether all that a branch leads to is there and readable. Reads everything."""

    def broken(self, branch: str, *, after: int, limit: int) -> tuple[BrokenEntry, ...]:
        """What can't be read of up to `limit` entries after the sequence `after`: every byte of each is read, once.

        Raises Corrupt where the branch can't be followed at all.
        """

    def broken_branches(self) -> Mapping[str, str]:
        """Branch -> its tip, of each whose entries can't all be read. One reading, of everything: it proves nothing alone."""

    def put_manifest(self, run: str, record: str, manifest: Manifest) -> bool:
        """Writes a record's manifest back, durably, where it is damaged or gone. False where these are not its very bytes."""

    def set_aside(self, branch: str, revision: str) -> bool:
        """Takes the branch's reference away, if it still names `revision`.

        For a recovery that took every copy before, and found the branch broken at two readings: what no copy has whole can't
        be read by anybody any more. Nothing else of the branch goes: a copy's tip, or the records in the tiers, is what it
        begins with again.
        """


class Ledger(LedgerReader, LedgerWriter, LedgerExchange, LedgerMending, Protocol):
    """Guarantees, each a check of `contract.ledger`.

    - An append that returned is durable: it survives kill -9 and power loss.
    - Appends to a branch are ordered as if one after the other, whoever appends: `decide` saw exactly the entries before.
    - `sequence` counts from 1 without gaps. `recorded_at` and `clock` are the stamp's, also where that goes back; which
      records' clocks are suspect the state says, by `model.clocks`.
    - The same `stamp.request` twice on a branch is one entry: the second append answers the first one's, undecided.
    - What `decide` raises leaves nothing behind, and neither does an answer of None.
    - Unknown kinds and fields written by others come back unchanged.
    - Nothing that was appended is ever changed or removed.
    - `bundle` holds every entry appended before it was asked for.

    Raises: Denied for a ledger of another owner, Corrupt where it can't be read, StoreUnavailable while a shared remote
    is out of reach.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """A run as of a cached tip, without folding: its state, whose records are read when asked for, and what appending needs.

    revisions: of all entries, in order. replicated: (record, tier)
    -> sequence of the newest `replicated` entry.
    """

    state: RunState
    revisions: Sequence[str]
    replicated: Mapping[tuple[str, str], int]


class EntryCache(Protocol):
    """Entries a reader has seen, so that the next process need not walk the ledger. Derived; losing it costs time only."""

    def tip(self, branch: str) -> tuple[str, int] | None:
        """Revision and sequence of the newest cached entry of `branch`."""

    def rows(self, branch: str) -> Iterator[tuple[str, bytes, bytes | None]]:
        """(revision, entry.json, record.json or None) in order of sequence."""

    def extend(self, branch: str, rows: Iterable[tuple[str, bytes, bytes | None]], *, onto: str | None) -> bool:
        """Adds newer rows if the cached tip still is `onto`, in one transaction; False (nothing added) if it is not."""

    def forget(self, branch: str) -> None:
        """Drops everything cached of `branch`: its history turned out to be another."""


@runtime_checkable
class StateCache(EntryCache, Protocol):
    """A cache that keeps states, too."""

    def known(self, run: str) -> KnownRun | None:
        """The run as of `tip`; None where nothing is cached of it. The caller may change the state."""
