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
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from lakemark.errors import Corrupt, NameTaken
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.values import outside
from lakemark.model.values.canonical import JSON, parse
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import to_text
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
_PART: Final = re.compile(r"[0-9a-f]{8}-[0-9]+-p[0-9]+\.json", re.ASCII)
_WHEN: Final = "%Y%m%dT%H%M%S%fZ"


def ledger_key(slot: str | None) -> str:
    """Of the newest copy of the ledger, or of one kept beside it."""
    return LEDGER if slot is None else f"{LEDGERS}{slot}.bundle"


def object_key(name: str) -> str:
    """`name`: 32 hex digits of md5, with `.dir` for a directory object."""
    return f"{OBJECTS}{name[:2]}/{name[2:]}"


def object_name(key: str) -> str | None:
    """The object's name; None for a key that is not one."""
    try:
        name = outside.object_name(key.removeprefix(OBJECTS).replace("/", "", 1))
    except ValueError:
        return None
    # There and back: a key in any other spelling was not made by us, and must not be removed as if it was.
    return name if object_key(name) == key else None


def claim_key(record: str) -> str:
    """Of the record's full id."""
    return f"{RECORDS}{record}.json"


def claimed_record(key: str) -> str | None:
    """The id of the record whose claim has this key. None for a stranger, which is no claim of ours."""
    try:
        record = outside.digest(key.removeprefix(RECORDS).removesuffix(".json"))
    except ValueError:
        return None
    return record if claim_key(record) == key else None


def is_part(key: str) -> bool:
    """Whether the key is that of one node's part: `<attempt8>-<step>-p<ordinal>.json`."""
    return _PART.fullmatch(key.removeprefix(PARTS)) is not None


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
    # By the path as one text: with its parts compared one by one, `dvc status` calls a fresh checkout modified.
    rows = [{"md5": objects[str(file.digest)], "relpath": file.path} for file in manifest.regular]
    return json.dumps(sorted(rows, key=lambda row: row["relpath"]), sort_keys=True).encode()


def dir_name(data: bytes) -> str:
    """The name of a directory object with these bytes."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest() + DIR


def dir_members(data: bytes) -> frozenset[str]:
    """Object names a directory object lists. Raises ValueError, also where one is no object's name."""
    rows = parse(data)
    if not isinstance(rows, list):
        message = "a directory object is not a list"
        raise ValueError(message)
    return frozenset(outside.md5(Fields(row, "a directory object's row").text("md5")) for row in rows)


def distinct(checkpoint: Checkpoint, objects: Mapping[str, str]) -> list[tuple[str, File]]:
    """(object name, file), one for each digest of the manifest that has a name: what there is to read or write."""
    # Reversed, since the last one stays: of files with the same bytes the manifest's first stands for all.
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
            found = cls(
                record=Record.from_json(read.mapping("record")),
                manifest=Manifest.from_json(read.mapping("manifest")),
                objects=_objects(read.mapping("objects")),
                claimed_at=read.instant("claimed_at"),
            )
            found._require_whole(key)
        except ValueError as error:
            raise _unreadable(key, error) from error
        return found

    def _require_whole(self, key: str) -> None:
        """Raises ValueError for another record's claim, or one that something was taken out of."""
        if key.startswith(RECORDS):
            _require_owner(key, self.record)
        if self.manifest.content != self.record.content:
            raise ValueError("its manifest is not its record's")
        _require_all(self.objects, (str(file.digest) for file in self.manifest.regular))
        if dir_name(dir_bytes(self.manifest, self.objects)) != self.objects["dir"]:
            raise ValueError("its object names are not its manifest's")


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
    """Object names in the `objects` of a claim, of a record or of a part, or of a drop's note.

    Raises Corrupt, also for a claim that is another record's or does not name objects for all that its manifest has.
    """
    try:
        read = Fields(parse(data), key)
        objects = read.mapping("objects")
        if key.startswith(RECORDS):
            _require_owner(key, Record.from_json(read.mapping("record")))
            _require_all(_objects(objects), _digests(read.mapping("manifest")))
        return frozenset(outside.object_name(name) for name in objects.values())
    except ValueError as error:
        raise _unreadable(key, error) from error


def _objects(value: Mapping[str, JSON]) -> dict[str, str]:
    """File digest -> md5, and `dir` -> directory object, each in exactly its form: keys are made of them. Raises ValueError."""
    return {
        key if key == "dir" else outside.digest(key): (outside.directory_object if key == "dir" else outside.md5)(name)
        for key, name in value.items()
    }


def _require_owner(key: str, record: Record) -> None:
    """Raises ValueError for a record that the key is not named after."""
    if record.id != claimed_record(key):
        raise ValueError(f"it is of the record {record.id[:12]}")


def _require_all(objects: Mapping[str, str], digests: Iterable[str]) -> None:
    """Raises ValueError where a digest, or the directory, has no object's name."""
    missing = {"dir", *digests} - objects.keys()
    if missing:
        raise ValueError(f"it names no object for {min(missing)}")


def _digests(manifest: Mapping[str, JSON]) -> Iterator[str]:
    """Without the cost of making a manifest of it: a tier may have a hundred thousand."""
    files = manifest.get("files")
    for row in files if isinstance(files, list) else ():
        digest = row.get("digest") if isinstance(row, dict) else None
        if digest is not None:
            yield outside.digest(digest)


def _unreadable(key: str, error: ValueError) -> Corrupt:
    advice = "Nothing is deleted from the tier until it is whole again: replicate that checkpoint anew."
    if key.startswith((DROPPED, CONDEMNED)):
        advice = "Nothing is deleted from the tier until you have removed it; what it alone tells of may stay there for good."
    return Corrupt(f"{key} can't be read: {error}", advice=advice)
