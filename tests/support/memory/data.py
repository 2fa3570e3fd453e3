"""Data versions in memory: branches, tags, hidden guarded pins, and bytes that garbage collection can take away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import islice
from random import Random
from threading import RLock, local
from typing import Final

from lakemark.adapters.lakefs import history
from lakemark.adapters.lakefs.samples import evenly
from lakemark.errors import Conflict, DataGone, Denied, NotFound, PinReleased, Refused, StoreUnavailable, Usage
from lakemark.model.values.canonical import digest
from lakemark.model.values.data_ids import commit_id, is_commit_id
from lakemark.ports import DataCommit, DataDiff, HeadAt, MadePin, Patience, PinAsked, PinSeen, Sampled, Strength

GUARD: Final = "_lakemark_actions/guard.yaml"
_CHUNK_BYTES: Final = 2**20
_HIDDEN: Final = ("pin-", "making-", "lakemark-released")


@dataclass(slots=True)
class _Repository:
    """trees: commit id -> path -> digest of its bytes. guards: pin branch -> nonce. staged: uncommitted, per branch.

    guarding: whether it takes guards. acting: whether the server runs them. writable: whether we may make branches.
    """

    commits: dict[str, DataCommit] = field(default_factory=dict)
    trees: dict[str, dict[str, str]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    guards: dict[str, str] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    staged: dict[str, dict[str, bytes | None]] = field(default_factory=dict)
    guarding: bool = True
    acting: bool = True
    writable: bool = True


class MemoryData:
    """`ports.DataVersions`, and below it what an ordinary client of the server can do.

    reachable: False while the server is away. asked: how often it was; answer_seconds: how long it takes each time, as a
    pass counts it. listings: how often pins were looked at, all of a repository's at once.
    now: gives commits their time, in whole seconds.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._repositories: dict[str, _Repository] = {}
        self._lock = RLock()
        self._patience = local()
        self.reachable = True
        self.asked, self.answer_seconds = 0, 0.0
        self.listings = 0

    @contextmanager
    def patient(self, patience: Patience) -> Iterator[None]:
        outer, self._patience.held = getattr(self._patience, "held", None), patience
        try:
            yield
        finally:
            self._patience.held = outer

    def resolve(self, repository: str, ref: str) -> DataCommit:
        with self._reached(repository) as found:
            named = found.branches.get(ref) or found.tags.get(ref) or (ref if is_commit_id(ref) else None)
            if named is None or named not in found.commits:
                raise NotFound(f"{repository} has no branch, tag or full commit id {ref!r}", advice="See its branches.")
            return found.commits[named]

    def pin(self, repository: str, commit: str, *, branch: str, nonce: str) -> MadePin:
        with self._reached(repository) as found:
            self._tree(found, repository, commit)
            if branch in found.released:
                raise PinReleased(f"the pin {branch} of {repository} was released", advice="Pin under a new name.")
            if not found.writable:
                raise Denied(f"{repository} takes no branches from us", advice="Ask who runs the server.")
            if found.branches.get(branch) == commit and found.guarding and found.acting:
                del found.branches[branch]
            if branch not in found.branches:
                if found.guarding and found.acting:
                    tree = found.trees[commit] | {GUARD: _store(found, nonce.encode())}
                    found.branches[branch] = self._add(found, tree, parents=(commit,), message=f"Pin {commit[:12]}")
                    found.guards[branch] = nonce
                else:
                    found.branches[branch] = commit
            strength = self._strength(found, commit, branch)
            if strength is Strength.NONE or found.guards.get(branch, nonce) != nonce:
                raise Conflict(f"the branch {branch} of {repository} is not that pin", advice="Use another name.")
            why = None if strength is Strength.GUARDED else "the repository takes no guards"
            return MadePin(repository=repository, commit=commit, branch=branch, strength=strength, why_plain=why)

    def pin_strength(self, repository: str, commit: str, *, branch: str) -> Strength:
        with self._reached(repository) as found:
            return self._strength(found, commit, branch)

    def unpin(self, repository: str, commit: str, *, branch: str, nonce: str, reason: str) -> None:
        with self._reached(repository) as found:
            if branch not in found.branches:
                return
            if found.guards.get(branch, nonce) != nonce:
                raise Refused(f"the guard of {branch} opens for another nonce", advice="Take the one that is recorded.")
            if self._strength(found, commit, branch) is Strength.NONE:
                raise Conflict(f"the branch {branch} is no pin of {commit[:12]} any more", advice="Look at what it is.")
            found.guards.pop(branch, None)
            found.released.add(branch)
            del found.branches[branch]

    def pins_seen(
        self, repository: str, pins: Sequence[PinAsked], *, tries: Collection[str] = ()
    ) -> Mapping[str, PinSeen]:
        with self._reached(repository) as found:
            self.listings += 1
            seen: dict[str, PinSeen] = {}
            for pin in pins:
                strength, head = self._strength(found, pin.commit, pin.branch), found.branches.get(pin.branch)
                if strength is Strength.GUARDED and not found.acting and tries:
                    found.guards.pop(pin.branch, None)
                    head = found.branches[pin.branch] = pin.commit
                    strength = Strength.PLAIN
                why = None if strength is Strength.GUARDED else "the repository takes no guards"
                tried = pin.branch in tries and strength is Strength.GUARDED
                seen[pin.branch] = PinSeen(strength=strength, head=head, why=why, tried=tried)
            return seen

    def readable(self, repository: str, commit: str, *, sample: int | None, seed: int) -> Sampled:
        with self._reached(repository) as found:
            tree = self._tree(found, repository, commit)
            paths = sorted(tree)
            chosen = paths if sample is None else evenly(paths, sample, chance=Random(seed))
            lost = tuple(path for path in chosen if tree[path] not in found.objects)
            return Sampled(lost=lost, read=len(chosen), of=len(paths), whole=True, seed=seed)

    def branch_at(self, repository: str, name: str, commit: str) -> None:
        with self._reached(repository) as found:
            self._tree(found, repository, commit)
            head = found.branches.setdefault(name, commit)
            if head != commit:
                raise Conflict(f"the branch {name} of {repository} is at {head[:12]}", advice="Use another name.")

    def delete_branch(self, repository: str, name: str, *, only_at: str) -> bool:
        with self._reached(repository) as found:
            if found.branches.get(name) != only_at or found.staged.get(name) or name in found.guards:
                return False
            del found.branches[name]
            return True

    def head(self, repository: str, branch: str) -> str | None:
        with self._reached(repository) as found:
            return found.branches.get(branch)

    def branches(self, repository: str, *, prefix: str = "") -> Mapping[str, str]:
        with self._reached(repository) as found:
            return {
                name: head
                for name, head in found.branches.items()
                if name.startswith(prefix) and not name.startswith(_HIDDEN)
            }

    def head_at(self, repository: str, branch: str, at: datetime) -> HeadAt:
        with self._reached(repository) as found:
            return history.head_at(self._walk(found, self.resolve(repository, branch).id), at)

    def move_branch(
        self, repository: str, branch: str, commit: str, *, message: str, only_at: str | None = None
    ) -> str:
        with self._reached(repository) as found:
            tree = self._tree(found, repository, commit)
            before = self.resolve(repository, branch)
            self._require_open(found, branch)
            if found.staged.get(branch):
                raise Refused(f"the branch {branch} has uncommitted changes", advice="Commit or reset them first.")
            if (before.message, before.metadata.get("restores")) == (message, commit):
                return before.id
            if only_at is not None and before.id != only_at:
                raise Conflict(f"the branch {branch} is at {before.id[:12]}", advice="Look at what was committed.")
            found.branches[branch] = self._add(
                found, dict(tree), parents=(before.id,), message=message, metadata={"restores": commit}
            )
            return found.branches[branch]

    def movable(self, repository: str, branch: str) -> str | None:
        with self._reached(repository) as found:
            if branch not in found.branches:
                return "there is no such branch"
            if found.staged.get(branch):
                return "it has uncommitted changes"
            return "it is a pin" if branch in found.guards else None

    def diff(self, repository: str, left: str, right: str, *, limit: int = 10_000) -> DataDiff:
        with self._reached(repository) as found:
            old, new = self._tree(found, repository, left), self._tree(found, repository, right)
            differing = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
            seen = differing[:limit]
            return DataDiff(
                added=sum(path not in old for path in seen),
                removed=sum(path not in new for path in seen),
                changed=sum(path in old and path in new for path in seen),
                complete=len(differing) <= limit,
                sample=tuple(seen[:10]),
            )

    def list(self, repository: str, commit: str, *, prefix: str = "") -> Iterator[tuple[str, int]]:
        with self._reached(repository) as found:
            tree = self._tree(found, repository, commit)
            rows = [(path, found.sizes[tree[path]]) for path in sorted(tree) if path.startswith(prefix)]
        return iter(rows)

    def read(self, repository: str, commit: str, path: str) -> Iterator[bytes]:
        with self._reached(repository) as found:
            tree = self._tree(found, repository, commit)
            if path not in tree:
                raise NotFound(f"{repository}@{commit[:12]} has no {path!r}", advice="List what it has.")
            data = found.objects.get(tree[path])
            if data is None:
                raise DataGone(
                    f"{path!r} in {repository}@{commit[:12]}: its bytes were collected",
                    advice="Take another data version.",
                    lost=(path,),
                )
        return (data[at : at + _CHUNK_BYTES] for at in range(0, len(data), _CHUNK_BYTES))

    def altered(self, repository: str, commit: str, *, limit: int) -> tuple[str, ...]:
        with self._reached(repository) as found:
            self._tree(found, repository, commit)
            return history.altered(islice(self._walk(found, commit), limit))

    # What an ordinary client of the server does

    def create(self, repository: str, *, branch: str = "main", guarding: bool = True) -> str:
        """A new repository with one empty commit; answers its id. guarding: whether its pins can guard themselves."""
        with self._lock:
            made = self._repositories[repository] = _Repository(guarding=guarding)
            made.branches[branch] = self._add(made, {}, parents=(), message="Repository created")
            return made.branches[branch]

    def actions(self, repository: str, *, on: bool) -> None:
        """Whether the server runs the repository's actions, pins' guards among them."""
        with self._reached(repository) as found:
            found.acting = on

    def rights(self, repository: str, *, write: bool) -> None:
        """Whether whoever lakemark is there may make branches."""
        with self._reached(repository) as found:
            found.writable = write

    def drop(self, repository: str) -> None:
        """The repository is deleted, with all it had; `create` makes another under its name."""
        with self._lock:
            del self._repositories[repository]

    def release(self, repository: str, branch: str) -> None:
        """Somebody opens a pin's guard by its marker and deletes it, past lakemark."""
        with self._reached(repository) as found:
            found.guards.pop(branch, None)
            found.released.add(branch)
            found.branches.pop(branch, None)

    def merge_into(self, repository: str, branch: str, commit: str) -> None:
        """A merge into a branch, which no guard stops."""
        with self._reached(repository) as found:
            found.guards.pop(branch, None)
            found.branches[branch] = commit

    def commit(self, repository: str, branch: str, changes: Mapping[str, bytes | None], *, message: str = "") -> str:
        """Commits `changes` (None deletes) with what was staged; answers the new head. Refused for a guarded pin."""
        with self._reached(repository) as found:
            self._require_open(found, branch)
            tree = dict(self._tree(found, repository, found.branches[branch]))
            for path, data in (found.staged.pop(branch, {}) | dict(changes)).items():
                if data is None:
                    tree.pop(path, None)
                else:
                    tree[path] = _store(found, data)
            parents = (found.branches[branch],)
            found.branches[branch] = self._add(found, tree, parents=parents, message=message or "Change")
            return found.branches[branch]

    def stage(self, repository: str, branch: str, path: str, data: bytes) -> None:
        """Writes without committing. Refused for a guarded pin."""
        with self._reached(repository) as found:
            self._require_open(found, branch)
            found.staged.setdefault(branch, {})[path] = data

    def set_branch(self, repository: str, name: str, commit: str | None) -> None:
        """Makes, resets or (None) deletes a branch. Refused for a guarded pin."""
        with self._reached(repository) as found:
            self._require_open(found, name)
            if commit is None:
                found.branches.pop(name, None)
                found.staged.pop(name, None)
            else:
                found.branches[name] = commit

    def tag(self, repository: str, name: str, commit: str) -> None:
        with self._reached(repository) as found:
            found.tags[name] = commit

    def collect_garbage(self, repository: str) -> int:
        """Takes away bytes that no branch's head uses, pins among the branches; answers how many objects went."""
        with self._reached(repository) as found:
            used = {name for head in found.branches.values() for name in found.trees[head].values()}
            gone = found.objects.keys() - used
            for name in gone:
                del found.objects[name]
            return len(gone)

    def lose(self, repository: str, commit: str, path: str) -> None:
        """Takes one object's bytes away, whoever uses them."""
        with self._reached(repository) as found:
            found.objects.pop(found.trees[commit][path], None)

    def all_branches(self, repository: str) -> dict[str, str]:
        """Name -> head, hidden ones among them."""
        with self._reached(repository) as found:
            return dict(found.branches)

    def _add(
        self,
        found: _Repository,
        tree: dict[str, str],
        *,
        parents: tuple[str, ...],
        message: str,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        at = self._now().replace(microsecond=0)
        meta_range, said = digest(dict(tree)), dict(metadata or {}) | {"serial": str(len(found.commits))}
        identity = commit_id(
            committer="memory",
            message=message,
            meta_range=meta_range,
            created_s=int(at.timestamp()),
            metadata=said,
            parents=parents,
        )
        found.trees[identity] = tree
        found.commits[identity] = DataCommit(
            id=identity,
            parents=parents,
            committer="memory",
            message=message,
            created_at=at,
            meta_range=meta_range,
            metadata=said,
        )
        return identity

    def _strength(self, found: _Repository, commit: str, branch: str) -> Strength:
        head = found.branches.get(branch)
        if head is None:
            return Strength.NONE
        if branch in found.guards and found.commits[head].parents == (commit,):
            return Strength.GUARDED
        return Strength.PLAIN if head == commit else Strength.NONE

    def _tree(self, found: _Repository, repository: str, commit: str) -> dict[str, str]:
        if not is_commit_id(commit):
            raise Usage(f"{commit!r} is not a full commit id", advice="Resolve it first.")
        if commit not in found.trees:
            raise NotFound(f"{repository} has no commit {commit[:12]}", advice="Is it of another repository?")
        return found.trees[commit]

    def _walk(self, found: _Repository, commit: str | None) -> Iterator[DataCommit]:
        """First parents, newest first."""
        while commit is not None:
            yield found.commits[commit]
            commit = next(iter(found.commits[commit].parents), None)

    def _require_open(self, found: _Repository, branch: str) -> None:
        if branch in found.guards:
            raise Refused(f"the pin {branch} guards itself", advice="Unpin it with its own nonce.")

    @contextmanager
    def _reached(self, repository: str) -> Iterator[_Repository]:
        with self._lock:
            patience: Patience | None = getattr(self._patience, "held", None)
            if patience is not None:
                if patience.left_seconds <= 0:
                    raise StoreUnavailable("not asked: it was too slow before", advice="The next pass asks again.")
                patience.left_seconds -= self.answer_seconds
            self.asked += 1
            if not self.reachable:
                raise StoreUnavailable("the data server does not answer", advice="Try again once it is back.")
            if repository not in self._repositories:
                raise NotFound(f"there is no data repository {repository!r}", advice="Create it, or check its name.")
            yield self._repositories[repository]


def _store(found: _Repository, data: bytes) -> str:
    name = sha256(data).hexdigest()
    found.objects[name] = data
    found.sizes[name] = len(data)
    return name
