"""A node's hot tier on a `MemoryDisk`: sealed trees that may share files with the trainer's."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from lakemark.errors import Conflict, Corrupt, Incomplete, NoRoom, NotFound, Refused, Unsteady
from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.ledger.run import Place
from lakemark.model.values.canonical import JSON
from lakemark.ports import (
    Checkpoint,
    Damage,
    Expiry,
    Identity,
    KnownFile,
    Landed,
    Listing,
    Progress,
    Source,
    Stored,
    TierUsage,
)
from tests.support.memory.disk import Folder, Inode, Link, MemoryDisk, manifest_of
from tests.support.memory.landing import read_tree
from tests.support.memory.stores import all_missing, claimed, damage_of, kept_ledger, taken

Nodes: TypeAlias = dict[str, Inode | Link | Folder]
_INNER: Final = ".lakemark"


@dataclass(slots=True)
class _Landing:
    """Of a process that may have ended since; `linked`: what the shared files were when they were hashed."""

    owner: int
    nodes: Nodes
    linked: dict[str, KnownFile]


@dataclass(slots=True)
class _Sealed:
    checkpoint: Checkpoint
    linked: dict[str, KnownFile] = field(default_factory=dict)


@dataclass(slots=True)
class _Tier:
    """What outlives a process."""

    identity: Identity | None = None
    ledger: dict[str | None, bytes] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    landings: dict[str, _Landing] = field(default_factory=dict)
    sealed: dict[str, _Sealed] = field(default_factory=dict)
    alive: set[int] = field(default_factory=lambda: {0})
    processes: int = 0
    naming: int = 0


class MemoryHot:
    """`ports.HotStore` below `root` of `disk`.

    landing: `link` shares files that lie on `disk`, `copy` does not; directories of the real disk are copied. free_share:
    what the file system has left, [0, 1], to be set at will; below min_free_share nothing lands. free_bytes: likewise, above
    min_free, and spent by nothing.
    """

    tier_class: Final = "hot"
    kind: Final = "tree"

    def __init__(
        self,
        disk: MemoryDisk,
        *,
        name: str,
        node: str,
        domain: str | None = None,
        landing: str = "link",
        root: Path = Path("/hot"),
        min_free_share: float = 0.0,
    ) -> None:
        self.disk = disk
        self.name = name
        self.place = Place(tier=name, node=node)
        self.domain = domain or node
        self.landing = landing
        self.root = root
        self.min_free_share = min_free_share
        self.free_share = 1.0
        self.free_bytes = 2**62
        self._tier = _Tier()
        self._process = 0

    def restarted(self) -> MemoryHot:
        """The same tier, as the next process finds it: this one's landings have no owner any more."""
        made = MemoryHot(
            self.disk,
            name=self.name,
            node=self.place.node or "",
            domain=self.domain,
            landing=self.landing,
            root=self.root,
            min_free_share=self.min_free_share,
        )
        made.free_share, made.free_bytes, made._tier = self.free_share, self.free_bytes, self._tier
        with self.disk.lock:
            self._tier.alive.discard(self._process)
            self._tier.processes += 1
            made._process = self._tier.processes
            self._tier.alive.add(made._process)
        return made

    def identity(self) -> Identity | None:
        return self._tier.identity

    def claim(self, ledger: str, *, now: datetime) -> Identity:
        with self.disk.lock:
            fresh = Identity(id=secrets.token_hex(16), tier_class="hot", ledger=ledger, created_at=now)
            empty = not self.disk.names(self.root)
            self._tier.identity = claimed(self._tier.identity, fresh, name=self.name, empty=empty)
            self.disk.mkdir(self.root / _INNER)
            return self._tier.identity

    def land(
        self,
        source: Path,
        *,
        quiet_seconds: float,
        roles: Mapping[str, str],
        progress: Progress,
        members: Sequence[Path] = (),
        share: bool = True,
    ) -> Landed:
        if self.full():
            raise NoRoom(
                f"the disk of {self.name} has {self.free_share:.0%} free, less than min_free", advice="Make room there."
            )
        self._require_ours()
        read = read_tree(self.disk, source, members, quiet_seconds=quiet_seconds)
        nodes, shared, before = read.nodes, read.shared, read.files
        progress.expect("land", sum(known.size_bytes for known in before.values()))
        shared = shared and share
        if self.landing != "link" or not shared:
            nodes = {path: _copied(node) for path, node in nodes.items()}
        manifest = manifest_of(nodes, roles=dict(roles))
        if manifest.size_bytes > self.free_bytes:
            raise NoRoom(f"{self.name}: {self.free_bytes} bytes are free", advice="Make room there.")
        progress.advance(manifest.size_bytes)
        self._require_still(source, members, before)
        token = secrets.token_hex(8)
        linked = before if shared and self.landing == "link" else {}
        with self.disk.lock:
            self._tier.landings[token] = _Landing(self._process, nodes, dict(linked))
        newest = max(known.mtime_ns for known in before.values())
        digests = {file.path: file.digest or "" for file in manifest.regular}
        return Landed(
            token=token,
            manifest=manifest,
            linked=bool(linked),
            newest_mtime=self.disk.instant(newest),
            taken=tuple(replace(known, digest=digests.get(path, "")) for path, known in before.items()),
        )

    def adopt(
        self, landed: Landed, record: Record, *, entry: Mapping[str, JSON] | None = None, instead: bool = False
    ) -> bool:
        if record.content != landed.manifest.content:
            raise Conflict(
                f"the record {record.id[:12]} is of other contents than what landed", advice="Land it again."
            )
        with self.disk.lock:
            landing = self._tier.landings.pop(landed.token, None)
            if landing is None:
                raise NotFound(f"there is no landing {landed.token}", advice="Land it again.")
            if record.id in self._tier.sealed and not instead:
                return False
            checkpoint = Checkpoint(record=record, manifest=landed.manifest, entry=entry or {})
            self._name(checkpoint, landing.nodes)
            self._tier.sealed[record.id] = _Sealed(checkpoint, landing.linked)
            return True

    @contextmanager
    def naming(self) -> Iterator[None]:
        self._tier.naming += 1
        try:
            yield
        finally:
            self._tier.naming -= 1

    def settled(self) -> AbstractContextManager[bool]:
        return nullcontext(enter_result=not self._tier.naming)

    def discard(self, landed: Landed) -> None:
        self._tier.landings.pop(landed.token, None)

    def full(self, need_bytes: int = 0) -> bool:
        return self.free_share < self.min_free_share or need_bytes > self.free_bytes

    def clean(self) -> int:
        with self.disk.lock:
            dead = [token for token, found in self._tier.landings.items() if found.owner not in self._tier.alive]
            for token in dead:
                del self._tier.landings[token]
            return len(dead)

    def holds(self, record: str) -> bool:
        return record in self._tier.sealed

    def put(self, checkpoint: Checkpoint, source: Source, *, now: datetime, progress: Progress) -> Stored:
        self._require_ours()
        standing = self._tier.sealed.get(checkpoint.record.id)
        if standing is not None and not self.verify(checkpoint, progress=progress):
            return Stored(verified_at=now, proof="read_back", written_bytes=0, linked=bool(standing.linked))
        nodes: Nodes = {}
        for file in checkpoint.manifest.files:
            nodes[file.path] = _made(file, checkpoint.manifest, source)
            progress.advance(file.size_bytes)
        with self.disk.lock:
            self.drop(checkpoint, now=now)
            self._name(checkpoint, nodes)
            self._tier.sealed[checkpoint.record.id] = _Sealed(checkpoint)
        return Stored(verified_at=now, proof="read_back", written_bytes=checkpoint.manifest.size_bytes)

    def open(
        self, checkpoint: Checkpoint, file: File, *, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[BinaryIO]:
        data = self.disk.read(self.path(checkpoint.record) / file.path)
        return io.BytesIO(data[start:] if length is None else data[start : start + length])

    def verify(self, checkpoint: Checkpoint, *, progress: Progress) -> tuple[Damage, ...]:
        with self.disk.lock:
            sealed = self._tier.sealed.get(checkpoint.record.id)
            if sealed is None:
                return all_missing(checkpoint.manifest)
            found = [self._damage(sealed, file, checkpoint.manifest) for file in checkpoint.manifest.files]
            progress.advance(checkpoint.manifest.size_bytes)
            return tuple(damage for damage in found if damage is not None)

    def changed(self, record: str) -> tuple[Damage, ...]:
        with self.disk.lock:
            sealed = self._tier.sealed.get(record)
            if sealed is None:
                raise self._absent(record)
            tree = self._tree(sealed.checkpoint.record)
            return tuple(
                Damage(path=path, why="was written after it was sealed", suspect=True)
                for path, known in sealed.linked.items()
                if self.disk.inode(tree / path).known != known
            )

    def unshare(self, record: str, *, progress: Progress) -> bool:
        with self.disk.lock:
            sealed = self._tier.sealed.get(record)
            if sealed is None or not sealed.linked:
                return False
            if self.full():
                raise NoRoom(f"{self.name} has no room for copies", advice="Make room there.")
            damages = self.verify(sealed.checkpoint, progress=progress)
            if damages:
                raise Corrupt(f"{self.name}: {damages[0].path!r} {damages[0].why}", advice="Take another replica.")
            tree = self._tree(sealed.checkpoint.record)
            for path in sealed.linked:
                node = self.disk.inode(tree / path)
                self.disk.remove(tree / path)
                self.disk.write(tree / path, node.data, executable=node.executable)
            sealed.linked = {}
            return True

    def path(self, record: Record) -> Path:
        if not self.holds(record.id):
            raise NotFound(
                f"{self.name} of {self.place.node} does not hold {record.id[:12]}",
                advice="`lakemark show` says which replicas there are.",
            )
        return self._tree(record)

    def load(self, record: str) -> Checkpoint:
        sealed = self._tier.sealed.get(record)
        if sealed is None:
            raise self._absent(record)
        return sealed.checkpoint

    def drop(self, checkpoint: Checkpoint, *, now: datetime) -> int:
        with self.disk.lock:
            sealed = self._tier.sealed.pop(checkpoint.record.id, None)
            if sealed is None:
                return 0
            self.disk.remove(self._tree(checkpoint.record))
            return 0 if sealed.linked else sealed.checkpoint.manifest.size_bytes

    def due(self, *, now: datetime, grace: timedelta) -> bool:
        return False

    def collect(self, *, now: datetime, grace: timedelta, needed: Iterable[Checkpoint]) -> int:
        """Answers 0: sealed trees share no objects."""
        return 0

    def claimed(self) -> Listing:
        return self.records()

    def records(self) -> Listing:
        return Listing(records=tuple(sorted(self._tier.sealed)), complete=self._tier.identity is not None)

    def strangers(self) -> tuple[str, ...]:
        return ()

    def free_space_bytes(self) -> int | None:
        return self.usage().free_bytes

    def usage(self) -> TierUsage:
        used = sum(sealed.checkpoint.manifest.size_bytes for sealed in self._tier.sealed.values())
        return TierUsage(used_bytes=used, capacity_bytes=None, file_system_free_share=self.free_share)

    def expires(self) -> Expiry | None:
        return None

    def clock(self) -> datetime | None:
        return None

    def keep_ledger(self, bundle: BinaryIO, *, slot: str | None = None) -> None:
        bundle.seek(0)
        self._tier.ledger[slot] = bundle.read()

    def open_ledger(self, slot: str | None = None) -> BinaryIO:
        return kept_ledger(self._tier.ledger.get(slot), name=self.name)

    def ledger_slots(self) -> tuple[str, ...]:
        return tuple(sorted(slot for slot in self._tier.ledger if slot is not None))

    def note_recorded(self, records: Iterable[str]) -> None:
        self._tier.recorded.update(self._tier.sealed.keys() & set(records))

    def recorded(self) -> frozenset[str]:
        return frozenset(self._tier.recorded & self._tier.sealed.keys())

    def _absent(self, record: str) -> NotFound:
        return NotFound(f"{self.name} does not hold {record[:12]}", advice="See `lakemark ls`.")

    def _require_ours(self) -> None:
        if self._tier.identity is None:
            raise Refused(f"the place of {self.name} is no tier yet", advice="lakemark tier init " + self.name)

    def _require_still(self, source: Path, members: Sequence[Path], before: Mapping[str, KnownFile]) -> None:
        try:
            now = read_tree(self.disk, source, members, quiet_seconds=0).files
        except NotFound as error:
            raise Incomplete(f"{source} is gone: it vanished while it was landed", advice="Save it again.") from error
        for path in sorted(before.keys() | now.keys()):
            if before.get(path) != now.get(path):
                raise Unsteady(f"{path!r} changed while it was landed", advice="Let the trainer finish it.")

    def _name(self, checkpoint: Checkpoint, nodes: Nodes) -> None:
        """A tree without a marker is what a process left that ended between naming and marking."""
        tree = self._tree(checkpoint.record)
        self.disk.remove(tree)
        for path, node in nodes.items():
            if isinstance(node, Inode) and node.number <= 0:
                self.disk.write(tree / path, node.data, executable=node.executable)
            elif not self.disk.exists(tree / path):
                self.disk.place(tree / path, node)

    def _tree(self, record: Record) -> Path:
        return self.root / record.run / f"{record.step}-{record.id[:12]}"

    def _damage(self, sealed: _Sealed, file: File, manifest: Manifest) -> Damage | None:
        place = self._tree(sealed.checkpoint.record) / file.path
        if file.type is not FileType.FILE:
            here = self.disk.exists(place)
            return None if here else Damage(path=file.path, why="is missing", missing=True)
        node = self.disk.inode(place) if self.disk.exists(place) else None
        found = damage_of(None if node is None else node.data, file, manifest)
        shared = file.path in sealed.linked and node is not None
        if found is None and shared and node is not None:
            sealed.linked[file.path] = node.known
        return Damage(path=file.path, why="was overwritten", suspect=True) if found and shared else found


def _copied(node: Inode | Link | Folder) -> Inode | Link | Folder:
    """A file without a number is none of the disk's yet."""
    if isinstance(node, Inode):
        return Inode(0, node.data, node.mtime_ns, node.executable)
    return node


def _made(file: File, manifest: Manifest, source: Source) -> Inode | Link | Folder:
    if file.type is FileType.SYMLINK:
        return Link(str(file.target))
    if file.type is FileType.DIRECTORY:
        return Folder()
    return Inode(0, taken(source, file, manifest), 0, file.executable)
