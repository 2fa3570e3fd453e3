"""Data versions: commits of a data repository that can be resolved, kept alive, read and branched."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class Strength(StrEnum):
    """How well a pin keeps its commit. guarded: deleting or moving it is refused by itself. plain: a hidden branch."""

    GUARDED = "guarded"
    PLAIN = "plain"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCommit:
    """A data commit's fields, as the server gives them. created_at has whole seconds and may be the client's invention."""

    id: str
    parents: tuple[str, ...]
    committer: str
    message: str
    created_at: datetime
    meta_range: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePin:
    """`branch` keeps `commit` alive with `strength`. why_plain: what kept it from being guarded."""

    repository: str
    commit: str
    branch: str
    strength: Strength
    why_plain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinAsked:
    """A pin as the ledger has it. proven: a head of its branch at which its whole guard was read once: commits never change."""

    commit: str
    branch: str
    nonce: str
    proven: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinSeen:
    """What a pin is worth now. head: of its branch; None where that is gone. why: what makes it less than guarded.

    tried: its guard was asked just now to let the pin be deleted, and refused.
    """

    strength: Strength
    head: str | None = None
    why: str | None = None
    tried: bool = False

    @property
    def guarded(self) -> bool:
        return self.strength is Strength.GUARDED


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDiff:
    """Objects that differ between two commits. Counts stop at `limit` (complete=False); `sample` names a few paths."""

    added: int
    removed: int
    changed: int
    complete: bool = True
    sample: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadAt:
    """A branch's head at an instant, and how well that is known: `observed`, `between …` or `estimated: …`."""

    commit: str | None
    precision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Objects of a commit of which bytes were read. lost: paths whose bytes can't be. whole: `of` counts all it has.

    seed: what chose them; the same commit and seed are the same sample.
    """

    lost: tuple[str, ...]
    read: int
    of: int
    whole: bool
    seed: int

    @property
    def said(self) -> str:
        """`8 of 40 objects, seed 7`."""
        return f"{self.read} of {'' if self.whole else 'more than '}{self.of} objects, seed {self.seed}"


@dataclass(slots=True)
class Patience:
    """How long one pass still waits for a data server, in all it asks; whoever asks spends of it.

    What is answered quickly costs nothing: a pass may ask a healthy server as much as there is to ask.
    """

    left_seconds: float = 60.0


class DataCommits(Protocol):
    """Commits of data repositories, and what is in them."""

    def resolve(self, repository: str, ref: str) -> DataCommit:
        """`ref`: a branch, a tag or a full commit id."""

    def readable(self, repository: str, commit: str, *, sample: int | None, seed: int) -> Sampled:
        """Reads a byte of up to `sample` objects spread over the commit, of all with None; another seed, other objects."""

    def diff(self, repository: str, left: str, right: str, *, limit: int = 10_000) -> DataDiff:
        """From `left` to `right`, whole trees (two-dot)."""

    def list(self, repository: str, commit: str, *, prefix: str = "") -> Iterator[tuple[str, int]]:
        """(path, size_bytes), in order of path."""

    def read(self, repository: str, commit: str, path: str) -> Iterator[bytes]:
        """The object's bytes in chunks of at most 1 MiB."""

    def altered(self, repository: str, commit: str, *, limit: int) -> tuple[str, ...]:
        """First-parent ancestors (and itself), up to `limit`, whose id is not that of their fields: an edited history."""


class DataPins(Protocol):
    """What keeps commits alive."""

    def pin(self, repository: str, commit: str, *, branch: str, nonce: str) -> MadePin:
        """Makes the pin `branch` of `commit`, as strong as the repository allows.

        branch: `pin-` and letters, digits, `_`, `-`. nonce: 4 to 64 of those; never used for another pin. Takes up to 8 s
        where a repository gets its first pin.
        """

    def pin_strength(self, repository: str, commit: str, *, branch: str) -> Strength:
        """What the pin is worth now: re-read, not remembered. `none` where it is gone or elsewhere."""

    def pins_seen(
        self, repository: str, pins: Sequence[PinAsked], *, tries: Collection[str] = ()
    ) -> Mapping[str, PinSeen]:
        """What pins of one repository are worth now, by branch: from one listing of its branches, whatever their number.

        Where the server stops answering on the way, those that were seen until then; a pin that is not in the answer was
        not seen, whatever it is worth.

        A guard is read once for each head it stands at, and not at all where `proven` says so. `tries` names pins whose
        guards are also tried: asked to let their branch go, while another holds the data. One that lets go shows that the
        server runs no actions: then no pin of that repository is more than plain.
        """

    def unpin(self, repository: str, commit: str, *, branch: str, nonce: str, reason: str) -> None:
        """Opens the pin's guard with its nonce and deletes it. A no-op where it is gone.

        Raises Refused for another nonce, Conflict where the branch is no pin of `commit` any more.
        """


class DataBranches(Protocol):
    """Branches of data repositories."""

    def head(self, repository: str, branch: str) -> str | None:
        """The branch's head now; None where there is no such branch. An unknown repository is NotFound."""

    def branches(self, repository: str, *, prefix: str = "") -> Mapping[str, str]:
        """The repository's own list of branches, hidden ones aside, and their heads: whole, or an error.

        That a branch is gone is said by this list, never by a 404 that anything on the way may give.
        """

    def head_at(self, repository: str, branch: str, at: datetime) -> HeadAt:
        """By the first-parent walk with monotone times: what the branch's own history shows, never more than an estimate."""

    def branch_at(self, repository: str, name: str, commit: str) -> None: ...

    def delete_branch(self, repository: str, name: str, *, only_at: str) -> bool:
        """Deletes the branch if its head is `only_at`; False where it is elsewhere, gone, or has uncommitted changes."""

    def move_branch(
        self, repository: str, branch: str, commit: str, *, message: str, only_at: str | None = None
    ) -> str:
        """A new commit on `branch` with exactly the tree of `commit` (forward restore); answers its id.

        Refused where the branch has uncommitted changes or is protected. only_at: Conflict where its head is another.
        """

    def movable(self, repository: str, branch: str) -> str | None:
        """Why `move_branch` would be refused, as far as can be told without trying; None where nothing speaks against it.

        No such branch, uncommitted changes, a protection rule. Changes nothing.
        """


class DataVersions(DataCommits, DataPins, DataBranches, Protocol):
    """Guarantees, each a check of `contract.data`.

    - `resolve` answers a commit that exists: 64 hex digits name a commit, anything else a branch, else a tag. A short
      commit id is never guessed. Everything that takes a `commit` takes 64 hex digits and nothing else (Usage).
    - After `pin` returned, the commit's objects survive the server's garbage collection, and `pin_strength` says so from what
      the server shows. Pinning the same (commit, branch name) again changes nothing but a weaker pin into a stronger one,
      where the repository has come to allow that; a name that holds something else is a Conflict, and one that was released
      is PinReleased: pin under a new name.
    - A guarded pin can't be deleted, reset, reverted, picked onto or written by anybody but `unpin` with its own nonce. A
      merge into it may succeed where what is merged carries no guard: `pin_strength` then says `none`.
    - `readable` has read bytes; it is not fooled by a stat or HEAD that still answers after bytes were collected. It says
      how many of how many, and which seed chose them.
    - `branch_at` makes a branch at exactly that commit, or finds it there; one that is elsewhere is a Conflict.
    - `read` gives the bytes of that commit, whatever became of branches since.

    Raises: StoreUnavailable, NotFound, DataGone (the commit or its bytes were collected), Conflict, Denied, Refused.
    """

    def patient(self, patience: Patience) -> AbstractContextManager[None]:
        """What this thread asks inside spends of `patience`; once it is spent, all else is StoreUnavailable, unasked."""
