"""Names and formats of a DVC tier. `dvc pull` reads `files/`; `lakemark/` is ours.

lakemark-tier.json
files/md5/ab/cdef…                  a file's bytes, named by their md5
files/md5/ab/cdef….dir              which files a checkpoint has: written last, removed first
lakemark/records/<id>.json          a claim: record, manifest and object names; written before the bytes
lakemark/parts/<…>.json             the same of one node's part
lakemark/dropped/<when>-<id>.json   object names of a record that was dropped; written before its claim goes
lakemark/condemned/<md5>[.dir]      since when nothing has used the object
lakemark/condemned/<…>-<16 hex>     that a pass, which has this number, is removing the object: see `dvc_going`
lakemark/ledger.bundle              the ledger as it was a while ago, as a Git bundle
lakemark/ledgers/<slot>.bundle      the same, as it was longer ago
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from lakemark.adapters.proven import proven
from lakemark.errors import Corrupt, NameTaken
from lakemark.model import outside
from lakemark.model.canonical import JSON, parse
from lakemark.model.checkpoint import File, Manifest
from lakemark.model.fields import Fields
from lakemark.model.instants import to_text
from lakemark.model.record import Record
from lakemark.ports.store import Checkpoint

OBJECTS: Final = "files/md5/"
RECORDS: Final = "lakemark/records/"
PARTS: Final = "lakemark/parts/"
DROPPED: Final = "lakemark/dropped/"
CONDEMNED: Final = "lakemark/condemned/"
LEDGERS: Final = "lakemark/ledgers/"
LEDGER: Final = "lakemark/ledger.bundle"
DIR: Final = ".dir"
CLAIM: Final = "lakemark.tier-record/1"
DROP: Final = "lakemark.dropped/1"
MARK: Final = "lakemark.condemned/1"
_WHEN: Final = "%Y%m%dT%H%M%S%fZ"


def ledger_key(slot: str | None) -> str:
    """Of the newest copy of the ledger, or of one kept beside it."""
    return LEDGER if slot is None else f"{LEDGERS}{slot}.bundle"


def object_key(name: str) -> str:
    """`name`: 32 hex digits of md5, with `.dir` for a directory object."""
    return f"{OBJECTS}{name[:2]}/{name[2:]}"


def object_name(key: str) -> str | None:
    """The object's name; None for a key that is not one."""
    name = key.removeprefix(OBJECTS).replace("/", "", 1)
    digits = name.removesuffix(DIR)
    right = len(digits) == 32 and not set(digits) - set("0123456789abcdef")  # noqa: PLR2004 - an md5
    return name if right and object_key(name) == key else None


def claim_key(record: str) -> str:
    """Of the record's full id."""
    return f"{RECORDS}{record}.json"


def claimed_record(key: str) -> str:
    """The id of the record whose claim has this key."""
    return key.removeprefix(RECORDS).removesuffix(".json")


def drop_key(record: str, at: datetime) -> str:
    """Where it is noted that the record was dropped then; in order of time."""
    return f"{DROPPED}{at.astimezone(UTC).strftime(_WHEN)}-{record}.json"


def dropped_at(key: str) -> datetime | None:
    """When the drop was that is noted under this key. None for a stranger, which is no note of ours."""
    when, dash, record = key.removeprefix(DROPPED).partition("-")
    try:
        outside.digest(record.removesuffix(".json"))
        at = datetime.strptime(when, _WHEN).replace(tzinfo=UTC)
    except ValueError:
        return None
    return at if dash and drop_key(record.removesuffix(".json"), at) == key else None


def dropped_record(key: str) -> str | None:
    """The id of the record whose drop is noted under this key. None as above."""
    return None if dropped_at(key) is None else key.removesuffix(".json").rpartition("-")[2]


def drop_bytes(record: str, objects: Mapping[str, str], at: datetime) -> bytes:
    """The note of a drop. `used_names` reads it."""
    value = {"format": DROP, "record": record, "dropped_at": to_text(at), "objects": dict(objects)}
    return json.dumps(value, separators=(",", ":")).encode()


def mark_key(name: str) -> str:
    """Where the object's condemnation is noted."""
    return CONDEMNED + name


def going_key(name: str, by: str) -> str:
    """Where it is noted that the pass `by` is removing the object."""
    return f"{CONDEMNED}{name}-{by}"


def marks(keys: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """Key under `condemned` -> which object it is about, and whether it notes a removal under way. Strangers are left out."""
    found: dict[str, tuple[str, bool]] = {}
    for key in keys:
        with suppress(ValueError):
            found[key] = outside.object_mark(key.removeprefix(CONDEMNED))
    return found


def dir_bytes(manifest: Manifest, objects: Mapping[str, str]) -> bytes:
    """The directory object, byte for byte as DVC makes it: in order of the path's text."""
    rows = [{"md5": objects[str(file.digest)], "relpath": file.path} for file in manifest.regular]
    return json.dumps(sorted(rows, key=lambda row: row["relpath"]), sort_keys=True).encode()


def dir_name(data: bytes) -> str:
    """The name of a directory object with these bytes."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest() + DIR


def dir_members(data: bytes) -> frozenset[str]:
    """Object names a directory object lists. Raises ValueError."""
    rows = parse(data)
    if not isinstance(rows, list):
        message = "a directory object is not a list"
        raise ValueError(message)
    return frozenset(Fields(row, "a directory object's row").text("md5") for row in rows)


def distinct(checkpoint: Checkpoint, objects: Mapping[str, str]) -> list[tuple[str, File]]:
    """(object name, file), one for each digest of the manifest that has a name: what there is to read or write."""
    once = {str(file.digest): file for file in reversed(checkpoint.manifest.regular)}
    return [(objects[digest], file) for digest, file in once.items() if digest in objects]


def size_bytes(files: Collection[tuple[str, File]]) -> int:
    """Of the objects, each counted once."""
    return sum({name: file.size_bytes for name, file in files}.values())


def require_own_names(checkpoint: Checkpoint, objects: Mapping[str, str], *, where: str) -> None:
    """Raises NameTaken where two files with different bytes would be one object."""
    seen: dict[str, File] = {}
    for name, file in distinct(checkpoint, objects):
        other = seen.setdefault(name, file)
        if other is not file:
            raise name_taken(name, file, where=where, by=f"{other.path!r} of the same checkpoint")


def name_taken(name: str, file: File, *, where: str, by: str) -> NameTaken:
    """Other bytes lie under the name that the file would have."""
    return NameTaken(
        f"{where} can't keep {file.path!r}: its MD5 {name} is that of {by}, whose bytes are others",
        advice="It stays where it is. Keep it in a tier without that other file, or a copy of your own: lakemark restore …",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a tier keeps of a checkpoint: enough to rebuild a lost ledger, and to know which objects are in use."""

    record: Record
    manifest: Manifest
    objects: Mapping[str, str]
    claimed_at: datetime

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(record=self.record, manifest=self.manifest, objects=self.objects)

    def require_of(self, record: str, *, key: str) -> None:
        """Raises Corrupt unless it is that record's, its manifest that of the id, and its names those of all its files.

        A claim may have been swapped with another's, or thinned: that is seen before a name of it is used.
        """
        digests = {str(file.digest) for file in self.manifest.regular}
        wrong = None
        if self.record.id != record:
            wrong = f"is that of {self.record.id[:12]}"
        elif self.manifest.content != self.record.content:
            wrong = "has another manifest than its record"
        elif not digests <= self.objects.keys():
            wrong = f"has no name for {len(digests - self.objects.keys())} of its files"
        elif not all(object_name(object_key(self.objects[digest])) for digest in digests):
            wrong = "has names that are no object's"
        elif self.objects.get("dir") != dir_name(dir_bytes(self.manifest, self.objects)):
            wrong = "has names that are not those of its directory object"
        if wrong:
            raise Corrupt(f"{key} {wrong}", advice="Replicate that checkpoint to the tier anew: it is written again.")

    def to_bytes(self) -> bytes:
        value = {
            "format": CLAIM,
            "claimed_at": to_text(self.claimed_at),
            "objects": dict(self.objects),
            "record": self.record.as_json(),
            "manifest": self.manifest.as_json(),
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        try:
            read = Fields(parse(data), key)
            read.format(CLAIM)
            record = Record.from_json(read.mapping("record"))
            return cls(
                record=record,
                manifest=proven(record, Manifest.from_json(read.mapping("manifest"))),
                objects=_texts(read.mapping("objects")),
                claimed_at=read.instant("claimed_at"),
            )
        except ValueError as error:
            raise _unreadable(key, error) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An object nothing has used since `condemned_at`. going: its removal is under way; versions before 0.2 say it so."""

    condemned_at: datetime
    going: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps({"format": MARK, "condemned_at": to_text(self.condemned_at), "going": self.going}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, key: str) -> Self:
        try:
            read = Fields(parse(data), key)
            read.format(MARK)
            return cls(
                condemned_at=read.instant("condemned_at"),
                going=read.flag("going", default=False),
            )
        except ValueError as error:
            raise _unreadable(key, error) from error


def used_names(data: bytes, *, key: str) -> frozenset[str]:
    """Object names in the `objects` of a claim, of a record or of a part, or of a drop's note. Raises Corrupt."""
    try:
        return frozenset(_texts(Fields(parse(data), key).mapping("objects")).values())
    except ValueError as error:
        raise _unreadable(key, error) from error


def _texts(value: Mapping[str, JSON]) -> dict[str, str]:
    if not all(isinstance(name, str) for name in value.values()):
        message = "an object name is not text"
        raise ValueError(message)
    return {key: str(name) for key, name in value.items()}


def _unreadable(key: str, error: ValueError) -> Corrupt:
    advice = "Nothing is deleted from the tier until it is whole again: replicate that checkpoint anew."
    if key.startswith((DROPPED, CONDEMNED)):
        advice = "Nothing is deleted from the tier until you have removed it; what it alone tells of may stay there for good."
    return Corrupt(f"{key} can't be read: {error}", advice=advice)
