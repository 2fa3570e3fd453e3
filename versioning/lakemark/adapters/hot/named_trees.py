"""The named trees of a hot tier and their markers: named tree first, withdrawn marker first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import (
    fsync_directory,
    locked,
    make_directories,
    open_regular,
    os_errors,
    read_regular,
    rename_new,
    write_atomic,
    write_new,
)
from lakemark.adapters.disk.pool import Buffers
from lakemark.adapters.disk.workbench import Workbench
from lakemark.adapters.hot.landing import digest_descriptor
from lakemark.adapters.hot.marker import Change, FileIdentity, Sealed, tree_of
from lakemark.adapters.hot.tree_files import glance, shared_now, steady_identity
from lakemark.errors import Corrupt, quoted
from lakemark.model.checkpoints.manifest import HEX64, File, Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.ports.store import Damage

TREE: Final = "tree"
"""A work place's tree, before it is named and after it was withdrawn."""
_MARKER: Final = "sealed.json"


class Shelf:
    """Trees lie below `root`, their markers in `inner`/sealed. Namings and withdrawals exclude each other by a flock."""

    def __init__(self, root: Path, inner: Path, bench: Workbench) -> None:
        self._root = root
        self._inner = inner
        self._sealed = inner / "sealed"
        self._recorded = inner / "recorded"
        self._bench = bench
        self._sizes: dict[str, int] = {}

    def make(self) -> None:
        make_directories(self._sealed)

    def marker(self, record: str) -> Path:
        return self._sealed / f"{record}.json"

    def find(self, record: str) -> Sealed | None:
        """Raises Corrupt where the marker can't be read."""
        with os_errors(self._root):
            try:
                data = read_regular(self.marker(record))
            except (FileNotFoundError, NotADirectoryError):
                return None
        sealed = Sealed.from_bytes(data)
        if sealed.record.id != record or sealed.tree != tree_of(sealed.record):
            raise Corrupt(
                f"the marker {record[:12]} is of another tree: {quoted(sealed.tree)}",
                advice="Somebody renamed or copied it: put the right one back, or drop the replica.",
            )
        return sealed

    def believed(self, record: Record, manifest: Manifest) -> tuple[Sealed | None, bool]:
        """What the marker says, and True; None where there is none.

        Of a damaged marker, what it should say, and False. Linked files are then taken as they are now, so their bytes have
        to be read before they count.
        """
        try:
            return self.find(record.id), True
        except Corrupt:
            # Without a marker nothing tells which files were linked: what has a second name is taken for it.
            tree = self._root / tree_of(record)
            with os_errors(tree):
                named = ((file.path, shared_now(tree / file.path)) for file in manifest.regular)
                linked = {path: who for path, who in named if who is not None}
            return Sealed(record=record, manifest=manifest, tree=tree_of(record), linked=linked), False

    def mark(self, sealed: Sealed) -> None:
        """Writes the marker of a tree whose bytes were all read and are right, where it can be written."""
        with suppress(OSError), locked(self._inner):
            write_atomic(self.marker(sealed.record.id), sealed.to_bytes())

    def records(self) -> tuple[str, ...]:
        with os_errors(self._sealed):
            names = [name.removesuffix(".json") for name in os.listdir(self._sealed)]
        return tuple(sorted(name for name in names if HEX64.fullmatch(name)))

    def note_recorded(self, records: Iterable[str]) -> None:
        """Without an fsync, as it follows every commit: a kill loses none, and after a power loss the next pass notes it."""
        for record in records:
            if not self.marker(record).exists():
                continue
            try:
                os.close(os.open(self._recorded / record, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            except FileNotFoundError:
                make_directories(self._recorded)
                os.close(os.open(self._recorded / record, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))

    def recorded(self) -> frozenset[str]:
        try:
            names = os.listdir(self._recorded)
        except FileNotFoundError:
            return frozenset()
        return frozenset(name for name in names if HEX64.fullmatch(name)) & frozenset(self.records())

    def sizes(self) -> dict[str, int]:
        """Bytes of each sealed tree by record; without those whose marker can't be read, which no landing may wait for.

        A record's size never changes, so each marker is read once by a process, however often room is asked for.
        """
        there = self.records()
        sizes = {record: self._sizes[record] for record in there if record in self._sizes}
        for record in there:
            with suppress(Corrupt):
                sealed = None if record in sizes else self.find(record)
                if sealed is not None:
                    sizes[record] = sealed.record.size_bytes
        self._sizes = dict(sizes)
        return sizes

    def tree(self, sealed: Sealed) -> Path:
        return self._root / sealed.tree

    def name(self, place: Path, sealed: Sealed, *, keep_sound: bool) -> bool:
        """Gives `place`'s tree its name, durably. What lies there goes, unless it may stay and looks sound: then False."""
        run = self._root / sealed.record.run
        aside = self._bench.begin()
        try:
            with locked(self._inner):
                old, marked = self.believed(sealed.record, sealed.manifest)
                if old is not None and marked and keep_sound and self._looks_sound(old):
                    return False
                self._withdraw(aside, sealed.record)
                make_directories(run)  # under the lock: a withdrawal removes an empty one
                # Beside its tree, before that gets its name: by it `undo` finds a tree that a kill left without a marker.
                write_new(place / _MARKER, sealed.to_bytes())
                fsync_directory(place)
                try:
                    rename_new(place / TREE, self.tree(sealed))
                    fsync_directory(run)
                    # After the tree: a marker that is in its place always has one.
                    os.rename(place / _MARKER, self.marker(sealed.record.id))
                    fsync_directory(self._sealed)
                except BaseException:
                    self._withdraw(place, sealed.record)
                    raise
        finally:
            self._bench.end(aside.name)
        return True

    def withdraw(self, place: Path, record: Record) -> None:
        """Moves marker, then tree, out of sight into `place`."""
        with locked(self._inner):
            self._withdraw(place, record)

    def undo(self, place: Path) -> None:
        """A naming or withdrawal that died between tree and marker: the tree without a marker joins `place`."""
        # The marker still here and its tree gone from here: the kill fell between the two renames of `name` or `_withdraw`.
        if not (place / _MARKER).exists() or (place / TREE).exists():
            return
        record = Sealed.from_bytes((place / _MARKER).read_bytes()).record
        with locked(self._inner):
            if not self.marker(record.id).exists():
                self._withdraw(place, record)

    def look(self, sealed: Sealed) -> tuple[Damage, ...]:
        """Linked files by their stamps; where only names or rights changed, their bytes, and then the stamps are renewed."""
        damage, fresh = [], {}
        files = {file.path: file for file in sealed.manifest.regular}
        for path, change in glance(self.tree(sealed), sealed.linked).items():
            place = self.tree(sealed) / path
            now = _reread(place, files[path]) if change is Change.TOUCHED else None
            if now is not None:
                fresh[path] = now
                continue
            missing = not os.path.lexists(place)
            why = "is missing" if missing else "was written since it was sealed"
            damage.append(Damage(path=path, why=why, missing=missing, suspect=not missing))
        self.renew(sealed, fresh)
        return tuple(damage)

    def renew(self, sealed: Sealed, fresh: Mapping[str, FileIdentity]) -> None:
        """Writes new identities of linked files into the marker, where it can be written.

        They only spare the next look a reading: a disk that takes nothing any more must not keep anybody from its bytes.
        """
        if not fresh:
            return
        with suppress(OSError), locked(self._inner):
            # Read anew under the lock: it may have been withdrawn or swapped since the caller read it.
            now = self.find(sealed.record.id)
            if now is not None:
                linked = {path: fresh.get(path, who) for path, who in now.linked.items()}
                write_atomic(self.marker(now.record.id), replace(now, linked=linked).to_bytes())

    def swap(self, sealed: Sealed, copies: Mapping[str, Path]) -> None:
        """Puts copies, on the same file system, in the place of linked files; from then on none of them is linked."""
        with locked(self._inner):
            for path, copy in copies.items():
                # Copies first: a kill before the marker is written leaves stamps that do not fit, and the bytes are read.
                os.rename(copy, self.tree(sealed) / path)
            for folder in {(self.tree(sealed) / path).parent for path in copies}:
                fsync_directory(folder)
            linked = {path: who for path, who in sealed.linked.items() if path not in copies}
            write_atomic(self.marker(sealed.record.id), replace(sealed, linked=linked).to_bytes())

    def _withdraw(self, place: Path, record: Record) -> None:
        """Out of sight durably: the marker, then the tree; nothing happens where they are gone. The caller holds the lock."""
        (self._recorded / record.id).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            # The marker first: from here on nobody counts on the tree.
            os.rename(self.marker(record.id), place / _MARKER)
            fsync_directory(self._sealed)
            fsync_directory(place)
        with suppress(FileNotFoundError):
            os.rename(self._root / tree_of(record), place / TREE)
            fsync_directory(self._root / record.run)
            with suppress(OSError):  # another tree of the run is there
                os.rmdir(self._root / record.run)

    def _looks_sound(self, sealed: Sealed) -> bool:
        """By sizes and stamps alone: a landing does not wait until an older tree was read."""
        tree = self.tree(sealed)
        try:
            sizes = all(os.lstat(tree / file.path).st_size == file.size_bytes for file in sealed.manifest.regular)
        except (FileNotFoundError, NotADirectoryError):
            return False
        # A second landing of the same files touched them: a link was made.
        return sizes and Change.WRITTEN not in glance(tree, sealed.linked).values()


def _reread(place: Path, file: File) -> FileIdentity | None:
    """The file's identity, if it kept it while its bytes were read and they are the manifest's."""
    # Before the first byte: a write while it is read moves the stamps.
    before = steady_identity(place)
    if before is None:
        return None
    descriptor = open_regular(place)
    try:
        right = digest_descriptor(descriptor, before.size_bytes, Buffers(1, 2**20)) == file.digest
        return before if right and FileIdentity.of(os.fstat(descriptor)) == before else None
    finally:
        os.close(descriptor)
