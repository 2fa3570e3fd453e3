"""What lets `git clone` + `dvc pull` bring a record's files back: checkpoint.dvc, .dvc/config and two .gitignore files.

The forms are DVC's: `outs` with the md5 of the `.dir` object, and a `files` list (of all files, sorted by path) only where
one is executable, since the `.dir` object can't say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lakemark.errors import Corrupt
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import lineage, usable

NAMES: Final = (".dvc", ".gitignore", "checkpoint.dvc")
# Entries that can change which record is best, or which tiers hold it.
MOVED_BY: Final = frozenset(
    {"replicated", "released", "verified", "quarantined", "pruned", "unpruned", "resumed", "rolled_back"}
)
_PRINTABLE: Final = range(0x20, 0x7F)
_NUMBER: Final = re.compile(r"[0-9]+(?:e[0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A DVC tier as a clone reaches it. url: `s3://bucket/prefix`, or an absolute path where `directory`."""

    name: str
    url: str
    endpoint: str | None = None
    region: str | None = None
    directory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointed:
    """A record and the DVC tiers that hold it, in the order of `remotes`."""

    record: str
    tiers: tuple[str, ...]


def candidates(state: RunState, remotes: Mapping[str, Remote]) -> Iterator[Pointed]:
    """Records a clone of the run's branch may point to, best first: of the current lineage, held by a DVC tier."""
    for found in lineage(state):
        held = holders(found, remotes)
        if held and usable(found):
            yield Pointed(record=found.record.id, tiers=held)


def holders(found: RecordState, remotes: Mapping[str, Remote]) -> tuple[str, ...]:
    """DVC tiers with a replica that the last look did not find damaged."""
    held = {place.tier for place, replica in found.replicas.items() if not replica.damaged}
    return tuple(name for name in remotes if name in held)


def files(
    manifest: Manifest, objects: Mapping[str, str], *, tiers: tuple[str, ...], remotes: Mapping[str, Remote]
) -> dict[str, bytes]:
    """Path -> bytes. `objects` as `Ledger.objects` answers; one that lacks a file's object is Corrupt."""
    # A directory or none: with an S3 default, even `dvc pull -r` of a directory fails where dvc-s3 is not installed.
    default = next((name for name in tiers if remotes[name].directory), None)
    return {
        # What DVC itself writes there: a clone's `git status` stays clean.
        ".dvc/.gitignore": b"/config.local\n/tmp\n/cache\n",
        ".dvc/config": _config(remotes, default).encode(),
        ".gitignore": b"/checkpoint\n",
        "checkpoint.dvc": _outs(manifest, objects).encode(),
    }


def _config(remotes: Mapping[str, Remote], default: str | None) -> str:
    lines = [] if default is None else ["[core]", f"    remote = {_plain(default)}"]
    for remote in remotes.values():
        lines.append(f"['remote \"{remote.name}\"']")
        lines.append(f"    url = {_plain(remote.url)}")
        if remote.endpoint is not None:
            lines.append(f"    endpointurl = {_plain(remote.endpoint)}")
        if remote.region is not None:
            lines.append(f"    region = {_plain(remote.region)}")
        # Without it DVC takes whatever bytes a remote gives, damaged ones too, and reports all well.
        lines.append("    verify = true")
    return "\n".join(lines) + "\n"


def _outs(manifest: Manifest, objects: Mapping[str, str]) -> str:
    regular = manifest.regular
    lines = [
        "outs:",
        f"- md5: {_object(objects, 'dir').removesuffix('.dir')}.dir",
        f"  size: {manifest.size_bytes}",
        f"  nfiles: {len(regular)}",
        "  hash: md5",
        "  path: checkpoint",
    ]
    # The list costs as much as the `.dir` object: it is left out where that says all.
    if any(file.executable for file in regular):
        lines.append("  files:")
        for file in regular:
            lines.append(f"  - relpath: {_scalar(file.path)}")
            lines.append(f"    md5: {_text(_object(objects, file.digest or ''))}")
            lines.append(f"    size: {file.size_bytes}")
            if file.executable:
                lines.append("    isexec: true")
    return "\n".join(lines) + "\n"


def _object(objects: Mapping[str, str], name: str) -> str:
    """The name of the object. Raises Corrupt where objects.json has none."""
    found = objects.get(name)
    if found is None:
        raise Corrupt(
            f"objects.json names no object for {name}", advice="Replicate the record again: `lakemark replicate`."
        )
    return found


def _plain(text: str) -> str:
    """A value for DVC's configuration: quoted where `#`, a comma, a quote or a space at an end would be misread."""
    if not set("#,'\"").intersection(text) and text == text.strip():
        return text
    return f"'{text}'" if '"' in text else f'"{text}"'


def _text(digest: str) -> str:
    """A digest as YAML text: one of digits alone, or of digits around one `e`, would be read as a number."""
    return f"'{digest}'" if _NUMBER.fullmatch(digest) else digest


def _scalar(text: str) -> str:
    """YAML's double-quoted form, in ASCII: control characters and line separators survive it."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    if code in _PRINTABLE:
        return character
    if code <= 0xFF:  # noqa: PLR2004 - the three widths YAML has
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004
