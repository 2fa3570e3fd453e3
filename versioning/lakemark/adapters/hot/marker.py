"""What a hot tree remembers of itself: its record and manifest, and who the linked files were when they were hashed.

`<root>/.lakemark/sealed/<id>.json` is a tree's marker, written last and removed first:

    {"format": "lakemark.sealed/1", "tree": "run/300-0123456789ab", "record": {…}, "manifest": {…},
     "linked": {"model.pt": "<inode> <size> <mtime ns> <ctime ns>"},
     "entry": {"source": "/train/out/step-300", …}}

`entry`, which may be left out, is what the entry that commits it says besides: the tree of a process that died before it
appended that entry is committed from here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self

from lakemark.adapters.disk.proven_manifest import proven
from lakemark.errors import Corrupt
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.values.canonical import JSON, parse
from lakemark.model.values.fields import Fields
from lakemark.ports.store import Checkpoint

FORMAT: Final = "lakemark.sealed/1"


class Change(Enum):
    """Between two looks at a file: none; its names or rights only, as far as one can see; its bytes."""

    NONE = "none"
    TOUCHED = "touched"
    WRITTEN = "written"


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The device is left out: its number may change with a reboot."""

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)

    def change_to(self, now: FileIdentity) -> Change:
        # With ctime, which can't be set, an inode of another number is a mount that numbers anew, not another file.
        if (self.size_bytes, self.mtime_ns, self.ctime_ns) == (now.size_bytes, now.mtime_ns, now.ctime_ns):
            return Change.NONE
        # A link, a rename or a chmod moves ctime alone; a write moves mtime too, unless somebody sets it back: so it is read.
        same = (self.inode, self.size_bytes, self.mtime_ns) == (now.inode, now.size_bytes, now.mtime_ns)
        return Change.TOUCHED if same else Change.WRITTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A marker. `tree`: the tree's place below the root. `linked`: only of files that share the trainer's inode.

    entry: as `Checkpoint` has it.
    """

    record: Record
    manifest: Manifest
    tree: str
    linked: Mapping[str, FileIdentity] = field(default_factory=dict)
    entry: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(record=self.record, manifest=self.manifest, entry=self.entry)

    def to_bytes(self) -> bytes:
        value = {
            "format": FORMAT,
            "tree": self.tree,
            "record": self.record.as_json(),
            "manifest": self.manifest.as_json(),
            "linked": linked_json(self.linked),
            **({"entry": dict(self.entry)} if self.entry else {}),
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        try:
            read = Fields(parse(data), "a sealed tree's marker")
            read.format(FORMAT)
            record = Record.from_json(read.mapping("record"))
            return cls(
                record=record,
                manifest=proven(record, Manifest.from_json(read.mapping("manifest"))),
                tree=read.text("tree"),
                linked=linked_from(read.mapping("linked")),
                entry=read.mapping("entry"),
            )
        except ValueError as error:
            raise Corrupt(
                f"a sealed tree's marker can't be read: {error}",
                advice="Drop the replica and land or replicate the checkpoint again.",
            ) from error


def tree_of(record: Record) -> str:
    """`run/step-id12`."""
    return f"{record.run}/{record.step}-{record.id[:12]}"


def linked_json(linked: Mapping[str, FileIdentity]) -> dict[str, JSON]:
    """Numbers as text: nanoseconds do not fit the integers that every JSON reader keeps exact."""
    return {path: f"{who.inode} {who.size_bytes} {who.mtime_ns} {who.ctime_ns}" for path, who in linked.items()}


def linked_from(value: Mapping[str, JSON]) -> dict[str, FileIdentity]:
    """Reads `linked_json` back. Raises ValueError."""
    return {path: _identity(path, numbers) for path, numbers in value.items()}


def _identity(path: str, text: JSON) -> FileIdentity:
    """One file's numbers read back. Raises ValueError."""
    numbers = str(text).split()
    if len(numbers) != 4 or not all(number.lstrip("-").isdecimal() for number in numbers):  # noqa: PLR2004 - as many as it has
        message = f"the identity of {path!r} is {text!r}"
        raise ValueError(message)
    return FileIdentity(*map(int, numbers))
