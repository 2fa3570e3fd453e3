"""Restore: bring a checkpoint's files back to an empty directory, each from the nearest replica that has it right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lakemark.errors import NoReplica, NotFound, Usage
from lakemark.model.checkpoint import FileType, Manifest, Role
from lakemark.model.ledger import Place, RecordState
from lakemark.ports import Damage, Restored, Site
from lakemark.services.appending import opened, recorded
from lakemark.services.sources import candidates, note_damage


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRecord:
    """verified: every byte was compared with the manifest while it was written."""

    found: RecordState
    restored: Restored
    verified: bool = True


def restore(
    site: Site, run: str, record: str, *, to: Path, tier: str | None = None, roles: Sequence[str] = ()
) -> RestoredRecord:
    """Brings `record`, or its files of `roles`, back to `to`. A replica that turns out wrong is recorded as damaged.

    Raises NotFound, NoReplica, Refused (target not empty, no space), Usage (unknown role).
    """
    found = recorded(opened(site, run), record)
    manifest = chosen(site.ledger.manifest(run, record), roles)
    restored = restore_manifest(site, found, manifest, to=to, tier=tier)
    return RestoredRecord(found=found, restored=restored)


def restore_manifest(
    site: Site, found: RecordState, manifest: Manifest, *, to: Path, tier: str | None = None
) -> Restored:
    """`manifest` (the record's, or a part of it) into `to`. Replicas that turned out wrong are recorded as damaged."""
    source = candidates(site, found, only=tier)
    record = found.record
    site.progress.expect(f"restoring {record.run}@{record.step}", manifest.size_bytes)
    site.progress.step("restore.started")
    tag = record.id if manifest.content == record.content else f"{record.id}-{manifest.content[:8]}"
    try:
        restored = site.workspace.restore(to, manifest, source, tag=tag, progress=site.progress)
    except NoReplica:
        if tier is not None and source.refusals:
            raise source.refusals[0] from None
        raise
    finally:
        for place in dict.fromkeys(place for place, _ in source.damaged):
            paths = [path for where, path in source.damaged if where == place]
            note_damage(site, found, place, [Damage(path=path, why="is not what the manifest says") for path in paths])
    site.progress.step("restore.written")
    return restored


def chosen(manifest: Manifest, roles: Sequence[str]) -> Manifest:
    """Only the files of `roles`; all of them without any. Raises Usage for an unknown role, NotFound where none has it."""
    if not roles:
        return manifest
    wrong = [role for role in roles if role not in set(Role)]
    if wrong:
        raise Usage(f"--role {wrong[0]!r} is not a role", advice=f"Roles are {', '.join(Role)}.")
    files = tuple(file for file in manifest.files if file.type is FileType.FILE and file.role in roles)
    if not files:
        have = ", ".join(sorted({file.role for file in manifest.regular})) or "none"
        raise NotFound(
            f"no file has the role {', '.join(roles)}; its roles are {have}", advice="Restore the whole checkpoint."
        )
    return replace(manifest, files=files)


def fastest(site: Site, found: RecordState) -> Place | None:
    """Where most of it would come from: the nearest sound replica in reach; None where there is none."""
    reachable = [
        place
        for place, replica in found.replicas.items()
        if replica.sound and place.tier in site.tiers and place.node in (None, site.node)
    ]
    order = {"hot": 0, "warm": 1, "cold": 2}
    return min(reachable, key=lambda place: order[site.tiers[place.tier].tier_class], default=None)
