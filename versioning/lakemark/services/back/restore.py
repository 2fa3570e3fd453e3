"""Restore: bring a checkpoint's files back to an empty directory, each from the nearest replica that has it right."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from lakemark.errors import LakemarkError, NoReplica, NotFound, Refused, SourceDamaged, StoreUnavailable, quoted
from lakemark.model.checkpoints.manifest import File, FileType, Manifest, Role
from lakemark.model.entries.reads import RESTORED, RestoredBody, RestoredFrom
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.measures import told
from lakemark.model.ledger.run import Place, RecordState, RunState
from lakemark.model.runs.whose import Known
from lakemark.model.values.names import printable
from lakemark.ports import Damage, Range, Restored, Site, Sparse
from lakemark.services.directories import watched_by
from lakemark.services.ledger import committed, opened, recorded, require_writable
from lakemark.services.saves.known_files import remember_as
from lakemark.services.saves.roles import Roles, require_words, roles_of
from lakemark.services.tiers.sources import Candidates, candidates, note_damage, where_else

_SMALL_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Files of which only what is wanted was fetched. The rest of them are holes, and their own digests can't be compared.

    Each part that was fetched was compared with its digest.
    """

    files: tuple[str, ...]
    bytes_fetched: int
    bytes_sparse: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRecord:
    """verified: every byte that was written was compared with the manifest.

    along: roles whose files came too, though nobody asked for them. mixed: roles that the files asked for hold besides.
    unrecorded: why damage that was met could not be appended to the ledger; nobody else knows of it then. seconds: it took.
    """

    found: RecordState
    restored: Restored
    roles: Roles
    verified: bool = True
    along: tuple[str, ...] = ()
    mixed: tuple[str, ...] = ()
    partial: Partial | None = None
    unrecorded: tuple[LakemarkError, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What of a checkpoint is to be restored. sparse: of these files only the bytes of `roles`."""

    manifest: Manifest
    roles: tuple[str, ...] = ()
    sparse: frozenset[str] = field(default_factory=frozenset)
    along: tuple[str, ...] = ()
    mixed: tuple[str, ...] = ()


def restore(
    site: Site, run: str, record: str, *, to: Path, tier: str | None = None, roles: Sequence[str] = ()
) -> RestoredRecord:
    """Brings `record`, or what of it is of `roles`, back to `to`. A replica that turns out wrong is recorded as damaged.

    That it was restored is history, too, but never in its way: where the ledger takes no entry, nothing says so.

    Raises NotFound, NoReplica, SourceDamaged (what is in reach has wrong bytes), StoreUnavailable, Refused (target not empty
    or watched, no space, roles in one file), Usage (unknown role).
    """
    found = recorded(opened(site, run), record)
    _require_unwatched(site, to)
    whole = site.ledger.manifest(run, record)
    wanted = chosen(site, whole, roles)
    unrecorded: list[LakemarkError] = []
    begun = site.seconds()
    restored = _brought(site, found, wanted, to=to, tier=tier, unrecorded=unrecorded)
    seconds = site.seconds() - begun
    _remember(site, found, wanted.manifest, to=to)
    body = RestoredBody(
        to=printable(to),
        roles=tuple(wanted.roles),
        sources=tuple(_source(name, files) for name, files in restored.files_by_place.items()),
        restored_seconds=told(seconds),
        size_bytes=restored.size_bytes,
    )
    tell_restored(site, found, body)
    partial = None
    if restored.sparse:
        fetched = sum(restored.sparse.values())
        total = sum(file.size_bytes for file in whole.regular if file.path in restored.sparse)
        partial = Partial(files=tuple(sorted(restored.sparse)), bytes_fetched=fetched, bytes_sparse=total - fetched)
    return RestoredRecord(
        found=found,
        restored=restored,
        roles=roles_of(whole, committed(site, found).notes or ()),
        along=wanted.along,
        mixed=wanted.mixed,
        partial=partial,
        unrecorded=tuple(unrecorded),
        seconds=seconds,
    )


def _require_unwatched(site: Site, to: Path) -> None:
    """Raises Refused: a trainer takes what lies in its directory for its own save, and so would a pass."""
    watched = watched_by(site, to)
    if watched is not None:
        run, directory = watched
        raise Refused(
            f"{quoted(str(to))} is watched: trainers {f'of {run} ' if run else ''}save in {quoted(str(directory))}",
            advice=f"To train on from it there: lakemark resume {run or 'RUN'} --to {directory}; else restore it elsewhere.",
        )


def _remember(site: Site, found: RecordState, manifest: Manifest, *, to: Path) -> None:
    """So that its files are known as the record's wherever somebody moves them. Never in the way of who needs them."""
    with suppress(LakemarkError):
        if not site.reads_only:
            remember_as(site, to, manifest, record=found.record.id, why=Known.RESTORED)


def _source(name: str, files: int) -> RestoredFrom:
    tier, _, node = name.partition("@")
    return RestoredFrom(tier=tier, node=node or None, files=files)


def tell_restored(site: Site, found: RecordState, body: RestoredBody) -> None:
    """Appends that a record was restored, if the ledger takes it. Never raises: its bytes are there already."""
    record = found.record
    if site.reads_only:
        return

    def decide(state: RunState) -> Draft:
        require_writable(state)
        return RESTORED.draft(body, timeline=record.timeline, record=record.id)

    with suppress(LakemarkError):
        sequence = site.ledger.run(record.run).sequence
        site.ledger.append(record.run, decide, site.stamp(f"restored:{record.id}:{site.node}:{sequence}"))


def restore_manifest(site: Site, found: RecordState, manifest: Manifest, *, to: Path) -> Restored:
    """`manifest` (the record's, or a part of it) into `to`. Replicas that turned out wrong are recorded as damaged."""
    return _brought(site, found, Chosen(manifest=manifest), to=to, tier=None, unrecorded=[])


def chosen(site: Site, manifest: Manifest, roles: Sequence[str]) -> Chosen:
    """What to restore for `roles`: all without any; files of these roles, with configuration; bytes where files mix them.

    Raises Usage for an unknown role, NotFound where it is not there, Refused where one file holds it with others.
    """
    require_words(roles, option="--role")
    if not roles:
        return Chosen(manifest=manifest)
    # Formats that keep all roles in the same data files say in an index whose bytes are where.
    indexes = site.recogniser.index_files(manifest)
    data = frozenset(path for paths in indexes.values() for path in paths)
    if data:
        files = [file for file in manifest.regular if file.path in data or _comes_along(file, roles, indexes)]
        along = _roles_of(files) - set(roles)
        return _picked(manifest, files, roles, along=along, sparse=data)
    files = [file for file in manifest.regular if file.role in roles]
    if not set(roles) <= _roles_of(files):
        _refuse(manifest, [role for role in roles if role not in _roles_of(files)])
    config = [file for file in manifest.regular if file.role == Role.CONFIG and Role.CONFIG not in roles]
    mixed = _inside(manifest) - _roles_of(manifest.regular) - {Role.OTHER, Role.CONFIG, Role.TRAINER}
    if mixed and len(files) + len(config) == len(manifest.regular):
        _refuse_mixed(manifest, roles, files)
    return _picked(manifest, [*files, *config], roles, along={file.role for file in config}, mixed=mixed)


def _picked(
    manifest: Manifest,
    files: Sequence[File],
    roles: Sequence[str],
    *,
    along: Collection[str] = (),
    mixed: Collection[str] = (),
    sparse: frozenset[str] = frozenset(),
) -> Chosen:
    return Chosen(
        manifest=replace(manifest, files=tuple(files)),
        roles=tuple(roles),
        sparse=sparse,
        along=tuple(sorted(map(str, along))),
        mixed=tuple(sorted(map(str, mixed))),
    )


def _comes_along(file: File, roles: Sequence[str], indexes: Collection[str]) -> bool:
    """Beside data that is taken apart: its index, what has a role that is wanted, and small files that describe it."""
    if file.path in indexes or file.role in roles or file.role == Role.CONFIG:
        return True
    return file.role == Role.OTHER and file.size_bytes <= _SMALL_BYTES


def _roles_of(files: Sequence[File]) -> set[str]:
    return {str(file.role) for file in files if file.type is FileType.FILE} - {Role.OTHER.value}


def _refuse(manifest: Manifest, lacking: Sequence[str]) -> None:
    """Says why no file is of these roles alone."""
    if not _inside(manifest).intersection(lacking):
        have = ", ".join(sorted(_roles_of(manifest.regular) | set(map(str, manifest.roles)))) or "none that is known"
        raise NotFound(
            f"no file has the role {', '.join(lacking)}; its roles are {have}", advice="Restore the whole checkpoint."
        )
    _refuse_mixed(manifest, lacking, [file for file in manifest.regular if file.role != Role.CONFIG])


def _inside(manifest: Manifest) -> set[str]:
    """Roles it holds, or may hold in a file that says none of its own."""
    told = all(file.role != Role.OTHER for file in manifest.regular)
    return {*map(str, manifest.roles), *(() if told else roles_of(manifest).possible)}


def _refuse_mixed(manifest: Manifest, roles: Sequence[str], files: Sequence[File]) -> None:
    """Raises Refused, naming the largest files that hold it with other state."""
    largest = sorted(files, key=lambda file: -file.size_bytes)
    shown = ", ".join(f"{file.path} ({file.size_bytes} bytes)" for file in largest[:3])
    more = f" and {len(largest) - 3} more" if len(largest) > 3 else ""  # noqa: PLR2004 - the three that were shown
    raise Refused(
        f"{', '.join(roles)} can't be had alone: {manifest.framework} keeps it with other state in {shown}{more}",
        advice=f"Restore all {manifest.size_bytes} bytes without --role, and take it out with the framework.",
    )


def _brought(
    site: Site, found: RecordState, wanted: Chosen, *, to: Path, tier: str | None, unrecorded: list[LakemarkError]
) -> Restored:
    """Raises as `restore`. Damage that was met is recorded in either case; what the ledger refused is in `unrecorded`."""
    source = candidates(site, found, only=tier)
    record, manifest = found.record, wanted.manifest
    site.progress.expect(f"restoring {record.run}@{record.step}", manifest.size_bytes)
    site.progress.step("restore.started")
    # What an interrupted restore left goes on only into the same part of the same record.
    tag = record.id if manifest.content == record.content else f"{record.id}-{manifest.content[:8]}"
    try:
        restored = _written(site, source, wanted, to=to, tag=tag)
    except (NoReplica, SourceDamaged, StoreUnavailable) as error:
        # Where one tier was asked for, why it was passed over says more than that nothing is left.
        if tier is not None and source.refusals:
            raise source.refusals[0] from None
        raise where_else(site, found, error, only=tier) from error
    finally:
        for place in dict.fromkeys(place for place, _ in source.damaged):
            paths = [path for where, path in source.damaged if where == place]
            damages = [Damage(path=path, why="is not what the manifest says") for path in paths]
            try:
                note_damage(site, found, place, damages)
            except LakemarkError as error:
                # Whoever restores needs the files, most of all while the ledger takes no entry.
                unrecorded.append(error)
    site.progress.step("restore.written")
    # One wrong reading is none of the replica's fault: what was wrong twice is damaged.
    return replace(restored, damaged=tuple(dict.fromkeys(source.damaged)))


def _written(site: Site, source: Candidates, wanted: Chosen, *, to: Path, tag: str) -> Restored:
    manifest = wanted.manifest
    if not wanted.sparse:
        return site.restorer.restore(to, manifest, source, tag=tag, progress=site.progress)
    apart = {str(file.role) for file in manifest.regular if file.path not in wanted.sparse}

    def ranges(tree: Path) -> Mapping[str, tuple[Range, ...]]:
        try:
            return site.recogniser.ranges(tree, manifest, wanted.roles)
        except NotFound:
            # All that is wanted may lie in files of its own; then nothing is taken out of the others.
            if apart.isdisjoint(wanted.roles):
                raise
            return {}

    sparse = Sparse(paths=wanted.sparse, wanted=ranges, fetch=source.part)
    tag = f"{tag}-{'-'.join(sorted(wanted.roles))}"
    return site.restorer.restore_parts(to, manifest, sparse, fetch=source, tag=tag, progress=site.progress)


def fastest(site: Site, found: RecordState) -> Place | None:
    """Where most of it would come from: the nearest sound replica in reach; None where there is none."""
    reachable = [
        place
        for place, replica in found.replicas.items()
        if replica.sound and place.tier in site.tiers and place.node in (None, site.node)
    ]
    order = {"hot": 0, "warm": 1, "cold": 2}
    return min(reachable, key=lambda place: order[site.tiers[place.tier].tier_class], default=None)
