"""`replicate`, `release`, `restore`, `resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lakemark.cli.commits import record_answer
from lakemark.cli.options import Reason, Whole
from lakemark.cli.output import pairs, plain, short, size
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Refused, Usage
from lakemark.model.views import data_view

if TYPE_CHECKING:
    from lakemark.model.ledger import RecordState

_MANY = Parameter(consume_multiple=True)


def replicate(record: str, /, *, to: str, dry_run: bool = False) -> Answer:
    """Add a verified replica in a tier: copy, read back, record.

    Parameters
    ----------
    record: str
        RECORD.
    to: str
        The tier.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.replicate import replicate as add_replica
    from lakemark.services.sources import nearest

    here = session()
    found = here.history.found(record, now=here.now)
    target = here.site.store(to)
    run, identity = found.record.run, found.record.id
    if dry_run:
        standing = found.replicas.get(target.place)
        if standing is not None and standing.sound:
            return would(f"change nothing: {_shown(found)} has a sound replica in {to}", record=identity)
        source = nearest(here.site, found)[0][1].name
        return would(f"copy {_shown(found)}, {size(found.record.size_bytes)}, from {source} to {to}", record=identity)
    add_replica(here.site, run, identity, to=to)
    return record_answer(here, identity, run)


def release(
    record: str,
    /,
    *,
    from_: Annotated[str, Parameter(name="--from")],
    reason: Reason = "asked for",
    dry_run: bool = False,
) -> Answer:
    """Drop a replica from a tier. Slower ones in other failure domains are read back in full first.

    Parameters
    ----------
    record: str
        RECORD.
    from_: str
        The tier.
    reason: str
        Why; it stays in the history.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.release import release as drop_replica

    here = session()
    found = here.history.found(record, now=here.now)
    store = here.site.store(from_)
    run, identity = found.record.run, found.record.id
    if dry_run:
        others = sorted({place.tier for place, one in found.replicas.items() if one.sound and place != store.place})
        if store.place not in found.replicas:
            return would(f"raise NotFound: {_shown(found)} has no replica in {from_}", record=identity)
        backed = f"read {', '.join(others)} back, then " if others else "raise Refused: there is no other replica to "
        return would(f"{backed}drop {_shown(found)} from {from_}", record=identity)
    drop_replica(here.site, run, identity, tier=from_, reason=reason)
    return record_answer(here, identity, run)


def restore(
    record: str,
    /,
    *,
    to: Path,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    role: Annotated[tuple[str, ...], _MANY] = (),
    part: str | None = None,
    dry_run: bool = False,
) -> Answer:
    """Bring a checkpoint's files back to an empty directory; every byte is compared with the manifest.

    Parameters
    ----------
    record: str
        RECORD.
    to: Path
        A directory that is absent or empty, or our own interrupted restore.
    from_: str
        From this tier only; else from the nearest replica that has each file right.
    role: tuple[str, ...]
        Only files of these roles.
    part: str
        The part of this node; this version keeps checkpoints of one part.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.restore import chosen
    from lakemark.services.restore import restore as bring_back
    from lakemark.services.sources import nearest

    here = session()
    if part is not None:
        raise Usage("--part: this version keeps checkpoints of one part", advice="Leave --part out.")
    found = here.history.found(record, now=here.now)
    run, identity = found.record.run, found.record.id
    where = to.absolute()
    if dry_run:
        manifest = chosen(here.site.ledger.manifest(run, identity), role)
        source = nearest(here.site, found, only=from_)[0][1].name
        if where.exists() and (not where.is_dir() or any(where.iterdir())):
            raise Refused(f"{where} is not empty", advice="Restore to a directory that is absent or empty.")
        return would(f"restore {_shown(found)}, {size(manifest.size_bytes)}, from {source} to {where}", record=identity)
    begun = here.site.seconds()
    done = bring_back(here.site, run, identity, to=where, tier=from_, roles=role)
    seconds = round(here.site.seconds() - begun, 3)
    for place, path in done.restored.damaged:
        here.warn(f"{path} was damaged in {place.tier}; it came from elsewhere")
    sources = [_source(name, files) for name, files in done.restored.files_by_place.items()]
    document = {
        "record": identity,
        "path": str(done.restored.path),
        "sources": sources,
        "size_bytes": done.restored.size_bytes,
        "restored_seconds": seconds,
        "verified": done.verified,
    }
    told = ", ".join(f"{one['files']} file(s) from {one['tier']}" for one in sources)
    lines = [
        f"{_shown(found)} is in {plain(done.restored.path)}",
        f"{size(done.restored.size_bytes)} in {seconds:g} s, {told}",
    ]
    return Answer(document=document, lines=[*lines, "every byte was compared with the manifest"])


def resume(
    run: str,
    /,
    *,
    to: Path,
    record: str | None = None,
    job: str | None = None,
    world: Whole | None = None,
    dry_run: bool = False,
) -> Answer:
    """Make a run's directory ready to train on: the newest resumable record in it, later steps moved aside.

    Parameters
    ----------
    run: str
        The run.
    to: Path
        The directory in which the trainer saves.
    record: str
        RECORD; an older one than the newest needs a rollback where approval is required.
    job: str
        The scheduler's job id: the same job decides the same.
    world: int
        How many processes the job has; checkpoints of one part serve any number.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.resume import resume as make_ready

    here = session()
    if world is not None and world < 1:
        raise Usage(f"--world {world} is not 1 or more", advice="Give the number of processes.")
    name = here.history.name(run)
    chosen = here.history.found(record, now=here.now) if record else None
    if chosen is not None and chosen.record.run != name:
        raise Usage(f"{_shown(chosen)} is not of {name}", advice="Open another run with --parent to go on from it.")
    where = to.absolute()
    if dry_run:
        return _would_resume(here, name, where, chosen)
    done = make_ready(here.site, name, to=where, record=chosen.record.id if chosen else None, job=job)
    document: dict[str, Any] = {
        "record": done.found.record.id,
        "step": done.found.record.step,
        "timeline": done.timeline,
        "path": str(done.path),
        "data": [{**data_view(ref), "uri": ref.uri} for ref in done.data],
        "run_file": str(done.run_file),
        "moved_aside": [str(path) for path in done.moved_aside],
        "attempt": done.attempt,
    }
    lines = pairs(
        [
            ("ready", f"{_shown(done.found)} in {done.path}" + ("" if done.changed else " (it was already)")),
            ("timeline", str(done.timeline)),
            *(("data", ref.uri) for ref in done.data),
            ("run file", done.run_file),
            *(("moved aside", path) for path in done.moved_aside),
        ]
    )
    return Answer(document=document, lines=lines)


def _would_resume(here: Session, run: str, to: Path, chosen: RecordState | None) -> Answer:
    from lakemark.services.resume import directory_name, newest_resumable

    found = chosen or newest_resumable(here.site.ledger.run(run))
    path = to / directory_name(here.site, found)
    later = [one.path for one in here.site.recogniser.find(to) if one.step is not None and one.step > found.record.step]
    said = [f"put {_shown(found)} at {path}, if it is not there", *(f"move {one} aside" for one in later)]
    said.append(f"write {here.site.run_file(run)}")
    return would(*said, record=found.record.id, step=found.record.step)


def _source(name: str, files: int) -> dict[str, Any]:
    tier, _, node = name.partition("@")
    return {"tier": tier, "node": node or None, "files": files}


def _shown(found: RecordState) -> str:
    return f"{found.record.run}@{found.record.step} ({short(found.record.id)})"
