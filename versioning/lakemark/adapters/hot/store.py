"""A hot tier: sealed directory trees on a node's fast disk.

<root>/lakemark-tier.json
<root>/<run>/<step>-<id12>/…            sealed trees
<root>/.lakemark/sealed/<id>.json       a tree's marker: written last, removed first
<root>/.lakemark/incoming/<token>/…     landings and removals under way, each held by its process
<root>/.lakemark/incoming.gate/.lock    held by who gives a tree a name, until an entry claims it
<root>/.lakemark/recorded/<id>          that some ledger has an entry of the tree
<root>/.lakemark/ledger.bundle          the ledger as it was a while ago, as a Git bundle
<root>/.lakemark/ledgers/<slot>.bundle  the same, as it was longer ago
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from lakemark.adapters.disk import copying, tier_file
from lakemark.adapters.disk.digests import VerifiedStream
from lakemark.adapters.disk.files import (
    as_ours_of_place,
    fsync_directory,
    make_directories,
    open_regular,
    os_errors,
    read_regular,
    write_new,
    write_once,
)
from lakemark.adapters.disk.free_space import Space
from lakemark.adapters.disk.pacing import Pace, paced
from lakemark.adapters.disk.pool import Buffers
from lakemark.adapters.disk.workbench import Workbench
from lakemark.adapters.hot.landing import WAYS, Way, land_tree
from lakemark.adapters.hot.marker import Sealed, linked_from, linked_json, tree_of
from lakemark.adapters.hot.named_trees import TREE, Shelf
from lakemark.adapters.hot.tree_files import read_tree, sealed_rights, write_tree
from lakemark.errors import Conflict, Corrupt, NoRoom, NotFound, Refused, TargetDamaged, quoted
from lakemark.model.checkpoints.manifest import File
from lakemark.model.checkpoints.record import Record
from lakemark.model.ledger.run import Place
from lakemark.model.values.canonical import JSON, parse
from lakemark.model.values.outside import ledger_slot
from lakemark.ports.hot import Landed
from lakemark.ports.store import (
    Checkpoint,
    Damage,
    Expiry,
    Identity,
    Listing,
    Source,
    Stored,
    TierUsage,
)
from lakemark.ports.work import Progress

T = TypeVar("T")
_INNER: Final = ".lakemark"
_LINKED: Final = "linked.json"
_LEDGER: Final = "ledger.bundle"
# The second one: drafts of an identity that another process is about to write, or died over.
_IGNORED: Final = ("lost+found", f".{tier_file.NAME}.")


class TreeStore:
    """Implements `ports.HotStore`.

    landing: `auto` (reflink, else hard link, else copy), `reflink`, `link` or `copy`. min_free: a share of the file
    system's bytes, or bytes; below it nothing lands. capacity_bytes: what sealed trees may hold together. domain: the
    node's own where None.
    """

    tier_class: Final = "hot"
    kind: Final = "tree"

    def __init__(
        self,
        root: Path,
        *,
        name: str,
        node: str,
        domain: str | None = None,
        landing: str = "auto",
        min_free: Fraction | int = Fraction(1, 10),
        capacity_bytes: int | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.root = Path(os.path.abspath(root))
        self.name = name
        self.place = Place(tier=name, node=node)
        self.domain = domain or node
        self._landing = landing if landing in WAYS else "auto"
        self._space = Space(self.root, min_free)
        self._capacity = capacity_bytes
        self._pace = pace
        self._bench = Workbench(self.root / _INNER / "incoming")
        self._shelf = Shelf(self.root, self.root / _INNER, self._bench)
        self._first: Identity | None = None

    # Identity

    def identity(self) -> Identity | None:
        try:
            data = read_regular(self.root / tier_file.NAME)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise as_ours_of_place(error, self.root) from error
        return tier_file.from_bytes(data, where=str(self.root))

    def claim(self, ledger: str, *, now: datetime) -> Identity:
        found = self.identity()
        with os_errors(self.root):
            if found is None:
                make_directories(self.root)
                self._require_empty()
                new = tier_file.new_identity("hot", ledger, now=now)
                # Then what is there counts: of two that claim the place at once, the first one owns it.
                write_once(self.root / tier_file.NAME, tier_file.to_bytes(new))
                found = self.identity() or new
            tier_file.require_owner(found, ledger, tier_class="hot", where=str(self.root))
            self._shelf.make()
        self._first = found
        return found

    # Landing

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
        self._require_ours()
        for path in members or (source,):
            self._require_apart(path)
        # Before anything is read; how much a copy takes is asked for once it is known what has to be copied.
        self._require_room(0)
        way = Way(landing=self._landing, quiet_seconds=quiet_seconds, roles=roles, room=self._require_room, share=share)
        with self._work() as place:
            landed = land_tree(source, place / TREE, way, progress=progress, members=members)
            # Links take no room on the disk but count as the tier's: `capacity` bounds what it holds, not what it wrote.
            self._require_capacity(landed.manifest.size_bytes)
            # On the disk, not in memory: `adopt` may be called by another process.
            write_new(place / _LINKED, json.dumps(linked_json(landed.linked)).encode())
        return Landed(
            token=place.name,
            manifest=landed.manifest,
            linked=bool(landed.linked),
            newest_mtime=datetime.fromtimestamp(landed.newest_mtime_ns / 1e9, UTC),
            taken=landed.taken,
        )

    def adopt(
        self, landed: Landed, record: Record, *, entry: Mapping[str, JSON] | None = None, instead: bool = False
    ) -> bool:
        if record.content != landed.manifest.content:
            raise Conflict(
                f"the record {record.id[:12]} is of other contents than what landed", advice="Land it again."
            )
        with os_errors(self.root):
            place = self._bench.find(landed.token)
            linked = linked_from(_mapping((place / _LINKED).read_bytes()))
            sealed = Sealed(
                record=record, manifest=landed.manifest, tree=tree_of(record), linked=linked, entry=entry or {}
            )
            new = self._shelf.name(place, sealed, keep_sound=not instead)
            self._bench.end(landed.token)
        return new

    @contextmanager
    def naming(self) -> Iterator[None]:
        with self._entered(self._bench.shared):
            yield

    @contextmanager
    def settled(self) -> Iterator[bool]:
        with self._entered(self._bench.alone) as settled:
            yield settled

    def discard(self, landed: Landed) -> None:
        with os_errors(self.root):
            self._bench.end(landed.token)

    def clean(self) -> int:
        count = 0
        with os_errors(self.root):
            for place in self._bench.dead():
                self._shelf.undo(place)
                self._bench.end(place.name)
                count += 1
        return count

    # Copies

    def holds(self, record: str) -> bool:
        with os_errors(self.root):
            return self._shelf.marker(record).exists()

    def put(self, checkpoint: Checkpoint, source: Source, *, now: datetime, progress: Progress) -> Stored:
        self._require_ours()
        sealed, _ = self._shelf.believed(checkpoint.record, checkpoint.manifest)
        if sealed is not None and not self.verify(checkpoint, progress=progress):
            return Stored(verified_at=now, proof="read_back", written_bytes=0, linked=bool(sealed.linked))
        manifest = checkpoint.manifest
        self._require_room(manifest.size_bytes, replaced=checkpoint.record.id)
        with self._work() as place:
            write_tree(place / TREE, manifest, source, progress=progress)
            # From the disk, before the tree has its name: a replica that is recorded is one that was read back.
            look = read_tree(place / TREE, manifest, {}, progress=progress)
            if look.damage:
                raise TargetDamaged(
                    f"{quoted(look.damage[0].path)} {look.damage[0].why} right after it was written",
                    advice="The disk does not keep what it is given: check its health before you go on.",
                )
            tree = tree_of(checkpoint.record)
            new = Sealed(record=checkpoint.record, manifest=manifest, tree=tree, entry=checkpoint.entry)
            # What lies there was found wrong, or is not there.
            self._shelf.name(place, new, keep_sound=False)
            self._bench.end(place.name)
        return Stored(verified_at=now, proof="read_back", written_bytes=manifest.size_bytes)

    def open(self, checkpoint: Checkpoint, file: File, *, start: int = 0, length: int | None = None) -> BinaryIO:  # noqa: ARG002
        place = self.path(checkpoint.record) / file.path
        with os_errors(place):
            stream = os.fdopen(open_regular(place), "rb", buffering=2**20)
            stream.seek(start)
        return stream if self._pace is None else paced(stream, self._pace)

    def path(self, record: Record) -> Path:
        place = self.root / tree_of(record)
        with os_errors(place):
            there = self.holds(record.id) and place.is_dir()
        if not there:
            raise NotFound(
                f"{self.name} of {self.place.node} does not hold {record.id[:12]}",
                advice="`lakemark show` says which replicas there are.",
            )
        return place

    def verify(self, checkpoint: Checkpoint, *, progress: Progress) -> tuple[Damage, ...]:
        sealed, marked = self._shelf.believed(checkpoint.record, checkpoint.manifest)
        if sealed is None:
            return _all_missing(checkpoint)
        with os_errors(self.root):
            look = read_tree(self._shelf.tree(sealed), checkpoint.manifest, sealed.linked, progress=progress)
            if not marked and not look.damage:
                self._shelf.mark(sealed)
            self._shelf.renew(sealed, look.fresh)
        return tuple(look.damage)

    def changed(self, record: str) -> tuple[Damage, ...]:
        try:
            sealed = self._shelf.find(record)
        except Corrupt:
            # Without a marker nothing tells how its files were: only their bytes do.
            return ()
        if sealed is None:
            raise self._absent(record)
        with os_errors(self.root):
            return self._shelf.look(sealed)

    def unshare(self, record: str, *, progress: Progress) -> bool:
        self._require_ours()
        sealed = self._shelf.find(record)
        if sealed is None or not sealed.linked:
            return False
        shared = [file for file in sealed.manifest.regular if file.path in sealed.linked]
        self._space.require(sum(file.size_bytes for file in shared))
        progress.expect("copy", sum(file.size_bytes for file in shared))
        with self._work() as place:
            copies = {}
            for number, file in enumerate(shared):
                copies[file.path] = self._copy(sealed, file, place / str(number))
                progress.advance(file.size_bytes)
            self._shelf.swap(sealed, copies)
            self._bench.end(place.name)
        return True

    # Removal and listing

    def drop(self, checkpoint: Checkpoint, *, now: datetime) -> int:  # noqa: ARG002 - hot needs no grace
        self._require_ours()
        with os_errors(self.root):
            place = self._bench.begin()
            # Out of sight in two renames; removing may take long, and whoever is killed over it leaves it to `clean`.
            self._shelf.withdraw(place, checkpoint.record)
            freed = _freed_by_removing(place)
            self._bench.end(place.name)
        return freed

    def due(self, *, now: datetime, grace: timedelta) -> bool:  # noqa: ARG002 - what is dropped goes at once
        return False

    def collect(self, *, now: datetime, grace: timedelta, needed: object) -> int:  # noqa: ARG002 - nothing is shared
        """Answers 0: a hot tree shares no objects. Only finishes removals that were interrupted."""
        self._require_ours()
        self.clean()
        return 0

    def claimed(self) -> Listing:
        return self.records()

    def strangers(self) -> tuple[str, ...]:
        return ()

    def records(self) -> Listing:
        if self.identity() is None:
            return Listing(records=(), complete=False)
        return Listing(records=self._shelf.records(), complete=True)

    def load(self, record: str) -> Checkpoint:
        """The record and manifest that the tier itself keeps: what a lost ledger is rebuilt from. Raises NotFound."""
        sealed = self._shelf.find(record)
        if sealed is None:
            raise self._absent(record)
        return sealed.checkpoint

    def note_recorded(self, records: Iterable[str]) -> None:
        with os_errors(self.root):
            self._shelf.note_recorded(records)

    def recorded(self) -> frozenset[str]:
        with os_errors(self.root):
            return self._shelf.recorded()

    def full(self, need_bytes: int = 0) -> bool:
        if self._space.full(need_bytes):
            return True
        if self._capacity is None:
            return False
        sizes = self._shelf.sizes().values()
        # Full is where no further one of the largest size fits: a tier that takes small ones only stops the next save.
        return sum(sizes) + max(need_bytes, max(sizes, default=1)) > self._capacity

    def usage(self) -> TierUsage:
        total, free = self._space.totals()
        return TierUsage(
            used_bytes=sum(self._shelf.sizes().values()) if self.identity() is not None else 0,
            capacity_bytes=self._capacity or total,
            free_bytes=free,
            file_system_free_share=free / total if total else None,
        )

    def free_space_bytes(self) -> int | None:
        return self._space.totals()[1]

    def expires(self) -> Expiry | None:
        return None

    def clock(self) -> datetime | None:
        return None

    def keep_ledger(self, bundle: BinaryIO, *, slot: str | None = None) -> None:
        self._require_ours()
        name = _ledger_name(slot)
        size_bytes = bundle.seek(0, os.SEEK_END)
        bundle.seek(0)
        with self._work() as place:
            buffer = Buffers(1, copying.CHUNK_BYTES).acquire()
            copying.write_stream(place / _LEDGER, bundle, size_bytes, buffer=buffer, mode=0o444)
            target = self.root / _INNER / name
            make_directories(target.parent)
            # Over the older copy in one step: there is always a whole one.
            os.rename(place / _LEDGER, target)
            fsync_directory(target.parent)
            self._bench.end(place.name)

    def open_ledger(self, slot: str | None = None) -> BinaryIO:
        place = self.root / _INNER / _ledger_name(slot)
        with os_errors(place):
            return os.fdopen(open_regular(place), "rb", buffering=2**20)

    def ledger_slots(self) -> tuple[str, ...]:
        with os_errors(self.root):
            try:
                names = os.listdir(self.root / _INNER / "ledgers")
            except FileNotFoundError:
                names = []
        return tuple(sorted(slot for name in names if (slot := ledger_slot(name)) is not None))

    # Inside

    def _absent(self, record: str) -> NotFound:
        return NotFound(f"{self.name} does not hold {record[:12]}", advice="See `lakemark ls`.")

    @contextmanager
    def _work(self) -> Iterator[Path]:
        """A place on the bench, ended on any error."""
        with os_errors(self.root):
            place = self._bench.begin()
            try:
                yield place
            except BaseException:
                self._bench.end(place.name)
                raise

    @contextmanager
    def _entered(self, gate: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
        """Through the gate; that it can't be opened is an error of ours, what happens inside is the caller's."""
        with ExitStack() as held:
            with os_errors(self.root):
                passed = held.enter_context(gate())
            yield passed

    def _copy(self, sealed: Sealed, file: File, target: Path) -> Path:
        place = self._shelf.tree(sealed) / file.path
        with os.fdopen(open_regular(place), "rb", buffering=0) as stream:
            checked = VerifiedStream(stream, file, part_size_bytes=sealed.manifest.part_size_bytes)
            buffer = Buffers(1, copying.CHUNK_BYTES).acquire()
            mode = sealed_rights(file.rights)
            copying.write_stream(target, checked, file.size_bytes, buffer=buffer, mode=mode)
        return target

    def _require_room(self, size_bytes: int, *, replaced: str | None = None) -> None:
        self._space.require(size_bytes)
        self._require_capacity(size_bytes, replaced=replaced)

    def _require_capacity(self, size_bytes: int, *, replaced: str | None = None) -> None:
        """`replaced`: the record whose tree makes way, if it is there. Raises NoRoom."""
        if self._capacity is None:
            return
        used = sum(size for record, size in self._shelf.sizes().items() if record != replaced)
        if used + size_bytes > self._capacity:
            raise NoRoom(
                f"{self.name}: {used} bytes are used, {size_bytes} are asked for and `capacity` is {self._capacity}",
                advice="Release or prune checkpoints, or raise the tier's `capacity`.",
            )

    def _require_ours(self) -> None:
        self._first = tier_file.require_same(self.identity(), self._first, where=str(self.root))

    def _require_empty(self) -> None:
        """Raises Refused, naming the first thing that lies there and is none of ours."""
        for name in sorted(os.listdir(self.root)):
            if not name.startswith(_IGNORED):
                raise tier_file.refuse_foreign(str(self.root), found=name)

    def _require_apart(self, source: Path) -> None:
        """Raises Refused where one lies in the other: a landing would find the tier's trees, or a drop the trainer's."""
        # By what links lead to: a trainer that saves into the tier through a link would have its files removed with a tree.
        inside = Path(os.path.realpath(source))
        root = Path(os.path.realpath(self.root))
        if inside.is_relative_to(root) or root.is_relative_to(inside):
            raise Refused(
                f"{quoted(str(source))} and the hot tier {quoted(str(self.root))} lie in one another",
                advice="Let the trainer save beside the tier, on the same file system.",
            )


def _all_missing(checkpoint: Checkpoint) -> tuple[Damage, ...]:
    return tuple(Damage(path=file.path, why="is missing", missing=True) for file in checkpoint.manifest.files)


def _freed_by_removing(place: Path) -> int:
    """Bytes of files that have no other name."""
    freed = 0
    for folder, _, names in os.walk(place / TREE):
        for name in names:
            found = os.lstat(os.path.join(folder, name))
            # One that the trainer still has under another name frees nothing.
            freed += found.st_size if found.st_nlink == 1 and stat.S_ISREG(found.st_mode) else 0
    return freed


def _mapping(data: bytes) -> dict[str, JSON]:
    value = parse(data)
    return dict(value) if isinstance(value, dict) else {}


def _ledger_name(slot: str | None) -> str:
    return _LEDGER if slot is None else f"ledgers/{slot}.bundle"
